/* Recurrent layers: over the words of the sources, and a step of the hypotheses. */
#include "operations.h"

/* A layer of one direction over the words of every source. */
typedef struct {
    int out, input_gates; /* buffers */
    const linear_t *linear; /* of the state */
    int backwards, column;  /* of the output */
    int is_lstm;            /* else a GRU */
} layer_t;

/* Goes on with every source that has a word at this position: one product for all. */
static void recur(run_t *run, const layer_t *layer) {
    const kernels_t *kernels = run->model->kernels;
    int64_t gates = width_of(run, layer->input_gates), width = gates / (layer->is_lstm ? 4 : 3);
    int64_t num_sources = run->request->num_sources, longest = run->request->longest_source;
    int64_t product = aligned(kernels->scratch(layer->linear, (long)num_sources));
    char *memory = scratch_of(run, product + 4 * num_sources * (3 * width + gates) + 8 * num_sources);
    int64_t *active = (int64_t *)(memory + product);
    float *hidden = (float *)(active + num_sources), *cell = hidden + num_sources * width;
    float *joined = cell + num_sources * width, *state_gates = joined + num_sources * width;
    memset(hidden, 0, (size_t)(2 * num_sources * width) * 4);
    for (int64_t position = 0; position < longest; position++) {
        int64_t count = 0;
        for (int64_t source = 0; source < num_sources; source++)
            if (position < run->request->lengths[source]) {
                memcpy(joined + count * width, hidden + source * width, (size_t)width * 4);
                active[count++] = source;
            }
        multiply(run, layer->linear, joined, count, state_gates, NO_ACTIVATION, memory);
        for (int64_t i = 0; i < count; i++) {
            int64_t source = active[i], length = run->request->lengths[source];
            int64_t word = run->words.first[source] + (layer->backwards ? length - 1 - position : position);
            const float *input = row_of(run, layer->input_gates, word);
            float *state = hidden + source * width, *from_state = state_gates + i * gates;
            if (layer->is_lstm) {
                kernels->add_scaled(from_state, input, 1, (long)gates);
                kernels->lstm(from_state, state, cell + source * width, (long)width);
            } else {
                kernels->gru(input, from_state, state, state, (long)width);
            }
            memcpy(row_of(run, layer->out, word) + layer->column, state, (size_t)width * 4);
        }
    }
}

void lstm_words(run_t *run, const operation_t *op) {
    layer_t layer = {OUT_OF(op), op->slots[LSTM_WORDS_gates], run->model->linears + op->slots[LSTM_WORDS_map],
                     op->slots[LSTM_WORDS_backwards], op->slots[LSTM_WORDS_column], 1};
    recur(run, &layer);
}

void gru_words(run_t *run, const operation_t *op) {
    layer_t layer = {OUT_OF(op), op->slots[GRU_WORDS_gates], run->model->linears + op->slots[GRU_WORDS_map],
                     op->slots[GRU_WORDS_backwards], op->slots[GRU_WORDS_column], 0};
    recur(run, &layer);
}

void lstm_step(run_t *run, const operation_t *op) {
    int64_t rows = num_rows(run, space_of(run, OUT_OF(op))), width = width_of(run, OUT_OF(op));
    for (int64_t row = 0; row < rows; row++)
        run->model->kernels->lstm(row_of(run, op->slots[LSTM_STEP_gates], row), row_of(run, OUT_OF(op), row),
                                  row_of(run, op->slots[LSTM_STEP_cell], row), (long)width);
}

void gru_step(run_t *run, const operation_t *op) {
    int64_t rows = num_rows(run, space_of(run, OUT_OF(op))), width = width_of(run, OUT_OF(op));
    for (int64_t row = 0; row < rows; row++)
        run->model->kernels->gru(row_of(run, op->slots[GRU_STEP_from_input], row),
                                 row_of(run, op->slots[GRU_STEP_from_state], row),
                                 row_of(run, op->slots[GRU_STEP_state], row), row_of(run, OUT_OF(op), row), (long)width);
}

/* The row that holds the state of the step before: in a search, the row itself. Where all positions of a given target are
 * rows, it is the row before; for the first token, the row itself, which is zero. */
static int64_t row_before(const run_t *run, int64_t row) {
    return run->rows.position && run->rows.position[row] ? row - 1 : row;
}

void ssru_step(run_t *run, const operation_t *op) {
    int gates = op->slots[SSRU_gates], state = op->slots[SSRU_state];
    for (int64_t row = 0; row < run->rows.count; row++)
        run->model->kernels->ssru(row_of(run, gates, row), row_of(run, state, row_before(run, row)),
                                  row_of(run, state, row), row_of(run, OUT_OF(op), row), (long)width_of(run, state));
}

void mean_past(run_t *run, const operation_t *op) {
    int64_t width = width_of(run, OUT_OF(op));
    for (int64_t row = 0; row < run->rows.count; row++) {
        const float *input = row_of(run, op->slots[MEAN_PAST_source], row);
        const float *before = row_of(run, op->slots[MEAN_PAST_state], row_before(run, row));
        float *sum = row_of(run, op->slots[MEAN_PAST_state], row), *mean = row_of(run, OUT_OF(op), row);
        int64_t position = run->rows.position ? run->rows.position[row] : run->rows.step;
        for (int64_t i = 0; i < width; i++) {
            sum[i] = before[i] + input[i];
            mean[i] = sum[i] / (float)(position + 1);
        }
    }
}
