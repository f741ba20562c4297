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

/* What the mean of the lower halves adds to the sums of a row. */
INLINE float lower_of(const linear_t *l, const rounded_t *rounded, int32_t zero) {
    int32_t total = 0;
    for (long i = 0; i < l->inputs; i++) total += rounded[i] - zero;
    return (float)total * (MEAN_OF_LOWER - 128);
}

INLINE void preview_block(const linear_t *l, const upper_t *upper, const rounded_t *rounded, rounding_t row, float lower,
                          float *y, long output) {
    const char *pairs = nibbles_of(l, upper) + output * l->inputs / 2;
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
        vi zeros = *(const vi_any *)(upper->sums + output + k * LANES) * all_int(row.zero - ZERO_POINT);
        vi sum = sums[k][0] + sums[k][1] - zeros;
        found[k] = (__builtin_convertvector(sum, vf) * all(16.f) + all(lower)) * by.scales[k] * all(row.step) + by.biases[k];
    }
    finish(found[0], found[1], y + output, l->outputs - output, 0);
}

static void preview(const linear_t *l, const void *upper, long rows, const void *scratch, float *y, long first,
                    long end) {
    const rounded_t *rounded = scratch;
    const rounding_t *row = roundings_of(l, rows, scratch);
    for (long r = 0; r < rows; r++, rounded += l->inputs, row++, y += l->outputs) {
        float lower = lower_of(l, rounded, row->zero);
        for (long block = first; block < end; block++) preview_block(l, upper, rounded, *row, lower, y, block * BLOCK);
    }
}

static long most_previewed(const linear_t *l) {
    (void)l;
    return 1;
}

#if defined(HAS_TILES)
#define MOST_UNPACKED 1024 /* inputs: a block of so many stays in the first cache */

static long most_previewed_by_tiles(const linear_t *l) {
    return l->inputs % TILE_BYTES || l->inputs > MOST_UNPACKED ? 1 : TILE_ROWS;
}

/* The nibbles of a block, a byte each, in the order of the products. */
INLINE void unpack_nibbles(const char *pairs, long bytes, nibbles_t *to) {
    for (long i = 0; i < bytes; i += DEPTH * BLOCK, pairs += DEPTH * BLOCK, to += 4) {
        prefetch_weights(pairs, DEPTH * BLOCK);
        for (int k = 0; k < 2; k++) {
            nibbles_t two = ((const nibbles_t *)pairs)[k];
            to[k] = two & 15;
            to[k + 2] = two >> 4;
        }
    }
}

static __attribute__((target("amx-tile,amx-int8"))) void preview_by_tiles(const linear_t *l, const void *memory, long rows,
                                                                           const void *scratch, float *y, long first,
                                                                           long end) {
    const upper_t *upper = memory;
    const rounded_t *rounded = scratch;
    const rounding_t *roundings = roundings_of(l, rows, scratch);
    nibbles_t codes[MOST_UNPACKED * BLOCK / sizeof(nibbles_t)];
    float lower[TILE_ROWS];
    vi sums[TILE_ROWS][2];
    if (rows == 1) {
        preview(l, memory, rows, scratch, y, first, end);
        return;
    }
    for (long r = 0; r < rows; r++) lower[r] = lower_of(l, rounded + r * l->inputs, roundings[r].zero);
    tiles_t tiles = tiles_of((uint8_t)rows);
    _tile_loadconfig(&tiles);
    for (long output = first * BLOCK; output < end * BLOCK; output += BLOCK) {
        unpack_nibbles(nibbles_of(l, upper) + output * l->inputs / 2, l->inputs * BLOCK / 2, codes);
        _tile_zero(0);
        _tile_zero(1);
        for (long i = 0; i < l->inputs; i += TILE_BYTES) {
            const char *weight = (const char *)codes + i * BLOCK;
            _tile_loadd(4, rounded + i, l->inputs);
            _tile_loadd(6, weight, BLOCK * DEPTH);
            _tile_dpbusd(0, 4, 6);
            _tile_loadd(7, weight + LANES * DEPTH, BLOCK * DEPTH);
            _tile_dpbusd(1, 4, 7);
        }
        _tile_stored(0, sums[0], BLOCK * 4);
        _tile_stored(1, sums[0] + 1, BLOCK * 4);
        block_scales_t by = scales_of(l, output);
        for (int k = 0; k < 2; k++) by.sums[k] = two_parts(*(const vi_any *)(upper->sums + output + k * LANES));
        for (long r = 0; r < rows; r++) {
            vf found[2];
            for (int k = 0; k < 2; k++) {
                vf sum = __builtin_convertvector(less_zeros(sums[r][k], by.sums[k], roundings[r].zero), vf);
                found[k] = (sum * all(16.f) + all(lower[r])) * by.scales[k] * all(roundings[r].step) + by.biases[k];
            }
            finish(found[0], found[1], y + r * l->outputs + output, l->outputs - output, 0);
        }
    }
    _tile_release();
}
#endif
#else
static int64_t upper_bytes(const linear_t *l) {
    (void)l;
    return 0;
}
static void pack_upper(const linear_t *l, void *memory) { (void)l, (void)memory; }
static long most_previewed(const linear_t *l) { return (void)l, 0; }
static void preview(const linear_t *l, const void *memory, long rows, const void *scratch, float *y, long first,
                    long end) {
    (void)l, (void)memory, (void)rows, (void)scratch, (void)y, (void)first, (void)end;
}
#endif

#endif
