/* The programs' operations: small ones here, the others in attention.c, recurrent.c, routing.c and logits.c. */
#include "operations.h"

#include <math.h>

/* ---- linear maps */

typedef struct {
    const kernels_t *kernels;
    const linear_t *linear;
    const float *x;
    int64_t rows;
    float *y;
    int activation;
    const void *rounded;
} product_t;

static void multiply_blocks(void *context, int64_t first, int64_t end, int thread) {
    const product_t *p = context;
    (void)thread;
    p->kernels->multiply(p->linear, p->x, (long)p->rows, p->y, p->activation, p->rounded, (long)first, (long)end);
}

void multiply(run_t *run, const linear_t *linear, const float *x, int64_t rows, float *y, int activation, void *memory) {
    product_t product = {run->model->kernels, linear, x, rows, y, activation, memory};
    product.kernels->round_inputs(linear, x, (long)rows, memory);
    int64_t blocks = product.kernels->num_blocks(linear);
    if (blocks)
        team_share(run->team, blocks, linear->outputs / blocks * linear->inputs * rows, multiply_blocks, &product);
}

/* Rows that are rounded twice at once, at most. */
#define MAX_ROUNDED_ROWS 256

/* Multiplies the rounded rows, and then their rounded residuals, by an int8 map: little of the rows' precision is lost. */
static void multiply_twice(run_t *run, const linear_t *linear, const float *x, int64_t rows, float *y) {
    const kernels_t *kernels = run->model->kernels;
    int64_t max_rows = rows < MAX_ROUNDED_ROWS ? rows : MAX_ROUNDED_ROWS;
    int64_t rounded = aligned(kernels->scratch(linear, (long)max_rows)), residuals = max_rows * linear->inputs * 4;
    char *memory = scratch_of(run, rounded + residuals + max_rows * linear->outputs * 4);
    for (int64_t first = 0; first < rows; first += MAX_ROUNDED_ROWS, x += MAX_ROUNDED_ROWS * linear->inputs) {
        int64_t count = rows - first < MAX_ROUNDED_ROWS ? rows - first : MAX_ROUNDED_ROWS;
        float *residual = (float *)(memory + rounded), *addend = (float *)(memory + rounded + residuals);
        multiply(run, linear, x, count, y, NO_ACTIVATION, memory);
        kernels->subtract_rounded(linear, x, (long)count, memory, residual);
        multiply(run, linear, residual, count, addend, NO_ACTIVATION, memory);
        for (int64_t row = 0; row < count; row++, y += linear->outputs, addend += linear->outputs) {
            kernels->add_scaled(y, addend, 1, linear->outputs);
            kernels->add_scaled(y, linear->bias, -1, linear->outputs); /* which was added twice */
        }
    }
}

static inline void map_by(run_t *run, const operation_t *op, const linear_t *linear, const float *x, int64_t rows, float *y) {
    if (op->slots[LINEAR_twice] && linear->int8) {
        multiply_twice(run, linear, x, rows, y);
        return;
    }
    void *memory = scratch_of(run, run->model->kernels->scratch(linear, (long)rows));
    multiply(run, linear, x, rows, y, op->slots[LINEAR_activation], memory);
}

/* Writes the logits of each row's unshared candidates, from `y` on. */
static inline void map_unshared(run_t *run, const operation_t *op, const float *x, float *y) {
    const shortlist_t *shortlist = &run->logits.shortlist;
    for (int64_t row = 0, end; row < run->rows.count; row = end) {
        int64_t source = run->rows.source[row];
        const linear_t *unshared = &shortlist->lists[source].unshared;
        for (end = row + 1; end < run->rows.count && run->rows.source[end] == source;) end++;
        map_by(run, op, unshared, x + row * unshared->inputs, end - row, y);
        for (int64_t i = row; i < end; i++, y += unshared->outputs) shortlist->unshared_logits[i] = y;
    }
}

void map_rows(run_t *run, const operation_t *op, const float *x, int64_t rows, float *y) {
    int is_shortened = run->request->candidates && OUT_OF(op) == run->model->logits;
    const shortlist_t *shortlist = &run->logits.shortlist;
    const linear_t *linear =
        is_shortened ? &shortlist->shared : packed_map_of(run->model, run->model->linears + op->slots[LINEAR_map]);
    if (!linear) longjmp(run->failed, NO_MEMORY);
    if (run->model->observer) run->model->observer(op->slots[LINEAR_map], x, rows);
    if (find_best_tokens(run, op, linear, x, rows)) return;
    map_by(run, op, linear, x, rows, y);
    if (is_shortened && has_split_lists(run)) map_unshared(run, op, x, y + rows * linear->outputs);
}

/* ---- small operations */

static void embed(run_t *run, const operation_t *op) {
    int of_words = space_of(run, OUT_OF(op)) == OF_WORDS, positions_at = op->slots[EMBED_positions];
    int64_t width = width_of(run, OUT_OF(op)), count = num_rows(run, space_of(run, OUT_OF(op)));
    const vector_t *table = run->model->vectors + op->slots[EMBED_table];
    const float *positions = positions_at < 0 ? NULL : vector_of(run, positions_at);
    const int64_t *tokens = of_words ? run->request->words : run->rows.tokens;
    const int64_t *row_positions = of_words ? run->words.position : run->rows.position;
    float scale = op->reals[EMBED_scale];
    void *unpacked = table->linear < 0 ? NULL : scratch_of(run, width * 4 + 64);
    for (int64_t row = 0; row < count; row++) {
        int64_t token = tokens[row], position = row_positions ? row_positions[row] : run->rows.step;
        float *out = row_of(run, OUT_OF(op), row);
        float magnitude = table->magnitudes ? table->magnitudes[token] : 0;
        if (unpacked) run->model->kernels->unpack(run->model->linears + table->linear, (long)token, unpacked);
        read_floats(run->model, unpacked ? unpacked : table->values, table->type, magnitude,
                    unpacked ? 0 : token * width, width, out);
        for (int64_t i = 0; i < width; i++) out[i] = scale * out[i] + (positions ? positions[position * width + i] : 0);
    }
}

static void copy(run_t *run, const operation_t *op) {
    int out = OUT_OF(op), input = op->slots[COPY_source];
    int64_t rows = num_rows(run, space_of(run, out)), count = op->slots[COPY_count];
    int from_sources = space_of(run, input) == OF_SOURCES;
    if (op->slots[COPY_once] && run->rows.step > 0) return;
    if (!count) count = width_of(run, input);
    for (int64_t row = 0; row < rows; row++) {
        int64_t from_row = from_sources ? source_of(run, space_of(run, out), row) : row;
        memcpy(row_of(run, out, row) + op->slots[COPY_column], row_of(run, input, from_row) + op->slots[COPY_start],
               (size_t)count * 4);
    }
}

static void add_positions(run_t *run, const operation_t *op) {
    int64_t rows = num_rows(run, space_of(run, OUT_OF(op))), width = width_of(run, OUT_OF(op));
    const float *positions = vector_of(run, op->slots[ADD_POSITIONS_positions]);
    for (int64_t row = 0; row < rows; row++)
        run->model->kernels->add_scaled(row_of(run, OUT_OF(op), row), positions + run->words.position[row] * width, 1,
                                        (long)width);
}

static void activate(run_t *run, const operation_t *op) {
    int64_t rows = num_rows(run, space_of(run, OUT_OF(op))), column = op->slots[ACTIVATE_column];
    for (int64_t row = 0; row < rows; row++)
        run->model->kernels->apply(row_of(run, OUT_OF(op), row) + column, (long)(width_of(run, OUT_OF(op)) - column),
                                   op->slots[ACTIVATE_activation]);
}

static void mean_of_words(const run_t *run, int words, int64_t source, float *mean) {
    int64_t count = run->request->lengths[source], width = width_of(run, words);
    memset(mean, 0, (size_t)width * 4);
    for (int64_t j = 0; j < count; j++)
        run->model->kernels->add_scaled(mean, row_of(run, words, run->words.first[source] + j), 1.f / (float)count,
                                        (long)width);
}

static void mean_words(run_t *run, const operation_t *op) {
    for (int64_t source = 0; source < run->request->num_sources; source++)
        mean_of_words(run, op->slots[MEAN_WORDS_words], source, row_of(run, OUT_OF(op), source));
}

static void pool_words(run_t *run, const operation_t *op) {
    int words = op->slots[POOL_WORDS_words];
    int64_t width = width_of(run, words);
    for (int64_t source = 0; source < run->request->num_sources; source++) {
        int64_t count = run->request->lengths[source], first = run->words.first[source];
        float *largest = row_of(run, OUT_OF(op), source);
        memcpy(largest, row_of(run, words, first), (size_t)width * 4);
        for (int64_t j = 1; j < count; j++)
            for (int64_t i = 0; i < width; i++) largest[i] = fmaxf(largest[i], row_of(run, words, first + j)[i]);
        mean_of_words(run, words, source, largest + width);
        memcpy(largest + 2 * width, row_of(run, words, first), (size_t)width * 4);
        memcpy(largest + 3 * width, row_of(run, words, first + count - 1), (size_t)width * 4);
    }
}

/* Factors of the parts: the number of part p at i is values[p * part_step + i * unit_step]. */
typedef struct {
    const float *values;
    int64_t part_step, unit_step;
} factors_t;

static const float no_factor = 0;

static factors_t factors_of(const float *values, int64_t numbers, int64_t count, int64_t width) {
    if (!values) return (factors_t){&no_factor, 0, 0};
    return numbers == count ? (factors_t){values, 1, 0} : (factors_t){values, width, 1};
}

static void weighted_sum(run_t *run, const operation_t *op) {
    int64_t rows = num_rows(run, space_of(run, OUT_OF(op))), width = width_of(run, OUT_OF(op));
    int64_t count = op->slots[WEIGHTED_SUM_count];
    int weights_at = op->slots[WEIGHTED_SUM_weights], offsets_at = op->slots[WEIGHTED_SUM_offsets];
    factors_t offsets = factors_of(NULL, 0, count, width), weights = offsets;
    if (offsets_at >= 0)
        offsets = factors_of(vector_of(run, offsets_at), run->model->vectors[offsets_at].count, count, width);
    for (int64_t row = 0; row < rows; row++) {
        if (weights_at >= 0)
            weights = factors_of(row_of(run, weights_at, row), width_of(run, weights_at), count, width);
        const float *parts = row_of(run, op->slots[WEIGHTED_SUM_parts], row);
        for (int64_t i = 0; i < width; i++) {
            float sum = 0;
            for (int64_t part = 0; part < count; part++)
                sum += (weights.values[part * weights.part_step + i * weights.unit_step] +
                        offsets.values[part * offsets.part_step + i * offsets.unit_step]) * parts[part * width + i];
            row_of(run, OUT_OF(op), row)[i] = sum;
        }
    }
}

static void rms_norm(run_t *run, const operation_t *op) {
    int64_t count = num_rows(run, space_of(run, OUT_OF(op))) * op->slots[RMS_NORM_parts];
    int64_t width = width_of(run, OUT_OF(op)) / op->slots[RMS_NORM_parts];
    const float *gain = op->slots[RMS_NORM_gain] < 0 ? NULL : vector_of(run, op->slots[RMS_NORM_gain]);
    float *part = run->values[OUT_OF(op)];
    for (int64_t index = 0; index < count; index++, part += width) {
        float squares = 0;
        for (int64_t i = 0; i < width; i++) squares += part[i] * part[i];
        float scale = 1.f / sqrtf(squares / (float)width + op->reals[RMS_NORM_epsilon]);
        for (int64_t i = 0; i < width; i++) part[i] *= gain ? scale * gain[i] : scale;
    }
}

/* ---- blocks of rows */

typedef struct {
    const run_t *run;
    const operation_t *op;
    float *x;
    const float *residual;
} norm_t;

static void norm_rows(void *context, int64_t first, int64_t end, int thread) {
    const norm_t *norm = context;
    const int32_t *slots = norm->op->slots;
    int64_t width = width_of(norm->run, OUT_OF(norm->op));
    (void)thread;
    norm->run->model->kernels->add_norm(
        norm->x + first * width, norm->residual ? norm->residual + first * width : NULL,
        vector_of(norm->run, slots[NORM_gain]), vector_of(norm->run, slots[NORM_bias]), (long)(end - first),
        (long)width, norm->op->reals[NORM_epsilon]);
}

/* The rows of a buffer from `first` on; of transient ones, only those of this block exist. */
static float *block_of(const run_t *run, int buffer, int64_t first) {
    return row_of(run, buffer, run->model->buffers[buffer].is_transient ? 0 : first);
}

/* Executes a LINEAR or a NORM on `count` rows, from `first` on. */
static void execute_rows(run_t *run, const operation_t *op, int64_t first, int64_t count) {
    const int32_t *slots = op->slots;
    float *out = block_of(run, OUT_OF(op), first);
    if (op->kind == LINEAR) {
        map_rows(run, op, block_of(run, slots[LINEAR_source], first), count * slots[LINEAR_fold], out);
        return;
    }
    norm_t norm = {run, op, out, slots[NORM_residual] < 0 ? NULL : block_of(run, slots[NORM_residual], first)};
    team_share(run->team, count, width_of(run, OUT_OF(op)) * COST_OF_KEY, norm_rows, &norm);
}

/* Executes operations on one block of rows after the other. */
static void execute_fused(run_t *run, const operation_t *ops, int64_t num_ops) {
    int64_t rows = num_rows(run, space_of(run, OUT_OF(ops))), blocks = (rows + BLOCK_ROWS / 2) / BLOCK_ROWS;
    int64_t block_rows = blocks ? (rows + blocks - 1) / blocks : rows;
    for (int64_t first = 0; first < rows; first += block_rows)
        for (int64_t i = 0; i < num_ops; i++)
            execute_rows(run, ops + i, first, rows - first < block_rows ? rows - first : block_rows);
}

/* ---- programs */

static void execute(run_t *run, const operation_t *op) {
    const kernels_t *kernels = run->model->kernels;
    int64_t rows = num_rows(run, space_of(run, OUT_OF(op))), numbers = rows * width_of(run, OUT_OF(op));
    float *out = run->values[OUT_OF(op)];
    switch ((enum kind)op->kind) {
        case EMBED: embed(run, op); break;
        case LINEAR:
            if (run->request->targets && OUT_OF(op) == run->model->logits) break; /* `score_rows` does, in parts */
            if (run->logits.is_unread && op == run->model->head) break;
            execute_rows(run, op, 0, rows);
            break;
        case NORM: execute_rows(run, op, 0, rows); break;
        case ADD: kernels->add_scaled(out, run->values[op->slots[ADD_addend]], 1, (long)numbers); break;
        case COPY: copy(run, op); break;
        case ATTEND_WORDS: attend_words(run, op); break;
        case ATTEND_PAST: attend_past(run, op); break;
        case ATTEND_SOURCE: attend_source(run, op); break;
        case ADDITIVE: attend_additively(run, op); break;
        case EM_ROUTING: em_routing(run, op); break;
        case DYNAMIC_ROUTING: dynamic_routing(run, op); break;
        case GUIDED_START: guided_start(run, op); break;
        case GUIDED_ROUTING: guided_routing(run, op); break;
        case SEPARABLE_ROUTING: separable_routing(run, op); break;
        case EXP_TWICE: kernels->exp_twice(out, (long)numbers); break;
        case LSTM_WORDS: lstm_words(run, op); break;
        case GRU_WORDS: gru_words(run, op); break;
        case LSTM_STEP: lstm_step(run, op); break;
        case GRU_STEP: gru_step(run, op); break;
        case SSRU: ssru_step(run, op); break;
        case MEAN_PAST: mean_past(run, op); break;
        case MEAN_WORDS: mean_words(run, op); break;
        case POOL_WORDS: pool_words(run, op); break;
        case ADD_POSITIONS: add_positions(run, op); break;
        case ACTIVATE: activate(run, op); break;
        case WEIGHTED_SUM: weighted_sum(run, op); break;
        case RMS_NORM: rms_norm(run, op); break;
        case SOFTMAX: kernels->softmax(out, (long)rows, (long)width_of(run, OUT_OF(op))); break;
        case NUM_KINDS: break; /* `check_programs` refuses it */
    }
}

void run_program(run_t *run, int program) {
    for (int64_t i = 0, count; i < run->model->num_operations[program]; i += count > 1 ? count : 1) {
        const operation_t *op = run->model->programs[program] + i;
        count = num_fused(run->model, program, i);
        should_finish(run); /* so that a caller who gives up waits for one operation at most */
        if (count > 1) execute_fused(run, op, count);
        else execute(run, op);
    }
}
