/* The threads of one translation. One leads; the others take parts of its loops, and wait in between.
 *
 * A loop ends when all of its parts are done, by whichever thread: an unscheduled thread blocks the others only if it has
 * started a part. A waiting thread spins at first, because the next loop mostly follows within microseconds; then it
 * yields, because the next call may follow; then it sleeps.
 */
#include "team.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

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
#define getpid() 0 /* there is no fork */
#else
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
typedef pthread_t thread_t;
typedef pthread_mutex_t lock_t;
typedef pthread_cond_t wake_t;
#define acquire pthread_mutex_lock
#define release pthread_mutex_unlock
#define sleep_until_woken pthread_cond_wait
#define wake_all pthread_cond_broadcast
#define give_way() sched_yield()
#endif

#if !defined(SPINS)
#define SPINS 4000 /* about 50 microseconds */
#define YIELDS 500 /* about 100 microseconds, which other processes may have: waking up takes as long */
#endif
/* Where cores talk slowly, as on a virtual machine now and then, a loop takes a microsecond longer than its parts: a part
 * must then cost this many times as much. */
#define FAR_FACTOR 16
#define PROBE_INTERVAL 32 /* steps */
#define LINE 64 /* bytes of a cache line: what one thread writes must not share it with what another reads */

/* A thread's share of a loop. `ticket` holds the number of the loop (32 bits), the parts of the share (16), and how many of
 * them were taken (16). The other fields change only while no part is left, and the ticket after them: a thread that
 * takes a part with the ticket that it read has read the fields of the same loop. */
typedef struct {
    uint64_t ticket __attribute__((aligned(LINE)));
    int64_t first, end;
    body_t body;
    void *context;
    int64_t num_done __attribute__((aligned(LINE)));
    int is_asleep;
    team_t *team;
    thread_t thread; /* unused by the leader */
} share_t;

struct team {
    int is_over;
    lock_t lock;
    wake_t wake;
    int64_t num_requested; /* threads, with the leader */
    int num_threads;       /* that the system had */
    int64_t process;
    uint64_t loop;    /* the number of the last one */
    int64_t min_cost; /* of a part */
    enum { SETTLED, UNSPLIT, SPLIT } probe; /* a step with small loops UNSPLIT, then one with them SPLIT, are compared */
    int64_t steps_since_probe;
    double step_start, unsplit_seconds; /* of the last UNSPLIT step */
    double gain; /* of splitting small loops: a moving average */
    share_t shares[];
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

static int has_parts(const share_t *share) {
    uint64_t ticket = __atomic_load_n(&share->ticket, __ATOMIC_ACQUIRE);
    return taken_of(ticket) < parts_of(ticket);
}

/* Carries out one part of a share; returns whether there was one. */
static int take_part(share_t *share, int thread) {
    uint64_t ticket = __atomic_load_n(&share->ticket, __ATOMIC_ACQUIRE);
    while (taken_of(ticket) < parts_of(ticket)) {
        int64_t first = __atomic_load_n(&share->first, __ATOMIC_RELAXED);
        int64_t count = __atomic_load_n(&share->end, __ATOMIC_RELAXED) - first;
        body_t body = __atomic_load_n(&share->body, __ATOMIC_RELAXED);
        void *context = __atomic_load_n(&share->context, __ATOMIC_RELAXED);
        int64_t part = taken_of(ticket), parts = parts_of(ticket);
        if (!__atomic_compare_exchange_n(&share->ticket, &ticket, ticket + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            continue;
        body(context, first + part * count / parts, first + (part + 1) * count / parts, thread);
        __atomic_fetch_add(&share->num_done, 1, __ATOMIC_RELEASE);
        return 1;
    }
    return 0;
}

/* Begins with the thread's own share: the weights that it read in the last step may lie in its cache. */
static void take_parts(team_t *team, int thread) {
    for (int i = 0; i < team->num_threads; i++)
        while (take_part(team->shares + (thread + i) % team->num_threads, thread)) continue;
}

static void sleep_until_needed(team_t *team, share_t *share) {
    acquire(&team->lock);
    __atomic_store_n(&share->is_asleep, 1, __ATOMIC_RELAXED);
    while (!team->is_over && !has_parts(share)) sleep_until_woken(&team->wake, &team->lock);
    __atomic_store_n(&share->is_asleep, 0, __ATOMIC_RELAXED);
    release(&team->lock);
}

static void follow(team_t *team, int thread) {
    share_t *share = team->shares + thread;
    for (int spins = 0; !__atomic_load_n(&team->is_over, __ATOMIC_RELAXED);) {
        if (has_parts(share)) {
            take_parts(team, thread);
            spins = 0;
        } else if (++spins < SPINS) {
            relax();
        } else if (spins < SPINS + YIELDS) {
            give_way();
        } else {
            sleep_until_needed(team, share);
            spins = 0;
        }
    }
}

#if defined(_WIN32)
static DWORD WINAPI begin(void *argument) {
#else
static void *begin(void *argument) {
#endif
    share_t *share = argument;
    follow(share->team, (int)(share - share->team->shares));
    return 0;
}

/* A team of new threads. */
static team_t *start_team(int64_t num_threads) {
    size_t bytes = sizeof(team_t) + sizeof(share_t) * (size_t)num_threads;
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
    team->num_requested = num_threads;
    team->min_cost = MIN_PART_COST;
    team->steps_since_probe = PROBE_INTERVAL; /* the first one at once */
    team->gain = 1;
    team->process = getpid();
    for (team->num_threads = 1; team->num_threads < num_threads; team->num_threads++) {
        share_t *share = team->shares + team->num_threads;
        share->team = team;
#if defined(_WIN32)
        share->thread = CreateThread(NULL, 0, begin, share, 0, NULL);
        if (!share->thread) break;
#else
        if (pthread_create(&share->thread, NULL, begin, share)) break;
#endif
    }
    return team;
}

/* Ends the threads of a team. */
static void end_team(team_t *team) {
    acquire(&team->lock);
    __atomic_store_n(&team->is_over, 1, __ATOMIC_RELAXED);
    wake_all(&team->wake);
    release(&team->lock);
    for (int thread = 1; thread < team->num_threads; thread++) {
#if defined(_WIN32)
        WaitForSingleObject(team->shares[thread].thread, INFINITE);
        CloseHandle(team->shares[thread].thread);
#else
        pthread_join(team->shares[thread].thread, NULL);
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

/* Teams wait here for the next call: to begin and to end a thread takes as long as a step of a small model. */
#if !defined(MAX_WAITING_TEAMS)
#define MAX_WAITING_TEAMS 4
#endif
static team_t *waiting_teams[MAX_WAITING_TEAMS];

team_t *team_new(int64_t num_threads) {
    if (num_threads <= 1) return NULL;
    for (int i = 0; i < MAX_WAITING_TEAMS; i++) {
        team_t *team = __atomic_exchange_n(waiting_teams + i, NULL, __ATOMIC_ACQ_REL);
        if (!team || team->process != getpid()) continue; /* a fork does not have the other threads */
        if (team->num_requested == num_threads) return team;
        team_free(team);
    }
    return start_team(num_threads);
}

void team_free(team_t *team) {
    if (!team) return;
    for (int i = 0; i < MAX_WAITING_TEAMS; i++) {
        team_t *expected = NULL;
        if (__atomic_compare_exchange_n(waiting_teams + i, &expected, team, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return;
    }
    end_team(team);
}

int team_size(const team_t *team) { return team ? team->num_threads : 1; }

void team_step(team_t *team, int64_t step, double now) {
    double duration = now - team->step_start;
    team->step_start = now;
    if (step > 1 && team->probe == UNSPLIT) {
        team->unsplit_seconds = duration;
        team->probe = SPLIT;
    } else {
        if (step > 2 && team->probe == SPLIT && duration > 0) {
            double gain = team->unsplit_seconds / duration;
            team->gain += ((gain < 0.5 ? 0.5 : gain > 2 ? 2 : gain) - team->gain) / 4; /* a step may be disturbed */
        }
        team->probe = step && ++team->steps_since_probe >= PROBE_INTERVAL ? UNSPLIT : SETTLED;
        if (team->probe == UNSPLIT) team->steps_since_probe = 0;
    }
    int only_large = team->probe == UNSPLIT || (team->probe == SETTLED && team->gain < 1);
    team->min_cost = only_large ? FAR_FACTOR * MIN_PART_COST : MIN_PART_COST;
}

/* Parts of a loop for each thread: a slow thread leaves some of its parts to the others. */
#define PARTS_PER_THREAD 4

void team_share(team_t *team, int64_t count, int64_t cost, body_t body, void *context) {
    int64_t min_cost = team ? team->min_cost : 0, parts = 0;
    if (team && cost > 0 && count > min_cost / cost) parts = count * cost / min_cost;
    parts = parts < count ? parts : count;
    if (parts < 2) {
        if (count) body(context, 0, count, 0);
        return;
    }
    int64_t threads = parts < team->num_threads ? parts : team->num_threads;
    parts = parts / threads < PARTS_PER_THREAD ? parts / threads : PARTS_PER_THREAD;
    int sleepers = 0;
    team->loop++;
    for (int64_t thread = threads - 1; thread >= 0; thread--) {
        share_t *share = team->shares + thread;
        __atomic_store_n(&share->first, count * thread / threads, __ATOMIC_RELAXED);
        __atomic_store_n(&share->end, count * (thread + 1) / threads, __ATOMIC_RELAXED);
        __atomic_store_n(&share->body, body, __ATOMIC_RELAXED);
        __atomic_store_n(&share->context, context, __ATOMIC_RELAXED);
        __atomic_store_n(&share->num_done, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&share->ticket, team->loop << 32 | (uint64_t)parts << 16, __ATOMIC_RELEASE);
        sleepers |= __atomic_load_n(&share->is_asleep, __ATOMIC_RELAXED);
    }
    if (sleepers) { /* a thread that falls asleep just now is woken by the next loop */
        acquire(&team->lock);
        wake_all(&team->wake);
        release(&team->lock);
    }
    take_parts(team, 0);
    for (int64_t thread = 0, spins = 0; thread < threads;) {
        if (__atomic_load_n(&team->shares[thread].num_done, __ATOMIC_ACQUIRE) == parts) thread++;
        else if (++spins < SPINS) relax();
        else give_way();
    }
}
