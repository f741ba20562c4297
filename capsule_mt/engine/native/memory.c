/* Memory on large pages, and arenas. */
#include "memory.h"

#include <stddef.h>
#include <stdlib.h>

#if !defined(_WIN32) && !defined(__wasm__)
#include <sys/mman.h>
#endif

void *allocate_pages(int64_t bytes) {
    void *memory = NULL;
#if defined(_WIN32)
    memory = _aligned_malloc((size_t)bytes, LARGE_PAGE);
#else
    if (posix_memalign(&memory, LARGE_PAGE, (size_t)bytes)) return NULL;
#if defined(MADV_HUGEPAGE) && !defined(IS_SANITIZED)
    madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
#endif
#endif
    return memory;
}

void free_pages(void *memory) {
#if defined(_WIN32)
    _aligned_free(memory);
#else
    free(memory);
#endif
}

void free_chunks(chunk_t *chunk) {
    for (chunk_t *next; chunk; chunk = next) {
        next = chunk->next;
        free_pages(chunk);
    }
}

/* Bytes of a run's memory that a model keeps for its next run, at most. */
#define MAX_KEPT_BYTES (192 << 20)

chunk_t *add_chunk(arena_t *arena, int64_t bytes) {
    int64_t size = bytes + (int64_t)sizeof(chunk_t);
#if !defined(IS_SANITIZED)
    size = (size + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    if (arena->chunks && size < arena->chunks->size) size = arena->chunks->size; /* as large as the last chunk at least */
#endif
    chunk_t *chunk = bytes < 0 ? NULL : allocate_pages(size);
    if (!chunk) return NULL;
    *chunk = (chunk_t){.next = arena->chunks, .used = sizeof(chunk_t), .size = size};
    return arena->chunks = chunk;
}

chunk_t *take_arena(chunk_t **arenas) {
    chunk_t *chunk = NULL;
    for (int i = 0; !chunk && i < MAX_ARENAS; i++)
        if (__atomic_load_n(arenas + i, __ATOMIC_RELAXED))
            chunk = __atomic_exchange_n(arenas + i, NULL, __ATOMIC_ACQ_REL);
    return chunk;
}

void keep_arena(chunk_t **arenas, chunk_t *chunks) {
    int64_t used = 0;
    for (chunk_t *chunk = chunks; chunk; chunk = chunk->next) used += chunk->used;
    if (chunks && (chunks->next || used > MAX_KEPT_BYTES)) {
        int64_t size = (used + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
        free_chunks(chunks);
        chunks = used > MAX_KEPT_BYTES ? NULL : allocate_pages(size);
        if (chunks) *chunks = (chunk_t){.size = size};
    }
    if (chunks) chunks->used = sizeof(chunk_t);
#if !defined(IS_SANITIZED)
    for (int i = 0; chunks && i < MAX_ARENAS; i++) {
        chunk_t *expected = NULL;
        if (__atomic_compare_exchange_n(arenas + i, &expected, chunks, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
    }
#endif
    free_chunks(chunks);
}
