/* In place of ../../engine/native/team.c: a module of WebAssembly has one thread. */
#include "run.h"

team_t *team_new(int64_t num_threads) {
    (void)num_threads;
    return NULL;
}

void team_free(team_t *team) { (void)team; }

int team_size(const team_t *team) {
    (void)team;
    return 1;
}

void team_share(team_t *team, int64_t count, int64_t cost, body_t body, void *context) {
    (void)team;
    (void)cost;
    if (count) body(context, 0, count, 0);
}
