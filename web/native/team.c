/* The threads of a module: workers of JavaScript if its memory is shared, else none. */
#include "engine.h"
#include "team.h"

#if defined(__wasm_atomics__)

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

/* A worker, on its own stack; `is_busy` while a team has it. */
typedef struct worker {
    struct worker *next;
    int32_t is_busy;
    void *(*begin)(void *);
    void *argument;
} worker_t;

static worker_t *workers;

/* Does what one team after the other needs; never returns. */
EXPORTED void team_work(void) {
    worker_t self = {__atomic_load_n(&workers, __ATOMIC_SEQ_CST), 0, NULL, NULL};
    while (!__atomic_compare_exchange_n(&workers, &self.next, &self, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
    for (;;) {
        while (!__atomic_load_n(&self.is_busy, __ATOMIC_SEQ_CST)) __builtin_wasm_memory_atomic_wait32(&self.is_busy, 0, -1);
        self.begin(self.argument);
        __atomic_store_n(&self.is_busy, 0, __ATOMIC_SEQ_CST);
    }
}

/* What team.c needs of a system: the thread of a page may not sleep, so whoever leads only spins. */

static int lend_worker(worker_t **thread, void *(*begin)(void *), void *argument) {
    worker_t *worker = __atomic_load_n(&workers, __ATOMIC_SEQ_CST);
    while (worker && __atomic_load_n(&worker->is_busy, __ATOMIC_SEQ_CST)) worker = worker->next;
    if (!worker) return -1;
    worker->begin = begin;
    worker->argument = argument;
    __atomic_store_n(&worker->is_busy, 1, __ATOMIC_SEQ_CST);
    __builtin_wasm_memory_atomic_notify(&worker->is_busy, 1);
    *thread = worker;
    return 0;
}

static void wait_for_worker(const worker_t *worker) {
    while (__atomic_load_n(&worker->is_busy, __ATOMIC_SEQ_CST)) continue;
}

static void lock(int32_t *is_locked) {
    while (__atomic_exchange_n(is_locked, 1, __ATOMIC_SEQ_CST)) continue;
}

static void unlock(int32_t *is_locked) { __atomic_store_n(is_locked, 0, __ATOMIC_SEQ_CST); }

static void wait_for_change(int32_t *times, int32_t *is_locked) {
    int32_t seen = *times;
    unlock(is_locked);
    __builtin_wasm_memory_atomic_wait32(times, seen, -1);
    lock(is_locked);
}

static void change(int32_t *times) {
    __atomic_fetch_add(times, 1, __ATOMIC_SEQ_CST);
    __builtin_wasm_memory_atomic_notify(times, UINT32_MAX);
}

#define pthread_t worker_t *
#define pthread_create(thread, attributes, begin, argument) lend_worker(thread, begin, argument)
#define pthread_join(thread, result) wait_for_worker(thread)
#define pthread_mutex_t int32_t
#define pthread_mutex_init(mutex, attributes)
#define pthread_mutex_destroy(mutex)
#define pthread_mutex_lock lock
#define pthread_mutex_unlock unlock
#define pthread_cond_t int32_t
#define pthread_cond_init(condition, attributes)
#define pthread_cond_destroy(condition)
#define pthread_cond_wait wait_for_change
#define pthread_cond_broadcast change
#define sched_yield()
#define getpid() 0
#define SPINS 200000 /* some 300 microseconds: a spin is short here, and to wake a worker up takes long */
#define YIELDS 0
#define MAX_WAITING_TEAMS 1

#include "../../engine/native/team.c"

#else

team_t *team_new(int64_t num_threads) {
    (void)num_threads;
    return NULL;
}

void team_free(team_t *team) { (void)team; }

int team_size(const team_t *team) {
    (void)team;
    return 1;
}

void team_step(team_t *team, int64_t step, double now) {
    (void)team;
    (void)step;
    (void)now;
}

void team_share(team_t *team, int64_t count, int64_t cost, body_t body, void *context) {
    (void)team;
    (void)cost;
    if (count) body(context, 0, count, 0);
}

#endif
