/* A model: packed weights, buffers, and the two programs that work on them. */
#ifndef CAPSULE_MT_MODEL_H
#define CAPSULE_MT_MODEL_H

#include "engine.h"
#include "kernels.h"
#include "memory.h"

typedef struct {
    void *values; /* floats, but for a table, which is kept as it is stored */
    int64_t count, width; /* numbers in all, and in a row of a table */
    int type, is_table;
    float *magnitudes; /* of a table of CODES: the largest one of each row */
    int linear;     /* whose packed weights are the rows of a table, or -1 */
} vector_t;

typedef struct {
    int space;
    int64_t width;
    int region;       /* the memory of a run that it shares with others: see `plan_memory` */
    int is_transient; /* only MAX_BLOCK_ROWS rows of it exist at a time: see `num_fused` */
} buffer_t;

/* Weights lie side by side in blocks. */
typedef struct block {
    struct block *next;
    char *memory;
    int64_t used, size;
} block_t;

enum { ENCODER, DECODER };

struct model {
    const kernels_t *kernels;
    block_t *blocks; /* where the packed linear maps lie */
    int64_t vocabulary, num_caches;
    linear_t *linears;
    vector_t *vectors;
    buffer_t *buffers, *regions; /* each region is as wide as the widest buffer in it */
    int num_regions;
    void *preview;         /* fewer bits of the head, once they pay: see `preview_of` */
    int64_t preview_steps; /* so far, that could have read it */
    chunk_t *arenas[MAX_ARENAS];
    int num_linears, num_vectors, num_buffers, logits;
    operation_t *programs[2]; /* of the ENCODER and the DECODER */
    int64_t num_operations[2];
    const operation_t *head; /* of the decoder's program: writes the logits; NULL without a decoder */
    int is_encoder;          /* there is no decoder: `logits` is the buffer of words that a request returns */
    int halves;              /* keys and values are stored in 16 bits, as some linear map is in int8 */
    int is_recurrent;        /* some state but SSRU's needs the step before, so given targets go step by step, too */
    int64_t source_vocabulary, longest_source, longest_target; /* the limits of tables and positions */
    observer_t observer; /* or NULL */
};

#define OUT_OF(op) ((op)->slots[0])

/* What a call of the interface returns; numbers from 0 on are results. */
enum { NO_MEMORY = -1, REFUSED = -2, STOPPED = -3 };

/* Consecutive operations that work on each row by itself run on a block of rows, one after the other, and then on the next
 * block: what is between them stays in the cache. About BLOCK_ROWS rows, MAX_BLOCK_ROWS at most. */
#define BLOCK_ROWS 128
#define MAX_BLOCK_ROWS (3 * BLOCK_ROWS / 2)
/* The space of a region for transient rows, of any space. */
#define OF_BLOCKS (OF_STATES + 1)

/* programs.c */

/* Keeps a message for `engine_error`; returns REFUSED. */
int refuse(const char *format, ...);
/* Checks the programs of a model, and notes its limits; returns 0 or REFUSED. */
int check_programs(model_t *model);
/* Returns how many operations of a program run block by block together, from the `first` one on; 0 if none does. */
int64_t num_fused(const model_t *model, int program, int64_t first);
/* Lets buffers that are never needed at the same time share a region: what a small model works on then stays in the cache.
 * Returns 0 or NO_MEMORY. */
int plan_memory(model_t *model);
/* Checks that a request stays inside of a model's tables; returns 0 or REFUSED. */
int check_request(const model_t *model, const request_t *request);

/* model.c */

/* Numbers from `first` on, as floats; of codes, with the largest magnitude of their row. */
void read_floats(const model_t *model, const void *source, int type, float magnitude, int64_t first, int64_t count,
                 float *target);
/* What previews read of the head, packed after many steps could have read it; NULL before, for a small head, and where the
 * tier has no previews. */
const void *preview_of(model_t *model, const linear_t *head);
/* A linear map that products take: of one by row, a packed copy, which the first call makes; NULL where memory is short. */
const linear_t *packed_map_of(const model_t *model, linear_t *linear);

#endif
