/* Vectors of a tier, their functions, and loops over rows of any length. */
#ifndef CAPSULE_MT_VECTORS_H
#define CAPSULE_MT_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(TIER_AVX512)
#include <immintrin.h>
#define LANES 16
#define DEPTH 4
#define MAX_ROWS 12
typedef uint8_t rounded_t;
#define ZERO_POINT 128
#define HAS_HALVES /* instructions that read half precision */
#if defined(__linux__) /* the only system that is asked for tiles: see dispatch.c */
#define HAS_TILES
#endif
#elif defined(TIER_AVX2)
#include <immintrin.h>
#define LANES 8
#define HAS_HALVES
#define MAX_ROWS 6
#if defined(TIER_AVXVNNI)
#define DEPTH 4
typedef uint8_t rounded_t;
#define ZERO_POINT 128
#else
#define DEPTH 2
typedef int16_t rounded_t;
#define ZERO_POINT 0
#endif
#elif defined(TIER_DOTPROD)
#include <arm_neon.h>
#define HAS_HALVES
#define LANES 4
#define DEPTH 4
#define MAX_ROWS 12
typedef int8_t rounded_t;
#define ZERO_POINT 0
#else
#if defined(TIER_SIMD128)
#include <wasm_simd128.h>
#endif
#define LANES 4
#define MAX_ROWS 4
#if defined(__wasm_relaxed_simd__)
#define DEPTH 4
typedef uint8_t rounded_t;
/* Whether the host's dot product takes rounded inputs as unsigned bytes, as x86 does, or as signed ones, as arm64 does;
 * engine.js loads this module where it does either without saturation. */
static inline int zero_point(void) {
    v128_t sums = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(wasm_i8x16_splat(1), wasm_i8x16_splat(-1), wasm_i32x4_splat(0));
    return wasm_i32x4_extract_lane(sums, 0) > 0 ? 128 : 0;
}
#define ZERO_POINT zero_point()
#else
#define DEPTH 2
typedef int16_t rounded_t;
#define ZERO_POINT 0
#endif
#endif

#if defined(__clang__)
#define UNROLL_ALL _Pragma("clang loop unroll(full)")
#else
#define UNROLL_ALL _Pragma("GCC unroll 16")
#endif
#define BLOCK (2 * LANES)
#define INLINE static inline __attribute__((always_inline))
#if defined(TIER_SIMD128) /* where code is to be small: for what is rare, or takes much longer than a call */
#define OUTLINE static __attribute__((noinline))
#else
#define OUTLINE INLINE
#endif

typedef float vf __attribute__((vector_size(LANES * 4)));
typedef int32_t vi __attribute__((vector_size(LANES * 4)));
typedef uint32_t vu __attribute__((vector_size(LANES * 4)));
typedef float vf_any __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t vi_any __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef uint32_t vu_any __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

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
OUTLINE float sum_of(vf v) {
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += v[i];
    return sum;
}
OUTLINE float largest_of(vf v) {
    float largest = v[0];
    for (int i = 1; i < LANES; i++) largest = v[i] > largest ? v[i] : largest;
    return largest;
}
#endif

/* A bit for each lane that is above. */
INLINE unsigned lanes_above(vf values, float threshold) {
#if defined(TIER_AVX512)
    return _mm512_cmp_ps_mask((__m512)values, _mm512_set1_ps(threshold), _CMP_GT_OQ);
#elif defined(TIER_AVX2)
    return (unsigned)_mm256_movemask_ps((__m256)(values > all(threshold)));
#elif defined(TIER_SIMD128)
    return wasm_i32x4_bitmask((v128_t)(values > all(threshold)));
#else
    vi above = values > all(threshold);
    unsigned lanes = 0;
    for (int i = 0; i < LANES; i++) lanes |= (above[i] & 1u) << i;
    return lanes;
#endif
}

/* The sums of four vectors. */
typedef float four_t __attribute__((vector_size(16)));
typedef float four_any __attribute__((vector_size(16), aligned(4), may_alias));
INLINE four_t four_sums(const vf *v) {
#if defined(TIER_AVX512)
    __m512 a = (__m512)v[0], b = (__m512)v[1], c = (__m512)v[2], d = (__m512)v[3];
    __m512d ab = (__m512d)_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    __m512d cd = (__m512d)_mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    __m512 all4 = _mm512_add_ps((__m512)_mm512_unpacklo_pd(ab, cd), (__m512)_mm512_unpackhi_pd(ab, cd));
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all4), _mm512_extractf32x8_ps(all4, 1));
    return (four_t)_mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
#elif defined(TIER_AVX2)
    __m256 ab = _mm256_hadd_ps((__m256)v[0], (__m256)v[1]), cd = _mm256_hadd_ps((__m256)v[2], (__m256)v[3]);
    __m256 pairs = _mm256_hadd_ps(ab, cd);
    return (four_t)_mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
#elif defined(TIER_SIMD128) /* in the order of sum_of */
    v128_t a = (v128_t)v[0], b = (v128_t)v[1], c = (v128_t)v[2], d = (v128_t)v[3];
    v128_t ab = wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), cd = wasm_i32x4_shuffle(c, d, 0, 4, 1, 5);
    vf sum = (vf)wasm_i64x2_shuffle(ab, cd, 0, 2) + (vf)wasm_i64x2_shuffle(ab, cd, 1, 3);
    ab = wasm_i32x4_shuffle(a, b, 2, 6, 3, 7), cd = wasm_i32x4_shuffle(c, d, 2, 6, 3, 7);
    sum += (vf)wasm_i64x2_shuffle(ab, cd, 0, 2);
    return (four_t)(sum + (vf)wasm_i64x2_shuffle(ab, cd, 1, 3));
#else
    return (four_t){sum_of(v[0]), sum_of(v[1]), sum_of(v[2]), sum_of(v[3])};
#endif
}

/* To the nearest integer, for |x| < 2^22. */
INLINE vf round_of(vf x) {
    const vf magic = all(12582912.f);
    return (x + magic) - magic;
}

/* exp(x) for x <= 88 */
INLINE vf exp_of_low(vf x) {
    x = max_of(x, all(-87.f));
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
#if defined(TIER_AVX512)
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)k);
#else
    vi power = (__builtin_convertvector(k, vi) + all_int(127)) << 23;
    return p * (vf)power;
#endif
}
INLINE vf exp_of(vf x) { return exp_of_low(min_of(x, all(88.f))); }

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

OUTLINE vf sigmoid_of(vf x) { return all(1.f) / (all(1.f) + exp_of(-x)); }
OUTLINE vf tanh_of(vf x) { return all(1.f) - all(2.f) / (all(1.f) + exp_of(x + x)); }

/* x P(X <= x) of a normal variable X. The polynomial is the logarithm of P(X <= -t), fitted so that t P(X <= -t) is right to
 * 7e-9: closer than by erff, which takes most of the time of an encoder with this activation. A NaN stays one. */
OUTLINE vf gelu_of(vf x) {
    vf t = min_of(all(16.f), abs_of(x)); /* beyond 16, the product is 0 */
    vf p = all(-1.17166169e-6f);
    p = p * t + all(1.73858585e-5f);
    p = p * t + all(-7.93359543e-5f);
    p = p * t + all(-2.24134945e-4f);
    p = p * t + all(5.08313443e-3f);
    p = p * t + all(-3.65387179e-2f);
    p = p * t + all(-3.18234561e-1f);
    p = p * t + all(-7.97897847e-1f);
    p = p * t + all(-6.93146400e-1f);
    return max_of(all(0.f), x) - t * exp_of_low(p);
}

/* Numbers in half precision as floats, exactly, but for those that are not finite. */
typedef uint16_t vh_any __attribute__((vector_size(LANES * 2), aligned(2), may_alias));
INLINE vf load_half(const uint16_t *p) {
#if defined(TIER_AVX512)
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif defined(TIER_AVX2)
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#elif defined(TIER_DOTPROD)
    return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
#else /* 2^112 moves the exponent of a half, also of a subnormal one, to that of a float */
    vu bits = __builtin_convertvector(*(const vh_any *)p, vu);
    return (vf)((vu)((vf)((bits & 0x7fff) << 13) * all(0x1p112f)) | (bits & 0x8000) << 16);
#endif
}

/* The last, incomplete vector of a row goes through these. */
#if defined(TIER_AVX512)
INLINE vf load_first(const float *p, long count, float padding) {
    return (vf)_mm512_mask_loadu_ps((__m512)all(padding), (__mmask16)((1u << count) - 1), p);
}
INLINE void store_first(float *p, vf v, long count) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << count) - 1), (__m512)v);
}
#else
OUTLINE vf load_first(const float *p, long count, float padding) {
    vf v = all(padding);
    for (long i = 0; i < count; i++) v[i] = p[i];
    return v;
}
OUTLINE void store_first(float *p, vf v, long count) {
    for (long i = 0; i < count; i++) p[i] = v[i];
}
#endif
/* The first lanes of a vector, and zeros. */
OUTLINE vf first_of(vf v, long count) {
#if defined(TIER_AVX512)
    return (vf)_mm512_maskz_mov_ps((__mmask16)((1u << count) - 1), (__m512)v);
#else
    for (long i = count; i < LANES; i++) v[i] = 0;
    return v;
#endif
}
#define FOR_VECTORS(i, count) for (long i = 0, left_ = (count); left_ > 0; i += LANES, left_ -= LANES)
#define GET(p, i, count, padding) ((count) - (i) >= LANES ? load((p) + (i)) : load_first((p) + (i), (count) - (i), padding))
#define PUT(p, i, count, v) \
    do { \
        if ((count) - (i) >= LANES) store((p) + (i), v); \
        else store_first((p) + (i), v, (count) - (i)); \
    } while (0)

/* values = exp(values - largest); returns their sum. */
static float exp_below(float *values, long count, float largest) {
    vf total = all(0.f);
    FOR_VECTORS(i, count) {
        vf v = exp_of_low(GET(values, i, count, 0.f) - all(largest));
        PUT(values, i, count, v);
        total += count - i < LANES ? first_of(v, count - i) : v;
    }
    return sum_of(total);
}

static float largest_value(const float *values, long count) {
    vf top = all(-INFINITY), tops[4] = {top, top, top, top};
    long full = count / (4 * LANES) * (4 * LANES);
    for (long i = 0; i < full; i += 4 * LANES)
        for (long k = 0; k < 4; k++) tops[k] = max_of(tops[k], load(values + i + k * LANES));
    FOR_VECTORS(i, count - full) top = max_of(top, GET(values + full, i, count - full, -INFINITY));
    for (long k = 0; k < 4; k++) top = max_of(top, tops[k]);
    return largest_of(top);
}

/* Works on rows side by side, each of this number of vectors, in registers: a single row would wait for its own sums. The
 * results are those of the loop in `softmax`, bit for bit. */
INLINE void softmax_short(const int rows, const int vectors, float *values, long count) {
    vf numbers[4][4], total[4];
    UNROLL_ALL
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < vectors; k++) numbers[r][k] = GET(values + r * count, k * LANES, count, -INFINITY);
    UNROLL_ALL
    for (int r = 0; r < rows; r++) {
        vf top = numbers[r][0];
        for (int k = 1; k < vectors; k++) top = max_of(top, numbers[r][k]);
        vf largest = all(largest_of(top));
        for (int k = 0; k < vectors; k++) numbers[r][k] = exp_of_low(numbers[r][k] - largest);
        numbers[r][vectors - 1] = first_of(numbers[r][vectors - 1], count - (vectors - 1) * LANES);
    }
    UNROLL_ALL
    for (int r = 0; r < rows; r++) {
        total[r] = numbers[r][0];
        for (int k = 1; k < vectors; k++) total[r] += numbers[r][k];
    }
    UNROLL_ALL
    for (int r = 0; r < rows; r++) {
        vf scale = all(1 / sum_of(total[r]));
        for (int k = 0; k < vectors; k++) PUT(values + r * count, k * LANES, count, numbers[r][k] * scale);
    }
}

/* The softmax of each row. */
static void softmax(float *values, long rows, long count) {
#if !defined(TIER_SIMD128) /* where code is to be small */
    long vectors = (count + LANES - 1) / LANES;
    for (; vectors == 1 && rows >= 4; rows -= 4, values += 4 * count) softmax_short(4, 1, values, count);
    for (; vectors == 2 && rows >= 4; rows -= 4, values += 4 * count) softmax_short(4, 2, values, count);
    for (; vectors == 3 && rows >= 2; rows -= 2, values += 2 * count) softmax_short(2, 3, values, count);
    for (; vectors == 4 && rows >= 2; rows -= 2, values += 2 * count) softmax_short(2, 4, values, count);
#endif
    for (; rows; rows--, values += count) {
        if (count <= LANES) {
            softmax_short(1, 1, values, count);
            continue;
        }
        float total = exp_below(values, count, largest_value(values, count));
        vf scale = all(1 / total);
        FOR_VECTORS(i, count) PUT(values, i, count, GET(values, i, count, 0.f) * scale);
    }
}

#endif
