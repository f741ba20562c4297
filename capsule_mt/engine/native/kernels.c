/* The kernels of one tier. Compiled with -DTIER=name and one of -DTIER_AVX512, -DTIER_AVX2 (and -DTIER_AVXVNNI),
 * -DTIER_DOTPROD, -DTIER_SIMD128, or none.
 *
 * Float code is written once with vector extensions; only the int8 product names instructions.
 */
#include "kernels.h"

#include "kernels/preview.h"
#include "kernels/products.h"
#include "kernels/routing.h"
#include "kernels/vectors.h"

/* ---- norm, attention */

/* Rows side by side: the sums of a single one would wait for each other. */
INLINE void norm_rows(const int rows, float *x, const float *residual, const float *gain, const float *bias, long width,
                      float epsilon) {
    vf total[4], squares[4];
    float mean[4], scale[4];
    UNROLL_ALL
    for (int r = 0; r < rows; r++) total[r] = squares[r] = all(0.f);
    FOR_VECTORS(i, width)
        UNROLL_ALL
        for (int r = 0; r < rows; r++) {
            vf v = GET(x + r * width, i, width, 0.f);
            if (residual) v += GET(residual + r * width, i, width, 0.f);
            PUT(x + r * width, i, width, v);
            total[r] += v;
        }
    UNROLL_ALL
    for (int r = 0; r < rows; r++) mean[r] = sum_of(total[r]) / (float)width;
    FOR_VECTORS(i, width)
        UNROLL_ALL
        for (int r = 0; r < rows; r++) {
            vf v = GET(x + r * width, i, width, mean[r]) - all(mean[r]);
            squares[r] += v * v;
        }
    UNROLL_ALL
    for (int r = 0; r < rows; r++) scale[r] = 1 / sqrtf(sum_of(squares[r]) / (float)width + epsilon);
    FOR_VECTORS(i, width) {
        vf gains = GET(gain, i, width, 0.f), biases = GET(bias, i, width, 0.f);
        UNROLL_ALL
        for (int r = 0; r < rows; r++) {
            vf v = (GET(x + r * width, i, width, 0.f) - all(mean[r])) * all(scale[r]);
            PUT(x + r * width, i, width, v * gains + biases);
        }
    }
}

static void add_norm(float *x, const float *residual, const float *gain, const float *bias, long rows, long width,
                     float epsilon) {
#if !defined(TIER_SIMD128) /* where code is to be small */
    for (; rows >= 4; rows -= 4, x += 4 * width, residual += residual ? 4 * width : 0)
        norm_rows(4, x, residual, gain, bias, width, epsilon);
#endif
    for (; rows; rows--, x += width, residual += residual ? width : 0)
        norm_rows(1, x, residual, gain, bias, width, epsilon);
}

/* A head is stored as floats, or as halves in whole blocks. */
static long stored_width(long width, int halves) { return halves ? round_up(width, BLOCK) * 2 : width * 4; }
static long stored_bytes(long heads, long width, int halves) { return heads * stored_width(width, halves); }

#define LARGEST_HALF 65504.f

/* Stores a block in 16 bits a number: in half precision if the processor reads it, else the upper half of each number,
 * rounded to the nearest; the halves of the second vector are then above those of the first. */
INLINE void store_halves(char *target, vf low, vf high) {
#if defined(TIER_AVX512)
    _mm256_storeu_si256((__m256i *)target, _mm512_cvtps_ph((__m512)low, _MM_FROUND_TO_NEAREST_INT));
    _mm256_storeu_si256((__m256i *)target + 1, _mm512_cvtps_ph((__m512)high, _MM_FROUND_TO_NEAREST_INT));
#elif defined(TIER_AVX2)
    _mm_storeu_si128((__m128i *)target, _mm256_cvtps_ph((__m256)low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)target + 1, _mm256_cvtps_ph((__m256)high, _MM_FROUND_TO_NEAREST_INT));
#elif defined(TIER_DOTPROD)
    float16x4_t first = vcvt_f16_f32((float32x4_t)low);
    vst1q_u16((uint16_t *)target, vreinterpretq_u16_f16(vcvt_high_f16_f32(first, (float32x4_t)high)));
#else
    vu first = (vu)low, second = (vu)high;
    first = (first + ((first >> 16) & 1) + 0x7fff) >> 16;
    second = (second + ((second >> 16) & 1) + 0x7fff) & 0xffff0000u;
    *(vu_any *)target = first | second;
#endif
}

INLINE void load_halves(const char *source, vf *block) {
#if defined(HAS_HALVES)
    for (int i = 0; i < 2; i++) block[i] = load_half((const uint16_t *)source + i * LANES);
#else
    vu words = *(const vu_any *)source;
    block[0] = (vf)(words << 16);
    block[1] = (vf)(words & 0xffff0000u);
#endif
}

static void store_heads(const float *source, long heads, long width, int halves, void *target) {
    if (!halves) {
        memcpy(target, source, (size_t)(heads * width) * 4);
        return;
    }
    const vf limit = all(LARGEST_HALF);
    for (long h = 0; h < heads; h++, source += width)
        for (long i = 0; i < width; i += BLOCK, target = (char *)target + 2 * BLOCK) {
            vf low = GET(source, i, width, 0.f), high = all(0.f);
            if (i + LANES < width) high = GET(source, i + LANES, width, 0.f);
            store_halves(target, max_of(min_of(low, limit), -limit), max_of(min_of(high, limit), -limit));
        }
}

/* Loads numbers `i` to `i` + BLOCK of a stored head, with zeros beyond its end. */
INLINE void load_block(const char *head, long i, long width, const int halves, vf *block) {
    if (halves) {
        load_halves(head + 2 * i, block);
        return;
    }
    block[1] = all(0.f);
    block[0] = GET((const float *)head, i, width, 0.f);
    if (i + LANES < width) block[1] = GET((const float *)head, i + LANES, width, 0.f);
}

/* Prefetches a head of the next queries' keys `first` to `first` + 4, or of their values, into the second cache: while these
 * queries read as many of their own, memory does not pause. */
INLINE void prefetch_next(const queries_t *q, long first, long offset, long bytes) {
#if defined(TIER_AVX512) /* measured on Zen 4 alone */
    for (long k = first; k < first + 4 && k < q->num_next_keys; k++)
        for (long i = 0; i < bytes; i += 64) __builtin_prefetch(q->next_keys[k] + offset + i, 0, 2);
#else
    (void)q, (void)first, (void)offset, (void)bytes;
#endif
}

/* Works on every head of four keys before the next four: a key's numbers lie side by side, and those of the next keys, which
 * lie elsewhere, are prefetched meanwhile. */
INLINE void attend_width(const queries_t *q, long first, long end, const long width, const int halves) {
    const long head_bytes = stored_width(width, halves);
#if defined(TIER_SIMD128) /* a page loads faster without this code */
    const int is_block = 0;
#else
    const int is_block = width == BLOCK; /* a head's numbers of four keys stay in registers while all rows read them */
#endif
    vf blocks[4][2];
    long num_keys = q->num_keys;
    float scale = 1 / sqrtf((float)width);
    for (int sums_values = 0; sums_values < 2; sums_values++) { /* first scores the keys, then sums up the values */
        for (long j = 0; j < num_keys; j += 4) {
            const char *now[4], *next[4];
            for (long k = 0; k < 4; k++) {
                now[k] = q->keys[j + k < num_keys ? j + k : num_keys - 1] + sums_values * q->value_offset;
                if (j + 4 + k < num_keys) next[k] = q->keys[j + 4 + k] + sums_values * q->value_offset;
                else next[k] = q->keys[k < num_keys ? k : 0] + q->value_offset; /* the first values */
            }
            for (long h = first; h < end; h++) {
                long head = h * head_bytes;
                for (long k = 0; k < 4; k++)
                    for (long i = 0; i < head_bytes; i += 64) __builtin_prefetch(next[k] + head + i);
                prefetch_next(q, j, sums_values * q->value_offset + head, head_bytes);
                for (long k = 0; is_block && k < 4; k++) load_block(now[k] + head, 0, width, halves, blocks[k]);
                for (long r = 0; r < q->rows; r++) {
                    const float *query = q->query + r * q->query_step + h * width;
                    float *output = q->output + (r * q->heads + h) * width;
                    float *score = q->scores + (r * q->heads + h) * num_keys + j;
                    vf block[2], sum[4] = {all(0.f), all(0.f), all(0.f), all(0.f)};
                    if (sums_values) {
                        for (long k = 0; k < 4; k++) sum[k] = all(j + k < num_keys ? score[k] : 0.f);
                        for (long i = 0; i < width; i += BLOCK) {
                            vf low = all(0.f), high = all(0.f);
                            if (j) low = GET(output, i, width, 0.f);
                            if (j && i + LANES < width) high = GET(output, i + LANES, width, 0.f);
                            for (long k = 0; k < 4; k++) {
                                if (is_block) memcpy(block, blocks[k], sizeof(block));
                                else load_block(now[k] + head, i, width, halves, block);
                                low += sum[k] * block[0];
                                high += sum[k] * block[1];
                            }
                            PUT(output, i, width, low);
                            if (i + LANES < width) PUT(output, i + LANES, width, high);
                        }
                        continue;
                    }
                    for (long i = 0; i < width; i += BLOCK) {
                        vf low = GET(query, i, width, 0.f), high = all(0.f);
                        if (i + LANES < width) high = GET(query, i + LANES, width, 0.f);
                        for (long k = 0; k < 4; k++) {
                            if (is_block) memcpy(block, blocks[k], sizeof(block));
                            else load_block(now[k] + head, i, width, halves, block);
                            sum[k] += low * block[0];
                            sum[k] += high * block[1];
                        }
                    }
                    four_t sums = four_sums(sum) * scale;
                    if (j + 4 <= num_keys) *(four_any *)score = sums;
                    else
                        for (long k = 0; j + k < num_keys; k++) score[k] = sums[k];
                }
            }
        }
        for (long r = 0; r < q->rows && !sums_values; r++)
            softmax(q->scores + (r * q->heads + first) * num_keys, end - first, num_keys);
    }
}

static void attend(const queries_t *q, long first, long end) {
    if (q->halves && q->width == 64) attend_width(q, first, end, 64, 1);
    else if (q->halves && q->width == 32) attend_width(q, first, end, 32, 1);
    else if (q->halves) attend_width(q, first, end, q->width, 1);
#if !defined(TIER_SIMD128) /* there, models are in int8, with `halves` */
    else if (q->width == 64) attend_width(q, first, end, 64, 0);
    else if (q->width == 32) attend_width(q, first, end, 32, 0);
    else attend_width(q, first, end, q->width, 0);
#endif
}

/* ---- recurrence */

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

static void ssru(const float *gates, const float *before, float *state, float *output, long width) {
    FOR_VECTORS(i, width) {
        vf forget = sigmoid_of(GET(gates, i, width, 0.f));
        vf next = forget * GET(before, i, width, 0.f) + (all(1.f) - forget) * GET(gates + width, i, width, 0.f);
        PUT(state, i, width, next);
        PUT(output, i, width, max_of(next, all(0.f)));
    }
}

/* ---- search */

#if defined(TIER_AVX512)
/* exp(x - top) with fewer instructions, as a power of two: its errors are larger far below the top, where they do not show.
 * -INFINITY gives 0. */
INLINE vf exp_below_top(vf x, float top) {
    vf exponent = (x - all(top)) * all(1.44269504088896341f);
    vf power = (vf)_mm512_roundscale_ps((__m512)exponent, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf fraction = exponent - power, p = all(1.5345811801e-4f);
    p = p * fraction + all(1.3399931423e-3f);
    p = p * fraction + all(9.6184889597e-3f);
    p = p * fraction + all(5.5503287765e-2f);
    p = p * fraction + all(2.4022646891e-1f);
    p = p * fraction + all(6.9314720574e-1f);
    p = p * fraction + all(1.f);
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)power);
}
#else
INLINE vf exp_below_top(vf x, float top) { return exp_of_low(x - all(top)); }
#endif

static float log_sum_exp(const float *values, long count) {
    float top = largest_value(values, count);
    vf total = all(0.f);
    long full = count / LANES * LANES, i = 0;
    for (; i + 4 * LANES <= full; i += 4 * LANES) { /* four side by side, added in order */
        vf four[4];
        UNROLL_ALL
        for (long k = 0; k < 4; k++) four[k] = exp_below_top(load(values + i + k * LANES), top);
        UNROLL_ALL
        for (long k = 0; k < 4; k++) total += four[k];
    }
    for (; i < full; i += LANES) total += exp_below_top(load(values + i), top);
    long tail = count - full;
    if (tail) total += first_of(exp_below_top(load_first(values + full, tail, 0.f), top), tail);
    return top + logf(sum_of(total));
}

#define GROUP (8 * LANES)
#define MAX_GROUPS 1024
#define MAX_K 64

/* Fills in the largest value of each group; returns the k-th largest of these: no smaller value is among the k largest. */
static float largest_of_groups(const float *values, long groups, long k, float *largest) {
    long num_highest = 0;
    float highest[MAX_K];
    for (long g = 0; g < groups; g++, values += GROUP) {
        vf tops[4];
        for (long k = 0; k < 4; k++) tops[k] = load(values + k * LANES);
        for (long k = 4; k < GROUP / LANES; k++) tops[k % 4] = max_of(tops[k % 4], load(values + k * LANES));
        float top = largest[g] = largest_of(max_of(max_of(tops[0], tops[1]), max_of(tops[2], tops[3])));
        if (num_highest == k && top <= highest[k - 1]) continue;
        long rank = num_highest < k ? num_highest++ : k - 1;
        for (; rank > 0 && highest[rank - 1] < top; rank--) highest[rank] = highest[rank - 1];
        highest[rank] = top;
    }
    return highest[k - 1];
}

static long top(const float *values, long count, long k, float *best, int32_t *indices) {
    long num_best = 0, groups = count / GROUP;
    float threshold = -INFINITY, group_threshold = -INFINITY, largest[MAX_GROUPS];
    int is_grouped = groups > 2 * k && groups <= MAX_GROUPS && k <= MAX_K;
    if (is_grouped) group_threshold = largest_of_groups(values, groups, k, largest);
    for (long i = 0; i < count; i += LANES) {
        if (is_grouped && i % GROUP == 0 && i / GROUP < groups && largest[i / GROUP] < group_threshold) {
            i += GROUP - LANES;
            continue;
        }
        long end = count - i < LANES ? count : i + LANES;
        if (num_best == k && end - i == LANES && !lanes_above(load(values + i), threshold)) continue;
        for (long j = i; j < end; j++) {
            if (values[j] < group_threshold || (num_best == k && values[j] <= threshold)) continue;
            long rank = num_best < k ? num_best++ : k - 1;
            for (; rank > 0 && best[rank - 1] < values[j]; rank--) {
                best[rank] = best[rank - 1];
                indices[rank] = indices[rank - 1];
            }
            best[rank] = values[j];
            indices[rank] = (int32_t)j;
            threshold = best[num_best - 1];
        }
    }
    return num_best;
}

#define GLUE_(a, b) a##b
#define GLUE(a, b) GLUE_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)
#define TABLE(name, product, max_rows, min_unwritten, preview) \
    { \
        name, packed_bytes, lay_out, pack, pack_codes, widen, select_outputs, unpack, scratch, round_inputs, \
        subtract_rounded, num_blocks, product, preview_bytes, pack_preview, max_rows, min_unwritten, preview, refine, \
        compute, add_norm, stored_bytes, store_heads, attend, em_routing, dynamic_routing, exp_twice, tanh_score, add_scaled, lstm, gru, ssru, apply, \
        log_sum_exp, top, squash, softmax, \
    }
const kernels_t GLUE(kernels_, TIER) = TABLE(TEXT(TIER), multiply, max_preview_rows, min_unwritten_rows, preview);
#if defined(HAS_TILES)
const kernels_t kernels_amx =
    TABLE("amx", multiply_by_tiles, max_preview_rows_by_tiles, min_unwritten_rows_by_tiles, preview_by_tiles);
#endif
