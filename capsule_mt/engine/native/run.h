/* One translation: its state, by the file that owns each part, and the rows of its buffers. */
#ifndef CAPSULE_MT_RUN_H
#define CAPSULE_MT_RUN_H

#include "model.h"
#include "team.h"

#include <stdlib.h>
#include <string.h>

#if defined(__wasm__) /* a run that fails ends in a trap: the next one takes new memory */
typedef int jmp_buf[1];
#define setjmp(target) ((void)(target), 0)
#define longjmp(target, value) ((void)(target), (void)(value), __builtin_trap())
#else
#include <setjmp.h>
#endif

/* The words of all sources, one source after the other. */
typedef struct {
    int64_t count;
    int64_t *first;    /* [num_sources] */
    int64_t *source;   /* [count] */
    int64_t *position; /* [count] in its source */
} words_t;

/* The hypotheses of a step, written by `decode` or `force`: one row of the decoder's buffers each. */
typedef struct {
    int64_t count, max_count;
    int64_t step, max_steps;
    int64_t *source;         /* [max_count] */
    int64_t *tokens;         /* the last of each hypothesis */
    int64_t *position;       /* if all positions of given targets are rows of one step, else NULL */
    int32_t *ancestors;      /* [max_count, max_steps]: the row that a hypothesis had at each step */
    int32_t *new_ancestors;
} rows_t;

/* Keys and values, written by attention.c. */
typedef struct {
    char **past;   /* [caches, max_steps]: of each row of a step */
    char **source; /* [operations of the decoder]: of the words, once kept */
    const char **keys; /* [threads, 2, max_keys]: scratch, what a row and the next one attend to */
    int64_t max_keys;
} cache_t;

/* A source's list of candidates, split into shared ones, which all rows compute, and others, which only its rows do. */
typedef struct {
    linear_t unshared;
    int64_t num_shared;
    int32_t *shared_indices; /* [num_shared], among the outputs of `shortlist_t.shared` */
    int32_t *positions;      /* in the list: of the shared candidates, then of the others */
} split_list_t;

/* The head's outputs for the candidates of a shortlist, packed for the call. A batch has several times the candidates of
 * one source, so those that few sources list are packed and computed for these sources alone. */
typedef struct {
    linear_t shared;               /* for all rows */
    split_list_t *lists;           /* [num_sources]; NULL: `shared` has all candidates */
    const float **unshared_logits; /* of each row */
} shortlist_t;

/* What logits.c leaves for the search. */
typedef struct {
    shortlist_t shortlist;
    float *totals;      /* of each row: log(sum(exp(logits))) */
    int is_previewed;   /* `best` is of this step, and the logits are not written */
    int is_unread;      /* set by the search: nothing reads the logits of this step */
    int32_t *best;      /* of each row: the token with the largest logit */
} logits_t;

typedef struct {
    const caller_t *functions; /* or NULL */
    void *released;            /* the argument of `regain` */
    double last_look;
} caller_state_t;

typedef struct {
    model_t *model;
    const request_t *request;
    team_t *team;
    caller_state_t caller;
    arena_t arena;
    jmp_buf failed; /* with NO_MEMORY or STOPPED */
    float **values; /* of each buffer */
    float **spare;  /* of each buffer of states, which beams reorder */
    words_t words;
    rows_t rows;
    cache_t cache;
    float **attended; /* by step, by attention.c: see `attended_by`; NULL unless the request has room for it */
    logits_t logits;
} run_t;

/* ---- memory */

/* Memory until the end of the run, aligned to 64 bytes. */
static inline void *take(run_t *run, int64_t bytes) {
    bytes = (bytes + 127) / 64 * 64; /* vectors may be read beyond the end */
    chunk_t *chunk = run->arena.chunks;
    if (!chunk || chunk->size - chunk->used < bytes) chunk = add_chunk(&run->arena, bytes);
    if (!chunk) longjmp(run->failed, NO_MEMORY);
    void *memory = (char *)chunk + chunk->used;
    chunk->used += bytes;
    return memory;
}

static inline void *take_zeros(run_t *run, int64_t bytes) { return memset(take(run, bytes), 0, (size_t)bytes); }

/* Memory until the next call. */
static inline void *scratch_of(run_t *run, int64_t bytes) {
    if (bytes > run->arena.scratch_size) {
        run->arena.scratch = take(run, bytes);
        run->arena.scratch_size = bytes;
    }
    return run->arena.scratch;
}

static inline int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/* `*bytes` of memory for each thread until the next call, that of thread t at t * `*bytes`, which is rounded up. */
static inline char *scratch_of_threads(run_t *run, int64_t *bytes) {
    *bytes = aligned(*bytes);
    return scratch_of(run, *bytes * team_size(run->team));
}

/* Whether some candidates are computed for a few rows only; never in WebAssembly, whose code has to stay small. */
static inline int has_split_lists(const run_t *run) {
#if defined(__wasm__)
    (void)run;
    return 0;
#else
    return run->logits.shortlist.lists != NULL;
#endif
}

/* ---- rows of buffers */

static inline int64_t width_of(const run_t *run, int buffer) { return run->model->buffers[buffer].width; }
static inline int space_of(const run_t *run, int buffer) { return run->model->buffers[buffer].space; }
static inline float *row_of(const run_t *run, int buffer, int64_t row) {
    return run->values[buffer] + row * width_of(run, buffer);
}
static inline const float *vector_of(const run_t *run, int number) { return run->model->vectors[number].values; }

static inline int64_t num_rows(const run_t *run, int space) {
    if (space == OF_WORDS) return run->words.count;
    return space == OF_SOURCES ? run->request->num_sources : run->rows.count;
}

static inline int64_t source_of(const run_t *run, int space, int64_t row) {
    if (space == OF_WORDS) return run->words.source[row];
    return space == OF_SOURCES ? row : run->rows.source[row];
}

/* What the head that is read attends to, from a row at a step. */
static inline float *attended_by(const run_t *run, int64_t step, int64_t row) {
    return run->attended[step] + row * run->request->longest_source;
}

/* ---- engine.c */

/* Seconds of a monotonic clock; 0 where there is none. */
double seconds(void);
/* Calls the caller's `look` once LOOK_SECONDS have passed; does not return if the caller gives up. */
void poll_caller(run_t *run);

/* Whether the translations are to end at this step; does not return if the request was given up. */
static inline int should_finish(run_t *run) {
    if (run->caller.functions && run->caller.functions->look) poll_caller(run);
    int stop = run->request->stop ? __atomic_load_n(run->request->stop, __ATOMIC_RELAXED) : GO_ON;
    if (stop == GIVE_UP) longjmp(run->failed, STOPPED);
    return stop == FINISH;
}

/* ---- operations.c */

/* Runs the ENCODER's or the DECODER's program on the current rows. */
void run_program(run_t *run, int program);

/* ---- logits.c */

/* With given targets: the logits of up to SCORED_ROWS rows of the head's inputs, at the start of their buffer. */
void score_rows(run_t *run, const float *inputs, int64_t count);
/* The logits of 48 rows leave the cache before they are summed: `score` takes 1.1 times as long (students, Zen 4). */
#define SCORED_ROWS 24

/* ---- search.c */

/* Searches for the translations of the sources whose words have been encoded. */
void decode(run_t *run);
/* Moves the states and the ancestors of the hypotheses to their new rows, [count] in all. */
void reorder(run_t *run, const int64_t *parent_rows, int64_t count);

/* ---- force.c */

/* Scores the given targets of the sources, which have this count of positions. */
void force(run_t *run, int64_t count);

#endif
