/* The C interface: building a model, and translating with it. */
#include "run.h"

#if !defined(_WIN32)
#include <sys/mman.h>
#endif

int engine_version(void) { return ENGINE_VERSION; }

const char *engine_tier(const char *name) {
    const kernels_t *kernels = choose_kernels(name && *name ? name : NULL);
    return kernels ? kernels->name : "";
}

const void *engine_kernels(const char *tier) { return choose_kernels(tier); }

model_t *engine_new(const char *tier, int64_t vocabulary, int64_t num_caches) {
    const kernels_t *kernels = choose_kernels(tier && *tier ? tier : NULL);
    model_t *model = kernels ? calloc(1, sizeof(model_t)) : NULL;
    if (!model) return NULL;
    model->kernels = kernels;
    model->vocabulary = vocabulary;
    model->num_caches = num_caches;
    return model;
}

/* Weights lie side by side. The sanitizer gets a block for each linear map, to see where one ends. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BLOCK_BYTES 0
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(BLOCK_BYTES)
#define BLOCK_BYTES 0
#elif !defined(BLOCK_BYTES)
#define BLOCK_BYTES (16 * LARGE_PAGE)
#endif

void *allocate_pages(int64_t bytes) {
    void *memory = NULL;
#if defined(_WIN32)
    memory = _aligned_malloc((size_t)bytes, LARGE_PAGE);
#else
    if (posix_memalign(&memory, LARGE_PAGE, (size_t)bytes)) return NULL;
#if defined(MADV_HUGEPAGE)
    if (BLOCK_BYTES) madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
#endif
#endif
    return memory;
}

void free_pages(void *memory) {
#if defined(_WIN32)
    _aligned_free(memory);
#else
    free(memory);
#endif
}

/* Zeros, aligned to 64 bytes, until the model is freed; NULL where memory is short. */
static char *keep(model_t *model, int64_t bytes) {
    block_t *block = model->blocks;
    bytes = (bytes + 63) / 64 * 64;
    if (!block || block->size - block->used < bytes) {
        int64_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        char *memory = allocate_pages(size);
        block = memory ? malloc(sizeof(block_t)) : NULL;
        if (!block) {
            free_pages(memory);
            return NULL;
        }
        *block = (block_t){model->blocks, memory, 0, size};
        model->blocks = block;
    }
    block->used += bytes;
    return memset(block->memory + block->used - bytes, 0, (size_t)bytes);
}

void engine_free(model_t *model) {
    if (!model) return;
    for (block_t *block = model->blocks, *next; block; block = next) {
        next = block->next;
        free_pages(block->memory);
        free(block);
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
    char *memory = keep(model, model->kernels->packed_bytes(linear));
    if (!memory) return -1;
    model->kernels->pack(linear, memory, weight, bias);
    return model->num_linears++;
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
    for (int i = 0; i < 2; i++)
        for (int64_t j = 0; j < counts[i]; j++)
            if (programs[i][j].kind < 0 || programs[i][j].kind > LAST_KIND) return -2;
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

/* Encodes the sources and searches. */
static void translate(run_t *run) {
    const request_t *request = run->request;
    const model_t *model = run->model;
    int64_t most_rows = request->num_sources * request->num_beams;
    run->first_word = take(run, request->num_sources * 8);
    for (int64_t i = 0; i < request->num_sources; i++) {
        run->first_word[i] = run->num_words;
        run->num_words += request->lengths[i];
    }
    run->word_source = take(run, run->num_words * 8);
    run->word_position = take(run, run->num_words * 8);
    for (int64_t i = 0, word = 0; i < request->num_sources; i++)
        for (int64_t j = 0; j < request->lengths[i]; j++, word++) {
            run->word_source[word] = i;
            run->word_position[word] = j;
        }
    run->row_source = take(run, most_rows * 8);
    run->tokens = take(run, most_rows * 8);
    run->most_steps = request->longest + (request->coverage ? 1 : 0);
    run->ancestors = take(run, most_rows * run->most_steps * 4);
    run->new_ancestors = take(run, most_rows * run->most_steps * 4);
    run->caches = take(run, (model->num_caches * run->most_steps + 1) * (int64_t)sizeof(float *));
    run->curves = request->coverage ? take(run, run->most_steps * (int64_t)sizeof(float *)) : NULL;
    run->agreements = request->coverage ? take_zeros(run, most_rows * 4) : NULL;
    int64_t most_keys = request->longest_source > run->most_steps ? request->longest_source : run->most_steps;
    run->most_keys = most_keys + 1;
    run->keys = take(run, team_size(run->team) * run->most_keys * (int64_t)sizeof(float *));
    run->totals = take(run, most_rows * 4);
    run->values = take(run, (model->num_buffers + 1) * (int64_t)sizeof(float *));
    run->spare = take(run, (model->num_buffers + 1) * (int64_t)sizeof(float *));
    run->rows = most_rows;
    for (int i = 0; i < model->num_buffers; i++) {
        int64_t bytes = rows_of(run, space_of(run, i)) * width_of(run, i) * 4;
        run->values[i] = space_of(run, i) == OF_STATES ? take_zeros(run, bytes) : take(run, bytes);
        run->spare[i] = space_of(run, i) == OF_STATES ? take(run, bytes) : NULL;
    }
    if (request->candidates) {
        const linear_t *whole = NULL;
        for (int64_t i = 0; i < model->num_operations[1]; i++)
            if (model->programs[1][i].out == model->logits) whole = model->linears + model->programs[1][i].w[0];
        run->head.outputs = (long)request->num_candidates;
        run->head.inputs = whole->inputs;
        run->head.int8 = whole->int8;
        int64_t bytes = model->kernels->packed_bytes(&run->head) + 64;
        char *memory = take_zeros(run, bytes);
        model->kernels->select(whole, request->candidates, &run->head, memory + (64 - (uintptr_t)memory % 64) % 64);
    }
    run_program(run, 0);
    decode(run);
}

int engine_translate(const model_t *model, const request_t *request) {
    run_t run = {.model = model, .request = request};
    run.team = team_new(request->num_threads);
    int failed = setjmp(run.out_of_memory);
    if (!failed) translate(&run);
    team_free(run.team);
    for (chunk_t *chunk = run.chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        if (chunk->on_pages) free_pages(chunk);
        else free(chunk);
    }
    return failed ? -1 : 0;
}
