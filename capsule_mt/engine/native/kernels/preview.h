/* Logits from fewer bits of a head's weights: reading a large head takes most of the time of a step with one row, and only
 * the logits next to the largest matter. See ../logits.c.
 *
 * Each output's weights are quantised to 16 levels n of its own step, as step * (n - 7.5). The upper two bits of n, which
 * suffice for most outputs, are stored apart from the lower two. A byte of either has four inputs, each DEPTH after the one
 * before.
 */
#ifndef CAPSULE_MT_PREVIEW_H
#define CAPSULE_MT_PREVIEW_H

#include "contenders.h"
#include "products.h"

#include <limits.h>

/* A step, as a multiple of the weights' root mean square: a larger one is coarser, a smaller one clips more weights. */
#define STEP_OF_MEAN 0.335f

static float compute(const linear_t *l, long rows, long row, const void *memory, long output) {
    long stride = round_up(l->inputs, DEPTH);
    const rounded_t *x = (const rounded_t *)memory + row * row_stride(l->inputs);
    const int8_t *codes = (const int8_t *)weights_of(l, output);
    rounding_t rounding = roundings_of(l, rows, memory)[row];
    int32_t sum = 0;
    for (long k = 0; k < stride; k += DEPTH, codes += BLOCK * DEPTH)
        for (long d = 0; d < DEPTH; d++) sum += x[k + d] * codes[d];
    vf value = __builtin_convertvector(all_int(sum - l->sums[output] * rounding.zero), vf);
    value = value * all(l->scales[output]) * all(rounding.step) + all(l->bias[output]); /* as in `finish_int8` */
    return value[0];
}

#if defined(TIER_AVX512) || defined(TIER_AVXVNNI) || defined(TIER_DOTPROD)
typedef uint8_t bits_t __attribute__((vector_size(LANES * 4), may_alias));
#define AT_ONCE (4 * DEPTH) /* inputs of a vector of bits */

INLINE vi dot_bits(vi sum, bits_t bits, int32_t inputs) {
#if defined(TIER_AVX512)
    return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)bits, (__m512i)all_int(inputs));
#elif defined(TIER_AVXVNNI)
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)bits, (__m256i)all_int(inputs));
#else
    return (vi)vdotq_s32((int32x4_t)sum, (int8x16_t)bits, (int8x16_t)all_int(inputs));
#endif
}

/* A packed preview. For each output: its step; the root mean square error of its weights by the upper bits (`coarse`) and by
 * all (`fine`); the sums of the upper and of the lower bits; then these bits, laid out as the weights are. */
typedef struct {
    float *steps, *coarse, *fine;
    int32_t *sums[2];
    char *bits[2];
} preview_t;

static preview_t parts_of(const linear_t *l, const void *packed) {
    long outputs = round_up(l->outputs, BLOCK);
    float *steps = (float *)packed;
    int32_t *sums = (int32_t *)(steps + 3 * outputs);
    char *bits = (char *)(sums + 2 * outputs);
    return (preview_t){steps, steps + outputs, steps + 2 * outputs, {sums, sums + outputs},
                     {bits, bits + (int64_t)outputs * l->inputs / 4}};
}

static int64_t preview_bytes(const linear_t *l) {
    int64_t outputs = round_up(l->outputs, BLOCK);
    return l->int8 && l->inputs % AT_ONCE == 0 ? outputs * 5 * 4 + outputs * l->inputs / 2 : 0;
}

/* Input `d` of the four that a word of codes has. */
INLINE vi code_of(vi codes, int d) { return codes << (24 - 8 * d) >> 24; }

/* Packs LANES outputs. */
static void pack_outputs(const linear_t *l, preview_t parts, long output) {
    const char *codes = weights_of(l, output);
    long stride = BLOCK * DEPTH, offset = output / BLOCK * BLOCK * l->inputs / 4 + output % BLOCK * 4;
    vf squares = all(0.f), errors[2] = {all(0.f), all(0.f)};
    vi sums[2] = {all_int(0), all_int(0)};
    for (long i = 0; i < l->inputs; i += DEPTH)
        for (int d = 0; d < DEPTH; d++) {
            vf code = __builtin_convertvector(code_of(*(const vi_any *)(codes + i / DEPTH * stride), d), vf);
            squares += code * code;
        }
    vf step, mean = squares / all((float)l->inputs);
    for (int k = 0; k < LANES; k++) step[k] = mean[k] > 0 ? STEP_OF_MEAN * sqrtf(mean[k]) : 1;
    const vf factor = all(1.f) / step;
    for (long i = 0; i < l->inputs; i += AT_ONCE) {
        vi bits[2] = {all_int(0), all_int(0)};
        for (int j = 0; j < 4; j++)
            for (int d = 0; d < DEPTH; d++) {
                vf code = __builtin_convertvector(code_of(*(const vi_any *)(codes + (i / DEPTH + j) * stride), d), vf);
                vf level = max_of(min_of(round_of(code * factor + all(7.5f)), all(15.f)), all(0.f));
                vi n = __builtin_convertvector(level, vi), pairs[2] = {n >> 2, n & 3}; /* of bits: the upper and the lower */
                vf error = code - (level - all(7.5f)) * step;
                vf coarse_error = code - (__builtin_convertvector(pairs[0], vf) * all(4.f) - all(6.f)) * step;
                errors[0] += coarse_error * coarse_error;
                errors[1] += error * error;
                for (int part = 0; part < 2; part++) {
                    sums[part] += pairs[part];
                    bits[part] |= pairs[part] << (8 * d + 2 * j);
                }
            }
        for (int part = 0; part < 2; part++)
            *(vi_any *)(parts.bits[part] + offset + i / AT_ONCE * stride) = bits[part];
    }
    for (int k = 0; k < LANES; k++) {
        float scale = l->scales[output + k];
        parts.steps[output + k] = step[k] * scale;
        parts.coarse[output + k] = sqrtf(errors[0][k] / (float)l->inputs) * scale;
        parts.fine[output + k] = sqrtf(errors[1][k] / (float)l->inputs) * scale;
        for (int part = 0; part < 2; part++) parts.sums[part][output + k] = sums[part][k];
    }
}

static void pack_preview(const linear_t *l, void *packed) {
    for (long output = 0; output < round_up(l->outputs, BLOCK); output += LANES)
        pack_outputs(l, parts_of(l, packed), output);
}

/* The sum of a rounded row. */
INLINE int32_t total_of(const linear_t *l, const rounded_t *rounded, int32_t zero) {
    int32_t total = 0;
    for (long i = 0; i < l->inputs; i++) total += rounded[i] - zero;
    return total;
}

/* Multiplies a row by the upper or the lower two bits of a block's weights; prefetches as many bytes from `later` on. */
INLINE void dot_bit_pairs(const linear_t *l, const char *bits, const char *later, const int32_t *zeros, const rounded_t *x,
                    int32_t zero, vi *result) {
    vi sums[2][4];
    for (int k = 0; k < 8; k++) sums[k / 4][k % 4] = all_int(0);
    for (long i = 0; i < l->inputs; i += AT_ONCE, bits += BLOCK * 4, later += BLOCK * 4) {
        int32_t inputs[4];
        memcpy(inputs, x + i, sizeof(inputs));
        for (int j = 0; j < 4; j++) inputs[j] ^= ZERO_POINT * 0x01010101; /* of each byte */
        for (int k = 0; k < BLOCK * 4; k += 64) __builtin_prefetch(later + k);
        for (int k = 0; k < 2; k++) {
            bits_t pairs = *(const bits_t *)(bits + k * LANES * 4); /* four in each byte */
            sums[k][0] = dot_bits(sums[k][0], pairs & 3, inputs[0]);
            sums[k][1] = dot_bits(sums[k][1], pairs & 12, inputs[1]);
            sums[k][2] = dot_bits(sums[k][2], pairs & 48, inputs[2]);
            sums[k][3] = dot_bits(sums[k][3], pairs >> 6, inputs[3]);
        }
    }
    for (int k = 0; k < 2; k++) {
        vi excess = *(const vi_any *)(zeros + k * LANES) * all_int(zero - ZERO_POINT);
        result[k] = sums[k][0] + (sums[k][1] >> 2) + (sums[k][2] >> 4) + sums[k][3] - excess;
    }
}

/* The output with the largest estimate that is not forbidden, among these and the best one so far, or -1. */
static long largest_estimate(const linear_t *l, const contenders_t *contenders, long first, long last) {
    long best = contenders->best;
    float largest = best < 0 ? -INFINITY : contenders->estimates[best];
    for (long o = first; o < last; o += LANES) {
        unsigned lanes = lanes_above(load(contenders->estimates + o), largest);
        for (long k = o; lanes; k++, lanes >>= 1)
            if ((lanes & 1) && k < l->outputs && contenders->estimates[k] > largest &&
                !is_forbidden(contenders, (int32_t)k)) {
                best = k;
                largest = contenders->estimates[k];
            }
    }
    return best;
}

/* The next block from `output` on with an estimate that may reach the threshold, or an output from `end` on. */
static long next_contending(const contenders_t *contenders, preview_t parts, long output, long end) {
    for (; output < end; output += BLOCK)
        for (long k = output; k < output + BLOCK; k += LANES)
            if (may_contend(contenders, load(contenders->estimates + k), load(parts.coarse + k))) return output;
    return output;
}

/* Notes which outputs may be the largest, by the weights themselves, a block at a time: its products are read while they are
 * still in the cache. */
static void note_products(const linear_t *l, long rows, const void *scratch, contenders_t *contenders, long first,
                          long end) {
    const rounded_t *rounded = scratch;
    const rounding_t *roundings = roundings_of(l, rows, scratch);
    float outputs[MAX_ROWS * BLOCK] __attribute__((aligned(64)));
    for (long row = 0; row < rows; row++) contenders[row].radii = l->scales; /* not used: the reach is 0 */
    for (long output = first * BLOCK; output < end * BLOCK; output += BLOCK) {
        linear_t block = {.inputs = l->inputs, .outputs = BLOCK, .int8 = 1, .packed = weights_of(l, output),
                          .bias = l->bias + output, .scales = l->scales + output, .sums = l->sums + output};
        for (long row = 0, count; row < rows; row += count) {
            count = rows_at_once(rows - row);
            multiply_block(&block, 0, count, NULL, rounded + row * row_stride(l->inputs), roundings + row, outputs, 0);
            for (long r = 0; r < count; r++) {
                vf halves[] = {load(outputs + r * BLOCK), load(outputs + r * BLOCK + LANES)};
                if (!lanes_above(max_of(halves[0], halves[1]), contenders[row + r].threshold)) continue;
                for (int k = 0; k < 2; k++) note(l, contenders + row + r, halves[k], output + k * LANES);
            }
        }
    }
}

/* Estimates all logits of a single row by the upper bits. */
static void preview(const linear_t *l, const void *packed, long rows, const void *scratch, contenders_t *contenders,
                    long first, long end) {
    if (!packed) {
        note_products(l, rows, scratch, contenders, first, end);
        return;
    }
    const rounded_t *rounded = scratch;
    rounding_t row = *roundings_of(l, rows, scratch);
    preview_t parts = parts_of(l, packed);
    float total = (float)total_of(l, rounded, row.zero);
    vf step = all(row.step);
    vi sums[2];
    const int64_t bytes = l->inputs / 4; /* of an output */
    first *= BLOCK;
    end *= BLOCK;
    for (long output = first; output < end; output += BLOCK) {
        const char *bits = parts.bits[0] + output * bytes;
        dot_bit_pairs(l, bits, bits + prefetch_ahead, parts.sums[0] + output, rounded, row.zero, sums);
        block_scales_t block = scales_of(l, output);
        for (int k = 0; k < 2; k++) {
            vf estimates = (__builtin_convertvector(sums[k], vf) * all(4.f) - all(6 * total)) * step;
            estimates = estimates * load(parts.steps + output + k * LANES) + block.biases[k];
            store(contenders->estimates + output + k * LANES, estimates);
        }
    }
    contenders->best = largest_estimate(l, contenders, first, end);
}

#define BLOCKS_AHEAD 4 /* blocks whose lower bits are prefetched: the processor cannot predict which come next */

/* Notes, by all bits, the outputs that may be the largest by their upper bits. */
static void refine(const linear_t *l, const void *packed, const void *scratch, contenders_t *contenders, long first,
                   long end) {
    const rounded_t *rounded = scratch;
    rounding_t row = *roundings_of(l, 1, scratch);
    preview_t parts = parts_of(l, packed);
    const int64_t bytes = l->inputs / 4; /* of an output */
    const char *bits = parts.bits[1];
    float total = (float)total_of(l, rounded, row.zero);
    vf step = all(row.step);
    vi sums[2];
    contenders->radii = parts.fine; /* not in `preview`, which other threads may have run */
    first *= BLOCK;
    end *= BLOCK;
    long coming[BLOCKS_AHEAD], last = first - BLOCK;
    for (int k = 0; k < BLOCKS_AHEAD; k++) coming[k] = last = next_contending(contenders, parts, last + BLOCK, end);
    for (int next = 0; coming[next] < end; next = (next + 1) % BLOCKS_AHEAD) {
        long output = coming[next];
        coming[next] = last = next_contending(contenders, parts, last + BLOCK, end);
        dot_bit_pairs(l, bits + output * bytes, bits + last * bytes, parts.sums[1] + output, rounded, row.zero, sums);
        for (int k = 0; k < 2; k++) {
            long lane = output + k * LANES;
            vf addend = (__builtin_convertvector(sums[k], vf) - all(1.5f * total)) * step;
            note(l, contenders, load(contenders->estimates + lane) + addend * load(parts.steps + lane), lane);
        }
    }
}

static long max_preview_rows(const linear_t *l) { return (void)l, 1; }
static long min_unwritten_rows(const linear_t *l) { return l->int8 ? 2 : LONG_MAX; }

#if defined(HAS_TILES)
#define MAX_UNPACKED 1024 /* inputs: a block of them stays in the first cache */

static long max_preview_rows_by_tiles(const linear_t *l) {
    return l->inputs % TILE_BYTES || l->inputs > MAX_UNPACKED ? 1 : TILE_ROWS;
}

static long min_unwritten_rows_by_tiles(const linear_t *l) { return is_tiled(l) ? MIN_TILED_ROWS : LONG_MAX; }

/* All bits of TILE_BYTES inputs of a block, a byte for each input, in the order of the products. */
INLINE void unpack_bits(const char *upper, const char *lower, char *bytes) {
    bits_t *target = (bits_t *)bytes;
    for (int i = 0; i < TILE_BYTES / 4 * BLOCK; i += 64) {
        __builtin_prefetch(upper + 4096 + i);
        __builtin_prefetch(lower + 4096 + i);
    }
    for (int i = 0; i < TILE_BYTES / AT_ONCE; i++, target += 8)
        for (int k = 0; k < 2; k++) {
            bits_t high = ((const bits_t *)upper)[2 * i + k], low = ((const bits_t *)lower)[2 * i + k];
            bits_t even = (high << 2 & 0xcc) | (low & 0x33), odd = (high & 0xcc) | (low >> 2 & 0x33);
            target[k] = even & 15;
            target[k + 2] = odd & 15;
            target[k + 4] = even >> 4;
            target[k + 6] = odd >> 4;
        }
}

/* Previews several rows. The codes of a block overwrite those of the one before, while the tiles multiply these. */
static BY_TILES void preview_by_tiles(const linear_t *l, const void *packed, long rows, const void *scratch,
                                      contenders_t *contenders, long first, long end) {
    const rounded_t *rounded = scratch;
    const rounding_t *roundings = roundings_of(l, rows, scratch);
    if (!packed) {
        long last = end * BLOCK < l->outputs ? end * BLOCK : l->outputs;
        tile_contenders(l, rounded, roundings, rows, contenders, first * BLOCK, last);
        return;
    }
    if (rows == 1) {
        preview(l, packed, rows, scratch, contenders, first, end);
        return;
    }
    preview_t parts = parts_of(l, packed);
    char codes[MAX_UNPACKED * BLOCK] __attribute__((aligned(64)));
    const char *high = parts.bits[0] + first * BLOCK * l->inputs / 4, *low = parts.bits[1] + first * BLOCK * l->inputs / 4;
    const long part = TILE_BYTES / 4 * BLOCK, stride = row_stride(l->inputs);
    float total[TILE_ROWS];
    vi sums[TILE_ROWS][2];
    for (long r = 0; r < rows; r++) {
        total[r] = 7.5f * (float)total_of(l, rounded + r * stride, roundings[r].zero);
        contenders[r].radii = parts.fine;
    }
    tiles_t tiles = tiles_of((uint8_t)rows);
    _tile_loadconfig(&tiles);
    for (long i = 0; i < l->inputs; i += TILE_BYTES, high += part, low += part) unpack_bits(high, low, codes + i * BLOCK);
    for (long block = first; block < end; block++) {
        long output = block * BLOCK;
        _tile_zero(0);
        _tile_zero(1);
        for (long i = 0; i < l->inputs; i += TILE_BYTES) {
            char *unpacked = codes + i * BLOCK;
            _tile_loadd(4, rounded + i, stride);
            _tile_loadd(6, unpacked, BLOCK * DEPTH);
            _tile_dpbusd(0, 4, 6);
            _tile_loadd(7, unpacked + LANES * DEPTH, BLOCK * DEPTH);
            _tile_dpbusd(1, 4, 7);
            if (block + 1 == end) continue;
            unpack_bits(high, low, unpacked);
            high += part;
            low += part;
        }
        _tile_stored(0, sums[0], BLOCK * 4);
        _tile_stored(1, sums[0] + 1, BLOCK * 4);
        block_scales_t scales = scales_of(l, output);
        vf steps[2];
        for (int k = 0; k < 2; k++) {
            long lane = output + k * LANES;
            scales.sums[k] = two_parts(*(vi_any *)(parts.sums[0] + lane) * 4 + *(vi_any *)(parts.sums[1] + lane));
            steps[k] = load(parts.steps + lane);
        }
        for (long r = 0; r < rows; r++)
            for (int k = 0; k < 2; k++) {
                vf logits = __builtin_convertvector(subtract_zeros(sums[r][k], scales.sums[k], roundings[r].zero), vf);
                logits = (logits - all(total[r])) * all(roundings[r].step) * steps[k] + scales.biases[k];
                note(l, contenders + r, logits, output + k * LANES);
            }
    }
    _tile_release();
}
#endif
#else
static int64_t preview_bytes(const linear_t *l) {
    (void)l;
    return 0;
}
static void pack_preview(const linear_t *l, void *packed) { (void)l, (void)packed; }
static long max_preview_rows(const linear_t *l) { return (void)l, 0; }
static long min_unwritten_rows(const linear_t *l) { return (void)l, LONG_MAX; }
static void preview(const linear_t *l, const void *packed, long rows, const void *scratch, contenders_t *contenders,
                    long first, long end) {
    (void)l, (void)packed, (void)rows, (void)scratch, (void)contenders, (void)first, (void)end;
}
static void refine(const linear_t *l, const void *packed, const void *scratch, contenders_t *contenders, long first,
                   long end) {
    (void)l, (void)packed, (void)scratch, (void)contenders, (void)first, (void)end;
}
#endif

#endif
