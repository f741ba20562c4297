/* The engine: runs a model's two programs and searches. Kernels do the arithmetic (kernels.h). */
#include "engine.h"
#include "kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    float *values;
    int64_t count;
} vector_t;

typedef struct {
    int space;
    int64_t width;
} buffer_t;

struct model {
    const kernels_t *kernels;
    int64_t vocabulary, num_caches, cache_width;
    linear_t *linears;
    vector_t *vectors;
    buffer_t *buffers;
    int num_linears, num_vectors, num_buffers, logits;
    operation_t *programs[2];
    int64_t num_operations[2];
};

/* ---------------------------------------------------------------------------------------------------- the model */

int engine_version(void) { return ENGINE_VERSION; }

const char *engine_tier(const char *name) {
    const kernels_t *kernels = choose_kernels(name && *name ? name : NULL);
    return kernels ? kernels->name : "";
}

model_t *engine_new(const char *tier, int64_t vocabulary, int64_t num_caches, int64_t cache_width) {
    const kernels_t *kernels = choose_kernels(tier && *tier ? tier : NULL);
    model_t *model = kernels ? calloc(1, sizeof(model_t)) : NULL;
    if (!model) return NULL;
    model->kernels = kernels;
    model->vocabulary = vocabulary;
    model->num_caches = num_caches;
    model->cache_width = cache_width;
    return model;
}

/* Aligned memory of the kernels is freed the way it was allocated. */
static void free_aligned(void *memory) {
#if defined(_WIN32)
    _aligned_free(memory);
#else
    free(memory);
#endif
}

void engine_free(model_t *model) {
    if (!model) return;
    for (int i = 0; i < model->num_linears; i++) {
        free_aligned(model->linears[i].packed);
        free_aligned(model->linears[i].bias);
        free_aligned(model->linears[i].scales);
        free_aligned(model->linears[i].sums);
    }
    for (int i = 0; i < model->num_vectors; i++) free(model->vectors[i].values);
    free(model->linears);
    free(model->vectors);
    free(model->buffers);
    free(model->programs[0]);
    free(model->programs[1]);
    free(model);
}

/* Makes room for one more element of an array; NULL where memory is short. */
static void *grow(void *array, int count, size_t size) {
    return (count & (count - 1)) ? array : realloc(array, size * (size_t)(count ? 2 * count : 1));
}

int engine_add_linear(model_t *model, int64_t outputs, int64_t inputs, const float *weight, const float *bias,
                      int int8) {
    linear_t *linears = grow(model->linears, model->num_linears, sizeof(linear_t));
    if (!linears) return -1;
    model->linears = linears;
    linear_t *linear = linears + model->num_linears;
    *linear = (linear_t){.outputs = (long)outputs, .inputs = (long)inputs, .int8 = int8};
    model->num_linears++; /* engine_free frees what a failed packing leaves */
    return model->kernels->pack(linear, weight, bias) ? -1 : model->num_linears - 1;
}

int engine_add_vector(model_t *model, const float *values, int64_t count) {
    vector_t *vectors = grow(model->vectors, model->num_vectors, sizeof(vector_t));
    float *copy = malloc((size_t)count * 4 + 64);
    if (vectors) model->vectors = vectors;
    if (!vectors || !copy) {
        free(copy);
        return -1;
    }
    memcpy(copy, values, (size_t)count * 4);
    vectors[model->num_vectors] = (vector_t){copy, count};
    return model->num_vectors++;
}

int engine_add_buffer(model_t *model, int space, int64_t width) {
    buffer_t *buffers = grow(model->buffers, model->num_buffers, sizeof(buffer_t));
    if (!buffers) return -1;
    model->buffers = buffers;
    buffers[model->num_buffers] = (buffer_t){space, width};
    return model->num_buffers++;
}

int engine_set_programs(model_t *model, const operation_t *encoder, int64_t num_encoder, const operation_t *decoder,
                        int64_t num_decoder, int logits) {
    const operation_t *programs[2] = {encoder, decoder};
    int64_t counts[2] = {num_encoder, num_decoder};
    for (int i = 0; i < 2; i++) {
        free(model->programs[i]);
        model->programs[i] = malloc(sizeof(operation_t) * (size_t)counts[i] + 1);
        if (!model->programs[i]) return -1;
        memcpy(model->programs[i], programs[i], sizeof(operation_t) * (size_t)counts[i]);
        model->num_operations[i] = counts[i];
    }
    model->logits = logits;
    return 0;
}

/* ------------------------------------------------------------------------------------- memory of one translation */

typedef struct chunk {
    struct chunk *next;
    int64_t unused; /* keeps what follows aligned to 16 bytes */
} chunk_t;

typedef struct {
    const model_t *model;
    const request_t *request;
    chunk_t *chunks;
    jmp_buf out_of_memory;

    int64_t num_words, *first_word, *word_source, *word_position;
    float **values, **spare; /* of each buffer; `spare` of states, which beams reorder */

    int64_t rows, beams, step, *row_source; /* of the hypotheses; `beams` of each source in this step */
    int64_t *tokens;                        /* the last of each hypothesis */
    int32_t *ancestors, *new_ancestors;     /* [rows, longest]: the row that a hypothesis had at each step */
    float **caches;                         /* [caches, longest]: keys and values of each row of a step */
    const float **keys;
    char *scratch;
    int64_t scratch_size;
} run_t;

static void *take(run_t *run, int64_t bytes) {
    chunk_t *chunk = bytes < 0 ? NULL : malloc(sizeof(chunk_t) + (size_t)bytes + 64);
    if (!chunk) longjmp(run->out_of_memory, 1);
    chunk->next = run->chunks;
    run->chunks = chunk;
    return chunk + 1;
}

static void *take_zeros(run_t *run, int64_t bytes) { return memset(take(run, bytes), 0, (size_t)bytes); }

static void *scratch_of(run_t *run, int64_t bytes) {
    if (bytes > run->scratch_size) {
        run->scratch = take(run, bytes);
        run->scratch_size = bytes;
    }
    return run->scratch;
}

/* ----------------------------------------------------------------------------------------------- the operations */

static int64_t width_of(const run_t *run, int buffer) { return run->model->buffers[buffer].width; }
static int space_of(const run_t *run, int buffer) { return run->model->buffers[buffer].space; }
static float *row_of(const run_t *run, int buffer, int64_t row) {
    return run->values[buffer] + row * width_of(run, buffer);
}
static const float *vector_of(const run_t *run, int number) { return run->model->vectors[number].values; }

static int64_t rows_of(const run_t *run, int space) {
    if (space == OF_WORDS) return run->num_words;
    return space == OF_SOURCES ? run->request->num_sources : run->rows;
}

static int64_t source_of(const run_t *run, int space, int64_t row) {
    if (space == OF_WORDS) return run->word_source[row];
    return space == OF_SOURCES ? row : run->row_source[row];
}

static void multiply(run_t *run, int number, const float *x, int64_t rows, float *y, int activation) {
    const linear_t *linear = run->model->linears + number;
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
    int64_t width = width_of(run, op->out), longest = run->request->longest;
    float **blocks = run->caches + op->n[1] * longest;
    float *block = blocks[run->step] = take(run, run->rows * 2 * width * 4);
    for (int64_t row = 0; row < run->rows; row++)
        memcpy(block + row * 2 * width, row_of(run, op->a, row) + width, (size_t)(2 * width) * 4);
    float *scores = scratch_of(run, (run->step + 1) * 4);
    for (int64_t row = 0; row < run->rows; row++) {
        const int32_t *ancestors = run->ancestors + row * longest;
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

static void squash(float *capsule, int64_t width) {
    float square = 0;
    for (int64_t k = 0; k < width; k++) square += capsule[k] * capsule[k];
    float factor = sqrtf(square + 1e-9f) / (1 + square);
    for (int64_t k = 0; k < width; k++) capsule[k] *= factor;
}

static void guided_start(run_t *run, const operation_t *op) {
    int64_t capsules = op->n[0], width = op->n[1];
    for (int64_t source = 0; source < run->request->num_sources; source++) {
        float *out = row_of(run, op->out, source);
        memset(out, 0, (size_t)(capsules * width) * 4);
        for (int64_t j = 0; j < run->request->lengths[source]; j++)
            run->model->kernels->add_scaled(out, row_of(run, op->a, run->first_word[source] + j),
                                            1.f / (float)capsules, (long)(capsules * width));
        for (int64_t c = 0; c < capsules; c++) squash(out + c * width, width);
    }
}

static void softmax(float *values, int64_t count, int64_t stride) {
    float top = -INFINITY, total = 0;
    for (int64_t i = 0; i < count; i++) top = fmaxf(top, values[i * stride]);
    for (int64_t i = 0; i < count; i++) total += values[i * stride] = expf(values[i * stride] - top);
    for (int64_t i = 0; i < count; i++) values[i * stride] /= total;
}

static void guided_routing(run_t *run, const operation_t *op) {
    const kernels_t *kernels = run->model->kernels;
    int64_t capsules = op->n[0], width = op->n[1], iterations = op->n[2], kept = op->n[3];
    const float *score = vector_of(run, op->w[1]);
    float score_sum = 0;
    for (int64_t i = 0; i < width; i++) score_sum += score[i];
    int64_t most_words = 0;
    for (int64_t s = 0; s < run->request->num_sources; s++)
        if (run->request->lengths[s] > most_words) most_words = run->request->lengths[s];
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
            for (int64_t j = 0; j < count; j++) softmax(shares + j * capsules, capsules, 1);
            int64_t wanted = t == iterations - 1 ? kept : capsules;
            for (int64_t c = 0; c < wanted; c++) {
                float *capsule = routed + c * width;
                memset(capsule, 0, (size_t)width * 4);
                for (int64_t j = 0; j < count; j++)
                    kernels->add_scaled(capsule, row_of(run, op->b, run->first_word[source] + j) + c * width,
                                        shares[j * capsules + c], (long)width);
                squash(capsule, width);
            }
            if (t < iterations - 1) kernels->multiply(linear, routed, (long)capsules, guide, NO_ACTIVATION, memory);
        }
        memcpy(row_of(run, op->out, row), routed, (size_t)(kept * width) * 4);
    }
}

/* LSTM and GRU layers of one direction over the words of every source, a position at a time. */
static void recur_over_words(run_t *run, const operation_t *op, int is_lstm) {
    const kernels_t *kernels = run->model->kernels;
    const linear_t *linear = run->model->linears + op->w[0];
    int64_t gates = width_of(run, op->a), width = gates / (is_lstm ? 4 : 3), num_sources = run->request->num_sources;
    int64_t product = (kernels->scratch(linear, (long)num_sources) + 63) / 64 * 64, longest = 0;
    for (int64_t s = 0; s < num_sources; s++)
        if (run->request->lengths[s] > longest) longest = run->request->lengths[s];
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
        softmax(scores, count, 1);
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
    int64_t longest = 0, hidden = 0, compared_width = width, product = 0;
    for (int64_t s = 0; s < run->request->num_sources; s++)
        if (run->request->lengths[s] > longest) longest = run->request->lengths[s];
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
                softmax(shares + j * capsules, capsules, 1);
                for (int64_t c = 0; c < capsules; c++)
                    kernels->add_scaled(out + c * width, row_of(run, op->b, first + j) + start + c * width,
                                        shares[j * capsules + c], (long)width);
            }
            for (int64_t c = 0; c < capsules; c++) squash(out + c * width, width);
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
        case LINEAR: multiply(run, op->w[0], run->values[op->a], rows * op->n[1], out, op->n[0]); break;
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

static void run_program(run_t *run, int which) {
    for (int64_t i = 0; i < run->model->num_operations[which]; i++) execute(run, run->model->programs[which] + i);
}

/* ---------------------------------------------------------------------------------------------------- the search */

typedef struct {
    float score;
    int64_t length;
    int32_t *tokens;
} hypothesis_t;

typedef struct {
    int64_t source, num_finished;
    hypothesis_t *running, *next, *finished; /* [num_beams] each; `next` becomes `running` */
} search_t;

typedef struct {
    float score;
    int32_t row, token; /* the row among those of the source */
} candidate_t;

/* Forbids every token that would complete an n-gram for the second time; the start token counts. */
static void forbid_repeated(const request_t *request, const hypothesis_t *hypothesis, float *logits) {
    int64_t n = request->no_repeat_ngram, length = hypothesis->length + 1;
    if (n <= 0 || length + 1 < n) return;
#define TOKEN(i) ((i) == 0 ? request->start_token : hypothesis->tokens[(i) - 1])
    for (int64_t i = 0; i + n <= length; i++) {
        int64_t j = 0;
        while (j < n - 1 && TOKEN(i + j) == TOKEN(length - n + 1 + j)) j++;
        if (j == n - 1) logits[TOKEN(i + n - 1)] = -INFINITY;
    }
#undef TOKEN
}

static void forbid(const request_t *request, const hypothesis_t *hypothesis, float *logits) {
    for (int64_t i = 0; i < request->num_suppressed; i++) logits[request->suppressed[i]] = -INFINITY;
    forbid_repeated(request, hypothesis, logits);
    if (hypothesis->length < request->least_tokens && request->end_token >= 0)
        logits[request->end_token] = -INFINITY;
}

/* The best continuations of the hypotheses of a source, best first; returns how many. */
static int64_t continuations(run_t *run, const search_t *search, int64_t first_row, candidate_t *best, float *values,
                             int32_t *indices) {
    const request_t *request = run->request;
    int64_t wanted = request->num_beams == 1 ? 1 : 2 * request->num_beams, count = 0;
    for (int64_t row = 0; row < run->beams; row++) {
        float *logits = row_of(run, run->model->logits, first_row + row);
        const hypothesis_t *hypothesis = search->running + row;
        float total = 0;
        int64_t found = 1;
        if (request->forced[search->source] && hypothesis->length == request->limits[search->source] - 1) {
            values[0] = 0;
            indices[0] = (int32_t)request->end_token;
        } else {
            if (request->num_beams > 1 || request->scores)
                total = run->model->kernels->log_sum_exp(logits, (long)run->model->vocabulary);
            forbid(request, hypothesis, logits);
            found = run->model->kernels->top(logits, (long)run->model->vocabulary, (long)wanted, values, indices);
        }
        for (int64_t i = 0; i < found; i++) {
            float score = hypothesis->score + (values[i] - total);
            int64_t place = count < wanted ? count++ : wanted;
            if (place == wanted && !(score > best[wanted - 1].score)) break; /* the others are worse still */
            if (place == wanted) place--;
            for (; place > 0 && best[place - 1].score < score; place--) best[place] = best[place - 1];
            best[place] = (candidate_t){score, (int32_t)row, indices[i]};
        }
    }
    return count;
}

static void extend(hypothesis_t *to, const hypothesis_t *from, candidate_t candidate) {
    memcpy(to->tokens, from->tokens, (size_t)from->length * 4);
    to->tokens[from->length] = candidate.token;
    to->length = from->length + 1;
    to->score = candidate.score;
}

/* Keeps a finished hypothesis if it is among the best. */
static void finish(search_t *search, int64_t num_beams, const hypothesis_t *from, candidate_t candidate, float score) {
    hypothesis_t *finished = search->finished;
    int64_t place = search->num_finished;
    if (place == num_beams) {
        if (score <= finished[num_beams - 1].score) return;
        place--;
    } else {
        search->num_finished++;
    }
    hypothesis_t slot = finished[place];
    for (; place > 0 && finished[place - 1].score < score; place--) finished[place] = finished[place - 1];
    extend(&slot, from, candidate);
    slot.score = score;
    finished[place] = slot;
}

/* Advances one source by a token. Fills `parents` (rows among those of the source) of its next hypotheses; returns
 * whether it goes on. These are the rules of transformers' beam search. */
static int advance(run_t *run, search_t *search, const candidate_t *best, int64_t count, int64_t *parents) {
    const request_t *request = run->request;
    int64_t num_beams = request->num_beams, length = run->step + 1, kept = 0;
    int at_limit = length == request->limits[search->source];
    int full = search->num_finished == num_beams && request->early_stopping == 1;
    float divisor = powf((float)length, request->length_penalty);
    for (int64_t i = 0; i < count; i++) {
        int ends = at_limit || best[i].token == request->end_token;
        if (ends && i < num_beams && !full)
            finish(search, num_beams, search->running + best[i].row, best[i], best[i].score / divisor);
        if (!ends && kept < num_beams) {
            extend(search->next + kept, search->running + best[i].row, best[i]);
            parents[kept++] = best[i].row;
        }
    }
    hypothesis_t *next = search->next;
    search->next = search->running;
    search->running = next;
    if (at_limit || kept < num_beams) return 0;
    if (search->num_finished < num_beams) return 1;
    if (num_beams == 1 || request->early_stopping == 1) return 0;
    int hopes = request->early_stopping == 2 && request->length_penalty > 0;
    float reachable = hopes ? powf((float)request->longest, request->length_penalty) : divisor;
    return search->running[0].score / reachable > search->finished[num_beams - 1].score;
}

static hypothesis_t *new_hypotheses(run_t *run, int64_t count) {
    hypothesis_t *hypotheses = take_zeros(run, count * (int64_t)sizeof(hypothesis_t));
    int32_t *tokens = take(run, count * run->request->longest * 4);
    for (int64_t i = 0; i < count; i++) hypotheses[i].tokens = tokens + i * run->request->longest;
    return hypotheses;
}

/* Moves the states and the ancestors of the hypotheses to their new rows. */
static void reorder(run_t *run, const int64_t *parent_rows, int64_t rows) {
    int64_t longest = run->request->longest;
    for (int i = 0; i < run->model->num_buffers; i++) {
        if (space_of(run, i) != OF_STATES) continue;
        for (int64_t row = 0; row < rows; row++)
            memcpy(run->spare[i] + row * width_of(run, i), row_of(run, i, parent_rows[row]),
                   (size_t)width_of(run, i) * 4);
        float *values = run->values[i];
        run->values[i] = run->spare[i];
        run->spare[i] = values;
    }
    for (int64_t row = 0; row < rows; row++) {
        int32_t *ancestors = run->new_ancestors + row * longest;
        memcpy(ancestors, run->ancestors + parent_rows[row] * longest, (size_t)run->step * 4);
        ancestors[run->step] = (int32_t)parent_rows[row];
    }
    int32_t *ancestors = run->ancestors;
    run->ancestors = run->new_ancestors;
    run->new_ancestors = ancestors;
}

static void write_results(const request_t *request, const search_t *search) {
    for (int64_t i = 0; i < request->num_returned; i++) {
        int64_t place = search->source * request->num_returned + i;
        int64_t *tokens = request->tokens + place * request->longest;
        const hypothesis_t *hypothesis = i < search->num_finished ? search->finished + i : NULL;
        int64_t length = hypothesis ? hypothesis->length : 0;
        for (int64_t j = 0; j < request->longest; j++)
            tokens[j] = j < length ? hypothesis->tokens[j] : request->pad_token;
        if (request->scores) request->scores[place] = hypothesis ? hypothesis->score : -1e9f;
    }
}

static void decode(run_t *run) {
    const request_t *request = run->request;
    int64_t num_sources = request->num_sources, num_beams = request->num_beams, most = num_sources * num_beams;
    search_t *searches = take(run, num_sources * (int64_t)sizeof(search_t));
    int64_t *parents = take(run, most * 8);
    candidate_t *best = take(run, (2 * num_beams + 1) * (int64_t)sizeof(candidate_t));
    float *values = take(run, (2 * num_beams + 1) * 4);
    int32_t *indices = take(run, (2 * num_beams + 1) * 4);
    for (int64_t i = 0; i < num_sources; i++) {
        searches[i] = (search_t){.source = i};
        searches[i].running = new_hypotheses(run, num_beams);
        searches[i].next = new_hypotheses(run, num_beams);
        searches[i].finished = new_hypotheses(run, num_beams);
        run->row_source[i] = i;
        run->tokens[i] = request->start_token;
    }
    /* All beams begin alike: the first step has one row for each source. */
    run->rows = num_sources;
    run->beams = 1;
    for (run->step = 0; run->step < request->longest && run->rows; run->step++) {
        run_program(run, 1);
        if (run->step == 0 && request->first_logits)
            memcpy(request->first_logits, run->values[run->model->logits],
                   (size_t)(num_sources * run->model->vocabulary) * 4);
        int64_t active = 0, rows = 0;
        for (int64_t i = 0; i * run->beams < run->rows; i++) {
            search_t search = searches[i];
            int64_t first_row = i * run->beams, count = continuations(run, &search, first_row, best, values, indices);
            if (!advance(run, &search, best, count, parents + rows)) {
                write_results(request, &search);
                continue;
            }
            for (int64_t j = 0; j < num_beams; j++) {
                parents[rows + j] += first_row;
                run->tokens[rows + j] = search.running[j].tokens[run->step];
            }
            searches[active++] = search;
            rows += num_beams;
        }
        reorder(run, parents, rows);
        for (int64_t row = 0; row < rows; row++) run->row_source[row] = searches[row / num_beams].source;
        run->rows = rows;
        run->beams = num_beams;
    }
}

int engine_translate(const model_t *model, const request_t *request) {
    run_t run = {.model = model, .request = request};
    if (setjmp(run.out_of_memory)) {
        for (chunk_t *chunk = run.chunks; chunk;) {
            chunk_t *next = chunk->next;
            free(chunk);
            chunk = next;
        }
        return -1;
    }
    int64_t most_words = 0, most_rows = request->num_sources * request->num_beams;
    run.first_word = take(&run, request->num_sources * 8);
    for (int64_t i = 0; i < request->num_sources; i++) {
        run.first_word[i] = run.num_words;
        run.num_words += request->lengths[i];
        if (request->lengths[i] > most_words) most_words = request->lengths[i];
    }
    run.word_source = take(&run, run.num_words * 8);
    run.word_position = take(&run, run.num_words * 8);
    for (int64_t i = 0, word = 0; i < request->num_sources; i++)
        for (int64_t j = 0; j < request->lengths[i]; j++, word++) {
            run.word_source[word] = i;
            run.word_position[word] = j;
        }
    run.row_source = take(&run, most_rows * 8);
    run.tokens = take(&run, most_rows * 8);
    run.ancestors = take(&run, most_rows * request->longest * 4);
    run.new_ancestors = take(&run, most_rows * request->longest * 4);
    run.caches = take(&run, (model->num_caches * request->longest + 1) * (int64_t)sizeof(float *));
    run.keys = take(&run, ((most_words > request->longest ? most_words : request->longest) + 1) *
                              (int64_t)sizeof(float *));
    run.values = take(&run, (model->num_buffers + 1) * (int64_t)sizeof(float *));
    run.spare = take(&run, (model->num_buffers + 1) * (int64_t)sizeof(float *));
    run.rows = most_rows;
    for (int i = 0; i < model->num_buffers; i++) {
        int64_t bytes = rows_of(&run, space_of(&run, i)) * width_of(&run, i) * 4;
        run.values[i] = space_of(&run, i) == OF_STATES ? take_zeros(&run, bytes) : take(&run, bytes);
        run.spare[i] = space_of(&run, i) == OF_STATES ? take(&run, bytes) : NULL;
    }
    run_program(&run, 0);
    decode(&run);
    for (chunk_t *chunk = run.chunks; chunk;) {
        chunk_t *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    return 0;
}
