/* Which tokens the translations of each source may have: a shortlist, for a search and for given targets. */
#ifndef CAPSULE_MT_LISTS_H
#define CAPSULE_MT_LISTS_H

#include "run.h"

/* The tokens that the translations of a source may have, ascending; all if `tokens` is NULL. */
typedef struct {
    int64_t length;
    const int32_t *indices; /* among the candidates of the batch */
    int32_t *tokens;
} list_t;

/* The index of a token in a list, or -1. */
static inline int64_t index_of(const list_t *list, int64_t token) {
    if (!list->tokens) return token;
    int64_t first = 0, end = list->length;
    while (first < end) {
        int64_t middle = (first + end) / 2;
        if (list->tokens[middle] < token) first = middle + 1;
        else end = middle;
    }
    return first < list->length && list->tokens[first] == token ? first : -1;
}

/* Takes the list of a source out of the request; `num_listed` counts the tokens of those before it. */
static inline list_t list_of(run_t *run, int64_t source, int64_t *num_listed) {
    const request_t *request = run->request;
    list_t list = {0, NULL, NULL};
    if (!request->candidates) return list;
    list.length = request->list_lengths[source];
    list.indices = request->candidate_indices + *num_listed;
    list.tokens = take(run, list.length * 4);
    for (int64_t i = 0; i < list.length; i++) list.tokens[i] = request->candidates[list.indices[i]];
    *num_listed += list.length;
    return list;
}

/* The logits of the tokens that a translation may have, and their count; those of a list are copied into `memory`. */
static inline float *logits_of(const run_t *run, const list_t *list, int64_t row, float *memory, long *count) {
    *count = list->tokens ? (long)list->length : (long)run->model->vocabulary;
    if (!list->tokens) return row_of(run, run->model->logits, row);
    const float *logits = run->values[run->model->logits] + row * run->request->num_candidates;
    for (int64_t i = 0; i < list->length; i++) memory[i] = logits[list->indices[i]];
    return memory;
}

#endif
