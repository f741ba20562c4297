/* Which tokens the translations of each source may have: a shortlist, for a search and for given targets. */
#ifndef CAPSULE_MT_LISTS_H
#define CAPSULE_MT_LISTS_H

#include "run.h"

/* The tokens that the translations of a source may have, ascending; all if `tokens` is NULL. */
typedef struct {
    int64_t length;
    const int32_t *indices; /* among the candidates of the batch; NULL: it has all of these */
    const int32_t *tokens;
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
    if (!request->candidates) return (list_t){0, NULL, NULL};
    int64_t length = request->list_lengths[source], first = *num_listed;
    *num_listed += length;
    if (length == request->num_candidates) return (list_t){length, NULL, request->candidates};
    const int32_t *indices = request->candidate_indices + first;
    int32_t *tokens = take(run, length * 4);
    for (int64_t i = 0; i < length; i++) tokens[i] = request->candidates[indices[i]];
    return (list_t){length, indices, tokens};
}

/* Copies the logits of a row's shared and unshared candidates into `memory`, in the order of its source's list. */
static inline float *merge_logits(const run_t *run, int64_t row, float *memory) {
    const shortlist_t *shortlist = &run->logits.shortlist;
    const split_list_t *list = shortlist->lists + run->rows.source[row];
    const float *logits = run->values[run->model->logits] + row * shortlist->shared.outputs;
    const int32_t *positions = list->positions + list->num_shared;
    for (int64_t i = 0; i < list->num_shared; i++) memory[list->positions[i]] = logits[list->shared_indices[i]];
    for (int64_t i = 0; i < list->unshared.outputs; i++) memory[positions[i]] = shortlist->unshared_logits[row][i];
    return memory;
}

/* The logits of the tokens that a translation may have, and their count; those of a list with some of the candidates are
 * copied into `memory`. */
static inline float *logits_of(const run_t *run, const list_t *list, int64_t row, float *memory, long *count) {
    *count = list->tokens ? (long)list->length : (long)run->model->vocabulary;
    if (!list->tokens) return row_of(run, run->model->logits, row);
    if (has_split_lists(run)) return merge_logits(run, row, memory);
    float *logits = run->values[run->model->logits] + row * run->request->num_candidates;
    if (!list->indices) return logits;
    for (int64_t i = 0; i < list->length; i++) memory[i] = logits[list->indices[i]];
    return memory;
}

#endif
