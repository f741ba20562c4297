/* Memory that fails once: the allocation number FAIL_AT, from 1, of the engine that a program is linked with by --wrap.
 *
 * With FAIL_AT=0, or without it, none fails; with it, their number is printed. What is not freed in the end is told, and the exit code is 9. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#undef malloc

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
int __real_posix_memalign(void **memory, size_t alignment, size_t size);
void __real_free(void *memory);

static long number, fails_at, living;

static void report(void) {
    if (fails_at == 0) printf("%ld allocations\n", number);
    if (living == 0) return;
    printf("%ld allocations are not freed\n", living);
    fflush(stdout);
    _exit(9);
}

__attribute__((constructor)) static void begin(void) {
    const char *given = getenv("FAIL_AT");
    fails_at = given ? atol(given) : -1;
    atexit(report);
}

static int fails(void) { return ++number == fails_at; }

static void *counted(void *memory) {
    if (memory) living++;
    return memory;
}

/* What the program itself takes, which is compiled with -Dmalloc=plain_malloc. */
void *plain_malloc(size_t size) { return __real_malloc(size); }

void *__wrap_malloc(size_t size) { return fails() ? NULL : counted(__real_malloc(size)); }
void *__wrap_calloc(size_t count, size_t size) { return fails() ? NULL : counted(__real_calloc(count, size)); }
void *__wrap_realloc(void *memory, size_t size) {
    if (fails()) return NULL;
    void *larger = __real_realloc(memory, size);
    return memory ? larger : counted(larger);
}
int __wrap_posix_memalign(void **memory, size_t alignment, size_t size) {
    if (fails() || __real_posix_memalign(memory, alignment, size)) return 12;
    living++;
    return 0;
}
void __wrap_free(void *memory) {
    if (memory) living--;
    __real_free(memory);
}
