/* Memory on large pages, and the arena of a run: taken from the front on, freed all at once, kept for the next run. */
#ifndef CAPSULE_MT_MEMORY_H
#define CAPSULE_MT_MEMORY_H

#include <stdint.h>

/* Under sanitizers, each allocation is a chunk of its own, so that they see where it ends. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IS_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED
#endif

/* Memory on large pages where the system has them, NULL where it is short. A step reads all weights and keys: on small
 * pages, looking up the pages takes a third of its time. */
void *allocate_pages(int64_t bytes);
void free_pages(void *memory);
#if defined(__wasm__)
#define LARGE_PAGE (64 << 10)
#else
#define LARGE_PAGE (2 << 20)
#endif

typedef struct chunk {
    struct chunk *next;
    int64_t used, size; /* `used` counts this header */
    int64_t padding[5];
} chunk_t;

typedef struct {
    chunk_t *chunks;
    char *scratch; /* of the operation that runs: see `scratch_of` of run.h */
    int64_t scratch_size;
} arena_t;

/* The arenas of former runs that a model keeps, at most: this many threads translate without asking the system for memory. */
#define MAX_ARENAS 16

/* Takes the chunk of a former run, or NULL, out of `kept` [MAX_ARENAS]. Threads may call it at the same time. */
chunk_t *take_arena(chunk_t **arenas);
/* Puts the chunks of a run back. Where there are several, the next run begins with one for all that they held. */
void keep_arena(chunk_t **arenas, chunk_t *chunks);
/* Adds a chunk with room for `bytes` at least; NULL where memory is short. */
chunk_t *add_chunk(arena_t *arena, int64_t bytes);
void free_chunks(chunk_t *chunk);

#endif
