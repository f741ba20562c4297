/* Kernels of one tier. Compiled with -DTIER=name and one of -DTIER_AVX512, -DTIER_AVX2, -DTIER_DOTPROD, or none.
 *
 * Float code is written once with vector extensions; only the int8 product names instructions. A product works on
 * blocks of 2 LANES outputs: float weights are laid out [block, input, 2 LANES], int8 weights
 * [block, input / DEPTH, 2, LANES, DEPTH], so that a step of the inner loop reads them in order.
 */
#include "kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(TIER_AVX512)
#include <immintrin.h>
#define LANES 16
#define DEPTH 4
#define MOST_ROWS 12
typedef uint8_t rounded_t;
#define ZERO_POINT 128
#elif defined(TIER_AVX2)
#include <immintrin.h>
#define LANES 8
#define DEPTH 2
#define MOST_ROWS 6
typedef int16_t rounded_t;
#define ZERO_POINT 0
#elif defined(TIER_DOTPROD)
#include <arm_neon.h>
#define LANES 4
#define DEPTH 4
#define MOST_ROWS 12
typedef int8_t rounded_t;
#define ZERO_POINT 0
#else
#define LANES 4
#define DEPTH 2
#define MOST_ROWS 4
typedef int16_t rounded_t;
#define ZERO_POINT 0
#endif

#if defined(__clang__)
#define UNROLL_ALL _Pragma("clang loop unroll(full)")
#else
#define UNROLL_ALL _Pragma("GCC unroll 16")
#endif
#define BLOCK (2 * LANES)
#define INLINE static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(LANES * 4)));
typedef int32_t vi __attribute__((vector_size(LANES * 4)));
typedef float vf_any __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t vi_any __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

INLINE vf load(const float *p) { return *(const vf_any *)p; }
INLINE void store(float *p, vf v) { *(vf_any *)p = v; }
INLINE vf all(float x) { return x - (vf){0}; }
INLINE vi all_int(int32_t x) { return x - (vi){0}; }
INLINE vf choose(vi mask, vf yes, vf no) { return (vf)(((vi)yes & mask) | ((vi)no & ~mask)); }
INLINE vf max_of(vf a, vf b) { return choose(a > b, a, b); }
INLINE vf min_of(vf a, vf b) { return choose(a < b, a, b); }
INLINE vf abs_of(vf a) { return (vf)((vi)a & all_int(0x7fffffff)); }
#if defined(TIER_AVX512)
INLINE float sum_of(vf v) { return _mm512_reduce_add_ps((__m512)v); }
INLINE float largest_of(vf v) { return _mm512_reduce_max_ps((__m512)v); }
#elif defined(TIER_AVX2)
INLINE float sum_of(vf v) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
INLINE float largest_of(vf v) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}
#else
INLINE float sum_of(vf v) {
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += v[i];
    return sum;
}
INLINE float largest_of(vf v) {
    float largest = v[0];
    for (int i = 1; i < LANES; i++) largest = v[i] > largest ? v[i] : largest;
    return largest;
}
#endif

/* To the nearest integer, for |x| < 2^22. */
INLINE vf round_of(vf x) {
    const vf magic = all(12582912.f);
    return (x + magic) - magic;
}

INLINE vf exp_of(vf x) {
    x = max_of(min_of(x, all(88.f)), all(-87.f));
    vf k = round_of(x * all(1.44269504088896341f));
    vf r = x - k * all(0.693359375f);
    r = r + k * all(2.12194440e-4f);
    vf p = all(1.9875691500e-4f);
    p = p * r + all(1.3981999507e-3f);
    p = p * r + all(8.3334519073e-3f);
    p = p * r + all(4.1665795894e-2f);
    p = p * r + all(1.6666665459e-1f);
    p = p * r + all(5.0000001201e-1f);
    p = p * r * r + r + all(1.f);
    vi power = (__builtin_convertvector(k, vi) + all_int(127)) << 23;
    return p * (vf)power;
}

/* For normal positive numbers. */
INLINE vf log_of(vf x) {
    vi bits = (vi)x;
    vi exponent = ((bits >> 23) & all_int(0xff)) - all_int(126);
    vf m = (vf)((bits & all_int(0x007fffff)) | all_int(0x3f000000)); /* [0.5, 1) */
    vi small = m < all(0.707106781186547524f);
    exponent = exponent + small; /* a true comparison is -1 */
    m = m + choose(small, m, all(0.f)) - all(1.f);
    vf z = m * m;
    vf p = all(7.0376836292e-2f);
    p = p * m + all(-1.1514610310e-1f);
    p = p * m + all(1.1676998740e-1f);
    p = p * m + all(-1.2420140846e-1f);
    p = p * m + all(1.4249322787e-1f);
    p = p * m + all(-1.6668057665e-1f);
    p = p * m + all(2.0000714765e-1f);
    p = p * m + all(-2.4999993993e-1f);
    p = p * m + all(3.3333331174e-1f);
    p = p * m * z;
    vf e = __builtin_convertvector(exponent, vf);
    p = p + e * all(-2.12194440e-4f) - z * all(0.5f);
    return m + p + e * all(0.693359375f);
}

INLINE vf sigmoid_of(vf x) { return all(1.f) / (all(1.f) + exp_of(-x)); }
INLINE vf tanh_of(vf x) { return all(1.f) - all(2.f) / (all(1.f) + exp_of(x + x)); }

/* The last, incomplete vector of a row goes through these. */
INLINE vf load_some(const float *p, long count, float rest) {
    vf v = all(rest);
    for (long i = 0; i < count; i++) v[i] = p[i];
    return v;
}
INLINE void store_some(float *p, vf v, long count) {
    for (long i = 0; i < count; i++) p[i] = v[i];
}
#define FOR_VECTORS(i, count) for (long i = 0, left_ = (count); left_ > 0; i += LANES, left_ -= LANES)
#define GET(p, i, count, rest) ((count) - (i) >= LANES ? load((p) + (i)) : load_some((p) + (i), (count) - (i), rest))
#define PUT(p, i, count, v) \
    do { \
        if ((count) - (i) >= LANES) store((p) + (i), v); \
        else store_some((p) + (i), v, (count) - (i)); \
    } while (0)

/* ------------------------------------------------------------------------------------------------------ products */

static long round_up(long n, long multiple) { return (n + multiple - 1) / multiple * multiple; }

static int64_t packed_bytes(const linear_t *l) { /* a `long` of Windows ends at 2 GiB */
    long outputs = round_up(l->outputs, BLOCK), inputs = round_up(l->inputs, DEPTH);
    return 3 * round_up(outputs * 4, 64) + (int64_t)outputs * (l->int8 ? inputs : l->inputs * 4) + 64;
}

static void lay_out(linear_t *l, char *memory) {
    long part = round_up(round_up(l->outputs, BLOCK) * 4, 64);
    l->bias = (float *)memory;
    l->scales = (float *)(memory + part);
    l->sums = (int32_t *)(memory + 2 * part);
    l->packed = memory + 3 * part;
}

/* Where the weights of an output begin; those of the next DEPTH inputs in int8, or of the next input, are BLOCK times
 * as far on. */
static char *weights_of(const linear_t *l, long output) {
    int64_t block = output / BLOCK, lane = output % BLOCK;
    if (!l->int8) return (char *)((float *)l->packed + block * BLOCK * l->inputs + lane);
    return (char *)l->packed + block * BLOCK * round_up(l->inputs, DEPTH) + lane * DEPTH;
}

static void select_outputs(const linear_t *from, const int32_t *outputs, linear_t *to, char *memory) {
    long size = from->int8 ? DEPTH : 4, steps = from->int8 ? round_up(from->inputs, DEPTH) / DEPTH : from->inputs;
    to->inputs = from->inputs;
    to->int8 = from->int8;
    lay_out(to, memory);
    for (long o = 0; o < to->outputs; o++) {
        const char *source = weights_of(from, outputs[o]);
        char *target = weights_of(to, o);
        for (long i = 0; i < steps; i++) memcpy(target + i * size * BLOCK, source + i * size * BLOCK, (size_t)size);
        to->bias[o] = from->bias[outputs[o]];
        to->scales[o] = from->scales[outputs[o]];
        to->sums[o] = from->sums[outputs[o]];
    }
}

static void pack(linear_t *l, char *memory, const float *weight, const float *bias) {
    lay_out(l, memory);
    if (bias) memcpy(l->bias, bias, (size_t)l->outputs * 4);
    for (long o = 0; o < l->outputs; o++) {
        const float *row = weight + o * l->inputs;
        if (!l->int8) {
            float *to = (float *)weights_of(l, o);
            for (long i = 0; i < l->inputs; i++) to[i * BLOCK] = row[i];
            continue;
        }
        float largest = 1e-30f;
        for (long i = 0; i < l->inputs; i++) largest = fmaxf(largest, fabsf(row[i]));
        int8_t *to = (int8_t *)weights_of(l, o);
        int32_t sum = 0;
        for (long i = 0; i < l->inputs; i++) {
            int8_t rounded = (int8_t)nearbyintf(row[i] * (127 / largest));
            to[i / DEPTH * BLOCK * DEPTH + i % DEPTH] = rounded;
            sum += rounded;
        }
        l->scales[o] = largest / (127.f * 127.f);
        l->sums[o] = ZERO_POINT * sum;
    }
}

static long scratch(const linear_t *l, long rows) {
    return l->int8 ? rows * round_up(l->inputs, DEPTH) * (long)sizeof(rounded_t) + rows * 4 + 128 : 0;
}

/* Each row with a scale of its own, so that a batch gives what its sentences give. */
static void round_rows(const float *x, long rows, long inputs, rounded_t *rounded, float *largest) {
    long stride = round_up(inputs, DEPTH);
    for (long r = 0; r < rows; r++, x += inputs, rounded += stride) {
        vf top = all(1e-30f);
        FOR_VECTORS(i, inputs) top = max_of(top, abs_of(GET(x, i, inputs, 0.f)));
        largest[r] = largest_of(top);
        vf factor = all(127 / largest[r]);
        FOR_VECTORS(i, inputs) {
            vi whole = __builtin_convertvector(round_of(GET(x, i, inputs, 0.f) * factor), vi) + all_int(ZERO_POINT);
            long count = inputs - i < LANES ? inputs - i : LANES;
#if defined(TIER_AVX512)
            if (count == LANES) {
                _mm_storeu_si128((__m128i *)(rounded + i), _mm512_cvtepi32_epi8((__m512i)whole));
                continue;
            }
#endif
            for (long j = 0; j < count; j++) rounded[i + j] = (rounded_t)whole[j];
        }
        for (long i = inputs; i < stride; i++) rounded[i] = 0;
    }
}

/* DEPTH int8 weights of each of LANES outputs, as the products below take them. */
#if defined(TIER_AVX512)
typedef __m512i weights_t;
INLINE weights_t load_weights(const int8_t *p) { return _mm512_load_si512(p); }
#elif defined(TIER_AVX2)
typedef __m256i weights_t;
INLINE weights_t load_weights(const int8_t *p) { return _mm256_cvtepi8_epi16(_mm_load_si128((const __m128i *)p)); }
#elif defined(TIER_DOTPROD)
typedef int8x16_t weights_t;
INLINE weights_t load_weights(const int8_t *p) { return vld1q_s8(p); }
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
#elif defined(TIER_AVX2)
    int32_t two;
    memcpy(&two, x, 4);
    return (vi)_mm256_add_epi32((__m256i)sum, _mm256_madd_epi16(weights, _mm256_set1_epi32(two)));
#elif defined(TIER_DOTPROD)
    int32_t four;
    memcpy(&four, x, 4);
    return (vi)vdotq_s32((int32x4_t)sum, weights, vreinterpretq_s8_s32(vdupq_n_s32(four)));
#else
    for (int lane = 0; lane < LANES; lane++)
        sum[lane] += (int32_t)weights[2 * lane] * x[0] + (int32_t)weights[2 * lane + 1] * x[1];
    return sum;
#endif
}

/* What the accumulators of a row hold -> the two vectors of its outputs; the last block may be incomplete. */
INLINE void finish(vf first, vf second, float *y, long count, int relu) {
    if (relu) {
        first = max_of(first, all(0.f));
        second = max_of(second, all(0.f));
    }
    if (count >= BLOCK) {
        store(y, first);
        store(y + LANES, second);
        return;
    }
    store_some(y, first, count < LANES ? count : LANES);
    if (count > LANES) store_some(y + LANES, second, count - LANES);
}

INLINE void tile_int8(const int rows, const linear_t *l, long output, const rounded_t *x, const float *largest,
                      float *y, int relu) {
    long stride = round_up(l->inputs, DEPTH);
    const int8_t *weight = (const int8_t *)l->packed + output * stride;
    vi first[MOST_ROWS], second[MOST_ROWS];
    UNROLL_ALL
    for (int r = 0; r < rows; r++) first[r] = second[r] = all_int(0);
    for (long i = 0; i < stride; i += DEPTH, weight += BLOCK * DEPTH) {
        if (rows <= 6) {
            __builtin_prefetch(weight + 16 * BLOCK * DEPTH);
            __builtin_prefetch(weight + 16 * BLOCK * DEPTH + 64);
        }
        weights_t weights0 = load_weights(weight), weights1 = load_weights(weight + LANES * DEPTH);
        UNROLL_ALL
        for (int r = 0; r < rows; r++) {
            first[r] = dot(first[r], x + r * stride + i, weights0);
            second[r] = dot(second[r], x + r * stride + i, weights1);
        }
    }
    vi sum0 = *(const vi_any *)(l->sums + output), sum1 = *(const vi_any *)(l->sums + output + LANES);
    vf scale0 = load(l->scales + output), scale1 = load(l->scales + output + LANES);
    vf bias0 = load(l->bias + output), bias1 = load(l->bias + output + LANES);
    UNROLL_ALL
    for (int r = 0; r < rows; r++) {
        vf top = all(largest[r]);
        finish(__builtin_convertvector(first[r] - sum0, vf) * scale0 * top + bias0,
               __builtin_convertvector(second[r] - sum1, vf) * scale1 * top + bias1, y + r * l->outputs + output,
               l->outputs - output, relu);
    }
}

INLINE void tile_float(const int rows, const linear_t *l, long output, const float *x, float *y, int relu) {
    const float *weight = (const float *)l->packed + output * l->inputs;
    vf first[MOST_ROWS], second[MOST_ROWS];
    UNROLL_ALL
    for (int r = 0; r < rows; r++) {
        first[r] = load(l->bias + output);
        second[r] = load(l->bias + output + LANES);
    }
    for (long i = 0; i < l->inputs; i++, weight += BLOCK) {
        vf w0 = load(weight), w1 = load(weight + LANES);
        UNROLL_ALL
        for (int r = 0; r < rows; r++) {
            vf one = all(x[r * l->inputs + i]);
            first[r] += one * w0;
            second[r] += one * w1;
        }
    }
    UNROLL_ALL
    for (int r = 0; r < rows; r++)
        finish(first[r], second[r], y + r * l->outputs + output, l->outputs - output, relu);
}

static void apply(float *values, long count, int activation) {
    if (activation == GELU) {
        for (long i = 0; i < count; i++) values[i] *= 0.5f * (1 + erff(values[i] * 0.70710678118654752f));
        return;
    }
    FOR_VECTORS(i, count) {
        vf x = GET(values, i, count, 0.f);
        if (activation == RELU) x = max_of(x, all(0.f));
        if (activation == SILU) x = x / (all(1.f) + exp_of(-x));
        if (activation == SIGMOID) x = sigmoid_of(x);
        if (activation == TANH) x = tanh_of(x);
        PUT(values, i, count, x);
    }
}

/* A function of its own for each number of rows: inlined into one, they would share registers and spill. */
#define TILE(n) \
    static __attribute__((noinline)) void int8_##n(const linear_t *l, long output, const rounded_t *x, \
                                                   const float *largest, float *y, int relu) { \
        tile_int8(n, l, output, x, largest, y, relu); \
    } \
    static __attribute__((noinline)) void float_##n(const linear_t *l, long output, const float *x, float *y, \
                                                    int relu) { \
        tile_float(n, l, output, x, y, relu); \
    }
TILE(1) TILE(2) TILE(3) TILE(4)
#if MOST_ROWS > 4
TILE(5) TILE(6)
#endif
#if MOST_ROWS > 6
TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12)
#endif
#undef TILE

static void multiply(const linear_t *l, const float *x, long rows, float *y, int activation, void *memory) {
    rounded_t *rounded = memory;
    float *largest = NULL;
    long stride = round_up(l->inputs, DEPTH);
    if (l->int8) {
        largest = (float *)((char *)memory + round_up(rows * stride * (long)sizeof(rounded_t), 64));
        round_rows(x, rows, l->inputs, rounded, largest);
    }
    for (long output = 0; output < l->outputs; output += BLOCK) {
        for (long row = 0; row < rows;) {
            int relu = activation == RELU;
            long left = rows - row;
#define TILE(n) \
    case n: \
        if (l->int8) int8_##n(l, output, rounded + row * stride, largest + row, y + row * l->outputs, relu); \
        else float_##n(l, output, x + row * l->inputs, y + row * l->outputs, relu); \
        row += n; \
        break;
            switch (left < MOST_ROWS ? left : MOST_ROWS) {
                TILE(1)
                TILE(2)
                TILE(3)
                TILE(4)
#if MOST_ROWS > 4
                TILE(5)
                TILE(6)
#endif
#if MOST_ROWS > 6
                TILE(7)
                TILE(8)
                TILE(9)
                TILE(10)
                TILE(11)
                TILE(12)
#endif
            }
        }
    }
    if (activation != NO_ACTIVATION && activation != RELU) apply(y, rows * l->outputs, activation);
}

/* ------------------------------------------------------------------------------------------------ norm, attention */

static void add_norm(float *x, const float *residual, const float *gain, const float *bias, long rows, long width,
                     float epsilon) {
    for (long r = 0; r < rows; r++, x += width) {
        vf total = all(0.f), squares = all(0.f);
        FOR_VECTORS(i, width) {
            vf v = GET(x, i, width, 0.f);
            if (residual) v += GET(residual + r * width, i, width, 0.f);
            PUT(x, i, width, v);
            total += v;
        }
        float mean = sum_of(total) / (float)width;
        FOR_VECTORS(i, width) {
            vf v = GET(x, i, width, mean) - all(mean);
            squares += v * v;
        }
        float scale = 1 / sqrtf(sum_of(squares) / (float)width + epsilon);
        FOR_VECTORS(i, width) {
            vf v = (GET(x, i, width, 0.f) - all(mean)) * all(scale);
            PUT(x, i, width, v * GET(gain, i, width, 0.f) + GET(bias, i, width, 0.f));
        }
    }
}

/* values = exp(values - largest); returns their sum. */
static float exp_below(float *values, long count, float largest) {
    vf total = all(0.f);
    FOR_VECTORS(i, count) {
        vf v = exp_of(GET(values, i, count, 0.f) - all(largest));
        PUT(values, i, count, v);
        if (count - i < LANES)
            for (long j = count - i; j < LANES; j++) v[j] = 0;
        total += v;
    }
    return sum_of(total);
}

static float largest_value(const float *values, long count) {
    vf top = all(-INFINITY);
    FOR_VECTORS(i, count) top = max_of(top, GET(values, i, count, -INFINITY));
    return largest_of(top);
}

static void attend(const float *query, float *output, const float *const *keys, long value_offset, long num_keys,
                   long heads, long width, float *scores) {
    float scale = 1 / sqrtf((float)width);
    for (long h = 0; h < heads; h++, query += width, output += width) {
        for (long j = 0; j < num_keys; j++) {
            const float *key = keys[j] + h * width;
            vf sum = all(0.f);
            FOR_VECTORS(i, width) sum += GET(query, i, width, 0.f) * GET(key, i, width, 0.f);
            scores[j] = sum_of(sum) * scale;
        }
        float total = exp_below(scores, num_keys, largest_value(scores, num_keys));
        FOR_VECTORS(i, width) {
            vf sum = all(0.f);
            for (long j = 0; j < num_keys; j++)
                sum += all(scores[j]) * GET(keys[j] + value_offset + h * width, i, width, 0.f);
            PUT(output, i, width, sum / all(total));
        }
    }
}

/* -------------------------------------------------------------------------------------------------------- routing */

/* mean, variance and activation of the M Gaussians, from weights R [N, M] of the inputs, for capsules of width 1. */
static void em_routing_narrow(const float *votes, const float *activation, const float *beta_a, const float *beta_u,
                              const float *lambdas, long iterations, float min_variance, long n, long m,
                              float *capsules, float *memory) {
    const vf smallest = all(1e-20f), one = all(1.f), half = all(0.5f);
    float *weights = memory, *half_log_variance = weights + n * m, *log_activation = half_log_variance + m;
    float *half_precision = log_activation + m;
    for (long i = 0; i < n; i++)
        FOR_VECTORS(c, m) {
            vf weight = all(1.f / (float)m);
            if (activation) weight *= max_of(GET(activation + i * m, c, m, 1.f), smallest);
            PUT(weights + i * m, c, m, weight);
        }
    for (long t = 0; t < iterations; t++) {
        FOR_VECTORS(c, m) {
            vf mass = all(0.f), mean = all(0.f), variance = all(0.f);
            for (long i = 0; i < n; i++) {
                vf weight = GET(weights + i * m, c, m, 1.f);
                mass += weight;
                mean += weight * GET(votes + i * m, c, m, 0.f);
            }
            mean /= mass;
            for (long i = 0; i < n; i++) {
                vf difference = GET(votes + i * m, c, m, 0.f) - mean;
                variance += GET(weights + i * m, c, m, 1.f) * difference * difference;
            }
            variance = variance / mass + all(min_variance);
            vf log_variance = log_of(variance);
            vf cost = half * (log_variance + all(2.8378770664093453f)) * mass; /* 1 + log 2 pi */
            vf z = all(lambdas[t]) * (GET(beta_a, c, m, 0.f) - GET(beta_u, c, m, 0.f) * mass - cost);
            vf active = one / (one + exp_of(-z));
            PUT(capsules, c, m, t == iterations - 1 ? active * mean : mean);
            PUT(log_activation, c, m, log_of(active));
            PUT(half_log_variance, c, m, half * log_variance);
            PUT(half_precision, c, m, half / variance);
        }
        if (t == iterations - 1) return;
        for (long i = 0; i < n; i++) {
            float *weight = weights + i * m;
            vf top = all(-INFINITY);
            FOR_VECTORS(c, m) {
                vf difference = GET(votes + i * m, c, m, 0.f) - GET(capsules, c, m, 0.f);
                vf logit = GET(log_activation, c, m, 0.f) - GET(half_log_variance, c, m, 0.f) -
                           difference * difference * GET(half_precision, c, m, 0.f);
                PUT(weight, c, m, logit);
                if (m - c >= LANES) top = max_of(top, logit);
                else
                    for (long j = 0; j < m - c; j++) top[0] = logit[j] > top[0] ? logit[j] : top[0];
            }
            vf total = all(exp_below(weight, m, largest_of(top)));
            FOR_VECTORS(c, m) {
                vf share = GET(weight, c, m, 0.f) / total;
                if (activation) share *= max_of(GET(activation + i * m, c, m, 1.f), smallest);
                PUT(weight, c, m, share);
            }
        }
    }
}

static void em_routing(const float *votes, const float *activation, const float *beta_a, const float *beta_u,
                       const float *lambdas, long iterations, float min_variance, long n, long m, long d,
                       float *capsules, float *memory) {
    if (d == 1) {
        em_routing_narrow(votes, activation, beta_a, beta_u, lambdas, iterations, min_variance, n, m, capsules, memory);
        return;
    }
    /* Logarithms of the weights: with several dimensions a density can be too small for a float. */
    float *log_weights = memory, *shares = log_weights + n * m, *variance = shares + n * m, *constant = variance + m * d;
    for (long i = 0; i < n * m; i++) {
        log_weights[i] = -logf((float)m);
        if (activation) log_weights[i] += logf(fmaxf(activation[i], 1e-20f));
    }
    for (long t = 0; t < iterations; t++) {
        for (long c = 0; c < m; c++) {
            float top = -INFINITY, total = 0, cost = 0, log_determinant = 0;
            for (long i = 0; i < n; i++) top = fmaxf(top, log_weights[i * m + c]);
            for (long i = 0; i < n; i++) total += shares[i * m + c] = expf(log_weights[i * m + c] - top);
            float mass = expf(top) * total;
            for (long k = 0; k < d; k++) {
                float mean = 0, spread = 0;
                for (long i = 0; i < n; i++) mean += shares[i * m + c] / total * votes[(i * m + c) * d + k];
                for (long i = 0; i < n; i++) {
                    float difference = votes[(i * m + c) * d + k] - mean;
                    spread += shares[i * m + c] / total * difference * difference;
                }
                spread += min_variance;
                capsules[c * d + k] = mean;
                variance[c * d + k] = spread;
                log_determinant += logf(spread);
                cost += 0.5f * (logf(spread) + 2.8378770664093453f);
            }
            float z = lambdas[t] * (beta_a[c] - beta_u[c] * mass - cost * mass);
            float log_active = z > 0 ? -log1pf(expf(-z)) : z - log1pf(expf(z));
            constant[c] = log_active - 0.5f * log_determinant;
            if (t == iterations - 1)
                for (long k = 0; k < d; k++) capsules[c * d + k] *= expf(log_active);
        }
        if (t == iterations - 1) return;
        for (long i = 0; i < n; i++) {
            float top = -INFINITY, total = 0, *logits = log_weights + i * m;
            for (long c = 0; c < m; c++) {
                float distance = 0;
                for (long k = 0; k < d; k++) {
                    float difference = votes[(i * m + c) * d + k] - capsules[c * d + k];
                    distance += difference * difference / variance[c * d + k];
                }
                logits[c] = constant[c] - 0.5f * distance;
                top = fmaxf(top, logits[c]);
            }
            for (long c = 0; c < m; c++) total += expf(logits[c] - top);
            for (long c = 0; c < m; c++) {
                logits[c] -= top + logf(total);
                if (activation) logits[c] += logf(fmaxf(activation[i * m + c], 1e-20f));
            }
        }
    }
}

static void squash(float *capsule, long width) {
    vf squares = all(0.f);
    FOR_VECTORS(i, width) squares += GET(capsule, i, width, 0.f) * GET(capsule, i, width, 0.f);
    float square = sum_of(squares), factor = sqrtf(square + 1e-9f) / (1 + square);
    FOR_VECTORS(i, width) PUT(capsule, i, width, GET(capsule, i, width, 0.f) * all(factor));
}

static void softmax(float *values, long count) {
    float total = exp_below(values, count, largest_value(values, count));
    FOR_VECTORS(i, count) PUT(values, i, count, GET(values, i, count, 0.f) / all(total));
}

static void dynamic_routing(const float *votes, long iterations, int normalize, long n, long m, long d,
                            float *capsules, float *memory) {
    float *logits = memory, *weights = logits + n * m;
    for (long i = 0; i < n * m; i++) {
        logits[i] = 0;
        weights[i] = 1.f / (float)m;
    }
    for (long t = 0; t < iterations; t++) {
        for (long c = 0; c < m; c++) {
            float total = 0;
            for (long k = 0; k < d; k++) capsules[c * d + k] = 0;
            for (long i = 0; i < n; i++) {
                total += weights[i * m + c];
                for (long k = 0; k < d; k++) capsules[c * d + k] += weights[i * m + c] * votes[(i * m + c) * d + k];
            }
            if (normalize)
                for (long k = 0; k < d; k++) capsules[c * d + k] /= total;
            squash(capsules + c * d, d);
        }
        if (t == iterations - 1) return;
        for (long i = 0; i < n; i++) {
            for (long c = 0; c < m; c++)
                for (long k = 0; k < d; k++) logits[i * m + c] += capsules[c * d + k] * votes[(i * m + c) * d + k];
            memcpy(weights + i * m, logits + i * m, (size_t)m * 4);
            softmax(weights + i * m, m);
        }
    }
}

static void exp_twice(float *values, long count) {
    FOR_VECTORS(i, count) {
        vf x = max_of(min_of(GET(values, i, count, 0.f), all(20.f)), all(-20.f));
        PUT(values, i, count, exp_of(x + x));
    }
}

static float tanh_score(const float *e, const float *f, const float *weight, float weight_sum, long width) {
    vf sum = all(0.f);
    FOR_VECTORS(i, width)
        sum += GET(weight, i, width, 0.f) / (all(1.f) + GET(e, i, width, 0.f) * GET(f, i, width, 0.f));
    return weight_sum - 2 * sum_of(sum);
}

static void add_scaled(float *sums, const float *values, float weight, long count) {
    FOR_VECTORS(i, count) PUT(sums, i, count, GET(sums, i, count, 0.f) + all(weight) * GET(values, i, count, 0.f));
}

/* ------------------------------------------------------------------------------------------------------ recurrence */

static void lstm(const float *gates, float *hidden, float *cell, long width) {
    FOR_VECTORS(i, width) {
        vf next = sigmoid_of(GET(gates, i, width, 0.f)) * tanh_of(GET(gates + 2 * width, i, width, 0.f));
        next += sigmoid_of(GET(gates + width, i, width, 0.f)) * GET(cell, i, width, 0.f);
        PUT(cell, i, width, next);
        PUT(hidden, i, width, sigmoid_of(GET(gates + 3 * width, i, width, 0.f)) * tanh_of(next));
    }
}

static void gru(const float *from_input, const float *from_state, const float *state, float *next, long width) {
    FOR_VECTORS(i, width) {
        vf reset = sigmoid_of(GET(from_input, i, width, 0.f) + GET(from_state, i, width, 0.f));
        vf update = sigmoid_of(GET(from_input + width, i, width, 0.f) + GET(from_state + width, i, width, 0.f));
        vf fresh = GET(from_state + 2 * width, i, width, 0.f) * reset + GET(from_input + 2 * width, i, width, 0.f);
        fresh = tanh_of(fresh);
        PUT(next, i, width, fresh + update * (GET(state, i, width, 0.f) - fresh));
    }
}

/* --------------------------------------------------------------------------------------------------------- search */

static float log_sum_exp(const float *values, long count) {
    float top = largest_value(values, count);
    vf total = all(0.f);
    FOR_VECTORS(i, count) {
        vf v = exp_of(GET(values, i, count, 0.f) - all(top));
        if (count - i < LANES)
            for (long j = count - i; j < LANES; j++) v[j] = 0;
        total += v;
    }
    return top + logf(sum_of(total));
}

INLINE int any_above(vf values, float threshold) {
#if defined(TIER_AVX512)
    return _mm512_cmp_ps_mask((__m512)values, _mm512_set1_ps(threshold), _CMP_GT_OQ);
#elif defined(TIER_AVX2)
    return _mm256_movemask_ps((__m256)(values > all(threshold)));
#else
    vi above = values > all(threshold);
    int32_t any = 0;
    for (int i = 0; i < LANES; i++) any |= above[i];
    return any;
#endif
}

static long top(const float *values, long count, long wanted, float *best, int32_t *indices) {
    long found = 0;
    float threshold = -INFINITY;
    for (long i = 0; i < count; i += LANES) {
        long end = count - i < LANES ? count : i + LANES;
        if (found == wanted && end - i == LANES && !any_above(load(values + i), threshold)) continue;
        for (long j = i; j < end; j++) {
            if (found == wanted && values[j] <= threshold) continue;
            long place = found < wanted ? found++ : wanted - 1;
            for (; place > 0 && best[place - 1] < values[j]; place--) {
                best[place] = best[place - 1];
                indices[place] = indices[place - 1];
            }
            best[place] = values[j];
            indices[place] = (int32_t)j;
            threshold = best[found - 1];
        }
    }
    return found;
}

#define GLUE_(a, b) a##b
#define GLUE(a, b) GLUE_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)
const kernels_t GLUE(kernels_, TIER) = {
    TEXT(TIER), packed_bytes, pack, select_outputs, scratch,    multiply,   add_norm,    attend, em_routing, dynamic_routing,
    exp_twice,  tanh_score, add_scaled, lstm, gru, apply, log_sum_exp, top,
    squash,     softmax,
};
