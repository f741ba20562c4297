/* One translation: its memory, and the rows of its buffers. */
#ifndef CAPSULE_MT_RUN_H
#define CAPSULE_MT_RUN_H

#include "engine.h"
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

#if defined(__wasm__) /* a run that fails ends in a trap: the next one takes new memory */
typedef int jmp_buf[1];
#define setjmp(place) ((void)(place), 0)
#define longjmp(place, value) ((void)(place), (void)(value), __builtin_trap())
#else
#include <setjmp.h>
#endif

typedef struct {
    void *values; /* floats, but for a table, which is kept as it is stored */
    int64_t count;
    int type, is_table;
    float *largest; /* of each row of a table of CODES */
    int linear;     /* whose packed weights are the rows of a table, or -1 */
} vector_t;

typedef struct {
    int space;
    int64_t width;
    int place;   /* which memory of a run it has: see `plan_memory` */
    int passing; /* only MOST_AT_ONCE rows of it exist at a time: see `goes_by_rows` */
} buffer_t;

typedef struct block {
    struct block *next;
    char *memory;
    int64_t used, size;
} block_t;

#define MOST_ARENAS 16

struct model {
    const kernels_t *kernels;
    block_t *blocks; /* where the packed linear maps lie */
    int64_t vocabulary, num_caches;
    linear_t *linears;
    vector_t *vectors;
    buffer_t *buffers, *places; /* each place is as wide as the widest buffer in it */
    int num_places;
    void *upper; /* what previews read of the head, once it is worth while: see `upper_of` */
    int64_t previews; /* steps that could have read it */
    struct chunk *arenas[MOST_ARENAS]; /* the memory of former runs; taken and put back atomically */
    int num_linears, num_vectors, num_buffers, logits;
    operation_t *programs[2];
    int64_t num_operations[2];
    const operation_t *head; /* of the decoder's program: writes the logits */
    int halves; /* of keys and values, where products are in int8 */
    int goes_by_steps; /* through given targets, too: it needs the states of the step before */
    int64_t source_vocabulary, longest_source, longest_target; /* programs.c: the limits of tables and positions */
};

#define OUT_OF(op) ((op)->slots[0])
#define NO_MEMORY (-1)
#define IS_WRONG (-2)
#define IS_STOPPED (-3)
/* programs.c: keeps a message for `engine_error`; returns IS_WRONG. */
int wrong(const char *format, ...);
/* programs.c: checks the programs of a model, and finds its limits; returns 0 or IS_WRONG. */
int check_programs(model_t *model);
/* Operations that follow each other and work on each row by itself run on some rows, one after the other, and then on the
 * next ones: what is between them stays in the cache. About ROWS_AT_ONCE rows, MOST_AT_ONCE at most. */
#define ROWS_AT_ONCE 128
#define MOST_AT_ONCE (3 * ROWS_AT_ONCE / 2)
/* The space of a place of rows that pass between them, of any space. */
#define OF_PASSING (OF_STATES + 1)
/* programs.c: how many operations of a program run so together, from this one on; 0 if it is none of them. */
int64_t goes_by_rows(const model_t *model, int which, int64_t first);
/* programs.c: buffers that no operation needs at the same time share a place: what a small model works on then stays in
 * the cache. Returns 0 or NO_MEMORY. */
int plan_memory(model_t *model);
/* programs.c: checks that a request stays inside of a model's tables; returns 0 or IS_WRONG. */
int check_request(const model_t *model, const request_t *request);

/* team.c: the threads of a translation, NULL if there is one. */
typedef struct team team_t;
/* Items `first` to `end` of a loop, on the thread with this number. */
typedef void (*body_t)(void *context, int64_t first, int64_t end, int thread);
/* Takes part in the work with `num_threads` - 1 others, or with fewer if the system has no more. A team waits for the next
 * call when it is freed. */
team_t *team_new(int64_t num_threads);
void team_free(team_t *team);
int team_size(const team_t *team);
/* A step of a search begins, at so many seconds: now and then one is taken without sharing what is small, to see whether
 * that is faster. */
void team_step(team_t *team, int64_t step, double now);
/* Runs `body` for all of `count` items, in parts that cost LEAST_PART at least, or more where small ones do not pay. An
 * item costs what so many products of two int8 numbers do. Other threads must neither allocate nor fail. */
void team_share(team_t *team, int64_t count, int64_t cost, body_t body, void *context);
#if !defined(LEAST_PART)
#define LEAST_PART 32768
#endif

/* Memory of a run, taken from the front on. A model keeps it for its next run. */
typedef struct chunk {
    struct chunk *next;
    int64_t used, size; /* `used` counts this header */
    int64_t padding[5];
} chunk_t;

/* The sanitizers get a block for all that is taken, to see where it ends. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IS_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED
#endif

typedef struct {
    model_t *model;
    const request_t *request;
    team_t *team;
    chunk_t *chunks;
    jmp_buf failed; /* with NO_MEMORY or IS_STOPPED */
    const caller_t *caller;
    void *released; /* what the caller's lock is regained with */
    double last_look;

    int64_t num_words, *first_word, *word_source, *word_position;
    float **values, **spare; /* of each buffer; `spare` of states, which beams reorder */

    int64_t rows, step, *row_source; /* of the hypotheses */
    int64_t most_rows;                      /* in any step */
    int64_t *tokens;                        /* the last of each hypothesis */
    int64_t *row_position;                  /* if all positions of given targets are rows of one step, else NULL */
    int64_t most_steps;                     /* PAST and FUTURE take one more, to read the last token */
    int32_t *ancestors, *new_ancestors;     /* [rows, most_steps]: the row that a hypothesis had at each step */
    char **caches;                          /* [caches, most_steps]: keys and values of each row of a step */
    char **memories;                        /* [operations of the decoder]: keys and values of the words, once kept */
    float **attended;                       /* [most_steps], NULL unless a head is read: see `attended_by` */
    float **curves;                         /* [most_steps], NULL unless PAST and FUTURE are read: see `curves_of` */
    float *agreements;                      /* to the last token of each hypothesis */
    linear_t head;                          /* with a shortlist: the candidates alone */
    const char **keys;                      /* [threads, most_keys] */
    int64_t most_keys;
    float *totals;                          /* of each hypothesis: log(sum(exp(logits))) */
    int is_previewed;                       /* `best` is of this step */
    int32_t *best;                          /* of each hypothesis: the token with the largest logit */
    char *scratch;
    int64_t scratch_size;
} run_t;

/* engine.c: memory on large pages where the system has them, NULL where it is short. A step reads all weights and keys:
 * on small pages, looking up the pages takes a third of its time. */
void *allocate_pages(int64_t bytes);
void free_pages(void *memory);
#if defined(__wasm__)
#define LARGE_PAGE (64 << 10)
#else
#define LARGE_PAGE (2 << 20)
#endif

/* engine.c: the run fails for want of memory. */
chunk_t *more_memory(run_t *run, int64_t bytes);

/* engine.c: what previews read of the head, packed when many steps could have read it; NULL where it is not yet, where the
 * head is small, and where the tier has no previews. */
const void *upper_of(model_t *model);

/* Memory until the end of the run, aligned to 64 bytes. */
static inline void *take(run_t *run, int64_t bytes) {
    bytes = (bytes + 127) / 64 * 64; /* vectors may be read beyond the end */
    chunk_t *chunk = run->chunks;
    if (!chunk || chunk->size - chunk->used < bytes) chunk = more_memory(run, bytes);
    void *memory = (char *)chunk + chunk->used;
    chunk->used += bytes;
    return memory;
}

static inline void *take_zeros(run_t *run, int64_t bytes) { return memset(take(run, bytes), 0, (size_t)bytes); }

/* Memory until the next call. */
static inline void *scratch_of(run_t *run, int64_t bytes) {
    if (bytes > run->scratch_size) {
        run->scratch = take(run, bytes);
        run->scratch_size = bytes;
    }
    return run->scratch;
}

/* `*bytes` of memory for each thread until the next call, that of thread t at t * `*bytes`, which is rounded up. */
static inline char *scratch_of_threads(run_t *run, int64_t *bytes) {
    *bytes = (*bytes + 63) / 64 * 64;
    return scratch_of(run, *bytes * team_size(run->team));
}

static inline int64_t width_of(const run_t *run, int buffer) { return run->model->buffers[buffer].width; }
static inline int space_of(const run_t *run, int buffer) { return run->model->buffers[buffer].space; }
static inline float *row_of(const run_t *run, int buffer, int64_t row) {
    return run->values[buffer] + row * width_of(run, buffer);
}
static inline const float *vector_of(const run_t *run, int number) { return run->model->vectors[number].values; }
/* engine.c: numbers from `first` on, as floats; codes with their largest magnitude. */
void read_floats(const model_t *model, const void *from, int type, float largest, int64_t first, int64_t count,
                 float *to);

/* What the head that is read attends to, from a row at a step. */
static inline float *attended_by(const run_t *run, int64_t step, int64_t row) {
    return run->attended[step] + row * run->request->longest_source;
}

/* Of a row at a step: PAST of each word, FUTURE, and the agreement to the token that was read. */
static inline int64_t curve_width(const request_t *request) { return 2 * request->longest_source + 1; }
static inline float *curves_of(const run_t *run, int64_t step, int64_t row) {
    return run->curves[step] + row * curve_width(run->request);
}

static inline int64_t rows_of(const run_t *run, int space) {
    if (space == OF_WORDS) return run->num_words;
    return space == OF_SOURCES ? run->request->num_sources : run->rows;
}

static inline int64_t source_of(const run_t *run, int space, int64_t row) {
    if (space == OF_WORDS) return run->word_source[row];
    return space == OF_SOURCES ? row : run->row_source[row];
}

/* engine.c: of a clock that only goes on; 0 where there is none. */
double seconds(void);
/* engine.c: lets the caller look, if it is time. */
void look(run_t *run);

/* Whether the translations are to end here; does not return if the request was given up. */
static inline int must_finish(run_t *run) {
    if (run->caller && run->caller->look) look(run);
    int asked = run->request->stop ? __atomic_load_n(run->request->stop, __ATOMIC_RELAXED) : GO_ON;
    if (asked == GIVE_UP) longjmp(run->failed, IS_STOPPED);
    return asked == FINISH;
}

/* operations.c: runs the encoder's program (0) or the decoder's (1) on the current rows. */
void run_program(run_t *run, int which);
/* With given targets: the logits of SCORED_ROWS rows at most, from this one on, at the start of their buffer. */
void score_rows(run_t *run, int64_t first, int64_t count);
#define SCORED_ROWS 48
/* search.c: searches for the translations of the sources whose words have been encoded. */
void decode(run_t *run);
/* search.c: moves the states and the ancestors of the hypotheses to their new rows. */
void reorder(run_t *run, const int64_t *parent_rows, int64_t rows);
/* search.c: `guided` of engine.h for a source, when nothing is read yet; and what a step adds to it. */
void start_guided(const run_t *run, int64_t source, const float *curves, float *guided);
void add_guided(const run_t *run, int64_t source, const float *before, const float *after, float agreement,
                float *guided);
/* force.c: scores the given targets of the sources, which take at most so many positions. */
void force(run_t *run, int64_t most_positions);

#endif
