/* Logits from the upper four bits of a head's weights, which take half the memory: reading a large head takes most of the
 * time of a step with one row, and only the logits next to the largest matter. See `preview` of ../operations.c.
 *
 * A code is 16 n + r - 128, of which n is kept: two inputs in a byte, in the order of the products.
 */
#ifndef CAPSULE_MT_PREVIEW_H
#define CAPSULE_MT_PREVIEW_H

#include "products.h"

#define MEAN_OF_LOWER 7.5f

typedef struct {
    float largest_scale;
    float padding[15];
    int32_t sums[]; /* of n, of each output */
} upper_t;

#if defined(TIER_AVX512) || defined(TIER_AVXVNNI) || defined(TIER_DOTPROD)
typedef uint8_t nibbles_t __attribute__((vector_size(LANES * 4), may_alias));

INLINE vi dot_nibbles(vi sum, nibbles_t n, int32_t four) {
#if defined(TIER_AVX512)
    return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)n, (__m512i)all_int(four));
#elif defined(TIER_AVXVNNI)
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)n, (__m256i)all_int(four));
#else
    return (vi)vdotq_s32((int32x4_t)sum, (int8x16_t)n, (int8x16_t)all_int(four));
#endif
}

static char *nibbles_of(const linear_t *l, const upper_t *upper) {
    return (char *)(upper->sums + round_up(l->outputs, BLOCK));
}

static int64_t upper_bytes(const linear_t *l) {
    int64_t outputs = round_up(l->outputs, BLOCK);
    if (!l->int8 || l->inputs % (2 * DEPTH)) return 0;
    return (int64_t)sizeof(upper_t) + outputs * 4 + outputs * l->inputs / 2;
}

static void pack_upper(const linear_t *l, void *memory) {
    upper_t *upper = memory;
    const nibbles_t *codes = l->packed;
    nibbles_t *to = (nibbles_t *)nibbles_of(l, upper);
    upper->largest_scale = 0;
    for (long o = 0; o < round_up(l->outputs, BLOCK); o += BLOCK) {
        vi sums[2] = {all_int(0), all_int(0)};
        for (long k = 0; k < BLOCK; k++) upper->largest_scale = fmaxf(upper->largest_scale, l->scales[o + k]);
        for (long i = 0; i < l->inputs; i += 2 * DEPTH, codes += 2)
            for (int k = 0; k < 2; k++, codes++) {
                nibbles_t low = (codes[0] ^ 128) >> 4, high = (codes[2] ^ 128) >> 4;
                *to++ = low | high << 4;
                sums[k] = dot_nibbles(sums[k], low + high, 0x01010101);
            }
        memcpy(upper->sums + o, sums, sizeof(sums));
    }
}

static void preview(const linear_t *l, const void *memory, const void *scratch, float *y, long first, long end) {
    const upper_t *upper = memory;
    const rounded_t *rounded = scratch;
    rounding_t row = *roundings_of(l, 1, scratch);
    const char *pairs = nibbles_of(l, upper) + first * BLOCK * l->inputs / 2;
    int32_t total = 0;
    row.zero -= ZERO_POINT;
    for (long i = 0; i < l->inputs; i++) total += rounded[i] - ZERO_POINT - row.zero;
    vf lower = all((float)total * (MEAN_OF_LOWER - 128));
    for (long output = first * BLOCK; output < end * BLOCK; output += BLOCK) {
        vi sums[2][2] = {{all_int(0), all_int(0)}, {all_int(0), all_int(0)}};
        for (long i = 0; i < l->inputs; i += 2 * DEPTH, pairs += DEPTH * BLOCK) {
            int32_t fours[2];
            memcpy(fours, rounded + i, sizeof(fours));
            for (int k = 0; k < 2; k++) fours[k] ^= ZERO_POINT * 0x01010101; /* of each byte, as above */
            prefetch_weights(pairs, DEPTH * BLOCK);
            for (int k = 0; k < 2; k++) {
                nibbles_t two = *(const nibbles_t *)(pairs + k * DEPTH * LANES);
                sums[k][0] = dot_nibbles(sums[k][0], two & 15, fours[0]);
                sums[k][1] = dot_nibbles(sums[k][1], two >> 4, fours[1]);
            }
        }
        block_scales_t by = scales_of(l, output);
        vf found[2];
        for (int k = 0; k < 2; k++) {
            vi sum = sums[k][0] + sums[k][1] - *(const vi_any *)(upper->sums + output + k * LANES) * all_int(row.zero);
            found[k] = (__builtin_convertvector(sum, vf) * all(16.f) + lower) * by.scales[k] * all(row.step) + by.biases[k];
        }
        finish(found[0], found[1], y + output, l->outputs - output, 0);
    }
}
#else
static int64_t upper_bytes(const linear_t *l) {
    (void)l;
    return 0;
}
static void pack_upper(const linear_t *l, void *memory) { (void)l, (void)memory; }
static void preview(const linear_t *l, const void *memory, const void *scratch, float *y, long first, long end) {
    (void)l, (void)memory, (void)scratch, (void)y, (void)first, (void)end;
}
#endif

#endif
