/* The arithmetic of the engine: one table of functions per instruction-set tier.
 *
 * kernels.c, with what it includes of kernels/, is compiled once per tier; dispatch.c picks the best tier that the
 * processor has. Legend: N inputs of a routing, M output capsules, D width of a capsule.
 */
#ifndef CAPSULE_MT_KERNELS_H
#define CAPSULE_MT_KERNELS_H

#include <stdint.h>

/* Queries [rows, heads * width] that attend to the same keys; each row of the output follows the one before directly. */
typedef struct {
    const float *query;
    float *output;
    long query_step; /* numbers from a query to the next */
    long rows, heads, width;
    const char *const *keys; /* [num_keys], as `store_heads` left them; the value of each is `value_offset` bytes after it */
    long value_offset, num_keys;
    int halves;
    float *scores; /* what each head attends to: [rows, heads, num_keys] */
    const char *const *next_keys; /* [num_next_keys], of the next queries: they are prefetched meanwhile */
    long num_next_keys;
} queries_t;

/* Rows that attend at once, at most. */
#define MAX_QUERIES 8

#define MAX_CONTENDERS 1024

/* The outputs of a row that may be the largest, but for forbidden ones: each is up to `reach` times its radius above or
 * below its value. */
typedef struct {
    const int32_t *forbidden;
    long num_forbidden, count; /* MAX_CONTENDERS + 1 if there are more */
    float reach, threshold;    /* the largest is not below the threshold */
    const float *radii;        /* of each output; set by the kernel */
    float *estimates;          /* memory for all outputs, and BLOCK more, of a row that is alone */
    long best;                 /* the output with the largest estimate, or -1 */
    int32_t outputs[MAX_CONTENDERS];
    float values[MAX_CONTENDERS];
} contenders_t;

/* EM routing of N inputs to M capsules of width D; see routing/em.py. */
typedef struct {
    const float *votes;           /* [N, M, D] */
    const float *activations;     /* of the inputs [N, M], or NULL */
    const float *beta_a, *beta_u; /* [M] */
    const float *lambdas;         /* [iterations] */
    float min_variance;
    long iterations, num_inputs, num_outputs, width;
    float *capsules; /* result [M, D] */
    float *scratch;
} em_routing_t;

/* Dynamic routing; see routing/dynamic.py. */
typedef struct {
    const float *votes; /* [N, M, D] */
    long iterations;
    int normalize;
    long num_inputs, num_outputs, width;
    float *capsules; /* result [M, D] */
    float *scratch;
} dynamic_routing_t;

enum activation { NO_ACTIVATION, RELU, SILU, GELU, TANH, SIGMOID };

/* y = x W' + b. `packed` is W in the layout of the tier that packed it: in float, in half precision with `halves`, or in
 * int8 with a scale per output. A map `by_row` has `rows` instead, codes [outputs, inputs and up to three zeros], and no
 * product takes it. */
typedef struct linear {
    long outputs, inputs;
    int int8, halves, by_row;
    void *packed;
    int8_t *rows;
    struct linear *packed_copy; /* of a map by row, made when a product first needs all outputs: see `packed_map_of` */
    float *bias;    /* zeros where there is none */
    float *scales;  /* int8: of each output */
    int32_t *sums;  /* int8: of the weights of each output */
} linear_t;

typedef struct {
    const char *name;
    /* Bytes of the `memory` of a linear map, aligned to 64. */
    int64_t (*packed_bytes)(const linear_t *linear);
    /* Fills in the pointers of `linear`, and zeros what `pack` does not write. */
    void (*lay_out)(linear_t *linear, char *memory);
    /* Packs the weights of outputs `first` to `end`: floats, or numbers in half precision for a map of `halves`. */
    void (*pack)(linear_t *linear, const void *weight, long first, long end);
    /* Packs codes [outputs, inputs] of an int8 map. `magnitudes` has the number for which 127 stands, of each output. */
    void (*pack_codes)(linear_t *linear, const int8_t *codes, const float *magnitudes, long first, long end);
    /* Half precision to float, bfloat16 if `bfloat`. */
    void (*widen)(const uint16_t *source, int bfloat, float *target, long count);
    /* Fills in `target`, whose number of outputs is set, with these outputs of a packed map; `memory` as for `lay_out`. */
    void (*select)(const linear_t *source, const int32_t *outputs, linear_t *target, char *memory);
    /* What was packed of an output: floats, halves, or codes and up to three zeros. */
    void (*unpack)(const linear_t *linear, long output, void *target);
    /* Bytes of `scratch` that a product needs for this many rows. */
    long (*scratch)(const linear_t *linear, long rows);
    /* Rounds x [rows, inputs] into `scratch` for an int8 map; does nothing for another. */
    void (*round_inputs)(const linear_t *linear, const float *x, long rows, void *scratch);
    /* residual = x - what `round_inputs` has made of it, for an int8 map. */
    void (*subtract_rounded)(const linear_t *linear, const float *x, long rows, const void *scratch, float *residual);
    /* Blocks of outputs, which may be computed apart. */
    long (*num_blocks)(const linear_t *linear);
    /* x [rows, inputs] -> blocks `first` to `end` of y [rows, outputs]; `scratch` holds what `round_inputs` left. */
    void (*multiply)(const linear_t *linear, const float *x, long rows, float *y, int activation, const void *scratch,
                     long first, long end);
    /* Bytes of a preview of an int8 map, which has fewer bits of its weights, aligned to 64; 0 where the tier has none. */
    int64_t (*preview_bytes)(const linear_t *linear);
    /* Packs a preview into that many bytes. */
    void (*pack_preview)(const linear_t *linear, void *preview);
    /* Rows that are previewed at once, at most. */
    long (*max_preview_rows)(const linear_t *linear);
    /* From this many rows on, finding the largest outputs by the weights themselves is faster than writing all outputs. */
    long (*min_unwritten_rows)(const linear_t *linear);
    /* Notes which outputs of rows, of blocks `first` to `end`, may be the largest by `preview`, or by the weights themselves
     * if that is NULL; `scratch` holds what `round_inputs` left. The standard deviation of a previewed output's error is its
     * radius * |x|, since the inputs multiply the errors of its weights. A single row only gets estimates of all outputs;
     * `refine` then notes those that may be above the threshold. */
    void (*preview)(const linear_t *linear, const void *preview, long rows, const void *scratch, contenders_t *contenders,
                    long first, long end);
    void (*refine)(const linear_t *linear, const void *preview, const void *scratch, contenders_t *contenders, long first,
                   long end);
    /* An output of one of the rows of an int8 map, as `multiply` computes it. */
    float (*compute)(const linear_t *linear, long rows, long row, const void *scratch, long output);
    /* x = LayerNorm(x + residual) [rows, width]; `residual` may be NULL. */
    void (*add_norm)(float *x, const float *residual, const float *gain, const float *bias, long rows, long width,
                     float epsilon);
    /* Bytes of a key or a value: floats, or with `halves` numbers of 16 bits, which are read in half the time. */
    long (*stored_bytes)(long heads, long width, int halves);
    void (*store_heads)(const float *source, long heads, long width, int halves, void *target);
    /* Heads `first` to `end` of the queries. */
    void (*attend)(const queries_t *queries, long first, long end);
    void (*em_routing)(const em_routing_t *routing);
    void (*dynamic_routing)(const dynamic_routing_t *routing);
    /* values = exp(2 * clamp(values, -20, 20)) */
    void (*exp_twice)(float *values, long count);
    /* sum_d w_d tanh(a_d + b_d) of exponentials E = exp(2 a), F = exp(2 b): tanh(a + b) = 1 - 2 / (1 + E F). */
    float (*tanh_score)(const float *e, const float *f, const float *weight, float weight_sum, long width);
    /* sums += weight * values */
    void (*add_scaled)(float *sums, const float *values, float weight, long count);
    /* Gates [4, width] of an LSTM (input, forget, cell, output) -> its hidden state and cell, in place. */
    void (*lstm)(const float *gates, float *hidden, float *cell, long width);
    /* Parts [3, width] of a GRU (reset, update, new) from the input and from the state -> its next state. */
    void (*gru)(const float *from_input, const float *from_state, const float *state, float *next, long width);
    /* Gates [2, width] of an SSRU (forget, new) and its state before -> its next state, and the relu of that. */
    void (*ssru)(const float *gates, const float *before, float *state, float *output, long width);
    void (*apply)(float *values, long count, int activation);
    /* log(sum(exp(values))) */
    float (*log_sum_exp)(const float *values, long count);
    /* The `k` largest values, largest first, the lower index first where they are equal; returns how many. */
    long (*top)(const float *values, long count, long k, float *best, int32_t *indices);
    /* See routing/squash.py. */
    void (*squash)(float *capsule, long width);
    /* The softmax of each row. */
    void (*softmax)(float *values, long rows, long count);
} kernels_t;

/* Products prefetch weights this many bytes ahead of those that they read; dispatch.c sets it before any call. */
extern long prefetch_ahead;

/* The table of a tier, or of the best tier that this processor has if `name` is NULL; NULL if it has no such tier. */
const kernels_t *choose_kernels(const char *name);

#endif
