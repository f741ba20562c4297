/* The threads of one translation. One leads; the others take parts of its loops, and wait in between.
 *
 * A loop is over when its parts are done, whoever did them: a thread that gets no processor holds up nobody, unless it
 * has begun a part. Waiting is spinning at first, for the next loop mostly follows within microseconds, then sleeping.
 */
#include "run.h"

#if defined(_WIN32)
#include <windows.h>
typedef HANDLE thread_t;
typedef SRWLOCK lock_t;
typedef CONDITION_VARIABLE wake_t;
#define acquire AcquireSRWLockExclusive
#define release ReleaseSRWLockExclusive
#define sleep_until_woken(wake, lock) SleepConditionVariableSRW(wake, lock, INFINITE, 0)
#define wake_all WakeAllConditionVariable
#define give_way() SwitchToThread()
#else
#include <pthread.h>
#include <sched.h>
typedef pthread_t thread_t;
typedef pthread_mutex_t lock_t;
typedef pthread_cond_t wake_t;
#define acquire pthread_mutex_lock
#define release pthread_mutex_unlock
#define sleep_until_woken pthread_cond_wait
#define wake_all pthread_cond_broadcast
#define give_way() sched_yield()
#endif

#define SPINS 4000 /* about 100 microseconds */
#define LINE 64    /* bytes that processors exchange at once */

/* `ticket` is the number of the loop (32 bits), its parts (16), and how many of them were taken (16). What describes a
 * loop changes while no part of it is left: whoever takes a part finds the ticket that it read before the description. */
struct team {
    uint64_t ticket __attribute__((aligned(LINE)));
    int64_t num_done __attribute__((aligned(LINE)));
    int64_t count __attribute__((aligned(LINE)));
    body_t body;
    void *context;
    int num_asleep, over;
    lock_t lock;
    wake_t wake;
    int num_threads; /* with the one that leads */
    struct {
        team_t *team;
        thread_t thread;
    } others[];
};

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline int64_t parts_of(uint64_t ticket) { return ticket >> 16 & 0xffff; }
static inline int64_t taken_of(uint64_t ticket) { return ticket & 0xffff; }

/* Carries out one part of the loop; returns whether there was one. */
static int take_part(team_t *team, int thread) {
    uint64_t ticket = __atomic_load_n(&team->ticket, __ATOMIC_ACQUIRE);
    while (taken_of(ticket) < parts_of(ticket)) {
        int64_t count = __atomic_load_n(&team->count, __ATOMIC_RELAXED);
        body_t body = __atomic_load_n(&team->body, __ATOMIC_RELAXED);
        void *context = __atomic_load_n(&team->context, __ATOMIC_RELAXED);
        int64_t part = taken_of(ticket), parts = parts_of(ticket);
        if (!__atomic_compare_exchange_n(&team->ticket, &ticket, ticket + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            continue;
        body(context, part * count / parts, (part + 1) * count / parts, thread);
        __atomic_fetch_add(&team->num_done, 1, __ATOMIC_RELEASE);
        return 1;
    }
    return 0;
}

static void sleep_until_needed(team_t *team) {
    acquire(&team->lock);
    __atomic_fetch_add(&team->num_asleep, 1, __ATOMIC_SEQ_CST);
    while (!team->over) {
        uint64_t ticket = __atomic_load_n(&team->ticket, __ATOMIC_SEQ_CST);
        if (taken_of(ticket) < parts_of(ticket)) break;
        sleep_until_woken(&team->wake, &team->lock);
    }
    __atomic_fetch_sub(&team->num_asleep, 1, __ATOMIC_SEQ_CST);
    release(&team->lock);
}

static void follow(team_t *team, int thread) {
    for (int spins = 0; !__atomic_load_n(&team->over, __ATOMIC_RELAXED);) {
        if (take_part(team, thread)) {
            spins = 0;
        } else if (++spins < SPINS) {
            relax();
        } else {
            sleep_until_needed(team);
            spins = 0;
        }
    }
}

#if defined(_WIN32)
static DWORD WINAPI begin(void *other) {
#else
static void *begin(void *other) {
#endif
    team_t *team = *(team_t **)other;
    int thread = 1;
    while ((void *)&team->others[thread - 1] != other) thread++;
    follow(team, thread);
    return 0;
}

team_t *team_new(int64_t num_threads) {
    if (num_threads <= 1) return NULL;
    size_t bytes = sizeof(team_t) + sizeof(((team_t *)0)->others[0]) * (size_t)(num_threads - 1);
    team_t *team = NULL;
#if defined(_WIN32)
    team = _aligned_malloc(bytes, LINE);
    if (!team) return NULL;
    memset(team, 0, bytes);
    InitializeSRWLock(&team->lock);
    InitializeConditionVariable(&team->wake);
#else
    if (posix_memalign((void **)&team, LINE, bytes)) return NULL;
    memset(team, 0, bytes);
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->wake, NULL);
#endif
    for (team->num_threads = 1; team->num_threads < num_threads; team->num_threads++) {
        int other = team->num_threads - 1;
        team->others[other].team = team;
#if defined(_WIN32)
        team->others[other].thread = CreateThread(NULL, 0, begin, &team->others[other], 0, NULL);
        if (!team->others[other].thread) break;
#else
        if (pthread_create(&team->others[other].thread, NULL, begin, &team->others[other])) break;
#endif
    }
    return team;
}

void team_free(team_t *team) {
    if (!team) return;
    acquire(&team->lock);
    __atomic_store_n(&team->over, 1, __ATOMIC_RELAXED);
    wake_all(&team->wake);
    release(&team->lock);
    for (int other = 0; other < team->num_threads - 1; other++) {
#if defined(_WIN32)
        WaitForSingleObject(team->others[other].thread, INFINITE);
        CloseHandle(team->others[other].thread);
#else
        pthread_join(team->others[other].thread, NULL);
#endif
    }
#if defined(_WIN32)
    _aligned_free(team);
#else
    pthread_cond_destroy(&team->wake);
    pthread_mutex_destroy(&team->lock);
    free(team);
#endif
}

int team_size(const team_t *team) { return team ? team->num_threads : 1; }

void team_share(team_t *team, int64_t count, int64_t cost, body_t body, void *context) {
    int64_t parts = cost > 0 && count > LEAST_PART / cost ? count * cost / LEAST_PART : 0;
    int64_t most = 4 * (int64_t)team_size(team);
    parts = parts < count ? parts : count;
    parts = parts < most ? parts : most;
    if (!team || parts < 2) {
        if (count) body(context, 0, count, 0);
        return;
    }
    __atomic_store_n(&team->count, count, __ATOMIC_RELAXED);
    __atomic_store_n(&team->body, body, __ATOMIC_RELAXED);
    __atomic_store_n(&team->context, context, __ATOMIC_RELAXED);
    __atomic_store_n(&team->num_done, 0, __ATOMIC_RELAXED);
    uint64_t loop = (__atomic_load_n(&team->ticket, __ATOMIC_RELAXED) >> 32) + 1;
    __atomic_store_n(&team->ticket, loop << 32 | (uint64_t)parts << 16, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&team->num_asleep, __ATOMIC_SEQ_CST)) {
        acquire(&team->lock);
        wake_all(&team->wake);
        release(&team->lock);
    }
    while (take_part(team, 0)) continue;
    for (int spins = 0; __atomic_load_n(&team->num_done, __ATOMIC_ACQUIRE) < parts;) {
        if (++spins < SPINS) relax();
        else give_way();
    }
}
