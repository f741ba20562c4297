/* The operations of a program: engine.h documents each. */
#include "run.h"

#include <math.h>

/* `number`: of the linear map, or -1 for the candidates of a shortlist. */
static void multiply(run_t *run, int number, const float *x, int64_t rows, float *y, int activation) {
    const linear_t *linear = number < 0 ? &run->head : run->model->linears + number;
    void *memory = scratch_of(run, run->model->kernels->scratch(linear, (long)rows));
    run->model->kernels->multiply(linear, x, (long)rows, y, activation, memory);
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

/* Attention of each row of `out` to the words of its source. */
static void attend_words(run_t *run, const operation_t *op, int memory, int64_t key_offset, int64_t value_offset) {
    int space = space_of(run, op->out);
    int64_t width = width_of(run, op->out), rows = rows_of(run, space), last = -1, count = 0;
    for (int64_t row = 0; row < rows; row++) {
        int64_t source = source_of(run, space, row);
        if (source != last) {
            count = run->request->lengths[source];
            for (int64_t j = 0; j < count; j++)
                run->keys[j] = row_of(run, memory, run->first_word[source] + j) + key_offset;
            last = source;
        }
        float *scores = scratch_of(run, count * 4);
        run->model->kernels->attend(row_of(run, op->a, row), row_of(run, op->out, row), run->keys, (long)value_offset,
                                    (long)count, op->n[0], (long)(width / op->n[0]), scores);
    }
}

static void attend_past(run_t *run, const operation_t *op) {
    int64_t width = width_of(run, op->out), most_steps = run->most_steps;
    float **blocks = run->caches + op->n[1] * most_steps;
    float *block = blocks[run->step] = take(run, run->rows * 2 * width * 4);
    for (int64_t row = 0; row < run->rows; row++)
        memcpy(block + row * 2 * width, row_of(run, op->a, row) + width, (size_t)(2 * width) * 4);
    float *scores = scratch_of(run, (run->step + 1) * 4);
    for (int64_t row = 0; row < run->rows; row++) {
        const int32_t *ancestors = run->ancestors + row * most_steps;
        for (int64_t j = 0; j < run->step; j++) run->keys[j] = blocks[j] + ancestors[j] * 2 * width;
        run->keys[run->step] = block + row * 2 * width;
        run->model->kernels->attend(row_of(run, op->a, row), row_of(run, op->out, row), run->keys, (long)width,
                                    (long)run->step + 1, op->n[0], (long)(width / op->n[0]), scores);
    }
}

static void route(run_t *run, const operation_t *op) {
    const kernels_t *kernels = run->model->kernels;
    int64_t rows = rows_of(run, space_of(run, op->out));
    long inputs = op->n[0], outputs = op->n[1], width = op->n[2], iterations = op->n[3];
    float *memory = scratch_of(run, 4 * ((int64_t)inputs * outputs * 2 + (int64_t)outputs * (width + 6) + 256));
    for (int64_t row = 0; row < rows; row++) {
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

static void guided_routing(run_t *run, const operation_t *op) {
    const kernels_t *kernels = run->model->kernels;
    int64_t capsules = op->n[0], width = op->n[1], iterations = op->n[2], kept = op->n[3];
    const float *score = vector_of(run, op->w[1]);
    float score_sum = 0;
    for (int64_t i = 0; i < width; i++) score_sum += score[i];
    int64_t most_words = run->request->longest_source;
    if (run->curves) run->curves[run->step] = take(run, run->rows * (2 * most_words + 1) * 4);
    const linear_t *linear = run->model->linears + op->w[0];
    int64_t product = (kernels->scratch(linear, (long)capsules) + 63) / 64 * 64;
    char *memory = scratch_of(run, product + 4 * (2 * most_words * capsules + 2 * capsules * width));
    float *logits = (float *)(memory + product), *shares = logits + most_words * capsules;
    float *guide = shares + most_words * capsules, *routed = guide + capsules * width;
    for (int64_t row = 0; row < run->rows; row++) {
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
            if (t < iterations - 1) kernels->multiply(linear, routed, (long)capsules, guide, NO_ACTIVATION, memory);
        }
        memcpy(row_of(run, op->out, row), routed, (size_t)(kept * width) * 4);
        if (run->curves) record_curves(run, row, shares, count, capsules, kept / 2);
    }
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
        kernels->multiply(linear, joined, (long)count, from_state, NO_ACTIVATION, memory);
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
                kernels->multiply(run->model->linears + op->w[1], placed, (long)capsules, inner, RELU, memory);
                kernels->multiply(run->model->linears + op->w[2], inner, (long)capsules, compared, NO_ACTIVATION, memory);
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

static void execute(run_t *run, const operation_t *op) {
    const kernels_t *kernels = run->model->kernels;
    int64_t rows = rows_of(run, space_of(run, op->out)), width = width_of(run, op->out);
    float *out = run->values[op->out];
    switch (op->kind) {
        case EMBED: embed(run, op); break;
        case LINEAR: {
            int shortened = run->request->candidates && op->out == run->model->logits;
            multiply(run, shortened ? -1 : op->w[0], run->values[op->a], rows * op->n[1], out, op->n[0]);
            break;
        }
        case NORM:
            kernels->add_norm(out, op->a < 0 ? NULL : run->values[op->a], vector_of(run, op->w[0]),
                              vector_of(run, op->w[1]), (long)rows, (long)width, op->f[0]);
            break;
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
        default: break;
    }
}

void run_program(run_t *run, int which) {
    for (int64_t i = 0; i < run->model->num_operations[which]; i++) execute(run, run->model->programs[which] + i);
}
