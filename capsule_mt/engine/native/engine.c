/* The C interface: building a model, and translating with it. */
#include "run.h"

#include <math.h>

#if defined(_WIN32)
#include <windows.h>
#else
#include <time.h>
#endif
#if !defined(_WIN32) && !defined(__wasm__)
#include <sys/mman.h>
#endif
#if defined(__GLIBC__)
#include <malloc.h>
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

/* Weights lie side by side. */
#if defined(IS_SANITIZED)
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

/* Memory, aligned to 64 bytes, until the model is freed; NULL where that is short. */
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
    return block->memory + block->used - bytes;
}

static void free_chunks(chunk_t *chunk) {
    for (chunk_t *next; chunk; chunk = next) {
        next = chunk->next;
        free_pages(chunk);
    }
}

void engine_free(model_t *model) {
    if (!model) return;
    for (block_t *block = model->blocks, *next; block; block = next) {
        next = block->next;
        free_pages(block->memory);
        free(block);
    }
    for (int i = 0; i < model->num_vectors; i++) {
        free(model->vectors[i].values);
        free(model->vectors[i].largest);
    }
    for (int i = 0; i < MOST_ARENAS; i++) free_chunks(model->arenas[i]);
    free_pages(model->upper);
    free(model->places);
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

int engine_add_linear(model_t *model, int64_t outputs, int64_t inputs, int type) {
    linear_t *linears = grow(model->linears, model->num_linears, sizeof(linear_t));
    if (!linears) return NO_MEMORY;
    model->linears = linears;
    linear_t *linear = linears + model->num_linears;
    *linear = (linear_t){(long)outputs, (long)inputs, .int8 = type == CODES, .halves = type == FLOAT16};
    model->halves |= linear->int8;
    char *memory = keep(model, model->kernels->packed_bytes(linear));
    if (!memory) return NO_MEMORY;
    model->kernels->lay_out(linear, memory);
    return model->num_linears++;
}

static int64_t size_of(int type) { return type == FLOAT32 ? 4 : type == CODES ? 1 : 2; }

#define LARGEST_CODE 127

/* Rounding these numbers again gives the same codes and the same largest magnitude, bit for bit. */
static void widen_codes(const int8_t *codes, float largest, float *to, int64_t count) {
    float step = largest / LARGEST_CODE;
    for (int64_t i = 0; i < count; i++)
        to[i] = codes[i] == LARGEST_CODE ? largest : codes[i] == -LARGEST_CODE ? -largest : (float)codes[i] * step;
}

void read_floats(const model_t *model, const void *from, int type, float largest, int64_t first, int64_t count,
                 float *to) {
    const char *start = (const char *)from + first * size_of(type);
    if (type == FLOAT32) memcpy(to, start, (size_t)count * 4);
    else if (type == CODES) widen_codes((const int8_t *)start, largest, to, count);
    else model->kernels->widen((const uint16_t *)start, type == BFLOAT16, to, (long)count);
}

int engine_pack(model_t *model, int number, int64_t first, int64_t outputs, const void *weight, int type,
                const float *largest, const void *bias, int bias_type) {
    if (number < 0 || number >= model->num_linears) return wrong("there is no linear map %d", number);
    linear_t *linear = model->linears + number;
    int64_t inputs = linear->inputs;
    if (first < 0 || first + outputs > linear->outputs)
        return wrong("outputs %lld to %lld of a linear map that has %ld", (long long)first,
                     (long long)(first + outputs), linear->outputs);
    if (linear->halves && type != FLOAT16) return wrong("weights of type %d for a map in half precision", type);
    if (type == FLOAT32 || linear->halves) {
        model->kernels->pack(linear, weight, (long)first, (long)(first + outputs));
    } else if (type == CODES && linear->int8) {
        model->kernels->pack_codes(linear, weight, largest, (long)first, (long)(first + outputs));
    } else {
        float *row = malloc((size_t)inputs * 4 + 64);
        if (!row) return NO_MEMORY;
        for (int64_t o = 0; o < outputs; o++) {
            read_floats(model, weight, type, largest ? largest[o] : 0, o * inputs, inputs, row);
            model->kernels->pack(linear, row, (long)(first + o), (long)(first + o + 1));
        }
        free(row);
    }
    if (bias) read_floats(model, bias, bias_type, 0, 0, outputs, linear->bias + first);
    return 0;
}

/* A new vector for `count` numbers of this type; NULL where memory is short. */
static vector_t *new_vector(model_t *model, int64_t count, int type) {
    vector_t *vectors = grow(model->vectors, model->num_vectors, sizeof(vector_t));
    void *values = malloc((size_t)(count * size_of(type)) + 64);
    if (vectors) model->vectors = vectors;
    if (!vectors || !values) {
        free(values);
        return NULL;
    }
    vectors += model->num_vectors++;
    *vectors = (vector_t){values, count, type, 0, NULL, -1};
    return vectors;
}

int engine_add_vector(model_t *model, const void *values, int64_t count, int type) {
    vector_t *vector = new_vector(model, count, FLOAT32);
    if (!vector) return NO_MEMORY;
    read_floats(model, values, type, 0, 0, count, vector->values);
    return model->num_vectors - 1;
}

int engine_add_table(model_t *model, const void *values, int64_t rows, int64_t width, int type, const float *largest) {
    vector_t *table = new_vector(model, rows * width, type);
    if (!table) return NO_MEMORY;
    table->is_table = 1;
    memcpy(table->values, values, (size_t)(rows * width * size_of(type)));
    if (type != CODES) return model->num_vectors - 1;
    table->largest = malloc((size_t)rows * 4 + 4);
    if (!table->largest) return NO_MEMORY;
    memcpy(table->largest, largest, (size_t)rows * 4);
    return model->num_vectors - 1;
}

int engine_add_packed_table(model_t *model, int number, const float *largest) {
    if (number < 0 || number >= model->num_linears) return wrong("there is no linear map %d", number);
    const linear_t *linear = model->linears + number;
    if (linear->int8 && !largest) return wrong("a table of codes without their largest magnitudes");
    vector_t *table = new_vector(model, linear->int8 ? linear->outputs : 0, FLOAT32); /* room for `largest` */
    if (!table) return NO_MEMORY;
    table->count = (int64_t)linear->outputs * linear->inputs;
    table->is_table = 1;
    table->linear = number;
    if (linear->int8) {
        table->type = CODES;
        table->largest = table->values;
        table->values = NULL;
        memcpy(table->largest, largest, (size_t)linear->outputs * 4);
    }
    if (linear->halves) table->type = FLOAT16;
    return model->num_vectors - 1;
}

int engine_add_positions(model_t *model, int64_t count, int64_t width, int64_t span) {
    vector_t *vector = new_vector(model, count * width, FLOAT32);
    if (!vector) return NO_MEMORY;
    float *values = vector->values;
    for (int64_t i = 0; i < width; i++) {
        double power = pow(10000, 2 * (double)(i / 2) / (double)span);
        int64_t column = i % 2 ? (width + 1) / 2 + i / 2 : i / 2;
        for (int64_t p = 0; p < count; p++)
            values[p * width + column] = (float)(i % 2 ? cos((double)p / power) : sin((double)p / power));
    }
    return model->num_vectors - 1;
}

void engine_widen(const void *from, int type, float *to, int64_t count) {
    if (type == FLOAT32) memcpy(to, from, (size_t)count * 4);
    else choose_kernels(NULL)->widen(from, type == BFLOAT16, to, (long)count);
}

void engine_widen_codes(const int8_t *codes, const float *largest, float *to, int64_t rows, int64_t width) {
    for (int64_t r = 0; r < rows; r++) widen_codes(codes + r * width, largest[r], to + r * width, width);
}

void engine_round_codes(const float *from, int8_t *codes, float *largest, int64_t rows, int64_t width) {
    for (int64_t r = 0; r < rows; r++, from += width, codes += width) {
        largest[r] = 1e-30f;
        for (int64_t i = 0; i < width; i++) largest[r] = fmaxf(largest[r], fabsf(from[i]));
        float factor = LARGEST_CODE / largest[r];
        for (int64_t i = 0; i < width; i++) codes[i] = (int8_t)rintf(from[i] * factor);
    }
}

int64_t engine_count_infinite(const void *values, int type, int64_t count) {
    int64_t found = 0;
    const uint32_t *words = values;
    const uint16_t *halves = values;
    uint16_t exponent = type == BFLOAT16 ? 0x7f80 : 0x7c00;
    for (int64_t first = 0; first < count; first += 4096) { /* a short sum goes into narrow lanes */
        int64_t end = count - first < 4096 ? count : first + 4096;
        uint16_t infinite = 0;
        if (type == FLOAT32)
            for (int64_t i = first; i < end; i++) infinite += (words[i] & 0x7f800000) == 0x7f800000;
        else
            for (int64_t i = first; i < end; i++) infinite += (halves[i] & exponent) == exponent;
        found += infinite;
    }
    return found;
}

void engine_product(const float *a, const float *b, float *c, int64_t rows, int64_t inner, int64_t columns) {
    double *sums = malloc((size_t)columns * 8 + 8);
    for (int64_t r = 0; sums && r < rows; r++) {
        memset(sums, 0, (size_t)columns * 8);
        for (int64_t k = 0; k < inner; k++)
            for (int64_t i = 0; i < columns; i++) sums[i] += (double)a[r * inner + k] * b[k * columns + i];
        for (int64_t i = 0; i < columns; i++) c[r * columns + i] = (float)sums[i];
    }
    free(sums);
}

int engine_add_buffer(model_t *model, int space, int64_t width) {
    buffer_t *buffers = grow(model->buffers, model->num_buffers, sizeof(buffer_t));
    if (!buffers) return NO_MEMORY;
    model->buffers = buffers;
    buffers[model->num_buffers] = (buffer_t){space, width, 0, 0};
    return model->num_buffers++;
}

int engine_set_programs(model_t *model, const operation_t *encoder, int64_t num_encoder, const operation_t *decoder,
                        int64_t num_decoder, int logits) {
    const operation_t *programs[2] = {encoder, decoder};
    int64_t counts[2] = {num_encoder, num_decoder};
    for (int i = 0; i < 2; i++) {
        free(model->programs[i]);
        model->programs[i] = malloc(sizeof(operation_t) * (size_t)counts[i] + 1);
        if (!model->programs[i]) return NO_MEMORY;
        memcpy(model->programs[i], programs[i], sizeof(operation_t) * (size_t)counts[i]);
        model->num_operations[i] = counts[i];
    }
    model->logits = logits;
#if defined(__GLIBC__)
    malloc_trim(0); /* what reading the weights has left behind: some megabytes */
#endif
    int failed = check_programs(model);
    return failed ? failed : plan_memory(model);
}

/* Gives the buffers their memory, for as many rows as there may be. */
static void place_buffers(run_t *run) {
    const model_t *model = run->model;
    float **memory = take(run, (model->num_places + 1) * (int64_t)sizeof(float *));
    int64_t most = run->rows > run->num_words ? run->rows : run->num_words;
    int64_t passing = most < MOST_AT_ONCE ? most : MOST_AT_ONCE;
    for (int place = 0; place < model->num_places; place++) {
        int space = model->places[place].space;
        int64_t rows = space == OF_PASSING ? passing : rows_of(run, space);
        if (run->request->targets && place == model->buffers[model->logits].place) rows = SCORED_ROWS;
        memory[place] = take(run, rows * model->places[place].width * 4);
    }
    for (int i = 0; i < model->num_buffers; i++) {
        int64_t bytes = rows_of(run, space_of(run, i)) * width_of(run, i) * 4;
        run->values[i] = memory[model->buffers[i].place];
        run->spare[i] = space_of(run, i) == OF_STATES ? take(run, bytes) : NULL;
        if (space_of(run, i) == OF_STATES) memset(run->values[i], 0, (size_t)bytes);
    }
}

/* Encodes the sources, and searches or scores. */
static void translate(run_t *run) {
    const request_t *request = run->request;
    const model_t *model = run->model;
    int64_t most_positions = 0;
    run->most_rows = request->num_sources * request->num_beams;
    /* Beams that repeat themselves end before the others: see `read_last_tokens`. */
    if (request->guided && request->most_repeated > 0) run->most_rows *= 2;
    int at_once = request->targets && !model->goes_by_steps;
    for (int64_t i = 0; request->targets && i < request->num_sources; i++)
        most_positions += request->target_lengths[i] + 1;
    if (at_once) {
        run->most_rows = most_positions;
        run->row_position = take(run, run->most_rows * 8);
    }
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
    run->row_source = take(run, run->most_rows * 8);
    run->tokens = take(run, run->most_rows * 8);
    run->most_steps = at_once ? 1 : request->longest + (request->guided && request->longest < model->longest_target ? 1 : 0);
    run->ancestors = take(run, run->most_rows * run->most_steps * 4);
    run->new_ancestors = take(run, run->most_rows * run->most_steps * 4);
    run->caches = take(run, (model->num_caches * run->most_steps + 1) * (int64_t)sizeof(char *));
    run->memories = take_zeros(run, (model->num_operations[1] + 1) * (int64_t)sizeof(char *));
    run->attended = request->received ? take(run, run->most_steps * (int64_t)sizeof(float *)) : NULL;
    run->curves = request->guided ? take(run, run->most_steps * (int64_t)sizeof(float *)) : NULL;
    run->agreements = take_zeros(run, run->most_rows * 4);
    int64_t most_keys = request->longest + 1;
    if (request->longest_source > most_keys) most_keys = request->longest_source;
    run->most_keys = most_keys + 1;
    run->keys = take(run, team_size(run->team) * run->most_keys * (int64_t)sizeof(char *));
    run->totals = take(run, run->most_rows * 4);
    run->best = take(run, run->most_rows * 4);
    run->values = take(run, (model->num_buffers + 1) * (int64_t)sizeof(float *));
    run->spare = take(run, (model->num_buffers + 1) * (int64_t)sizeof(float *));
    run->rows = run->most_rows;
    place_buffers(run);
    if (request->candidates) {
        const linear_t *whole = model->linears + model->head->slots[LINEAR_map];
        run->head.outputs = (long)request->num_candidates;
        run->head.inputs = whole->inputs;
        run->head.int8 = whole->int8;
        run->head.halves = whole->halves;
        int64_t bytes = model->kernels->packed_bytes(&run->head) + 64;
        char *memory = take(run, bytes);
        model->kernels->select(whole, request->candidates, &run->head, memory + (64 - (uintptr_t)memory % 64) % 64);
    }
    run_program(run, 0);
    if (request->targets) force(run, most_positions);
    else decode(run);
}

/* Of the memory of a run, a model keeps so much for its next one. */
#define MOST_KEPT (128 << 20)

chunk_t *more_memory(run_t *run, int64_t bytes) {
    int64_t size = bytes + (int64_t)sizeof(chunk_t);
#if !defined(IS_SANITIZED)
    size = (size + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    if (run->chunks && size < run->chunks->size) size = run->chunks->size; /* at least as much again */
#endif
    chunk_t *chunk = bytes < 0 ? NULL : allocate_pages(size);
    if (!chunk) longjmp(run->failed, NO_MEMORY);
    *chunk = (chunk_t){.next = run->chunks, .used = sizeof(chunk_t), .size = size};
    return run->chunks = chunk;
}

/* Memory of a former run, or NULL. */
static chunk_t *take_arena(model_t *model) {
    chunk_t *chunk = NULL;
    for (int i = 0; !chunk && i < MOST_ARENAS; i++)
        if (__atomic_load_n(model->arenas + i, __ATOMIC_RELAXED))
            chunk = __atomic_exchange_n(model->arenas + i, NULL, __ATOMIC_ACQ_REL);
    return chunk;
}

/* Keeps the memory of a run. Where it took several chunks, the next run begins with one for all that they held. */
static void keep_arena(model_t *model, chunk_t *chunks) {
    int64_t used = 0;
    for (chunk_t *chunk = chunks; chunk; chunk = chunk->next) used += chunk->used;
    if (chunks && (chunks->next || used > MOST_KEPT)) {
        int64_t size = (used + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
        free_chunks(chunks);
        chunks = used > MOST_KEPT ? NULL : allocate_pages(size);
        if (chunks) *chunks = (chunk_t){.size = size};
    }
    if (chunks) chunks->used = sizeof(chunk_t);
#if !defined(IS_SANITIZED)
    for (int i = 0; chunks && i < MOST_ARENAS; i++) {
        chunk_t *none = NULL;
        if (__atomic_compare_exchange_n(model->arenas + i, &none, chunks, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return;
    }
#endif
    free_chunks(chunks);
}

/* Packing takes as long as some thirty steps gain by it; a head that the cache holds gains nothing. */
#if !defined(LEAST_PREVIEWS)
#define LEAST_PREVIEWS 32
#define LEAST_UPPER (1 << 20)
#endif

const void *upper_of(model_t *model) {
    const linear_t *head = model->linears + model->head->slots[LINEAR_map];
    void *upper = __atomic_load_n(&model->upper, __ATOMIC_ACQUIRE), *none = NULL;
    int64_t bytes = model->kernels->upper_bytes(head);
    if (upper || bytes < LEAST_UPPER || __atomic_add_fetch(&model->previews, 1, __ATOMIC_RELAXED) < LEAST_PREVIEWS)
        return upper;
    upper = allocate_pages(bytes);
    if (!upper) return NULL;
    model->kernels->pack_upper(head, upper);
    if (__atomic_compare_exchange_n(&model->upper, &none, upper, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return upper;
    free_pages(upper); /* another thread was first */
    return none;
}

double seconds(void) {
#if defined(_WIN32)
    LARGE_INTEGER now, of_second;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&of_second);
    return (double)now.QuadPart / (double)of_second.QuadPart;
#elif defined(__wasm__)
    return 0; /* there is no clock */
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
#endif
}

void look(run_t *run) {
    double now = seconds();
    if (now - run->last_look < LOOK_SECONDS) return;
    run->caller->regain(run->released);
    int gives_up = run->caller->look();
    run->released = run->caller->release();
    run->last_look = seconds();
    if (gives_up) longjmp(run->failed, IS_STOPPED);
}

int engine_translate(model_t *model, const request_t *request, const caller_t *caller) {
    run_t run = {.model = model, .request = request, .caller = caller, .last_look = seconds()};
    if (check_request(model, request)) return IS_WRONG;
    if (caller) run.released = caller->release();
    run.chunks = take_arena(model);
    run.team = team_new(request->num_threads);
    int failed = setjmp(run.failed);
    if (!failed) translate(&run);
    team_free(run.team);
    keep_arena(model, run.chunks);
    if (caller) caller->regain(run.released);
    return failed;
}
