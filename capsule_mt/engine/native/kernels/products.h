/* Linear maps: how a tier lays out their weights, and the products.
 *
 * A product works on blocks of 2 LANES outputs: weights in float and half precision are laid out [block, input,
 * 2 LANES], int8 weights [block, input / DEPTH, 2, LANES, DEPTH], so that a step of the inner loop reads them in order.
 */
#ifndef CAPSULE_MT_PRODUCTS_H
#define CAPSULE_MT_PRODUCTS_H

#include "../kernels.h"
#include "contenders.h"
#include "vectors.h"

static long round_up(long n, long multiple) { return (n + multiple - 1) / multiple * multiple; }

/* A constant in the tier of WebAssembly, whose models are always in int8: its other products are not compiled. */
INLINE int is_int8(const linear_t *l) {
#if defined(TIER_SIMD128)
    (void)l;
    return 1;
#else
    return l->int8;
#endif
}

/* Bytes of an output that a step of the inner loop reads: the codes of DEPTH inputs, or one number. */
INLINE long step_bytes(const linear_t *l) { return is_int8(l) ? DEPTH : l->halves ? 2 : 4; }
INLINE long num_steps(const linear_t *l) { return is_int8(l) ? round_up(l->inputs, DEPTH) / DEPTH : l->inputs; }

static int64_t packed_bytes(const linear_t *l) { /* a `long` of Windows ends at 2 GiB */
    long outputs = round_up(l->outputs, BLOCK);
    return 3 * round_up(outputs * 4, 64) + (int64_t)outputs * num_steps(l) * step_bytes(l) + 64;
}

/* Where the weights of an output begin; each further step is BLOCK * step_bytes(l) bytes after the one before. */
static char *weights_of(const linear_t *l, long output) {
    int64_t block = output / BLOCK, lane = output % BLOCK;
    return (char *)l->packed + (block * BLOCK * num_steps(l) + lane) * step_bytes(l);
}

/* The codes of an output of a map by row. */
static char *row_of(const linear_t *l, long output) {
    return (char *)l->rows + (int64_t)output * num_steps(l) * step_bytes(l);
}

static void lay_out(linear_t *l, char *memory) {
    long part = round_up(round_up(l->outputs, BLOCK) * 4, 64), full = l->outputs / BLOCK * BLOCK;
    l->bias = (float *)memory;
    l->scales = (float *)(memory + part);
    l->sums = (int32_t *)(memory + 2 * part);
    memset(memory, 0, (size_t)(3 * part));
    if (l->by_row) {
        l->rows = (int8_t *)memory + 3 * part;
        return;
    }
    l->packed = memory + 3 * part;
    if (full < l->outputs) memset(weights_of(l, full), 0, (size_t)(BLOCK * num_steps(l) * step_bytes(l)));
}

/* Copies steps of `size` bytes, 2 or 4; the strides are in bytes, from one step to the next. */
INLINE void copy_steps(char *target, long target_stride, const char *source, long source_stride, long steps, long size) {
    if (size == 4)
        for (long i = 0; i < steps; i++) memcpy(target + i * target_stride, source + i * source_stride, 4);
    else
        for (long i = 0; i < steps; i++) memcpy(target + i * target_stride, source + i * source_stride, 2);
}

static void unpack(const linear_t *l, long output, void *target) {
    long size = step_bytes(l);
    if (l->by_row) memcpy(target, row_of(l, output), (size_t)(num_steps(l) * size));
    else copy_steps(target, size, weights_of(l, output), size * BLOCK, num_steps(l), size);
}

/* Exact, as `load_half`, also for numbers that are not finite. */
static void widen(const uint16_t *source, int bfloat, float *target, long count) {
    long i = 0;
#if defined(HAS_HALVES)
    for (; !bfloat && i + LANES <= count; i += LANES) store(target + i, load_half(source + i));
#endif
    for (; i < count; i++) {
        uint32_t bits = (uint32_t)source[i] << 16;
        if (!bfloat) {
            float moved;
            bits = (uint32_t)(source[i] & 0x7fff) << 13;
            memcpy(&moved, &bits, 4);
            moved *= 0x1p112f;
            memcpy(&bits, &moved, 4);
            bits |= ((source[i] & 0x7c00) == 0x7c00 ? 0x7f800000 : 0) | (uint32_t)(source[i] & 0x8000) << 16;
        }
        memcpy(target + i, &bits, 4);
    }
}

typedef uint16_t eight_halves_t __attribute__((vector_size(16)));
typedef uint32_t eight_words_t __attribute__((vector_size(32)));
/* Transposes eight inputs of each of eight outputs, from `offset` bytes on, into eight outputs of each input. */
#define TRANSPOSE(name, type) \
    INLINE void name(const char *const *sources, long offset, char *target, long stride) { \
        type rows[8], next[8]; \
        for (long k = 0; k < 8; k++) memcpy(rows + k, sources[k] + offset, sizeof(type)); \
        for (int round = 0; round < 3; round++) { \
            for (int k = 0; k < 4; k++) { \
                next[2 * k] = __builtin_shufflevector(rows[k], rows[k + 4], 0, 8, 1, 9, 2, 10, 3, 11); \
                next[2 * k + 1] = __builtin_shufflevector(rows[k], rows[k + 4], 4, 12, 5, 13, 6, 14, 7, 15); \
            } \
            memcpy(rows, next, sizeof(rows)); \
        } \
        for (long k = 0; k < 8; k++) memcpy(target + k * stride, rows + k, sizeof(type)); \
    }
TRANSPOSE(transpose_halves, eight_halves_t)
TRANSPOSE(transpose_words, eight_words_t)
#undef TRANSPOSE

#if !defined(TIER_SIMD128)
/* Packs eight outputs of a map by row into the lanes from `output` on. */
static void select_eight(const linear_t *source, const int32_t *outputs, const linear_t *target, long output) {
    long size = step_bytes(source), steps = num_steps(source), stride = size * BLOCK, full = steps / 8 * 8;
    char *packed = weights_of(target, output);
    const char *rows[8];
    for (long k = 0; k < 8; k++) rows[k] = row_of(source, outputs[k]);
    for (long i = 0; i < full; i += 8)
        if (size == 4) transpose_words(rows, i * size, packed + i * stride, stride);
        else transpose_halves(rows, i * size, packed + i * stride, stride);
    for (long k = 0; k < 8; k++)
        copy_steps(packed + full * stride + k * size, stride, rows[k] + full * size, size, steps - full, size);
}
#endif

static void select_outputs(const linear_t *source, const int32_t *outputs, linear_t *target, char *memory) {
    long size = step_bytes(source), done = 0;
    target->inputs = source->inputs;
    target->int8 = source->int8;
    target->halves = source->halves;
    lay_out(target, memory);
#if !defined(TIER_SIMD128) /* a page loads faster without this code */
    for (; source->by_row && done + 8 <= target->outputs; done += 8) select_eight(source, outputs + done, target, done);
#endif
    for (long o = done; o < target->outputs; o++) {
        if (source->by_row)
            copy_steps(weights_of(target, o), size * BLOCK, row_of(source, outputs[o]), size, num_steps(source), size);
        else
            copy_steps(weights_of(target, o), size * BLOCK, weights_of(source, outputs[o]), size * BLOCK,
                       num_steps(source), size);
    }
    for (long o = 0; o < target->outputs; o++) {
        target->bias[o] = source->bias[outputs[o]];
        target->scales[o] = source->scales[outputs[o]];
        target->sums[o] = source->sums[outputs[o]];
    }
}

/* Inputs that are packed of all outputs of a block before the next ones are: the target then stays in the cache. */
#define PACKED_AT_ONCE 32

static void pack_numbers(linear_t *l, const char *weight, long first, long end) {
    long size = step_bytes(l), row = l->inputs * size;
    for (long block = first / BLOCK * BLOCK; block < end; block += BLOCK)
        for (long i = 0; i < l->inputs; i += PACKED_AT_ONCE) {
            long count = l->inputs - i < PACKED_AT_ONCE ? l->inputs - i : PACKED_AT_ONCE;
            for (long o = block > first ? block : first; o < end && o < block + BLOCK; o++) {
                const char *source = weight + (o - first) * row + i * size;
                char *target = weights_of(l, o) + i * size * BLOCK;
                if (l->halves && o % 8 == 0 && o + 8 <= end && count == PACKED_AT_ONCE) {
                    const char *rows[8];
                    for (long k = 0; k < 8; k++) rows[k] = source + k * row;
                    for (long k = 0; k < PACKED_AT_ONCE; k += 8)
                        transpose_halves(rows, k * size, target + k * size * BLOCK, size * BLOCK);
                    o += 7;
                } else {
                    copy_steps(target, size * BLOCK, source, size, count, size);
                }
            }
        }
}

static void pack(linear_t *l, const void *weights, long first, long end) {
    if (!is_int8(l)) {
        pack_numbers(l, weights, first, end);
        return;
    }
    const float *weight = weights;
    for (long o = first; o < end; o++, weight += l->inputs) {
        vf top = all(1e-30f);
        FOR_VECTORS(i, l->inputs) top = max_of(top, abs_of(GET(weight, i, l->inputs, 0.f)));
        float largest = largest_of(top);
        vf factor = all(127 / largest);
        int8_t *target = (int8_t *)weights_of(l, o);
        vi sums = all_int(0);
        FOR_VECTORS(i, l->inputs) {
            vi integers = __builtin_convertvector(round_of(GET(weight, i, l->inputs, 0.f) * factor), vi);
            sums += integers;
            int8_t bytes[LANES];
#if defined(TIER_AVX512)
            _mm_storeu_si128((__m128i *)bytes, _mm512_cvtepi32_epi8((__m512i)integers));
#else
            for (int j = 0; j < LANES; j++) bytes[j] = (int8_t)integers[j];
#endif
            for (long j = 0; j < LANES && i + j < l->inputs; j += DEPTH) /* beyond the inputs are zeros */
                memcpy(target + (i + j) / DEPTH * BLOCK * DEPTH, bytes + j, DEPTH);
        }
        int32_t sum = 0;
        for (int j = 0; j < LANES; j++) sum += sums[j];
        l->scales[o] = largest / 127.f;
        l->sums[o] = sum;
    }
}

static void pack_codes(linear_t *l, const int8_t *codes, const float *magnitudes, long first, long end) {
    for (long o = first; o < end; o++, codes += l->inputs) {
        char *target = l->by_row ? row_of(l, o) : weights_of(l, o);
        int32_t sum = 0;
        long full = l->inputs / DEPTH * DEPTH, stride = l->by_row ? 1 : BLOCK;
        if (l->by_row) memcpy(target, codes, (size_t)full);
        else
            for (long i = 0; i < full; i += DEPTH) memcpy(target + i * BLOCK, codes + i, DEPTH);
        for (long i = full; i < round_up(l->inputs, DEPTH); i++)
            target[full * stride + i - full] = i < l->inputs ? codes[i] : 0;
        for (long i = 0; i < l->inputs; i++) sum += codes[i];
        l->scales[o] = magnitudes[o - first] / 127.f;
        l->sums[o] = sum;
    }
}

/* How a row was rounded: number = step * (rounded - zero). */
typedef struct {
    float step;
    int32_t zero;
} rounding_t;

/* The distance from a rounded row to the next one. Rows at multiples of 2 KiB share a few sets of the first cache, too few
 * for a tile: each step would evict the numbers of the next one. */
static long row_stride(long inputs) {
    long stride = round_up(inputs, DEPTH), same_sets = 2048 / (long)sizeof(rounded_t);
    return stride % same_sets ? stride : stride + 64 / (long)sizeof(rounded_t);
}

static long scratch(const linear_t *l, long rows) {
    long bytes = row_stride(l->inputs) * (long)sizeof(rounded_t) + (long)sizeof(rounding_t);
    return is_int8(l) ? rows * bytes + 128 : 0;
}

/* Two fewer than the values of a byte: the smallest and the largest number may both be rounded away from zero. */
#define STEPS 254

/* Returns how a row is rounded, and the factor of its numbers. The steps reach from the smallest number to the largest, and
 * include zero: after a relu, none is below it. */
INLINE rounding_t rounding_of(const float *x, long inputs, vf *factor) {
    vf zeros = all(0.f), lowest[4] = {zeros, zeros, zeros, zeros}, highest[4] = {zeros, zeros, zeros, zeros};
    long full = inputs / (4 * LANES) * (4 * LANES); /* four vectors at a time do not wait for each other */
    for (long i = 0; i < full; i += 4 * LANES)
        for (long k = 0; k < 4; k++) {
            vf numbers = load(x + i + k * LANES);
            lowest[k] = min_of(lowest[k], numbers);
            highest[k] = max_of(highest[k], numbers);
        }
    FOR_VECTORS(i, inputs - full) {
        vf numbers = GET(x + full, i, inputs - full, 0.f);
        lowest[0] = min_of(lowest[0], numbers);
        highest[0] = max_of(highest[0], numbers);
    }
    for (long k = 1; k < 4; k++) {
        lowest[0] = min_of(lowest[0], lowest[k]);
        highest[0] = max_of(highest[0], highest[k]);
    }
    float below = largest_of(-lowest[0]), range = largest_of(highest[0]) + below + 1e-30f;
    *factor = all(STEPS / range);
    int32_t zero = sizeof(rounded_t) == 1 ? (int32_t)rintf(below * (*factor)[0]) - 128 + ZERO_POINT : 0;
    return (rounding_t){range / STEPS, zero};
}

/* Rounds four vectors to the nearest integers, as round_of does. */
#if defined(TIER_AVX512)
#define ROUNDS_FOUR
INLINE void round_four(const float *x, vf factor, int32_t zero, rounded_t *rounded) {
    __m512i four[4];
    for (long k = 0; k < 4; k++) four[k] = _mm512_cvtps_epi32((__m512)(load(x + k * LANES) * factor));
    __m512i low = _mm512_packs_epi32(four[0], four[1]), high = _mm512_packs_epi32(four[2], four[3]);
    __m512i zeros = _mm512_set1_epi16((short)zero);
    __m512i bytes = _mm512_packus_epi16(_mm512_add_epi16(low, zeros), _mm512_add_epi16(high, zeros));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_si512(rounded, _mm512_permutexvar_epi32(order, bytes));
}
#elif defined(TIER_AVX2)
#define ROUNDS_FOUR
INLINE void round_four(const float *x, vf factor, int32_t zero, rounded_t *rounded) {
    __m256i four[4];
    for (long k = 0; k < 4; k++) four[k] = _mm256_cvtps_epi32((__m256)(load(x + k * LANES) * factor));
    __m256i low = _mm256_packs_epi32(four[0], four[1]), high = _mm256_packs_epi32(four[2], four[3]);
#if defined(TIER_AVXVNNI)
    __m256i zeros = _mm256_set1_epi16((short)zero);
    __m256i bytes = _mm256_packus_epi16(_mm256_add_epi16(low, zeros), _mm256_add_epi16(high, zeros));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((__m256i *)rounded, _mm256_permutevar8x32_epi32(bytes, order));
#else
    (void)zero;
    _mm256_storeu_si256((__m256i *)rounded, _mm256_permute4x64_epi64(low, 0xd8));
    _mm256_storeu_si256((__m256i *)rounded + 1, _mm256_permute4x64_epi64(high, 0xd8));
#endif
}
#elif defined(TIER_SIMD128)
#define ROUNDS_FOUR
INLINE void round_four(const float *x, vf factor, int32_t zero, rounded_t *rounded) {
    v128_t four[4];
    for (long k = 0; k < 4; k++)
        four[k] = (v128_t)__builtin_convertvector(round_of(load(x + k * LANES) * factor), vi);
    v128_t low = wasm_i16x8_narrow_i32x4(four[0], four[1]), high = wasm_i16x8_narrow_i32x4(four[2], four[3]);
#if defined(__wasm_relaxed_simd__)
    v128_t zeros = wasm_i16x8_splat((int16_t)(zero - ZERO_POINT));
    v128_t bytes = wasm_i8x16_narrow_i16x8(wasm_i16x8_add(low, zeros), wasm_i16x8_add(high, zeros));
    wasm_v128_store(rounded, wasm_v128_xor(bytes, wasm_i8x16_splat((int8_t)ZERO_POINT)));
#else
    (void)zero;
    wasm_v128_store(rounded, low);
    wasm_v128_store(rounded + 2 * LANES, high);
#endif
}
#endif

/* Rounds the numbers of a row from `first` on, a vector at a time. */
INLINE void round_from(const float *x, long first, long inputs, vf factor, int32_t zero, rounded_t *rounded) {
    for (long i = first; i < inputs; i += LANES) {
        vi integers = __builtin_convertvector(round_of(GET(x, i, inputs, 0.f) * factor), vi) + all_int(zero);
        long count = inputs - i < LANES ? inputs - i : LANES;
#if defined(TIER_AVX512)
        if (count == LANES) {
            _mm_storeu_si128((__m128i *)(rounded + i), _mm512_cvtepi32_epi8((__m512i)integers));
            continue;
        }
#endif
        for (long j = 0; j < count; j++) rounded[i + j] = (rounded_t)integers[j];
    }
}

/* Rounds each row by steps of its own, so that a sentence gives the same in any batch. */
static void round_rows(const float *x, long rows, long inputs, rounded_t *rounded, rounding_t *roundings) {
    long stride = row_stride(inputs);
    for (long r = 0; r < rows; r++, x += inputs, rounded += stride) {
        vf factor;
        long done = 0;
        rounding_t rounding = roundings[r] = rounding_of(x, inputs, &factor);
#if defined(ROUNDS_FOUR)
        for (; done + 4 * LANES <= inputs; done += 4 * LANES)
            round_four(x + done, factor, rounding.zero, rounded + done);
#endif
        round_from(x, done, inputs, factor, rounding.zero, rounded);
        for (long i = inputs; i < stride; i++) rounded[i] = 0;
    }
}

/* DEPTH int8 weights of each of LANES outputs, as the products below take them. */
#if defined(TIER_AVX512)
typedef __m512i weights_t;
INLINE weights_t load_weights(const int8_t *p) { return _mm512_load_si512(p); }
#elif defined(TIER_AVXVNNI)
typedef __m256i weights_t;
INLINE weights_t load_weights(const int8_t *p) { return _mm256_load_si256((const __m256i *)p); }
#elif defined(TIER_AVX2)
typedef __m256i weights_t;
INLINE weights_t load_weights(const int8_t *p) { return _mm256_cvtepi8_epi16(_mm_load_si128((const __m128i *)p)); }
#elif defined(TIER_DOTPROD)
typedef int8x16_t weights_t;
INLINE weights_t load_weights(const int8_t *p) { return vld1q_s8(p); }
#elif defined(__wasm_relaxed_simd__)
typedef v128_t weights_t;
INLINE weights_t load_weights(const int8_t *p) { return wasm_v128_load(p); }
#elif defined(TIER_SIMD128)
typedef v128_t weights_t;
INLINE weights_t load_weights(const int8_t *p) { return wasm_i16x8_load8x8(p); }
#else
typedef const int8_t *weights_t;
INLINE weights_t load_weights(const int8_t *p) { return p; }
#endif

/* sum + the products of DEPTH rounded inputs with the weights of each output. */
INLINE vi dot(vi sum, const rounded_t *x, weights_t weights) {
#if defined(TIER_AVX512)
    int32_t four;
    memcpy(&four, x, 4);
    return (vi)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi32(four), weights);
#elif defined(TIER_AVXVNNI)
    int32_t four;
    memcpy(&four, x, 4);
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)sum, _mm256_set1_epi32(four), weights);
#elif defined(TIER_AVX2)
    int32_t two;
    memcpy(&two, x, 4);
    return (vi)_mm256_add_epi32((__m256i)sum, _mm256_madd_epi16(weights, _mm256_set1_epi32(two)));
#elif defined(TIER_DOTPROD)
    int32_t four;
    memcpy(&four, x, 4);
    return (vi)vdotq_s32((int32x4_t)sum, weights, vreinterpretq_s8_s32(vdupq_n_s32(four)));
#elif defined(__wasm_relaxed_simd__)
    return (vi)wasm_i32x4_relaxed_dot_i8x16_i7x16_add(weights, wasm_v128_load32_splat(x), (v128_t)sum);
#elif defined(TIER_SIMD128)
    return (vi)wasm_i32x4_add((v128_t)sum, wasm_i32x4_dot_i16x8(weights, wasm_v128_load32_splat(x)));
#else
    for (int lane = 0; lane < LANES; lane++)
        sum[lane] += (int32_t)weights[2 * lane] * x[0] + (int32_t)weights[2 * lane + 1] * x[1];
    return sum;
#endif
}

/* Writes the accumulators of a row to its two vectors of outputs; the last block may be incomplete. */
OUTLINE void finish(vf first, vf second, float *y, long count, int relu) {
    if (relu) {
        first = max_of(first, all(0.f));
        second = max_of(second, all(0.f));
    }
    if (count >= BLOCK) {
        store(y, first);
        store(y + LANES, second);
        return;
    }
    store_first(y, first, count < LANES ? count : LANES);
    if (count > LANES) store_first(y + LANES, second, count - LANES);
}

/* Of a block's outputs: the sums of their weights, their scales and their biases. */
typedef struct {
    vi sums[2];
    vf scales[2], biases[2];
} block_scales_t;

INLINE block_scales_t scales_of(const linear_t *l, long output) {
    return (block_scales_t){
        {*(const vi_any *)(l->sums + output), *(const vi_any *)(l->sums + output + LANES)},
        {load(l->scales + output), load(l->scales + output + LANES)},
        {load(l->bias + output), load(l->bias + output + LANES)},
    };
}

INLINE void finish_int8(vi first, vi second, block_scales_t block, rounding_t row, float *y, long count, int relu) {
    vf step = all(row.step);
    if (sizeof(rounded_t) == 1) { /* else zero is 0 */
        first -= block.sums[0] * all_int(row.zero);
        second -= block.sums[1] * all_int(row.zero);
    }
    finish(__builtin_convertvector(first, vf) * block.scales[0] * step + block.biases[0],
           __builtin_convertvector(second, vf) * block.scales[1] * step + block.biases[1], y, count, relu);
}

/* Prefetches the weights that are needed some hundred steps later: the caches do not hold all of a model. */
INLINE void prefetch_weights(const void *weight, const long ahead, const int bytes) {
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)weight + ahead + i);
}

/* The same for a tile of several rows. From MIN_FAR_ROWS rows on, multiplying takes longer than reading the weights: they go
 * into the second cache, since in the first they would displace the rows and the block that the next tile reads. Fewer rows
 * wait for their weights, and gain by having them in the first. */
#define FAR_AHEAD 131072
#define NEAR_AHEAD 2048 /* from the second cache into the first: Zen 4's own prefetcher is late there */
#define MIN_FAR_ROWS 6
INLINE void prefetch_for_rows(const int rows, const void *weight, const long ahead, const int bytes) {
#if defined(TIER_AVX512) /* measured on Zen 4 alone */
    if (rows >= MIN_FAR_ROWS) {
        for (int i = 0; i < bytes; i += 64) {
            __builtin_prefetch((const char *)weight + FAR_AHEAD + i, 0, 2);
            __builtin_prefetch((const char *)weight + NEAR_AHEAD + i);
        }
        return;
    }
#endif
    (void)rows;
    prefetch_weights(weight, ahead, bytes);
}

/* WebAssembly cannot prefetch: read a byte of each cache line instead. */
INLINE void read_lines(const int8_t *weight, const int bytes) {
    for (int i = 0; i < bytes; i += 64) (void)*(volatile const int8_t *)(weight + i);
}

/* Multiplies rows by consecutive blocks of outputs. */
INLINE void tile_int8(const int rows, const int blocks, const linear_t *l, long output, const rounded_t *x,
                      const rounding_t *roundings, float *y, int relu) {
    long stride = round_up(l->inputs, DEPTH), x_stride = row_stride(l->inputs);
    const int8_t *weight = (const int8_t *)l->packed + output * stride;
    vi first[MAX_ROWS], second[MAX_ROWS];
    UNROLL_ALL
    for (int k = 0; k < rows * blocks; k++) first[k] = second[k] = all_int(0);
    const int8_t *next = weight + (output + 2 * blocks * BLOCK <= l->outputs ? blocks * BLOCK * stride : 0);
    const long ahead = prefetch_ahead;
    for (long i = 0; i < stride; i += DEPTH, weight += BLOCK * DEPTH) {
        if (blocks == 1) prefetch_for_rows(rows, weight, ahead, BLOCK * DEPTH);
        else read_lines(next + i * blocks * BLOCK, blocks * BLOCK * DEPTH);
        UNROLL_ALL
        for (int b = 0; b < blocks; b++) {
            const int8_t *block = weight + b * BLOCK * stride;
            weights_t weights0 = load_weights(block), weights1 = load_weights(block + LANES * DEPTH);
            UNROLL_ALL
            for (int r = 0; r < rows; r++) {
                first[b * rows + r] = dot(first[b * rows + r], x + r * x_stride + i, weights0);
                second[b * rows + r] = dot(second[b * rows + r], x + r * x_stride + i, weights1);
            }
        }
    }
    UNROLL_ALL
    for (int b = 0; b < blocks; b++, output += BLOCK) {
        block_scales_t scales = scales_of(l, output);
        UNROLL_ALL
        for (int r = 0; r < rows; r++)
            finish_int8(first[b * rows + r], second[b * rows + r], scales, roundings[r], y + r * l->outputs + output,
                        l->outputs - output, relu);
    }
}

INLINE void load_block_weights(const char *weight, const int halves, vf *weights) {
    for (int i = 0; i < 2; i++)
        weights[i] = halves ? load_half((const uint16_t *)weight + i * LANES) : load((const float *)weight + i * LANES);
}

INLINE void tile_numbers(const int rows, const int halves, const linear_t *l, long output, const float *x, float *y,
                         int relu) {
    const long bytes = halves ? 2 * BLOCK : 4 * BLOCK;
    const char *weight = weights_of(l, output);
    vf weights[2], first[MAX_ROWS], second[MAX_ROWS];
    UNROLL_ALL
    for (int r = 0; r < rows; r++) {
        first[r] = load(l->bias + output);
        second[r] = load(l->bias + output + LANES);
    }
    const long ahead = prefetch_ahead;
    for (long i = 0; i < l->inputs; i++, weight += bytes) {
        prefetch_weights(weight, ahead, bytes);
        load_block_weights(weight, halves, weights);
        UNROLL_ALL
        for (int r = 0; r < rows; r++) {
            vf broadcast = all(x[r * l->inputs + i]);
            first[r] += broadcast * weights[0];
            second[r] += broadcast * weights[1];
        }
    }
    UNROLL_ALL
    for (int r = 0; r < rows; r++)
        finish(first[r], second[r], y + r * l->outputs + output, l->outputs - output, relu);
}

static void apply(float *values, long count, int activation) {
    FOR_VECTORS(i, count) {
        vf x = GET(values, i, count, 0.f);
        if (activation == RELU) x = max_of(x, all(0.f));
        if (activation == SILU) x = x / (all(1.f) + exp_of(-x));
        if (activation == GELU) x = gelu_of(x);
        if (activation == SIGMOID) x = sigmoid_of(x);
        if (activation == TANH) x = tanh_of(x);
        PUT(values, i, count, x);
    }
}

/* A function of its own for each number of rows: inlined into one, they would share registers and spill. */
#define TILE(n) \
    static __attribute__((noinline)) void int8_##n(const linear_t *l, long output, const rounded_t *x, \
                                                   const rounding_t *roundings, float *y, int relu) { \
        tile_int8(n, 1, l, output, x, roundings, y, relu); \
    } \
    static __attribute__((noinline)) void float_##n(const linear_t *l, long output, const float *x, float *y, \
                                                    int relu) { \
        tile_numbers(n, 0, l, output, x, y, relu); \
    } \
    static __attribute__((noinline)) void halves_##n(const linear_t *l, long output, const float *x, float *y, \
                                                     int relu) { \
        tile_numbers(n, 1, l, output, x, y, relu); \
    }
TILE(1) TILE(2) TILE(3) TILE(4)
#if MAX_ROWS > 4
TILE(5) TILE(6)
#endif
#if MAX_ROWS > 6
TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12)
#endif
#undef TILE
#if defined(TIER_SIMD128)
#define WIDE 4 /* blocks: the sums of one would wait for each other */
static __attribute__((noinline)) void int8_wide(const linear_t *l, long output, const rounded_t *x,
                                                const rounding_t *roundings, float *y, int relu) {
    tile_int8(1, WIDE, l, output, x, roundings, y, relu);
}
#endif

/* Where scratch holds how each row was rounded: after the rounded rows. */
static rounding_t *roundings_of(const linear_t *l, long rows, const void *memory) {
    return (rounding_t *)((char *)memory + round_up(rows * row_stride(l->inputs) * (long)sizeof(rounded_t), 64));
}

static void round_inputs(const linear_t *l, const float *x, long rows, void *memory) {
    if (is_int8(l)) round_rows(x, rows, l->inputs, memory, roundings_of(l, rows, memory));
}

static void subtract_rounded(const linear_t *l, const float *x, long rows, const void *memory, float *residual) {
    const rounded_t *rounded = memory;
    const rounding_t *roundings = roundings_of(l, rows, memory);
    for (long r = 0; r < rows; r++, x += l->inputs, residual += l->inputs, rounded += row_stride(l->inputs))
        for (long i = 0; i < l->inputs; i++) {
#if defined(__wasm_relaxed_simd__) /* its bytes are unsigned where ZERO_POINT is not 0, else signed */
            int32_t number = ZERO_POINT ? rounded[i] : (int8_t)rounded[i];
#else
            int32_t number = rounded[i];
#endif
            residual[i] = x[i] - roundings[r].step * (float)(number - roundings[r].zero);
        }
}

static long num_blocks(const linear_t *l) { return round_up(l->outputs, BLOCK) / BLOCK; }

/* Applies an activation that the products do not apply themselves to outputs `first` to `last`. */
static void activate(const linear_t *l, long rows, float *y, int activation, long first, long last) {
    if (activation != NO_ACTIVATION && activation != RELU)
        for (long row = 0; row < rows && first < last; row++)
            apply(y + row * l->outputs + first, last - first, activation);
}

/* Computes the block of outputs from `output` on, for up to MAX_ROWS rows. */
static void multiply_block(const linear_t *l, long output, long rows, const float *x, const rounded_t *rounded,
                           const rounding_t *roundings, float *y, int relu) {
#define TILE(n) \
    case n: \
        if (is_int8(l)) int8_##n(l, output, rounded, roundings, y, relu); \
        else if (l->halves) halves_##n(l, output, x, y, relu); \
        else float_##n(l, output, x, y, relu); \
        break;
    switch (rows) {
        TILE(1)
        TILE(2)
        TILE(3)
        TILE(4)
#if MAX_ROWS > 4
        TILE(5)
        TILE(6)
#endif
#if MAX_ROWS > 6
        TILE(7)
        TILE(8)
        TILE(9)
        TILE(10)
        TILE(11)
        TILE(12)
#endif
    }
#undef TILE
}

INLINE long rows_at_once(long num_left) { return num_left < MAX_ROWS ? num_left : MAX_ROWS; }

/* Rows of the inputs that stay in the first cache while all weights pass. */
#define CHUNK 48

static void multiply(const linear_t *l, const float *x, long rows, float *y, int activation, const void *memory,
                     long first, long end) {
    const rounded_t *rounded = memory;
    long stride = row_stride(l->inputs), last = end * BLOCK < l->outputs ? end * BLOCK : l->outputs;
    long begin = first * BLOCK;
    const rounding_t *roundings = is_int8(l) ? roundings_of(l, rows, memory) : NULL;
#if defined(WIDE)
    for (; rows == 1 && is_int8(l) && first + WIDE <= end; first += WIDE)
        int8_wide(l, first * BLOCK, rounded, roundings, y, activation == RELU);
#endif
    for (long chunk = 0; chunk < rows; chunk += CHUNK) {
        long stop = rows - chunk < CHUNK ? rows : chunk + CHUNK;
        for (long output = first * BLOCK; output < last; output += BLOCK)
            for (long row = chunk, count; row < stop; row += count) {
                count = rows_at_once(stop - row);
                multiply_block(l, output, count, x + row * l->inputs, rounded + row * stride, roundings + row,
                               y + row * l->outputs, activation == RELU);
            }
    }
    activate(l, rows, y, activation, begin, last);
}

#if defined(HAS_TILES)
/* The tier `amx` is `avx512` with this product: the same weights, and the same numbers bit for bit. */
#define TILE_ROWS 16
#define TILE_BYTES 64
#define MIN_TILED_ROWS (MAX_ROWS + 1) /* from this many on, the other product reads the weights twice */
#define MAX_TILED_INPUTS (1 << 15)    /* the sum of so many weights fits the 22 bits of `two_parts` */

/* Eight tiles: four of sums and two of inputs, all with `rows` rows, and two of weights. */
typedef struct {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tiles_t;

INLINE tiles_t tiles_of(uint8_t rows) {
    return (tiles_t){1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {rows, rows, rows, rows, rows, rows, 16, 16}};
}

/* Splits numbers of 22 bits into two parts of 16 bits: the upper one counts 128 times as much. */
INLINE vi two_parts(vi number) { return (number & all_int(127)) | ((number >> 7) << 16); }

/* sums - number * zero, for a `zero` of 8 bits and the `parts` of the number. */
INLINE vi subtract_zeros(vi sums, vi parts, int32_t zero) {
    int32_t factors = (int32_t)((uint32_t)(-128 * zero) << 16 | (uint16_t)-zero); /* of the two parts */
    return (vi)_mm512_dpwssd_epi32((__m512i)sums, (__m512i)parts, (__m512i)all_int(factors));
}

INLINE void prefetch_tiles(const int8_t *weight, const int bytes) {
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch(weight + 8192 + i);
}

/* Bytes of weights that stay in the second cache while all rows pass, two tiles of them in the first. */
#define GROUP_BYTES (512 << 10)

#define BY_TILES __attribute__((target("amx-tile,amx-int8")))

/* Computes outputs `first` to `last`, two tiles of rows at a time: writes them to `y`, or notes in `contenders` those that may
 * be the largest. All tiles have the same height: the last one may overlap another, whose rows get the same numbers twice. */
INLINE BY_TILES void tile_rows(const linear_t *l, const rounded_t *x, const rounding_t *roundings, long rows, float *y,
                               int relu, contenders_t *contenders, long first, long last) {
    long stride = row_stride(l->inputs), num_tiles = (rows + TILE_ROWS - 1) / TILE_ROWS, height = (rows + num_tiles - 1) / num_tiles;
    vi sums[2 * TILE_ROWS][2];
    tiles_t tiles = tiles_of((uint8_t)height);
    _tile_loadconfig(&tiles);
    long group_size = round_up(GROUP_BYTES / l->inputs, BLOCK);
    for (long group = first; group < last; group += group_size)
    for (long row = 0; row < rows; row += 2 * height) {
        int has_second = rows - row > height;
        long start[2] = {row, row + height};
        if (start[has_second] > rows - height) start[has_second] = rows - height;
        const rounded_t *low = x + start[0] * stride, *high = x + start[1] * stride;
        for (long output = group; output < last && output < group + group_size; output += BLOCK) {
            const int8_t *weight = (const int8_t *)l->packed + output * l->inputs;
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
            for (long i = 0; i < l->inputs; i += TILE_BYTES, weight += TILE_BYTES * BLOCK) {
                if (row == 0) prefetch_tiles(weight, TILE_BYTES * BLOCK);
                _tile_loadd(6, weight, BLOCK * DEPTH);
                _tile_loadd(4, low + i, stride);
                _tile_dpbusd(0, 4, 6);
                _tile_loadd(7, weight + LANES * DEPTH, BLOCK * DEPTH);
                _tile_dpbusd(1, 4, 7);
                if (!has_second) continue;
                _tile_loadd(5, high + i, stride);
                _tile_dpbusd(2, 5, 6);
                _tile_dpbusd(3, 5, 7);
            }
            _tile_stored(0, sums[0], BLOCK * 4);
            _tile_stored(1, sums[0] + 1, BLOCK * 4);
            if (has_second) {
                _tile_stored(2, sums[height], BLOCK * 4);
                _tile_stored(3, sums[height] + 1, BLOCK * 4);
            }
            block_scales_t block = scales_of(l, output);
            for (int k = 0; k < 2; k++) block.sums[k] = two_parts(block.sums[k]);
            for (int tile = 0; tile <= has_second; tile++)
                for (long r = 0; r < height; r++, weight += BLOCK * DEPTH) {
                    rounding_t rounding = roundings[start[tile] + r];
                    if (row == 0) prefetch_tiles(weight, BLOCK * DEPTH); /* of the next block: reading does not pause */
                    vf logits[2];
                    for (int k = 0; k < 2; k++) {
                        vi sum = subtract_zeros(sums[tile * height + r][k], block.sums[k], rounding.zero);
                        logits[k] = __builtin_convertvector(sum, vf) * block.scales[k] * all(rounding.step) + block.biases[k];
                    }
                    long row_index = start[tile] + r;
                    float *outputs = y + row_index * l->outputs + output;
                    if (!contenders) finish(logits[0], logits[1], outputs, l->outputs - output, relu);
                    for (int k = 0; contenders && k < 2; k++)
                        note(l, contenders + row_index, logits[k], output + k * LANES);
                }
        }
    }
    _tile_release();
}

static __attribute__((noinline)) BY_TILES void tiles_int8(const linear_t *l, const rounded_t *x,
                                                           const rounding_t *roundings, long rows, float *y, int relu,
                                                           long first, long last) {
    tile_rows(l, x, roundings, rows, y, relu, NULL, first, last);
}

static __attribute__((noinline)) BY_TILES void tile_contenders(const linear_t *l, const rounded_t *x,
                                                                const rounding_t *roundings, long rows,
                                                                contenders_t *contenders, long first, long last) {
    for (long r = 0; r < rows; r++) contenders[r].radii = l->scales; /* not used: the reach is 0 */
    tile_rows(l, x, roundings, rows, NULL, 0, contenders, first, last);
}

static int is_tiled(const linear_t *l) {
    return is_int8(l) && l->inputs && l->inputs % TILE_BYTES == 0 && l->inputs <= MAX_TILED_INPUTS;
}

static void multiply_by_tiles(const linear_t *l, const float *x, long rows, float *y, int activation,
                              const void *memory, long first, long end) {
    long last = end * BLOCK < l->outputs ? end * BLOCK : l->outputs;
    if (rows < MIN_TILED_ROWS || !is_tiled(l)) {
        multiply(l, x, rows, y, activation, memory, first, end);
        return;
    }
    tiles_int8(l, memory, roundings_of(l, rows, memory), rows, y, activation == RELU, first * BLOCK, last);
    activate(l, rows, y, activation, first * BLOCK, last);
}
#endif

#endif
