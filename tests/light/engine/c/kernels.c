/* Hold every tier of kernels that this processor has to plain loops in double precision. Every array ends at a
 * page that may not be touched: a read past its end is a crash.
 *
 * Prints a line for each tier, and one for each difference; exits with 1 if there is one.
 */
#include "engine.h"
#include "kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <windows.h>
#else
#include <sys/mman.h>
#endif

#define PAGE 65536 /* no smaller than a page of any system */
#define COUNT(array) ((long)(sizeof(array) / sizeof(*(array))))

static struct {
    char *memory;
    size_t bytes;
} taken[4096];
static int num_taken, checks, failures;
static const kernels_t *tier;

/* So many bytes before a page that may not be touched; all are given back by `release`. */
static void *guarded(long bytes) {
    size_t whole = ((size_t)bytes + PAGE - 1) / PAGE * PAGE;
#if defined(_WIN32)
    DWORD before;
    char *memory = VirtualAlloc(NULL, whole + PAGE, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    if (!memory || !VirtualProtect(memory + whole, PAGE, PAGE_NOACCESS, &before)) abort();
#else
    char *memory = mmap(NULL, whole + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + whole, PAGE, PROT_NONE)) abort();
#endif
    if (num_taken == COUNT(taken)) abort();
    taken[num_taken].memory = memory;
    taken[num_taken++].bytes = whole + PAGE;
    return memory + whole - bytes;
}
static float *floats(long count) { return guarded(4 * count); }
static void release(void) {
    while (num_taken--) {
#if defined(_WIN32)
        VirtualFree(taken[num_taken].memory, 0, MEM_RELEASE);
#else
        munmap(taken[num_taken].memory, taken[num_taken].bytes);
#endif
    }
    num_taken = 0;
}

static uint64_t state = 88172645463325252u;
static double uniform(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) / 9007199254740992.0;
}
static float *random_floats(long count, double scale) {
    float *values = floats(count);
    for (long i = 0; i < count; i++) values[i] = (float)(scale * (2 * uniform() - 1));
    return values;
}
static float *copy_of(const float *values, long count) { return memcpy(floats(count), values, 4 * (size_t)count); }

/* Differences of at most `tolerance` times the largest value, or times one where all are smaller. */
static void check(const char *what, long a, long b, long c, const float *found, const float *wanted, long count,
                  double tolerance) {
    double largest = 1;
    for (long i = 0; i < count; i++) largest = fmax(largest, fabs(wanted[i]));
    checks++;
    for (long i = 0; i < count; i++)
        if (!(fabs((double)found[i] - wanted[i]) <= tolerance * largest)) {
            printf("%s %s(%ld, %ld, %ld)[%ld]: %.9g, not %.9g\n", tier->name, what, a, b, c, i, found[i], wanted[i]);
            failures++;
            return;
        }
}

static double activated(double x, int activation) {
    switch (activation) {
        case RELU: return x > 0 ? x : 0;
        case SILU: return x / (1 + exp(-x));
        case GELU: return 0.5 * x * (1 + erf(x * 0.70710678118654752));
        case TANH: return tanh(x);
        case SIGMOID: return 1 / (1 + exp(-x));
        default: return x;
    }
}

/* How weights are given, and kept: FROM_CODES in int8, as those that the tier rounds. */
enum weights { FLOATS, HALVES, ROUNDED, FROM_CODES, NUM_WEIGHTS };

/* The number that a half stands for. */
static float number_of(uint16_t half) {
    int exponent = half >> 10 & 31, significand = half & 1023;
    double size = exponent ? ldexp(1024 + significand, exponent - 25) : ldexp(significand, -24);
    return (float)(half & 0x8000 ? -size : size);
}

/* Products. In int8 of whole numbers, where they are exact: weights of +-127 at most, rows from -127 to 127, of which
 * every fourth has no number below or none above zero. With `largest`, all are the least or the largest; no row of codes
 * has a 127. Halves are up to 2, also denormal ones. */
static void products(long rows, long inputs, long outputs, enum weights kind, int largest, int activation) {
    static const char *const names[] = {"product", "product of halves", "int8 product", "product of codes"};
    int int8 = kind >= ROUNDED;
    float *weight = random_floats(inputs * outputs, 1), *x = random_floats(rows * inputs, 1);
    float *bias = (rows + outputs) % 3 ? random_floats(outputs, 2) : NULL;
    if (int8) {
        for (long i = 0; i < inputs * outputs; i++)
            weight[i] = largest || i % inputs == 0 ? copysignf(127, weight[i]) : rintf(127 * weight[i]);
        for (long i = 0; i < rows * inputs; i++) {
            static const float middles[] = {0, 127, 0, -127};
            long place = i % inputs;
            float middle = middles[i / inputs % 4];
            x[i] = middle + (largest || !place ? copysignf(127, x[i]) : rintf(127 * x[i]));
            if (place && place == inputs - 1) x[i] = 2 * middle - x[i - place]; /* the other end */
        }
        for (long i = 0; i < inputs && rows > 2; i++) x[2 * inputs + i] = 0; /* a row of zeros */
    }
    int8_t *codes = guarded(inputs * outputs);
    for (long i = 0; i < inputs * outputs && kind == FROM_CODES; i++) weight[i] = codes[i] = (int8_t)(weight[i] * 0.7f);
    uint16_t *halves = guarded(2 * inputs * outputs);
    for (long i = 0; i < inputs * outputs && kind == HALVES; i++)
        weight[i] = number_of(halves[i] = (uint16_t)(uniform() * 65536) & 0xbfff);
    float *y = floats(rows * outputs), *wanted = floats(rows * outputs);
    for (long r = 0; r < rows; r++)
        for (long o = 0; o < outputs; o++) {
            double sum = bias ? bias[o] : 0;
            for (long i = 0; i < inputs; i++) sum += (double)x[r * inputs + i] * weight[o * inputs + i];
            wanted[r * outputs + o] = (float)activated(sum, activation);
        }
    linear_t linear = {.outputs = outputs, .inputs = inputs, .int8 = int8, .halves = kind == HALVES};
    int64_t bytes = (tier->packed_bytes(&linear) + 63) / 64 * 64;
    tier->lay_out(&linear, memset(guarded((long)bytes), 0xff, (size_t)bytes));
    if (kind == FROM_CODES) {
        float *most = floats(outputs);
        for (long o = 0; o < outputs; o++) most[o] = 127;
        tier->pack_codes(&linear, codes + outputs / 2 * inputs, most, outputs / 2, outputs);
        tier->pack_codes(&linear, codes, most, 0, outputs / 2);
    } else { /* in two parts */
        long first = outputs / 2 * inputs;
        tier->pack(&linear, kind == HALVES ? (void *)(halves + first) : weight + first, outputs / 2, outputs);
        tier->pack(&linear, kind == HALVES ? (void *)halves : weight, 0, outputs / 2);
    }
    if (bias) memcpy(linear.bias, bias, 4 * (size_t)outputs);
    memset(weight, 0xff, 4 * (size_t)(inputs * outputs)); /* NaN: the copy alone may be read */
    void *scratch = guarded((tier->scratch(&linear, rows) + 63) / 64 * 64);
    long blocks = tier->num_blocks(&linear), middle = blocks / 3;
    tier->round_inputs(&linear, x, rows, scratch);
    tier->multiply(&linear, x, rows, y, activation, scratch, middle, blocks);
    tier->multiply(&linear, x, rows, y, activation, scratch, 0, middle);
    check(names[kind], rows, inputs, outputs, y, wanted, rows * outputs, 2e-6);
    if (rows > 1) { /* a row gets the same numbers alone */
        float *alone = floats(outputs);
        tier->round_inputs(&linear, x + (rows - 1) * inputs, 1, scratch);
        tier->multiply(&linear, x + (rows - 1) * inputs, 1, alone, activation, scratch, 0, blocks);
        check("last row alone", rows, inputs, outputs, alone, y + (rows - 1) * outputs, outputs, int8 ? 0 : 2e-6);
    }
    release();
}

/* What rounding rows leaves: half a step at most, and the product is that of the rest. */
static void leftovers(long rows, long inputs) {
    linear_t linear = {.outputs = 1, .inputs = inputs, .int8 = 1};
    int64_t bytes = (tier->packed_bytes(&linear) + 63) / 64 * 64;
    tier->lay_out(&linear, memset(guarded((long)bytes), 0, (size_t)bytes));
    float *weight = floats(inputs), *x = random_floats(rows * inputs, 3), *rest = floats(rows * inputs);
    float *y = floats(rows), *wanted = floats(rows), none = 0;
    for (long i = 0; i < inputs; i++) weight[i] = i % 2 ? 127 : -127;
    tier->pack(&linear, weight, 0, 1);
    void *scratch = guarded((tier->scratch(&linear, rows) + 63) / 64 * 64);
    tier->round_inputs(&linear, x, rows, scratch);
    tier->subtract_rounded(&linear, x, rows, scratch, rest);
    tier->multiply(&linear, x, rows, y, NO_ACTIVATION, scratch, 0, 1);
    for (long r = 0; r < rows; r++) {
        double sum = 0, most = 0;
        for (long i = 0; i < inputs; i++) {
            sum += (double)(x[r * inputs + i] - rest[r * inputs + i]) * weight[i];
            most = fmax(most, fabs(rest[r * inputs + i]));
        }
        wanted[r] = (float)sum;
        float above = (float)fmax(most - 3. / 254, 0); /* of steps of 6 / 254 at most */
        check("half a step", r, inputs, 0, &above, &none, 1, 1e-6);
    }
    check("product without the rest", rows, inputs, 0, y, wanted, rows, 1e-5); /* sums of many times their size */
    release();
}

/* Outputs that are selected from rows of codes, and an output that is unpacked, are those of a packed map bit for bit. */
static void maps_by_row(long inputs, long outputs) {
    linear_t maps[2] = {{.outputs = outputs, .inputs = inputs, .int8 = 1}}, selected[2] = {{0}};
    int8_t *codes = guarded(inputs * outputs);
    float *most = random_floats(outputs, 1), *x = random_floats(inputs, 3);
    int32_t *selection = guarded(4 * outputs);
    for (long i = 0; i < inputs * outputs; i++) codes[i] = (int8_t)(255 * uniform() - 127.5);
    for (long o = 0; o < outputs; o++) selection[o] = (int32_t)(outputs - 1 - o);
    maps[1] = maps[0];
    maps[1].by_row = 1;
    for (int k = 0; k < 2; k++) {
        int64_t bytes = (tier->packed_bytes(maps + k) + 63) / 64 * 64;
        tier->lay_out(maps + k, memset(guarded((long)bytes), 0xff, (size_t)bytes));
        tier->pack_codes(maps + k, codes + outputs / 2 * inputs, most + outputs / 2, outputs / 2, outputs);
        tier->pack_codes(maps + k, codes, most, 0, outputs / 2);
        for (long o = 0; o < outputs; o++) maps[k].bias[o] = (float)o;
    }
    for (long count = 1; count <= outputs; count += 1 + outputs / 3) {
        float *y[2] = {floats(count), floats(count)};
        for (int k = 0; k < 2; k++) {
            selected[k] = (linear_t){.outputs = count, .inputs = inputs, .int8 = 1};
            int64_t bytes = (tier->packed_bytes(selected + k) + 63) / 64 * 64;
            tier->select(maps + k, selection, selected + k, memset(guarded((long)bytes), 0xff, (size_t)bytes));
            void *scratch = guarded((tier->scratch(selected + k, 1) + 63) / 64 * 64);
            tier->round_inputs(selected + k, x, 1, scratch);
            tier->multiply(selected + k, x, 1, y[k], NO_ACTIVATION, scratch, 0, tier->num_blocks(selected + k));
        }
        check("selected by row", 1, inputs, count, y[1], y[0], count, 0);
    }
    for (long o = 0; o < outputs; o++) {
        int8_t *unpacked = guarded((inputs + 3) / 4 * 4);
        float *numbers = floats(inputs), *wanted = floats(inputs);
        tier->unpack(maps + 1, o, unpacked);
        for (long i = 0; i < inputs; i++) {
            numbers[i] = unpacked[i];
            wanted[i] = codes[o * inputs + i];
        }
        check("unpacked by row", 1, inputs, o, numbers, wanted, inputs, 0);
    }
    release();
}

/* The steps of an output's codes, 16 of a third of their root mean square; returns how large one is. */
static double steps_of(const int8_t *codes, long inputs, double *steps) {
    double squares = 0;
    for (long i = 0; i < inputs; i++) squares += codes[i] * codes[i];
    double step = 0.335 * sqrt(squares / (double)inputs);
    for (long i = 0; i < inputs; i++) steps[i] = fmin(fmax(nearbyint(codes[i] / step + 7.5), 0), 15);
    return step;
}

/* The estimates of the outputs [rows, outputs] by a part of the steps: all of it, or the upper two bits. Of each output also
 * what they leave out of a weight, as root mean square. `near_tie` says what a step may be off that lies between two. */
static void estimate(const int8_t *codes, const float *most, const float *bias, const double *x, long rows, long inputs,
                     long outputs, int is_coarse, double *estimates, double *radii, double *near_tie) {
    double *steps = malloc((size_t)inputs * sizeof(double));
    for (long o = 0; o < outputs; o++) {
        double step = steps_of(codes + o * inputs, inputs, steps), squares = 0, scale = most[o] / 127;
        for (long r = 0; r < rows; r++) estimates[r * outputs + o] = bias[o];
        for (long r = 0; r < rows; r++) near_tie[r * outputs + o] = 0;
        for (long i = 0; i < inputs; i++) {
            double exact = codes[o * inputs + i] / step + 7.5, kept = is_coarse ? 4 * floor(steps[i] / 4) + 1.5 : steps[i];
            double weight = step * (kept - 7.5), off = codes[o * inputs + i] - weight;
            squares += off * off;
            for (long r = 0; r < rows; r++) {
                estimates[r * outputs + o] += weight * scale * x[r * inputs + i];
                if (fabs(exact - floor(exact) - 0.5) < 1e-4)
                    near_tie[r * outputs + o] += (is_coarse ? 4 : 1) * step * scale * fabs(x[r * inputs + i]);
            }
        }
        radii[o] = sqrt(squares / (double)inputs) * scale;
    }
    free(steps);
}

/* The preview of rows: noted is, with its estimate by all bits, what may be the largest, but for one place in four; of a row
 * that is alone, what may be so by its upper bits, too. */
static void previews(long rows, long inputs, long outputs, double deviations) {
    linear_t linear = {.outputs = outputs, .inputs = inputs, .int8 = 1};
    int64_t bytes = (tier->packed_bytes(&linear) + 63) / 64 * 64, preview_bytes = (tier->preview_bytes(&linear) + 63) / 64 * 64;
    if (!preview_bytes || rows > tier->max_preview_rows(&linear)) return;
    tier->lay_out(&linear, memset(guarded((long)bytes), 0, (size_t)bytes));
    void *upper = guarded((long)preview_bytes), *scratch = guarded((tier->scratch(&linear, rows) + 63) / 64 * 64);
    int8_t *codes = guarded(inputs * outputs);
    int32_t *forbidden = guarded(4 * outputs);
    contenders_t *near = guarded(rows * (long)sizeof(contenders_t));
    float *most = random_floats(outputs, 1), *x = random_floats(rows * inputs, 3), *rest = floats(rows * inputs);
    float *exact = floats(rows * outputs);
    size_t doubles = (size_t)(rows * outputs) * sizeof(double);
    double *fine = malloc(doubles), *coarse = malloc(doubles), *near_tie = malloc(doubles), *unsure = malloc(doubles);
    double *radii = malloc(doubles), *coarse_radii = malloc(doubles), *rounded = malloc((size_t)(rows * inputs) * 8);
    for (long o = 0; o < outputs; o++) most[o] = 127 * (1 + most[o]);
    for (long o = 0; o < outputs / 4; o++) forbidden[o] = (int32_t)(4 * o + 1);
    for (long i = 0; i < inputs * outputs; i++) codes[i] = (int8_t)(255 * uniform() - 127.5);
    tier->pack_codes(&linear, codes, most, 0, outputs);
    for (long o = 0; o < outputs; o++) linear.bias[o] = (float)uniform();
    tier->pack_preview(&linear, upper);
    tier->round_inputs(&linear, x, rows, scratch);
    tier->subtract_rounded(&linear, x, rows, scratch, rest);
    for (long i = 0; i < rows * inputs; i++) rounded[i] = x[i] - rest[i];
    long blocks = tier->num_blocks(&linear);
    tier->multiply(&linear, x, rows, exact, NO_ACTIVATION, scratch, 0, blocks);
    estimate(codes, most, linear.bias, rounded, rows, inputs, outputs, 0, fine, radii, near_tie);
    estimate(codes, most, linear.bias, rounded, rows, inputs, outputs, 1, coarse, coarse_radii, unsure);
    for (long r = 0; r < rows; r++) {
        double squares = 0;
        for (long i = 0; i < inputs; i++) squares += x[r * inputs + i] * x[r * inputs + i];
        near[r].forbidden = forbidden;
        near[r].num_forbidden = outputs / 4;
        near[r].count = 0;
        near[r].reach = (float)(deviations * sqrt(squares));
        near[r].threshold = -INFINITY;
        near[r].estimates = floats(outputs + 64);
        near[r].best = -1;
    }
    tier->preview(&linear, upper, rows, scratch, near, blocks / 3, blocks);
    tier->preview(&linear, upper, rows, scratch, near, 0, blocks / 3);
    if (rows == 1) {
        near->threshold = tier->compute(&linear, 1, 0, scratch, near->best);
        tier->refine(&linear, upper, scratch, near, blocks / 3, blocks);
        tier->refine(&linear, upper, scratch, near, 0, blocks / 3);
    }
    for (long r = 0; r < rows; r++) {
        double largest = -INFINITY, highest = 0, reach = near[r].reach;
        for (long o = 0; o < outputs; o++) {
            if (o % 4 != 1 || o / 4 >= outputs / 4) largest = fmax(largest, exact[r * outputs + o]);
            highest = fmax(highest, fabs(fine[r * outputs + o]));
        }
        double slack = 1e-5 * highest;
        if (near[r].threshold > largest + slack) failures++;
        for (long o = 0; o < outputs; o++) {
            long at = r * outputs + o, place = 0;
            int must = fine[at] + reach * radii[o] > near[r].threshold + slack + near_tie[at];
            if (rows == 1) must &= coarse[at] + reach * coarse_radii[o] > near[r].threshold + slack + unsure[at];
            must &= o % 4 != 1 || o / 4 >= outputs / 4;
            while (place < near[r].count && place < MAX_CONTENDERS && near[r].outputs[place] != o) place++;
            int is_noted = place < near[r].count && place < MAX_CONTENDERS;
            checks++;
            if (near[r].count <= MAX_CONTENDERS &&
                (must > is_noted || (is_noted && o % 4 == 1 && o / 4 < outputs / 4) ||
                 (is_noted && fabs(near[r].values[place] - fine[at]) > 2e-6 * (1 + highest) + near_tie[at]) ||
                 fabs(near[r].radii[o] - radii[o]) > 1e-3 * radii[o])) {
                printf("%s preview(%ld, %ld, %ld): %ld in row %ld\n", tier->name, rows, inputs, outputs, o, r);
                failures++;
            }
            if (tier->compute(&linear, rows, r, scratch, o) != exact[at]) failures++;
        }
        if ((near[r].count > MAX_CONTENDERS) != (deviations > 1e3 && outputs > 2 * MAX_CONTENDERS)) failures++;
    }
    double *taken[] = {fine, coarse, near_tie, unsure, radii, coarse_radii, rounded};
    for (int i = 0; i < COUNT(taken); i++) free(taken[i]);
    release();
}

/* Of many rows is noted what may be the largest by the whole weights: the first of the largest, too. */
static void wholes(long rows, long inputs, long outputs) {
    linear_t linear = {.outputs = outputs, .inputs = inputs, .int8 = 1};
    if (rows < tier->min_unwritten_rows(&linear)) return;
    int64_t bytes = (tier->packed_bytes(&linear) + 63) / 64 * 64;
    float *weight = random_floats(inputs * outputs, 1), *x = random_floats(rows * inputs, 3), *y = floats(rows * outputs);
    int32_t *forbidden = guarded(4);
    contenders_t *near = guarded(rows * (long)sizeof(contenders_t));
    tier->lay_out(&linear, guarded((long)bytes));
    for (long i = 0; i < inputs; i++) weight[(outputs - 1) * inputs + i] = weight[i]; /* equal ones */
    tier->pack(&linear, weight, 0, outputs);
    void *scratch = guarded((tier->scratch(&linear, rows) + 63) / 64 * 64);
    tier->round_inputs(&linear, x, rows, scratch);
    long blocks = tier->num_blocks(&linear);
    tier->multiply(&linear, x, rows, y, NO_ACTIVATION, scratch, 0, blocks);
    forbidden[0] = (int32_t)(outputs / 2);
    for (long r = 0; r < rows; r++) {
        near[r].forbidden = forbidden;
        near[r].num_forbidden = 1;
        near[r].count = 0;
        near[r].reach = 0;
        near[r].threshold = -INFINITY;
    }
    tier->preview(&linear, NULL, rows, scratch, near, 0, blocks / 3);
    tier->preview(&linear, NULL, rows, scratch, near, blocks / 3, blocks);
    for (long r = 0; r < rows; r++) {
        long best = -1, found = 0;
        for (long i = 1; i < near[r].count; i++)
            if (near[r].values[i] > near[r].values[found]) found = i;
        for (long o = 0; o < outputs; o++)
            if (o != forbidden[0] && (best < 0 || y[r * outputs + o] > y[r * outputs + best])) best = o;
        checks++;
        if (!near[r].count || near[r].outputs[found] != best || near[r].values[found] != y[r * outputs + best]) {
            printf("%s preview(%ld, %ld, %ld): not %ld in row %ld\n", tier->name, rows, inputs, outputs, best, r);
            failures++;
        }
    }
    release();
}

/* The tiles of `amx` give the numbers of `avx512`, bit for bit, with the same packed weights. */
static void tiles(long rows, long inputs, long outputs, int activation) {
    const kernels_t *other = engine_kernels("avx512");
    if (strcmp(tier->name, "amx")) return;
    float *weight = random_floats(inputs * outputs, 1), *x = random_floats(rows * inputs, 3);
    float *found = floats(rows * outputs), *wanted = floats(rows * outputs);
    linear_t linear = {.outputs = outputs, .inputs = inputs, .int8 = 1};
    int64_t bytes = (tier->packed_bytes(&linear) + 63) / 64 * 64;
    tier->lay_out(&linear, guarded((long)bytes));
    tier->pack(&linear, weight, 0, outputs);
    for (long o = 0; o < outputs; o++) linear.bias[o] = (float)uniform();
    void *scratch = guarded((tier->scratch(&linear, rows) + 63) / 64 * 64);
    tier->round_inputs(&linear, x, rows, scratch);
    tier->multiply(&linear, x, rows, found, activation, scratch, 0, tier->num_blocks(&linear));
    other->round_inputs(&linear, x, rows, scratch);
    other->multiply(&linear, x, rows, wanted, activation, scratch, 0, other->num_blocks(&linear));
    checks++;
    if (memcmp(found, wanted, 4 * (size_t)(rows * outputs))) {
        printf("amx product(%ld, %ld, %ld) differs from avx512's\n", rows, inputs, outputs);
        failures++;
    }
    release();
}

static void all_products(void) {
    static const long few[] = {1, 2, 3, 5, 8, 17, 33}, many[] = {0, 64, 100, 129, 513, 1000};
    for (long rows = 2; rows <= 70; rows += 3) wholes(rows, rows % 3 * 64 + 64, 31 + 7 * rows);
    wholes(26, 37, 200);
    wholes(17, 2048, 70);
    for (long rows = 12; rows <= 82; rows++) tiles(rows, rows % 4 * 64, 29 + rows, rows % 6);
    tiles(320, 512, 1000, RELU);
    for (long outputs = 1; outputs < 100; outputs += 7) {
        previews(1, outputs % 5 * 16 + 64, outputs, 7.5);
        previews(1 + outputs % 16, 128, outputs, 7.5);
    }
    previews(3, 64, 3000, 7.5); /* what is no longer near makes room */
    for (long rows = 1; rows < 3; rows++) previews(rows, 64, 3000, 1e6); /* more than there is room for */
    for (long inputs = 1; inputs < 150; inputs += 8) leftovers(1 + inputs % 3, inputs);
    tiles(33, 2048, 65, NO_ACTIVATION);
    for (enum weights kind = FLOATS; kind < NUM_WEIGHTS; kind++) {
        for (long rows = 0; rows <= 26; rows++) products(rows, 37, 35, kind, 0, rows % 6);
        for (long rows = 47; rows <= 110; rows += 7) products(rows, 64, 35, kind, 0, NO_ACTIVATION); /* several chunks */
        for (int i = 0; i < COUNT(few); i++)
            for (int o = 0; o < COUNT(few); o++)
                for (long rows = 1; rows < 8; rows += 2) products(rows, few[i], few[o], kind, 0, NO_ACTIVATION);
        for (int i = 0; i < COUNT(many); i++)
            for (int o = 0; o < COUNT(many); o++)
                products(1 + 4 * (i == o), many[i], many[o], kind, (i + o) % 2, RELU * (i % 2));
        products(2, 3, 100003, kind, 0, NO_ACTIVATION);
    }
    for (enum weights kind = ROUNDED; kind < NUM_WEIGHTS; kind++) { /* rounded rows that do not follow each other */
        products(14, 2048, 35, kind, 0, RELU);
        products(5, 4096, 35, kind, 1, NO_ACTIVATION);
    }
}

static void norms(long rows, long width, double scale, int residual) {
    float *x = random_floats(rows * width, scale), *more = residual ? random_floats(rows * width, scale) : NULL;
    float *gain = random_floats(width, 2), *bias = random_floats(width, 2), *wanted = floats(rows * width);
    if (!scale)
        for (long i = 0; i < rows * width; i++) x[i] = 3; /* no variance */
    for (long r = 0; r < rows; r++) {
        double mean = 0, variance = 0;
        for (long i = r * width; i < (r + 1) * width; i++) mean += ((double)x[i] + (more ? more[i] : 0)) / width;
        for (long i = r * width; i < (r + 1) * width; i++)
            variance += pow((double)x[i] + (more ? more[i] : 0) - mean, 2) / width;
        for (long i = r * width, k = 0; k < width; i++, k++)
            wanted[i] = (float)(((double)x[i] + (more ? more[i] : 0) - mean) / sqrt(variance + 1e-5) * gain[k] + bias[k]);
    }
    tier->add_norm(x, more, gain, bias, rows, width, 1e-5f);
    check("add_norm", rows, width, (long)scale, x, wanted, rows * width, 1e-4);
    release();
}

/* The nearest number that 16 bits hold: half precision, or in the tier `portable` a float with a significand of 8 bits. */
static float half_of(float x) {
    int exponent;
    double significand = frexp(x, &exponent), steps = strcmp(tier->name, "portable") ? 2048 : 256;
    if (steps == 2048 && exponent < -13) steps = ldexp(2048, exponent + 13); /* denormal */
    return (float)ldexp(rint(significand * steps) / steps, exponent);
}

static void attention(long rows, long num_keys, long heads, long width, int halves, double scale) {
    long all = heads * width, bytes = tier->stored_bytes(heads, width, halves), step = all + 3;
    float *query = random_floats((rows - 1) * step + all, scale), *output = floats(rows * all), *wanted = floats(rows * all);
    float *scores = floats(rows * heads * num_keys), *shares = floats(rows * heads * num_keys);
    float **numbers = guarded(num_keys * (long)sizeof(float *));
    const char **keys = guarded(num_keys * (long)sizeof(char *));
    for (long j = 0; j < num_keys; j++) {
        char *kept = guarded(2 * bytes); /* a key and, after it, its value */
        numbers[j] = random_floats(2 * all, 1);
        tier->store_heads(numbers[j], heads, width, halves, kept);
        tier->store_heads(numbers[j] + all, heads, width, halves, kept + bytes);
        for (long i = 0; i < 2 * all && halves; i++) numbers[j][i] = half_of(numbers[j][i]);
        keys[j] = kept;
    }
    for (long r = 0; r < rows; r++)
        for (long h = 0; h < heads; h++) {
            double weights[512], top = -INFINITY, total = 0;
            for (long j = 0; j < num_keys; j++) {
                weights[j] = 0;
                for (long i = h * width; i < (h + 1) * width; i++) weights[j] += (double)query[r * step + i] * numbers[j][i];
                weights[j] /= sqrt((double)width);
                top = fmax(top, weights[j]);
            }
            for (long j = 0; j < num_keys; j++) total += weights[j] = exp(weights[j] - top);
            for (long j = 0; j < num_keys; j++) shares[(r * heads + h) * num_keys + j] = (float)(weights[j] / total);
            for (long i = h * width; i < (h + 1) * width; i++) {
                double sum = 0;
                for (long j = 0; j < num_keys; j++) sum += weights[j] / total * numbers[j][all + i];
                wanted[r * all + i] = (float)sum;
            }
        }
    queries_t queries = {query, output, step, rows, heads, width, keys, bytes, num_keys, halves, scores, keys, num_keys};
    tier->attend(&queries, heads / 2, heads);
    tier->attend(&queries, 0, heads / 2);
    check("attend, shares", num_keys, heads, width, scores, shares, rows * heads * num_keys, 1e-4 * fmax(1, scale));
    check("attend", num_keys, heads, width, output, wanted, rows * all, 1e-4 * fmax(1, scale));
    release();
}

/* Rows side by side, against double precision, and bit for bit against a row that is alone. */
static void softmaxes(long rows, long count) {
    float *values = random_floats(rows * count, 20), *alone = copy_of(values, rows * count);
    float *wanted = floats(rows * count);
    for (long r = 0; r < rows; r++) {
        double total = 0;
        for (long i = 0; i < count; i++) total += exp(values[r * count + i]);
        for (long i = 0; i < count; i++) wanted[r * count + i] = (float)(exp(values[r * count + i]) / total);
        tier->softmax(alone + r * count, 1, count);
    }
    tier->softmax(values, rows, count);
    check("softmax", rows, count, 0, values, wanted, rows * count, 1e-5);
    check("softmax, a row alone", rows, count, 0, values, alone, rows * count, 0);
    release();
}

/* The functions of numbers, one by one. */
static void vectors(long count, double scale) {
    float *x = random_floats(count, scale), *y = random_floats(count, scale), *wanted = floats(count);
    for (int activation = NO_ACTIVATION; activation <= SIGMOID; activation++) {
        float *values = copy_of(x, count);
        for (long i = 0; i < count; i++) wanted[i] = (float)activated(x[i], activation);
        tier->apply(values, count, activation);
        check("apply", count, activation, (long)scale, values, wanted, count, 1e-5);
    }
    float *e = copy_of(x, count), *f = copy_of(y, count), *weight = random_floats(count, 1);
    for (long i = 0; i < count; i++) wanted[i] = fminf(fmaxf(2 * x[i], -87), 88);
    tier->exp_twice(e, count);
    tier->exp_twice(f, count);
    float *logarithms = floats(count);
    for (long i = 0; i < count; i++) logarithms[i] = logf(e[i]);
    check("exp_twice", count, 0, (long)scale, logarithms, wanted, count, 1e-5);
    double score = 0, sum = 0, size = 0;
    for (long i = 0; i < count; i++) {
        score += weight[i] * tanh(fmin(fmax(x[i], -43.5), 44) + fmin(fmax(y[i], -43.5), 44));
        sum += weight[i];
        size += fabs(weight[i]);
    }
    float found = tier->tanh_score(e, f, weight, (float)sum, count) - (float)score;
    if (!(fabsf(found) <= 1e-5 * (1 + size))) {
        printf("%s tanh_score(%ld, %g) is %g off\n", tier->name, count, scale, found);
        failures++;
    }
    float *sums = copy_of(y, count);
    for (long i = 0; i < count; i++) wanted[i] = (float)(y[i] + 0.7 * x[i]);
    tier->add_scaled(sums, x, 0.7f, count);
    check("add_scaled", count, 0, (long)scale, sums, wanted, count, 1e-6);
    if (!count) return release();
    for (int suppressed = 0; suppressed < 2 && suppressed < count; suppressed++) {
        double top = -INFINITY, total = 0;
        if (suppressed) x[0] = -INFINITY;
        for (long i = 0; i < count; i++) top = fmax(top, x[i]);
        for (long i = 0; i < count; i++) total += exp(x[i] - top);
        wanted[0] = (float)(top + log(total));
        float log_sum = tier->log_sum_exp(x, count);
        check("log_sum_exp", count, suppressed, (long)scale, &log_sum, wanted, 1, 1e-5);
    }
    release();
}

static void recurrence(long width, double scale) {
    float *gates = random_floats(4 * width, scale), *hidden = floats(width), *cell = random_floats(width, 1);
    float *wanted_hidden = floats(width), *wanted_cell = floats(width);
    for (long i = 0; i < width; i++) {
        double next = activated(gates[i], SIGMOID) * tanh(gates[2 * width + i]);
        next += activated(gates[width + i], SIGMOID) * cell[i];
        wanted_cell[i] = (float)next;
        wanted_hidden[i] = (float)(activated(gates[3 * width + i], SIGMOID) * tanh(next));
    }
    tier->lstm(gates, hidden, cell, width);
    check("lstm cell", width, 0, (long)scale, cell, wanted_cell, width, 1e-5);
    check("lstm state", width, 0, (long)scale, hidden, wanted_hidden, width, 1e-5);
    float *input = random_floats(3 * width, scale), *from_state = random_floats(3 * width, scale);
    float *before = random_floats(width, 1), *next = floats(width);
    for (long i = 0; i < width; i++) {
        double reset = activated((double)input[i] + from_state[i], SIGMOID);
        double update = activated((double)input[width + i] + from_state[width + i], SIGMOID);
        double fresh = tanh(input[2 * width + i] + reset * from_state[2 * width + i]);
        wanted_hidden[i] = (float)(fresh + update * (before[i] - fresh));
    }
    tier->gru(input, from_state, before, next, width);
    check("gru", width, 0, (long)scale, next, wanted_hidden, width, 1e-5);
    float *output = floats(width);
    for (long i = 0; i < width; i++) {
        double forget = activated(input[i], SIGMOID);
        wanted_cell[i] = (float)(forget * before[i] + (1 - forget) * input[width + i]);
        wanted_hidden[i] = fmaxf(wanted_cell[i], 0);
    }
    tier->ssru(copy_of(input, 2 * width), before, next, output, width);
    check("ssru state", width, 0, (long)scale, next, wanted_cell, width, 1e-5);
    check("ssru", width, 0, (long)scale, output, wanted_hidden, width, 1e-5);
    release();
}

/* The largest values, the lower index first where they are equal; `kind`: many alike, all alike, or forbidden ones. */
static void largest(long count, long wanted, int kind) {
    float *values = random_floats(count, 5), *best = floats(wanted);
    int32_t *indices = guarded(4 * wanted);
    for (long i = 0; i < count; i++) {
        if (kind == 1) values[i] = rintf(values[i]);
        if (kind == 2) values[i] = 1;
        if (kind == 3 && i % 7) values[i] = -INFINITY;
    }
    char *used = calloc((size_t)count + 1, 1);
    long found = tier->top(values, count, wanted, best, indices);
    checks++;
    int wrong = found != (count < wanted ? count : wanted);
    for (long k = 0; k < found && !wrong; k++) {
        long next = -1;
        for (long i = 0; i < count; i++)
            if (!used[i] && (next < 0 || values[i] > values[next])) next = i;
        used[next] = 1;
        wrong = indices[k] != next || best[k] != values[next];
    }
    if (wrong) {
        printf("%s top(%ld, %ld), kind %d\n", tier->name, count, wanted, kind);
        failures++;
    }
    free(used);
    release();
}

static void squash_in_double(const double *total, float *capsule, long d) {
    double square = 0;
    for (long k = 0; k < d; k++) square += total[k] * total[k];
    for (long k = 0; k < d; k++) capsule[k] = (float)(sqrt(square + 1e-9) / (1 + square) * total[k]);
}

/* The softmax over the outputs, as logarithms. */
static void log_softmax_in_double(double *logits, long m) {
    double top = -INFINITY, total = 0;
    for (long c = 0; c < m; c++) top = fmax(top, logits[c]);
    for (long c = 0; c < m; c++) total += exp(logits[c] - top);
    for (long c = 0; c < m; c++) logits[c] -= top + log(total);
}

/* The equations of routing/dynamic.py. */
static void dynamic_routing_in_double(const dynamic_routing_t *routing) {
    long n = routing->num_inputs, m = routing->num_outputs, d = routing->width;
    double *logits = calloc((size_t)(n * m), 8), *shares = calloc((size_t)(n * m), 8), *total = calloc((size_t)d, 8);
    for (long t = 0; t < routing->iterations; t++) {
        memcpy(shares, logits, (size_t)(n * m) * 8);
        for (long i = 0; i < n; i++) log_softmax_in_double(shares + i * m, m);
        for (long c = 0; c < m; c++) {
            double weight = 0;
            memset(total, 0, (size_t)d * 8);
            for (long i = 0; i < n; i++) {
                weight += exp(shares[i * m + c]);
                for (long k = 0; k < d; k++) total[k] += exp(shares[i * m + c]) * routing->votes[(i * m + c) * d + k];
            }
            for (long k = 0; k < d && routing->normalize; k++) total[k] /= weight + 1e-30;
            squash_in_double(total, routing->capsules + c * d, d);
        }
        for (long i = 0; i < n * m; i++)
            for (long k = 0; k < d; k++) logits[i] += (double)routing->capsules[i % m * d + k] * routing->votes[i * d + k];
    }
    free(logits);
    free(shares);
    free(total);
}

/* The equations of routing/em.py, with logarithms of all weights. */
static void em_routing_in_double(const em_routing_t *routing) {
    long n = routing->num_inputs, m = routing->num_outputs, d = routing->width;
    double *log_shares = calloc((size_t)(n * m), 8), *constant = calloc((size_t)m, 8);
    double *mean = calloc((size_t)(m * d), 8), *variance = calloc((size_t)(m * d), 8), *weights = calloc((size_t)n, 8);
    for (long t = 0; t < routing->iterations; t++) {
        for (long i = 0; i < n; i++) log_softmax_in_double(log_shares + i * m, m);
        for (long c = 0; c < m; c++) {
            double top = -INFINITY, total = 0, log_determinant = 0;
            for (long i = 0; i < n; i++) {
                weights[i] = log_shares[i * m + c];
                if (routing->activations) weights[i] += log(fmax(routing->activations[i * m + c], 1e-20));
                top = fmax(top, weights[i]);
            }
            for (long i = 0; i < n; i++) total += weights[i] = exp(weights[i] - top);
            for (long k = 0, at = c * d; k < d; k++, at++) {
                mean[at] = variance[at] = 0;
                for (long i = 0; i < n; i++) mean[at] += weights[i] / total * routing->votes[i * m * d + at];
                for (long i = 0; i < n; i++)
                    variance[at] += weights[i] / total * pow(routing->votes[i * m * d + at] - mean[at], 2);
                log_determinant += log(variance[at] += routing->min_variance);
            }
            double mass = exp(top) * total, cost = 0.5 * (log_determinant + (double)d * 2.8378770664093453) * mass;
            double z = routing->lambdas[t] * (routing->beta_a[c] - routing->beta_u[c] * mass - cost);
            double log_active = z > 0 ? -log1p(exp(-z)) : z - log1p(exp(z));
            constant[c] = log_active - 0.5 * log_determinant;
            for (long k = c * d; k < (c + 1) * d; k++) routing->capsules[k] = (float)(exp(log_active) * mean[k]);
        }
        for (long i = 0; i < n * m; i++) {
            log_shares[i] = constant[i % m];
            for (long k = 0, at = i % m * d; k < d; k++, at++)
                log_shares[i] -= 0.5 * pow(routing->votes[i * d + k] - mean[at], 2) / variance[at];
        }
    }
    double *taken[] = {log_shares, constant, mean, variance, weights};
    for (int i = 0; i < COUNT(taken); i++) free(taken[i]);
}

/* Votes that are all alike leave no variance, large ones no choice. With `betas` of this size, an output may get shares that
 * no float holds; activations may be as small as 1e-20. */
static void routings(long n, long m, long d, long iterations, double scale, int with_activation, double betas) {
    float *votes = random_floats(n * m * d, scale), *activation = NULL, lambdas[8];
    if (!scale)
        for (long i = 0; i < n * m * d; i++) votes[i] = 0.5f;
    if (with_activation) {
        activation = random_floats(n * m, 1);
        for (long i = 0; i < n * m; i++) activation[i] = powf(fabsf(activation[i]), betas > 1 ? 20 : 1);
        activation[0] = 0;
    }
    float *beta_a = random_floats(m, betas), *beta_u = random_floats(m, betas);
    for (long t = 0; t < iterations; t++) lambdas[t] = 0.01f * (float)(1 - pow(0.95, (double)t + 1));
    float *found = floats(m * d), *wanted = floats(m * d), *memory = floats(2 * n * (m + 1) + m * (d + 6) + 256);
    em_routing_t em = {votes, activation, beta_a, beta_u, lambdas, 5e-4f, iterations, n, m, d, found, memory};
    tier->em_routing(&em);
    em.capsules = wanted;
    em_routing_in_double(&em);
    check("em_routing", n, m, d, found, wanted, m * d, 1e-3);
    for (int normalize = 0; normalize < 2; normalize++) {
        dynamic_routing_t dynamic = {votes, iterations, normalize, n, m, d, found, memory};
        tier->dynamic_routing(&dynamic);
        dynamic.capsules = wanted;
        dynamic_routing_in_double(&dynamic);
        /* a rounded logit is off by its size, and moves a sum of votes by theirs */
        check("dynamic_routing", n, m, d, found, wanted, m * d, fmax(1e-4, 2e-6 * scale * scale));
    }
    release();
}

static void everything(void) {
    static const long widths[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 513}, inputs[] = {1, 2, 6, 9};
    static const double scales[] = {0, 1e-3, 1, 30, 1e4};
    all_products();
    for (int i = 0; i < COUNT(widths); i++) {
        long width = widths[i];
        for (int s = 0; s < COUNT(scales); s++) {
            norms(3, width, scales[s], s % 2);
            vectors(width, scales[s]);
            recurrence(width, scales[s]);
            attention(1 + i % 3, 1 + 3 * i, 1 + i % 3, width, i % 2, fmin(scales[s], 30));
            attention(1 + i % MAX_QUERIES, 1 + i, 3, i % 2 ? 32 : 64, i / 2 % 2, fmin(scales[s], 30));
            for (int j = 0; j < COUNT(inputs); j++)
                for (int sharp = 0; sharp < 2; sharp++)
                    routings(inputs[j], width, width < 20 ? 1 + s : 1, 1 + (i + j) % 3, fmin(scales[s], 30), s % 2,
                             sharp ? 1e6 : 1);
        }
        for (int kind = 0; kind < 4; kind++) largest(width, 1 + kind * 3, kind);
        for (int j = 0; j < COUNT(inputs); j++) maps_by_row(inputs[j], width);
    }
    maps_by_row(64, 70);
    maps_by_row(70, 70); /* more steps than a multiple of eight */
    for (long count = 1; count <= 70; count++) softmaxes(1 + count % 6, count);
    norms(0, 5, 1, 0);
    vectors(0, 1);
    vectors(100003, 20);
    for (int kind = 0; kind < 4; kind++) largest(4100 + kind, 9, kind); /* by groups */
    for (long keys = 17; keys < 70; keys += 7) attention(MAX_QUERIES, keys, 3, 32, 1, 1);
    attention(2, 400, 8, 64, 0, 1);
    attention(2, 400, 8, 64, 1, 1);
    for (int kind = 0; kind < 4; kind++) largest(100003, kind ? 10 : 1, kind);
}

int main(void) {
    static const char *const names[] = {"amx", "avx512", "avxvnni", "avx2", "dotprod", "portable"};
    for (int i = 0; i < COUNT(names); i++) {
        tier = engine_kernels(names[i]);
        if (!tier) continue;
        checks = 0;
        everything();
        printf("%s: %d checks\n", tier->name, checks);
    }
    return failures > 0;
}
