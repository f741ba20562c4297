/* Which outputs of a row may be the largest: see near_t. */
#ifndef CAPSULE_MT_NEAR_H
#define CAPSULE_MT_NEAR_H

#include "../kernels.h"
#include "vectors.h"

/* Drops what cannot be the largest any more; returns whether there is room. */
static int has_room(near_t *near) {
    long kept = 0, count = near->count;
    if (count < MOST_NEAR) return 1;
    for (long i = 0; i < count && count == MOST_NEAR; i++)
        if (near->values[i] + near->reach * near->radii[near->places[i]] >= near->least) {
            near->places[kept] = near->places[i];
            near->values[kept++] = near->values[i];
        }
    near->count = count == MOST_NEAR && kept < count ? kept : MOST_NEAR + 1;
    return near->count < MOST_NEAR;
}

static int is_forbidden(const near_t *near, int32_t place) {
    for (long i = 0; i < near->num_forbidden; i++)
        if (near->forbidden[i] == place) return 1;
    return 0;
}

static __attribute__((noinline)) void note_some(const linear_t *l, near_t *near, vf values, unsigned lanes, long output) {
    for (int k = 0; lanes; k++, lanes >>= 1) {
        int32_t place = (int32_t)(output + k);
        float value = values[k];
        if (!(lanes & 1) || place >= l->outputs || is_forbidden(near, place) || !has_room(near)) continue;
        near->places[near->count] = place;
        near->values[near->count++] = value;
        near->least = fmaxf(near->least, value - near->reach * near->radii[place]);
    }
}

INLINE void note(const linear_t *l, near_t *near, vf values, long output) {
    unsigned lanes = lanes_above(values + all(near->reach) * load(near->radii + output), near->least);
    if (lanes) note_some(l, near, values, lanes, output);
}

#endif
