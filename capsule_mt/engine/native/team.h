/* The threads of a translation. */
#ifndef CAPSULE_MT_TEAM_H
#define CAPSULE_MT_TEAM_H

#include <stdint.h>

/* NULL for a translation with one thread. */
typedef struct team team_t;
/* Items `first` to `end` of a loop, on the thread with this number. */
typedef void (*body_t)(void *context, int64_t first, int64_t end, int thread);

/* Takes part in the work with `num_threads` - 1 others, or with fewer if the system has no more. A freed team waits for
 * the next call. */
team_t *team_new(int64_t num_threads);
void team_free(team_t *team);
int team_size(const team_t *team);
/* A step of a search begins, `now` in seconds. Every 32nd step runs small loops unsplit, as a probe of whether that is
 * faster. */
void team_step(team_t *team, int64_t step, double now);
/* Runs `body` for all of `count` items, in parts that cost MIN_PART_COST at least, or more where small parts do not pay. An
 * item costs as much as `cost` products of two int8 numbers. Threads other than the leader must neither allocate nor fail. */
void team_share(team_t *team, int64_t count, int64_t cost, body_t body, void *context);
#if !defined(MIN_PART_COST)
#define MIN_PART_COST 32768
#endif

#endif
