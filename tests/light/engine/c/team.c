/* Whether threads share small loops follows how long steps take with them and without. */
#include "run.h"

#include <stdio.h>

static int num_parts;

static void count_part(void *context, int64_t first, int64_t end, int thread) {
    (void)context, (void)first, (void)end, (void)thread;
    __atomic_fetch_add(&num_parts, 1, __ATOMIC_RELAXED);
}

static int is_shared(team_t *team, int64_t cost) {
    num_parts = 0;
    team_share(team, 2, cost, count_part, NULL);
    return num_parts == 2;
}

/* Calls of so many steps that take so long; returns how many of the steps shared small loops. */
static int search(team_t *team, int num_calls, int num_steps, double alone, double shared, int *large) {
    static double now;
    int found = 0;
    for (int call = 0; call < num_calls; call++, now += 1e3)
        for (int step = 0; step < num_steps; step++) {
            team_step(team, step, now);
            int shares = is_shared(team, MIN_PART_COST);
            found += shares;
            *large += is_shared(team, 100 * MIN_PART_COST);
            now += shares ? shared : alone;
        }
    return found;
}

int main(void) {
    team_t *team = team_new(2);
    int large = 0;
    int near = search(team, 100, 10, 1.2, 1, &large), far = search(team, 100, 10, 1, 1.5, &large);
    int near_again = search(team, 100, 10, 1.2, 1, &large), short_calls = search(team, 500, 2, 1, 1.5, &large);
    printf("%d %d %d %d %d\n", near, far, near_again, short_calls, large);
    team_free(team);
    return 0;
}
