/* Which outputs of a row may be the largest: see contenders_t. */
#ifndef CAPSULE_MT_CONTENDERS_H
#define CAPSULE_MT_CONTENDERS_H

#include "../kernels.h"
#include "vectors.h"

/* Makes room in a full list by dropping the outputs that cannot be the largest any more. Returns whether there is room; if
 * not, the count becomes MAX_CONTENDERS + 1 and stays so. */
static int make_room(contenders_t *contenders) {
    if (contenders->count != MAX_CONTENDERS) return contenders->count < MAX_CONTENDERS;
    long num_left = 0;
    for (long i = 0; i < MAX_CONTENDERS; i++) {
        int32_t output = contenders->outputs[i];
        float value = contenders->values[i];
        if (!(value + contenders->reach * contenders->radii[output] >= contenders->threshold)) continue;
        contenders->outputs[num_left] = output;
        contenders->values[num_left++] = value;
    }
    contenders->count = num_left < MAX_CONTENDERS ? num_left : MAX_CONTENDERS + 1;
    return num_left < MAX_CONTENDERS;
}

static int is_forbidden(const contenders_t *contenders, int32_t output) {
    for (long i = 0; i < contenders->num_forbidden; i++)
        if (contenders->forbidden[i] == output) return 1;
    return 0;
}

static __attribute__((noinline)) void note_lanes(const linear_t *l, contenders_t *contenders, vf values, unsigned lanes,
                                                 long first) {
    for (int k = 0; lanes; k++, lanes >>= 1) {
        int32_t output = (int32_t)(first + k);
        float value = values[k];
        if (!(lanes & 1) || output >= l->outputs || is_forbidden(contenders, output) || !make_room(contenders)) continue;
        contenders->outputs[contenders->count] = output;
        contenders->values[contenders->count++] = value;
        contenders->threshold = fmaxf(contenders->threshold, value - contenders->reach * contenders->radii[output]);
    }
}

/* The lanes whose values, with these radii, may be above the threshold. */
INLINE unsigned may_contend(const contenders_t *contenders, vf values, vf radii) {
    return lanes_above(values + all(contenders->reach) * radii, contenders->threshold);
}

/* Notes which of the LANES outputs from `first` on may be the largest. */
INLINE void note(const linear_t *l, contenders_t *contenders, vf values, long first) {
    unsigned lanes = may_contend(contenders, values, load(contenders->radii + first));
    if (lanes) note_lanes(l, contenders, values, lanes, first);
}

#endif
