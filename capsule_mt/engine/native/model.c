/* Building a model through the C interface: its packed weights, buffers and programs. */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static void free_packed_copy(linear_t *copy) {
    if (copy) free_pages(copy->bias); /* where its memory begins: see `lay_out` */
    free(copy);
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
        free(model->vectors[i].magnitudes);
    }
    for (int i = 0; i < MAX_ARENAS; i++) free_chunks(model->arenas[i]);
    free_pages(model->preview);
    for (int i = 0; i < model->num_linears; i++) free_packed_copy(model->linears[i].packed_copy);
    free(model->regions);
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
    *linear = (linear_t){(long)outputs, (long)inputs, .int8 = type == CODES || type == CODES_BY_ROW,
                         .halves = type == FLOAT16, .by_row = type == CODES_BY_ROW};
    model->halves |= linear->int8;
    return model->num_linears++;
}

static int64_t size_of(int type) { return type == FLOAT32 ? 4 : type == CODES ? 1 : 2; }

#define LARGEST_CODE 127

/* Rounding these numbers again gives the same codes and the same largest magnitude, bit for bit. */
static void widen_codes(const int8_t *codes, float magnitude, float *target, int64_t count) {
    float step = magnitude / LARGEST_CODE;
    for (int64_t i = 0; i < count; i++)
        target[i] = codes[i] == LARGEST_CODE    ? magnitude
                    : codes[i] == -LARGEST_CODE ? -magnitude
                                                : (float)codes[i] * step;
}

void read_floats(const model_t *model, const void *source, int type, float magnitude, int64_t first, int64_t count,
                 float *target) {
    const char *start = (const char *)source + first * size_of(type);
    if (type == FLOAT32) memcpy(target, start, (size_t)count * 4);
    else if (type == CODES) widen_codes((const int8_t *)start, magnitude, target, count);
    else model->kernels->widen((const uint16_t *)start, type == BFLOAT16, target, (long)count);
}

int engine_pack(model_t *model, int index, int64_t first, int64_t outputs, const void *weight, int type,
                const float *magnitudes, const void *bias, int bias_type) {
    if (index < 0 || index >= model->num_linears) return refuse("there is no linear map %d", index);
    linear_t *linear = model->linears + index;
    int64_t inputs = linear->inputs;
    if (first < 0 || first + outputs > linear->outputs)
        return refuse("outputs %lld to %lld of a linear map that has %ld", (long long)first,
                      (long long)(first + outputs), linear->outputs);
    if (!linear->bias) {
        char *memory = keep(model, model->kernels->packed_bytes(linear));
        if (!memory) return NO_MEMORY;
        model->kernels->lay_out(linear, memory);
    }
    if (linear->halves && type != FLOAT16) return refuse("weights of type %d for a map in half precision", type);
    if ((type == FLOAT32 && !linear->by_row) || linear->halves) {
        model->kernels->pack(linear, weight, (long)first, (long)(first + outputs));
    } else if (type == CODES && linear->int8) {
        model->kernels->pack_codes(linear, weight, magnitudes, (long)first, (long)(first + outputs));
    } else {
        float *row = malloc((size_t)inputs * 5 + 64), row_magnitude;
        if (!row) return NO_MEMORY;
        int8_t *codes = (int8_t *)(row + inputs); /* for a map by row */
        for (int64_t o = 0; o < outputs; o++) {
            read_floats(model, weight, type, magnitudes ? magnitudes[o] : 0, o * inputs, inputs, row);
            if (linear->by_row) {
                engine_round_codes(row, codes, &row_magnitude, 1, inputs);
                model->kernels->pack_codes(linear, codes, &row_magnitude, (long)(first + o), (long)(first + o + 1));
            } else {
                model->kernels->pack(linear, row, (long)(first + o), (long)(first + o + 1));
            }
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
    *vectors = (vector_t){values, count, count, type, 0, NULL, -1};
    return vectors;
}

int engine_add_vector(model_t *model, const void *values, int64_t count, int type) {
    vector_t *vector = new_vector(model, count, FLOAT32);
    if (!vector) return NO_MEMORY;
    read_floats(model, values, type, 0, 0, count, vector->values);
    return model->num_vectors - 1;
}

int engine_add_table(model_t *model, const void *values, int64_t rows, int64_t width, int type,
                     const float *magnitudes) {
    if (rows < 0 || width < 1 || rows > INT64_MAX / 8 / width)
        return refuse("a table of %lld rows of %lld numbers", (long long)rows, (long long)width);
    vector_t *table = new_vector(model, rows * width, type);
    if (!table) return NO_MEMORY;
    table->is_table = 1;
    table->width = width;
    memcpy(table->values, values, (size_t)(rows * width * size_of(type)));
    if (type != CODES) return model->num_vectors - 1;
    table->magnitudes = malloc((size_t)rows * 4 + 4);
    if (!table->magnitudes) return NO_MEMORY;
    memcpy(table->magnitudes, magnitudes, (size_t)rows * 4);
    return model->num_vectors - 1;
}

int engine_add_packed_table(model_t *model, int index, const float *magnitudes) {
    if (index < 0 || index >= model->num_linears) return refuse("there is no linear map %d", index);
    const linear_t *linear = model->linears + index;
    if (!linear->bias) return refuse("a table of the linear map %d, which has no weights", index);
    if (linear->int8 && !magnitudes) return refuse("a table of codes without their largest magnitudes");
    vector_t *table = new_vector(model, linear->int8 ? linear->outputs : 0, FLOAT32); /* room for `magnitudes` */
    if (!table) return NO_MEMORY;
    table->count = (int64_t)linear->outputs * linear->inputs;
    table->width = linear->inputs;
    table->is_table = 1;
    table->linear = index;
    if (linear->int8) {
        table->type = CODES;
        table->magnitudes = table->values;
        table->values = NULL;
        memcpy(table->magnitudes, magnitudes, (size_t)linear->outputs * 4);
    }
    if (linear->halves) table->type = FLOAT16;
    return model->num_vectors - 1;
}

#ifdef __wasm__ /* where the size of the code counts more than its speed */
static void fill_positions(float *values, int64_t count, int64_t width, int64_t span, int64_t start) {
    for (int64_t i = 0; i < width; i++) {
        double power = pow(10000, 2 * (double)(i / 2) / (double)span);
        int64_t column = i % 2 ? (width + 1) / 2 + i / 2 : i / 2;
        for (int64_t p = 0; p < count; p++) {
            double angle = (double)(start + p) / power;
            values[p * width + column] = (float)(i % 2 ? cos(angle) : sin(angle));
        }
    }
}
#else
/* Only the first of these positions is computed by sin and cos, the others by the angle addition theorems, in a quarter of
 * the time. In double precision, so one number in a million is rounded to the other neighbour in single precision. */
enum { POSITION_BLOCK = 32 };

static void fill_positions(float *values, int64_t count, int64_t width, int64_t span, int64_t start) {
    double sines[POSITION_BLOCK], cosines[POSITION_BLOCK];
    int64_t num_sines = (width + 1) / 2;
    for (int64_t column = 0; column < num_sines; column++) {
        double power = pow(10000, 2 * (double)column / (double)span);
        for (int i = 0; i < POSITION_BLOCK; i++) sines[i] = sin(i / power), cosines[i] = cos(i / power);
        for (int64_t first = 0; first < count; first += POSITION_BLOCK) {
            double angle = (double)(start + first) / power, sine = sin(angle), cosine = cos(angle);
            float *row = values + first * width + column;
            for (int64_t i = 0; i < POSITION_BLOCK && i < count - first; i++, row += width) {
                row[0] = (float)(sine * cosines[i] + cosine * sines[i]);
                if (column < width / 2) row[num_sines] = (float)(cosine * cosines[i] - sine * sines[i]);
            }
        }
    }
}
#endif

int engine_add_positions(model_t *model, int64_t count, int64_t width, int64_t span, int64_t start) {
    vector_t *vector = new_vector(model, count * width, FLOAT32);
    if (!vector) return NO_MEMORY;
    fill_positions(vector->values, count, width, span, start);
    return model->num_vectors - 1;
}

void engine_widen(const void *source, int type, float *target, int64_t count) {
    if (type == FLOAT32) memcpy(target, source, (size_t)count * 4);
    else choose_kernels(NULL)->widen(source, type == BFLOAT16, target, (long)count);
}

void engine_widen_codes(const int8_t *codes, const float *magnitudes, float *target, int64_t rows, int64_t width) {
    for (int64_t r = 0; r < rows; r++) widen_codes(codes + r * width, magnitudes[r], target + r * width, width);
}

void engine_round_codes(const float *source, int8_t *codes, float *magnitudes, int64_t rows, int64_t width) {
    for (int64_t r = 0; r < rows; r++, source += width, codes += width) {
        magnitudes[r] = 1e-30f;
        for (int64_t i = 0; i < width; i++) magnitudes[r] = fmaxf(magnitudes[r], fabsf(source[i]));
        float factor = LARGEST_CODE / magnitudes[r];
        for (int64_t i = 0; i < width; i++) codes[i] = (int8_t)rintf(source[i] * factor);
    }
}

int64_t engine_count_invalid(const void *values, int type, int64_t count) {
    int64_t num_invalid = 0;
    const uint32_t *words = values;
    const uint16_t *halves = values;
    const int8_t *codes = values;
    uint16_t exponent = type == BFLOAT16 ? 0x7f80 : 0x7c00;
    for (int64_t first = 0; first < count; first += 4096) { /* a short sum goes into narrow lanes */
        int64_t end = count - first < 4096 ? count : first + 4096;
        uint16_t invalid = 0;
        if (type == FLOAT32)
            for (int64_t i = first; i < end; i++) invalid += (words[i] & 0x7f800000) == 0x7f800000;
        else if (type == CODES)
            for (int64_t i = first; i < end; i++) invalid += codes[i] == INT8_MIN;
        else
            for (int64_t i = first; i < end; i++) invalid += (halves[i] & exponent) == exponent;
        num_invalid += invalid;
    }
    return num_invalid;
}

int64_t engine_count_negative(const float *values, int64_t count) {
    int64_t num_negative = 0;
    for (int64_t i = 0; i < count; i++) num_negative += values[i] < 0;
    return num_negative;
}

#define CHECKSUM_LANES 8 /* no multiplication waits for another */

/* For each word, different sums give different results, and the other way round. */
static uint64_t add_to_checksum(uint64_t sum, uint64_t word) {
    return ((sum << 31 | sum >> 33) ^ word) * 0x9E3779B97F4A7C15u; /* any odd factor; this is 2^64 over the golden ratio */
}

uint64_t engine_checksum(const uint8_t *content, int64_t size) {
    uint64_t lanes[CHECKSUM_LANES] = {0}, words[CHECKSUM_LANES], sum = 0;
    for (; size >= (int64_t)sizeof(words); size -= sizeof(words), content += sizeof(words)) {
        memcpy(words, content, sizeof(words));
        for (int i = 0; i < CHECKSUM_LANES; i++) lanes[i] = add_to_checksum(lanes[i], words[i]);
    }
    memset(words, 0, sizeof(words));
    memcpy(words, content, (size_t)size);
    for (int i = 0; i < CHECKSUM_LANES; i++) sum = add_to_checksum(sum, add_to_checksum(lanes[i], words[i]));
    return sum;
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
    model->head = NULL; /* an operation of the programs that are freed here */
    model->is_encoder = 0;
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
    if (!failed) failed = plan_memory(model);
    if (failed) { /* so that requests are refused */
        model->head = NULL;
        model->is_encoder = 0;
    }
    return failed;
}

/* Packs all outputs of a map by row, as it packs those of a shortlist. */
static linear_t *pack_copy(const model_t *model, const linear_t *linear) {
    linear_t *copy = malloc(sizeof(linear_t));
    int32_t *outputs = malloc((size_t)linear->outputs * 4 + 4);
    if (copy) *copy = (linear_t){linear->outputs, linear->inputs, .int8 = 1};
    char *memory = copy && outputs ? allocate_pages(model->kernels->packed_bytes(copy)) : NULL;
    if (memory) {
        for (long o = 0; o < linear->outputs; o++) outputs[o] = (int32_t)o;
        model->kernels->select(linear, outputs, copy, memory);
    } else {
        free(copy);
    }
    free(outputs);
    return memory ? copy : NULL;
}

const linear_t *packed_map_of(const model_t *model, linear_t *linear) {
    if (!linear->by_row) return linear;
    linear_t *copy = __atomic_load_n(&linear->packed_copy, __ATOMIC_ACQUIRE), *expected = NULL;
    if (copy || !(copy = pack_copy(model, linear))) return copy;
    if (__atomic_compare_exchange_n(&linear->packed_copy, &expected, copy, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return copy;
    free_packed_copy(copy); /* another thread was first */
    return expected;
}

void engine_observe(model_t *model, observer_t observer) { model->observer = observer; }

/* Packing takes as long as some thirty steps gain by it; a head that the cache holds gains nothing. */
#if !defined(MIN_PREVIEW_STEPS)
#define MIN_PREVIEW_STEPS 32
#define MIN_PREVIEW_BYTES (1 << 20)
#endif

const void *preview_of(model_t *model, const linear_t *head) {
    void *preview = __atomic_load_n(&model->preview, __ATOMIC_ACQUIRE), *expected = NULL;
    int64_t bytes = model->kernels->preview_bytes(head);
    if (preview || bytes < MIN_PREVIEW_BYTES) return preview;
    if (__atomic_add_fetch(&model->preview_steps, 1, __ATOMIC_RELAXED) < MIN_PREVIEW_STEPS) return NULL;
    preview = allocate_pages(bytes);
    if (!preview) return NULL;
    model->kernels->pack_preview(head, preview);
    if (__atomic_compare_exchange_n(&model->preview, &expected, preview, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return preview;
    free_pages(preview); /* another thread was first */
    return expected;
}
