/* Logits from the upper four bits of a head's weights, which take half the memory: reading a large head takes most of the
 * time of a step with one row, and only the logits next to the largest matter. See `preview` of ../operations.c.
 *
 * A code is 16 n + r - 128, of which n is kept: two inputs in a byte, in the order of the products.
 */
#ifndef CAPSULE_MT_PREVIEW_H
#define CAPSULE_MT_PREVIEW_H

#include "near.h"
#include "products.h"

#include <limits.h>

#define MEAN_OF_LOWER 7.5f

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

/* They follow the sums of n of each output. */
static char *nibbles_of(const linear_t *l, const void *upper) { return (char *)upper + 4 * round_up(l->outputs, BLOCK); }

INLINE vi sum_of_nibbles(const void *upper, long output) { return *(const vi_any *)((const int32_t *)upper + output); }

static int64_t upper_bytes(const linear_t *l) {
    int64_t outputs = round_up(l->outputs, BLOCK);
    if (!l->int8 || l->inputs % (2 * DEPTH)) return 0;
    return outputs * 4 + outputs * l->inputs / 2;
}

static void pack_upper(const linear_t *l, void *upper) {
    const nibbles_t *codes = l->packed;
    nibbles_t *to = (nibbles_t *)nibbles_of(l, upper);
    for (long o = 0; o < round_up(l->outputs, BLOCK); o += BLOCK) {
        vi sums[2] = {all_int(0), all_int(0)};
        for (long i = 0; i < l->inputs; i += 2 * DEPTH, codes += 2)
            for (int k = 0; k < 2; k++, codes++) {
                nibbles_t low = (codes[0] ^ 128) >> 4, high = (codes[2] ^ 128) >> 4;
                *to++ = low | high << 4;
                sums[k] = dot_nibbles(sums[k], low + high, 0x01010101);
            }
        memcpy((int32_t *)upper + o, sums, sizeof(sums));
    }
}

/* What the mean of the lower halves adds to the sums of a row. */
INLINE float lower_of(const linear_t *l, const rounded_t *rounded, int32_t zero) {
    int32_t total = 0;
    for (long i = 0; i < l->inputs; i++) total += rounded[i] - zero;
    return (float)total * (MEAN_OF_LOWER - 128);
}

INLINE void preview_block(const linear_t *l, const void *upper, const rounded_t *rounded, rounding_t row, float lower,
                          near_t *near, long output) {
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
    for (int k = 0; k < 2; k++) {
        vi zeros = sum_of_nibbles(upper, output + k * LANES) * all_int(row.zero - ZERO_POINT);
        vi sum = sums[k][0] + sums[k][1] - zeros;
        vf found = __builtin_convertvector(sum, vf) * all(16.f) + all(lower);
        found = found * by.scales[k] * all(row.step) + by.biases[k];
        note(l, near, found, by.scales[k], output + k * LANES);
    }
}

static void preview(const linear_t *l, const void *upper, long rows, const void *scratch, near_t *near, long first,
                    long end) {
    const rounded_t *rounded = scratch;
    const rounding_t *row = roundings_of(l, rows, scratch);
    for (long r = 0; r < rows; r++, rounded += l->inputs, row++, near++) {
        float lower = lower_of(l, rounded, row->zero);
        for (long block = first; block < end; block++) preview_block(l, upper, rounded, *row, lower, near, block * BLOCK);
    }
}

static float compute(const linear_t *l, long rows, long row, const void *memory, long output) {
    long stride = round_up(l->inputs, DEPTH);
    const rounded_t *x = (const rounded_t *)memory + row * stride;
    const int8_t *codes = (const int8_t *)weights_of(l, output);
    rounding_t rounding = roundings_of(l, rows, memory)[row];
    int32_t sum = 0;
    for (long k = 0; k < stride; k += DEPTH, codes += BLOCK * DEPTH)
        for (long d = 0; d < DEPTH; d++) sum += x[k + d] * codes[d];
    vf found = __builtin_convertvector(all_int(sum - l->sums[output] * rounding.zero), vf);
    found = found * all(l->scales[output]) * all(rounding.step) + all(l->bias[output]); /* as in `finish_int8` */
    return found[0];
}

static long most_previewed(const linear_t *l) { return (void)l, 1; }
static long least_whole(const linear_t *l) { return (void)l, LONG_MAX; }

#if defined(HAS_TILES)
#define MOST_UNPACKED 1024 /* inputs: a block of so many stays in the first cache */

static long most_previewed_by_tiles(const linear_t *l) {
    return l->inputs % TILE_BYTES || l->inputs > MOST_UNPACKED ? 1 : TILE_ROWS;
}

static long least_whole_by_tiles(const linear_t *l) { return is_tiled(l) ? LEAST_TILED : LONG_MAX; }

/* The nibbles of TILE_BYTES inputs of a block, a byte each, in the order of the products. */
INLINE void unpack_nibbles(const char *pairs, char *bytes) {
    nibbles_t *to = (nibbles_t *)bytes;
    for (int i = 0; i < TILE_BYTES * LANES; i += 64) __builtin_prefetch(pairs + 4096 + i);
    for (int i = 0; i < TILE_BYTES / DEPTH; i += 2, pairs += DEPTH * BLOCK, to += 4)
        for (int k = 0; k < 2; k++) {
            nibbles_t two = ((const nibbles_t *)pairs)[k];
            to[k] = two & 15;
            to[k + 2] = two >> 4;
        }
}

/* A block is unpacked in the place of the one before, while the tiles multiply that. */
static __attribute__((target("amx-tile,amx-int8"))) void preview_by_tiles(const linear_t *l, const void *upper, long rows,
                                                                           const void *scratch, near_t *near, long first,
                                                                           long end) {
    const rounded_t *rounded = scratch;
    const rounding_t *roundings = roundings_of(l, rows, scratch);
    if (!upper) {
        long last = end * BLOCK < l->outputs ? end * BLOCK : l->outputs;
        tiles_near(l, rounded, roundings, rows, near, first * BLOCK, last);
        return;
    }
    char codes[MOST_UNPACKED * BLOCK] __attribute__((aligned(64)));
    const char *pairs = nibbles_of(l, upper) + first * BLOCK * l->inputs / 2;
    float lower[TILE_ROWS];
    vi sums[TILE_ROWS][2];
    if (rows == 1) {
        preview(l, upper, rows, scratch, near, first, end);
        return;
    }
    for (long r = 0; r < rows; r++) lower[r] = lower_of(l, rounded + r * l->inputs, roundings[r].zero);
    tiles_t tiles = tiles_of((uint8_t)rows);
    _tile_loadconfig(&tiles);
    for (long i = 0; i < l->inputs; i += TILE_BYTES, pairs += TILE_BYTES * LANES) unpack_nibbles(pairs, codes + i * BLOCK);
    for (long block = first; block < end; block++) {
        long output = block * BLOCK;
        _tile_zero(0);
        _tile_zero(1);
        for (long i = 0; i < l->inputs; i += TILE_BYTES) {
            char *some = codes + i * BLOCK;
            _tile_loadd(4, rounded + i, l->inputs);
            _tile_loadd(6, some, BLOCK * DEPTH);
            _tile_dpbusd(0, 4, 6);
            _tile_loadd(7, some + LANES * DEPTH, BLOCK * DEPTH);
            _tile_dpbusd(1, 4, 7);
            if (block + 1 == end) continue;
            unpack_nibbles(pairs, some);
            pairs += TILE_BYTES * LANES;
        }
        _tile_stored(0, sums[0], BLOCK * 4);
        _tile_stored(1, sums[0] + 1, BLOCK * 4);
        block_scales_t by = scales_of(l, output);
        for (int k = 0; k < 2; k++) by.sums[k] = two_parts(sum_of_nibbles(upper, output + k * LANES));
        for (long r = 0; r < rows; r++)
            for (int k = 0; k < 2; k++) {
                vf found = __builtin_convertvector(less_zeros(sums[r][k], by.sums[k], roundings[r].zero), vf);
                found = (found * all(16.f) + all(lower[r])) * by.scales[k] * all(roundings[r].step) + by.biases[k];
                note(l, near + r, found, by.scales[k], output + k * LANES);
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
static void pack_upper(const linear_t *l, void *upper) { (void)l, (void)upper; }
static long most_previewed(const linear_t *l) { return (void)l, 0; }
static long least_whole(const linear_t *l) { return (void)l, LONG_MAX; }
static void preview(const linear_t *l, const void *upper, long rows, const void *scratch, near_t *near, long first,
                    long end) {
    (void)l, (void)upper, (void)rows, (void)scratch, (void)near, (void)first, (void)end;
}
static float compute(const linear_t *l, long rows, long row, const void *memory, long output) {
    return (void)l, (void)rows, (void)row, (void)memory, (void)output, 0;
}
#endif

#endif
