/* The operations of a program: engine.h documents each. */
#include "run.h"

#include <math.h>

/* What the threads of a loop share. */
typedef struct {
    run_t *run;
    const operation_t *op;
    char *scratch;
    int64_t scratch_size; /* of each thread */
} loop_t;

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

/* y = activation of the linear map of x, in this memory. */
static void multiply_in(run_t *run, const linear_t *linear, const float *x, int64_t rows, float *y, int activation,
                        void *memory) {
    product_t product = {run->model->kernels, linear, x, rows, y, activation, memory};
    int64_t blocks = product.kernels->num_blocks(linear);
    if (!blocks) return;
    product.kernels->round_inputs(linear, x, (long)rows, memory);
    team_share(run->team, blocks, linear->outputs / blocks * linear->inputs * rows, multiply_blocks, &product);
}

/* `number`: of the linear map, or -1 for the candidates of a shortlist. */
static void multiply(run_t *run, int number, const float *x, int64_t rows, float *y, int activation) {
    const linear_t *linear = number < 0 ? &run->head : run->model->linears + number;
    multiply_in(run, linear, x, rows, y, activation, scratch_of(run, run->model->kernels->scratch(linear, (long)rows)));
}

static void embed(run_t *run, const operation_t *op) {
    int of_words = space_of(run, op->out) == OF_WORDS;
    int64_t width = width_of(run, op->out), rows = rows_of(run, space_of(run, op->out));
    const float *table = vector_of(run, op->w[0]), *positions = op->w[1] < 0 ? NULL : vector_of(run, op->w[1]);
    for (int64_t row = 0; row < rows; row++) {
        int64_t token = of_words ? run->request->words[row] : run->tokens[row];
        int64_t position = of_words ? run->word_position[row] : run->step;
        float *out = row_of(run, op->out, row);
        for (int64_t i = 0; i < width; i++)
            out[i] = op->f[0] * table[token * width + i] + (positions ? positions[position * width + i] : 0);
    }
}

static void copy(run_t *run, const operation_t *op) {
    int64_t width = width_of(run, op->a), rows = rows_of(run, space_of(run, op->out));
    int from_sources = space_of(run, op->a) == OF_SOURCES;
    if (op->n[1] && run->step > 0) return;
    for (int64_t row = 0; row < rows; row++) {
        int64_t from = from_sources ? source_of(run, space_of(run, op->out), row) : row;
        memcpy(row_of(run, op->out, row) + op->n[0], row_of(run, op->a, from) + op->n[2], (size_t)(op->n[3] ? op->n[3] : width) * 4);
    }
}

/* What a number of a key costs, and one that an exponential is taken of. */
#define COST_OF_KEY 16
#define COST_OF_EXPONENTIAL 32

typedef struct {
    run_t *run;
    const operation_t *op;
    int64_t width, key_offset, value_offset;
    int to_past;
    int memory;
    int64_t head; /* whose attention is recorded, or -1 */
    float *scores;
} attention_t;

/* Rows and their heads. */
static void attend(void *context, int64_t first, int64_t end, int thread) {
    const attention_t *attention = context;
    run_t *run = attention->run;
    const operation_t *op = attention->op;
    int64_t heads = op->n[0], width = attention->width, count = 0;
    int space = space_of(run, op->out);
    float *scores = attention->scores + thread * run->most_keys * heads;
    const float **keys = run->keys + thread * run->most_keys;
    for (int64_t row = first / heads, last = -1; row * heads < end; row++) {
        if (attention->to_past) {
            const int32_t *ancestors = run->ancestors + row * run->most_steps;
            float **blocks = run->caches + op->n[1] * run->most_steps;
            for (int64_t j = 0; j < run->step; j++) keys[j] = blocks[j] + ancestors[j] * 2 * width;
            keys[run->step] = blocks[run->step] + row * 2 * width;
            count = run->step + 1;
        } else if (source_of(run, space, row) != last) {
            last = source_of(run, space, row);
            count = run->request->lengths[last];
            for (int64_t j = 0; j < count; j++)
                keys[j] = row_of(run, attention->memory, run->first_word[last] + j) + attention->key_offset;
        }
        int64_t first_head = row * heads < first ? first - row * heads : 0;
        int64_t end_head = end - row * heads < heads ? end - row * heads : heads;
        run->model->kernels->attend(row_of(run, op->a, row), row_of(run, op->out, row), keys,
                                    (long)attention->value_offset, (long)count, (long)first_head, (long)end_head,
                                    (long)(width / heads), scores);
        if (first_head <= attention->head && attention->head < end_head)
            memcpy(curves_of(run, run->step, row), scores + (attention->head - first_head) * count, (size_t)count * 4);
    }
}

static void share_attention(run_t *run, attention_t *attention, int64_t num_keys) {
    int64_t heads = attention->op->n[0], rows = rows_of(run, space_of(run, attention->op->out));
    attention->scores = scratch_of(run, team_size(run->team) * run->most_keys * heads * 4);
    team_share(run->team, rows * heads, num_keys * attention->width / heads * COST_OF_KEY, attend, attention);
}

/* Attention of each row of `out` to the words of its source. */
static void attend_words(run_t *run, const operation_t *op, int memory, int64_t key_offset, int64_t value_offset) {
    const request_t *request = run->request;
    int64_t width = width_of(run, op->out), head = -1;
    if (run->curves && op->kind == ATTEND_SOURCE && key_offset == request->layer * width) head = request->head;
    if (head >= 0) run->curves[run->step] = take(run, run->rows * curve_width(request) * 4);
    attention_t attention = {run, op, width, key_offset, value_offset, 0, memory, head, NULL};
    share_attention(run, &attention, run->num_words / request->num_sources);
}

static void attend_past(run_t *run, const operation_t *op) {
    int64_t width = width_of(run, op->out);
    float *block = run->caches[op->n[1] * run->most_steps + run->step] = take(run, run->rows * 2 * width * 4);
    for (int64_t row = 0; row < run->rows; row++)
        memcpy(block + row * 2 * width, row_of(run, op->a, row) + width, (size_t)(2 * width) * 4);
    attention_t attention = {run, op, width, 0, width, 1, 0, -1, NULL};
    share_attention(run, &attention, run->step + 1);
}

static void route_rows(void *context, int64_t first, int64_t end, int thread) {
    const loop_t *loop = context;
    run_t *run = loop->run;
    const operation_t *op = loop->op;
    const kernels_t *kernels = run->model->kernels;
    long inputs = op->n[0], outputs = op->n[1], width = op->n[2], iterations = op->n[3];
    float *memory = (float *)(loop->scratch + thread * loop->scratch_size);
    for (int64_t row = first; row < end; row++) {
        const float *votes = row_of(run, op->a, row);
        if (op->kind == DYNAMIC_ROUTING)
            kernels->dynamic_routing(votes, iterations, op->n[4], inputs, outputs, width, row_of(run, op->out, row),
                                     memory);
        else
            kernels->em_routing(votes, op->n[4] < 0 ? NULL : votes + op->n[4], vector_of(run, op->w[0]),
                                vector_of(run, op->w[1]), vector_of(run, op->w[2]), iterations, op->f[0], inputs,
                                outputs, width, row_of(run, op->out, row), memory);
    }
}

static void route(run_t *run, const operation_t *op) {
    int64_t votes = (int64_t)op->n[0] * op->n[1];
    loop_t loop = {run, op, NULL, 4 * (votes * 2 + (int64_t)op->n[1] * (op->n[2] + 6) + 256)};
    loop.scratch = scratch_of_threads(run, &loop.scratch_size);
    team_share(run->team, rows_of(run, space_of(run, op->out)), votes * op->n[2] * op->n[3] * COST_OF_EXPONENTIAL,
               route_rows, &loop);
}

static void guided_start(run_t *run, const operation_t *op) {
    int64_t capsules = op->n[0], width = op->n[1];
    for (int64_t source = 0; source < run->request->num_sources; source++) {
        float *out = row_of(run, op->out, source);
        memset(out, 0, (size_t)(capsules * width) * 4);
        for (int64_t j = 0; j < run->request->lengths[source]; j++)
            run->model->kernels->add_scaled(out, row_of(run, op->a, run->first_word[source] + j),
                                            1.f / (float)capsules, (long)(capsules * width));
        for (int64_t c = 0; c < capsules; c++) run->model->kernels->squash(out + c * width, (long)width);
    }
}

/* Keeps what of each word is PAST and FUTURE; `shares` [count, capsules], first those of PAST, then of FUTURE. */
static void record_curves(run_t *run, int64_t row, const float *shares, int64_t count, int64_t capsules,
                          int64_t capsules_per_group) {
    int64_t most_words = run->request->longest_source;
    float *past = curves_of(run, run->step, row), *future = past + most_words;
    for (int64_t j = 0; j < count; j++, shares += capsules) {
        past[j] = future[j] = 0;
        for (int64_t c = 0; c < capsules_per_group; c++) {
            past[j] += shares[c];
            future[j] += shares[capsules_per_group + c];
        }
    }
    past[2 * most_words] = run->agreements[row];
}

/* Bytes of a product with the capsules of a row. */
static int64_t guided_product_size(const run_t *run, const operation_t *op) {
    return (run->model->kernels->scratch(run->model->linears + op->w[0], op->n[0]) + 63) / 64 * 64;
}

static void guide_rows(void *context, int64_t first, int64_t end, int thread) {
    const loop_t *loop = context;
    run_t *run = loop->run;
    const operation_t *op = loop->op;
    const kernels_t *kernels = run->model->kernels;
    int64_t capsules = op->n[0], width = op->n[1], iterations = op->n[2], kept = op->n[3];
    const float *score = vector_of(run, op->w[1]);
    float score_sum = 0;
    for (int64_t i = 0; i < width; i++) score_sum += score[i];
    int64_t most_words = run->request->longest_source, product = guided_product_size(run, op);
    const linear_t *linear = run->model->linears + op->w[0];
    char *memory = loop->scratch + thread * loop->scratch_size;
    float *logits = (float *)(memory + product), *shares = logits + most_words * capsules;
    float *guide = shares + most_words * capsules, *routed = guide + capsules * width;
    for (int64_t row = first; row < end; row++) {
        int64_t source = run->row_source[row], count = run->request->lengths[source];
        const float *query = row_of(run, op->a, row);
        memcpy(guide, row_of(run, op->d, source), (size_t)(capsules * width) * 4);
        memset(logits, 0, (size_t)(count * capsules) * 4);
        for (int64_t t = 1; t < iterations; t++) {
            for (int64_t c = 0; c < capsules; c++) kernels->add_scaled(guide + c * width, query, 1, (long)width);
            kernels->exp_twice(guide, (long)(capsules * width));
            for (int64_t j = 0; j < count; j++) {
                const float *projected = row_of(run, op->c, run->first_word[source] + j);
                for (int64_t c = 0; c < capsules; c++)
                    logits[j * capsules + c] += kernels->tanh_score(guide + c * width, projected + c * width, score,
                                                                    score_sum, (long)width);
            }
            memcpy(shares, logits, (size_t)(count * capsules) * 4);
            for (int64_t j = 0; j < count; j++) kernels->softmax(shares + j * capsules, (long)capsules);
            int64_t wanted = t == iterations - 1 ? kept : capsules;
            for (int64_t c = 0; c < wanted; c++) {
                float *capsule = routed + c * width;
                memset(capsule, 0, (size_t)width * 4);
                for (int64_t j = 0; j < count; j++)
                    kernels->add_scaled(capsule, row_of(run, op->b, run->first_word[source] + j) + c * width,
                                        shares[j * capsules + c], (long)width);
                kernels->squash(capsule, (long)width);
            }
            if (t == iterations - 1) break;
            kernels->round_inputs(linear, routed, (long)capsules, memory);
            kernels->multiply(linear, routed, (long)capsules, guide, NO_ACTIVATION, memory, 0, kernels->num_blocks(linear));
        }
        memcpy(row_of(run, op->out, row), routed, (size_t)(kept * width) * 4);
        if (run->curves && run->request->layer < 0) record_curves(run, row, shares, count, capsules, kept / 2);
    }
}

static void guided_routing(run_t *run, const operation_t *op) {
    int64_t most_words = run->request->longest_source, capsules = op->n[0], width = op->n[1];
    if (run->curves && run->request->layer < 0)
        run->curves[run->step] = take(run, run->rows * curve_width(run->request) * 4);
    int64_t numbers = 2 * most_words * capsules + 2 * capsules * width;
    loop_t loop = {run, op, NULL, guided_product_size(run, op) + 4 * numbers};
    loop.scratch = scratch_of_threads(run, &loop.scratch_size);
    team_share(run->team, run->rows, most_words * capsules * width * op->n[2] * COST_OF_KEY, guide_rows, &loop);
}

/* LSTM and GRU layers of one direction over the words of every source, a position at a time. */
static void recur_over_words(run_t *run, const operation_t *op, int is_lstm) {
    const kernels_t *kernels = run->model->kernels;
    const linear_t *linear = run->model->linears + op->w[0];
    int64_t gates = width_of(run, op->a), width = gates / (is_lstm ? 4 : 3), num_sources = run->request->num_sources;
    int64_t product = (kernels->scratch(linear, (long)num_sources) + 63) / 64 * 64;
    int64_t longest = run->request->longest_source;
    char *memory = scratch_of(run, product + 4 * num_sources * (3 * width + gates) + 8 * num_sources);
    int64_t *active = (int64_t *)(memory + product);
    float *hidden = (float *)(active + num_sources), *cell = hidden + num_sources * width;
    float *joined = cell + num_sources * width, *from_state = joined + num_sources * width;
    memset(hidden, 0, (size_t)(2 * num_sources * width) * 4);
    for (int64_t position = 0; position < longest; position++) {
        int64_t count = 0;
        for (int64_t s = 0; s < num_sources; s++)
            if (position < run->request->lengths[s]) {
                memcpy(joined + count * width, hidden + s * width, (size_t)width * 4);
                active[count++] = s;
            }
        multiply_in(run, linear, joined, count, from_state, NO_ACTIVATION, memory);
        for (int64_t i = 0; i < count; i++) {
            int64_t s = active[i], length = run->request->lengths[s];
            int64_t word = run->first_word[s] + (op->n[0] ? length - 1 - position : position);
            const float *input = row_of(run, op->a, word);
            float *state = hidden + s * width, *inner = from_state + i * gates;
            if (is_lstm) {
                kernels->add_scaled(inner, input, 1, (long)gates);
                kernels->lstm(inner, state, cell + s * width, (long)width);
            } else {
                kernels->gru(input, inner, state, state, (long)width);
            }
            memcpy(row_of(run, op->out, word) + op->n[1], state, (size_t)width * 4);
        }
    }
}

static void additive_attention(run_t *run, const operation_t *op) {
    const kernels_t *kernels = run->model->kernels;
    int64_t width = width_of(run, op->a), out_width = width_of(run, op->out);
    const float *score = vector_of(run, op->w[1]);
    float score_sum = 0;
    for (int64_t i = 0; i < width; i++) score_sum += score[i];
    for (int64_t row = 0; row < run->rows; row++) {
        int64_t source = run->row_source[row], count = run->request->lengths[source];
        float *scores = scratch_of(run, count * 4), *out = row_of(run, op->out, row);
        for (int64_t j = 0; j < count; j++)
            scores[j] = kernels->tanh_score(row_of(run, op->a, row), row_of(run, op->b, run->first_word[source] + j),
                                            score, score_sum, (long)width);
        kernels->softmax(scores, (long)count);
        memset(out, 0, (size_t)out_width * 4);
        for (int64_t j = 0; j < count; j++)
            kernels->add_scaled(out, row_of(run, op->c, run->first_word[source] + j), scores[j], (long)out_width);
    }
}

static void pool_words(run_t *run, const operation_t *op) {
    int64_t width = width_of(run, op->a);
    int only_mean = op->kind == MEAN_WORDS;
    for (int64_t source = 0; source < run->request->num_sources; source++) {
        int64_t count = run->request->lengths[source], first = run->first_word[source];
        float *largest = row_of(run, op->out, source), *mean = only_mean ? largest : largest + width;
        if (!only_mean) {
            memcpy(largest, row_of(run, op->a, first), (size_t)width * 4);
            for (int64_t j = 1; j < count; j++)
                for (int64_t i = 0; i < width; i++) largest[i] = fmaxf(largest[i], row_of(run, op->a, first + j)[i]);
            memcpy(largest + 2 * width, row_of(run, op->a, first), (size_t)width * 4);
            memcpy(largest + 3 * width, row_of(run, op->a, first + count - 1), (size_t)width * 4);
        }
        memset(mean, 0, (size_t)width * 4);
        for (int64_t j = 0; j < count; j++)
            run->model->kernels->add_scaled(mean, row_of(run, op->a, first + j), 1.f / (float)count, (long)width);
    }
}

static float inner_product(const float *a, const float *b, int64_t count) {
    float sum = 0;
    for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

static void separable_routing(run_t *run, const operation_t *op) {
    const kernels_t *kernels = run->model->kernels;
    int64_t capsules = op->n[0], iterations = op->n[1], sets = op->n[2], width = width_of(run, op->out) / capsules;
    int64_t longest = run->request->longest_source, hidden = 0, compared_width = width, product = 0;
    if (op->c >= 0) {
        const linear_t *inner = run->model->linears + op->w[1], *outer = run->model->linears + op->w[2];
        hidden = inner->outputs;
        compared_width = outer->outputs;
        product = kernels->scratch(inner, (long)capsules) + kernels->scratch(outer, (long)capsules) + 64;
    }
    product = (product + 63) / 64 * 64;
    char *memory = scratch_of(run, product + 4 * (2 * longest * capsules + capsules * (width + hidden + compared_width)));
    float *logits = (float *)(memory + product), *shares = logits + longest * capsules;
    float *placed = shares + longest * capsules, *inner = placed + capsules * width, *compared = inner + capsules * hidden;
    for (int64_t source = 0; source < run->request->num_sources; source++) {
        int64_t count = run->request->lengths[source], first = run->first_word[source];
        float *out = row_of(run, op->out, source);
        memset(logits, 0, (size_t)(count * capsules) * 4);
        for (int64_t t = 0; t < iterations; t++) {
            int64_t start = (sets > 1 ? t : 0) * capsules * width;
            memcpy(shares, logits, (size_t)(count * capsules) * 4);
            memset(out, 0, (size_t)(capsules * width) * 4);
            for (int64_t j = 0; j < count; j++) {
                kernels->softmax(shares + j * capsules, (long)capsules);
                for (int64_t c = 0; c < capsules; c++)
                    kernels->add_scaled(out + c * width, row_of(run, op->b, first + j) + start + c * width,
                                        shares[j * capsules + c], (long)width);
            }
            for (int64_t c = 0; c < capsules; c++) kernels->squash(out + c * width, (long)width);
            if (t == iterations - 1) break;
            memcpy(placed, out, (size_t)(capsules * width) * 4);
            if (op->w[0] >= 0) kernels->add_scaled(placed, vector_of(run, op->w[0]), 1, (long)(capsules * width));
            const float *score = placed;
            if (op->c >= 0) {
                multiply_in(run, run->model->linears + op->w[1], placed, capsules, inner, RELU, memory);
                multiply_in(run, run->model->linears + op->w[2], inner, capsules, compared, NO_ACTIVATION, memory);
                score = compared;
            }
            for (int64_t j = 0; j < count; j++)
                for (int64_t c = 0; c < capsules; c++) {
                    const float *word = op->c >= 0 ? row_of(run, op->c, first + j)
                                                   : row_of(run, op->b, first + j) + start + c * width;
                    logits[j * capsules + c] += inner_product(word, score + c * compared_width, compared_width);
                }
        }
    }
}

static void norm_rows(void *context, int64_t first, int64_t end, int thread) {
    const loop_t *loop = context;
    run_t *run = loop->run;
    const operation_t *op = loop->op;
    (void)thread;
    run->model->kernels->add_norm(row_of(run, op->out, first), op->a < 0 ? NULL : row_of(run, op->a, first),
                                  vector_of(run, op->w[0]), vector_of(run, op->w[1]), (long)(end - first),
                                  (long)width_of(run, op->out), op->f[0]);
}

static void execute(run_t *run, const operation_t *op) {
    const kernels_t *kernels = run->model->kernels;
    int64_t rows = rows_of(run, space_of(run, op->out)), width = width_of(run, op->out);
    float *out = run->values[op->out];
    switch ((enum kind)op->kind) { /* a case for each: `engine_set_programs` refuses other numbers */
        case EMBED: embed(run, op); break;
        case LINEAR: {
            int shortened = run->request->candidates && op->out == run->model->logits;
            multiply(run, shortened ? -1 : op->w[0], run->values[op->a], rows * op->n[1], out, op->n[0]);
            break;
        }
        case NORM: {
            loop_t loop = {run, op, NULL, 0};
            team_share(run->team, rows, width * COST_OF_KEY, norm_rows, &loop);
            break;
        }
        case ADD: kernels->add_scaled(out, run->values[op->a], 1, (long)(rows * width)); break;
        case COPY: copy(run, op); break;
        case ATTEND_WORDS: attend_words(run, op, op->a, width, width); break;
        case ATTEND_PAST: attend_past(run, op); break;
        case ATTEND_SOURCE: attend_words(run, op, op->b, op->n[1], op->n[2]); break;
        case EM_ROUTING:
        case DYNAMIC_ROUTING: route(run, op); break;
        case GUIDED_START: guided_start(run, op); break;
        case EXP_TWICE: kernels->exp_twice(out, (long)(rows * width)); break;
        case GUIDED_ROUTING: guided_routing(run, op); break;
        case LSTM_WORDS: recur_over_words(run, op, 1); break;
        case GRU_WORDS: recur_over_words(run, op, 0); break;
        case LSTM_STEP:
            for (int64_t row = 0; row < rows; row++)
                kernels->lstm(row_of(run, op->a, row), out + row * width, row_of(run, op->b, row), (long)width);
            break;
        case GRU_STEP:
            for (int64_t row = 0; row < rows; row++)
                kernels->gru(row_of(run, op->a, row), row_of(run, op->b, row), row_of(run, op->c, row),
                             out + row * width, (long)width);
            break;
        case ADDITIVE: additive_attention(run, op); break;
        case MEAN_WORDS:
        case POOL_WORDS: pool_words(run, op); break;
        case SEPARABLE_ROUTING: separable_routing(run, op); break;
        case ADD_POSITIONS:
            for (int64_t row = 0; row < rows; row++)
                kernels->add_scaled(out + row * width, vector_of(run, op->w[0]) + run->word_position[row] * width, 1,
                                    (long)width);
            break;
        case ACTIVATE:
            for (int64_t row = 0; row < rows; row++)
                kernels->apply(out + row * width + op->n[0], (long)(width - op->n[0]), op->n[1]);
            break;
        case WEIGHTED_SUM:
            for (int64_t row = 0; row < rows; row++) {
                const float *a = row_of(run, op->a, row), *b = row_of(run, op->b, row);
                for (int64_t i = 0; i < width; i++) {
                    float sum = 0;
                    for (int64_t part = 0; part < op->n[0]; part++) sum += a[part * width + i] * b[part * width + i];
                    out[row * width + i] = sum;
                }
            }
            break;
    }
}

void run_program(run_t *run, int which) {
    for (int64_t i = 0; i < run->model->num_operations[which]; i++) execute(run, run->model->programs[which] + i);
}
