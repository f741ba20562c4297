/* A call of the interface: encodes the sources, then searches for translations or scores given ones, or returns them. */
#include "run.h"

#if defined(_WIN32)
#include <windows.h>
#else
#include <time.h>
#endif

double seconds(void) {
#if defined(_WIN32)
    LARGE_INTEGER now, ticks_per_second;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&ticks_per_second);
    return (double)now.QuadPart / (double)ticks_per_second.QuadPart;
#elif defined(__wasm__)
    return 0; /* there is no clock */
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
#endif
}

void poll_caller(run_t *run) {
    caller_state_t *caller = &run->caller;
    double now = seconds();
    if (now - caller->last_look < LOOK_SECONDS) return;
    caller->functions->regain(caller->released);
    int gives_up = caller->functions->look();
    caller->released = caller->functions->release();
    caller->last_look = seconds();
    if (gives_up) longjmp(run->failed, STOPPED);
}

/* ---- laying out a run */

static void list_words(run_t *run) {
    const request_t *request = run->request;
    words_t *words = &run->words;
    words->first = take(run, request->num_sources * 8);
    for (int64_t i = 0; i < request->num_sources; i++) {
        words->first[i] = words->count;
        words->count += request->lengths[i];
    }
    words->source = take(run, words->count * 8);
    words->position = take(run, words->count * 8);
    for (int64_t i = 0, word = 0; i < request->num_sources; i++)
        for (int64_t j = 0; j < request->lengths[i]; j++, word++) {
            words->source[word] = i;
            words->position[word] = j;
        }
}

/* The positions of all given targets. */
static int64_t count_positions(const request_t *request) {
    int64_t positions = 0;
    for (int64_t i = 0; request->targets && i < request->num_sources; i++) positions += request->target_lengths[i];
    return positions;
}

/* Makes room for as many rows as a step may have, and for as many steps. */
static void lay_out_rows(run_t *run) {
    const request_t *request = run->request;
    rows_t *rows = &run->rows;
    int is_one_step = request->targets && !run->model->is_recurrent;
    rows->max_count = request->num_sources * request->num_beams;
    if (is_one_step) {
        rows->max_count = count_positions(request);
        rows->position = take(run, rows->max_count * 8);
    }
    rows->max_steps = is_one_step ? 1 : request->longest;
    rows->source = take(run, rows->max_count * 8);
    rows->tokens = take(run, rows->max_count * 8);
    rows->ancestors = take(run, rows->max_count * rows->max_steps * 4);
    rows->new_ancestors = take(run, rows->max_count * rows->max_steps * 4);
    rows->count = rows->max_count;
}

static void lay_out_cache(run_t *run) {
    const request_t *request = run->request;
    const model_t *model = run->model;
    cache_t *cache = &run->cache;
    int64_t steps = run->rows.max_steps, longest = request->longest + 1;
    cache->past = take(run, (model->num_caches * steps + 1) * (int64_t)sizeof(char *));
    cache->source = take_zeros(run, (model->num_operations[DECODER] + 1) * (int64_t)sizeof(char *));
    cache->max_keys = (request->longest_source > longest ? request->longest_source : longest) + 1;
    cache->keys = take(run, team_size(run->team) * 2 * cache->max_keys * (int64_t)sizeof(char *));
    run->attended = request->attention ? take(run, steps * (int64_t)sizeof(float *)) : NULL;
}

/* Gives the buffers their memory, for as many rows as there may be. */
static void lay_out_buffers(run_t *run) {
    const model_t *model = run->model;
    run->values = take(run, (model->num_buffers + 1) * (int64_t)sizeof(float *));
    run->spare = take(run, (model->num_buffers + 1) * (int64_t)sizeof(float *));
    float **memory = take(run, (model->num_regions + 1) * (int64_t)sizeof(float *));
    int64_t max_rows = run->rows.count > run->words.count ? run->rows.count : run->words.count;
    int64_t block_rows = max_rows < MAX_BLOCK_ROWS ? max_rows : MAX_BLOCK_ROWS;
    for (int region = 0; region < model->num_regions; region++) {
        int space = model->regions[region].space;
        int64_t rows = space == OF_BLOCKS ? block_rows : num_rows(run, space);
        if (run->request->targets && region == model->buffers[model->logits].region) rows = SCORED_ROWS;
        memory[region] = take(run, rows * model->regions[region].width * 4);
    }
    for (int i = 0; i < model->num_buffers; i++) {
        int64_t bytes = num_rows(run, space_of(run, i)) * width_of(run, i) * 4;
        run->values[i] = memory[model->buffers[i].region];
        run->spare[i] = space_of(run, i) == OF_STATES ? take(run, bytes) : NULL;
        if (space_of(run, i) == OF_STATES) memset(run->values[i], 0, (size_t)bytes);
    }
}

/* Packs the head's outputs for these candidates of a shortlist. */
static inline void pack_outputs(run_t *run, const int32_t *outputs, int64_t count, linear_t *packed) {
    const model_t *model = run->model;
    const linear_t *head = model->linears + model->head->slots[LINEAR_map];
    *packed = (linear_t){(long)count, head->inputs, .int8 = head->int8, .halves = head->halves};
    char *memory = take(run, model->kernels->packed_bytes(packed) + 64);
    model->kernels->select(head, outputs, packed, memory + (64 - (uintptr_t)memory % 64) % 64);
}

#if !defined(__wasm__) /* see `has_split_lists` */
/* A candidate is shared if more than one source in this many lists it: computing it for one row takes longer than that
 * row's part of computing it for all. */
#define SOURCES_PER_LISTING 8

/* Fills in the ranks of candidates among the shared ones, or -1. Returns the number of shared ones: all if a list does not
 * ascend, since it could be longer than there is room for. */
static int64_t rank_shared(const request_t *request, int32_t *ranks) {
    int64_t num_candidates = request->num_candidates, num_shared = 0;
    const int32_t *indices = request->candidate_indices;
    memset(ranks, 0, (size_t)num_candidates * 4);
    for (int64_t source = 0; source < request->num_sources; source++)
        for (int64_t i = 0, previous = -1; i < request->list_lengths[source]; i++, previous = *indices++) {
            if (*indices <= previous || *indices >= num_candidates) return num_candidates;
            ranks[*indices]++;
        }
    for (int64_t i = 0; i < num_candidates; i++) {
        int is_shared = (int64_t)ranks[i] * SOURCES_PER_LISTING > request->num_sources;
        ranks[i] = is_shared ? (int32_t)num_shared++ : -1;
    }
    return num_shared;
}

/* Splits a list of candidates by whether they have a rank, and packs the outputs of those without one. */
static split_list_t split_list(run_t *run, const int32_t *indices, int64_t length, const int32_t *ranks) {
    int32_t *outputs = take(run, length * 4);
    split_list_t list = {.shared_indices = take(run, length * 4), .positions = take(run, length * 4)};
    int64_t num_unshared = 0;
    for (int64_t i = 0; i < length; i++)
        if (ranks[indices[i]] >= 0) {
            list.shared_indices[list.num_shared] = ranks[indices[i]];
            list.positions[list.num_shared++] = (int32_t)i;
        }
    for (int64_t i = 0; i < length; i++)
        if (ranks[indices[i]] < 0) {
            outputs[num_unshared] = run->request->candidates[indices[i]];
            list.positions[list.num_shared + num_unshared++] = (int32_t)i;
        }
    pack_outputs(run, outputs, num_unshared, &list.unshared);
    return list;
}

/* Splits the lists of all sources. Returns the shared candidates, and their number. */
static const int32_t *split_lists(run_t *run, int64_t *num_shared) {
    const request_t *request = run->request;
    shortlist_t *shortlist = &run->logits.shortlist;
    const int32_t *indices = request->candidate_indices;
    int32_t *ranks = take(run, request->num_candidates * 4);
    *num_shared = rank_shared(request, ranks);
    if (*num_shared == request->num_candidates) return request->candidates;
    shortlist->lists = take(run, request->num_sources * (int64_t)sizeof(split_list_t));
    shortlist->unshared_logits = take(run, run->rows.max_count * (int64_t)sizeof(float *));
    for (int64_t source = 0; source < request->num_sources; source++) {
        shortlist->lists[source] = split_list(run, indices, request->list_lengths[source], ranks);
        indices += request->list_lengths[source];
    }
    int32_t *shared = take(run, *num_shared * 4);
    for (int64_t i = 0; i < request->num_candidates; i++)
        if (ranks[i] >= 0) shared[ranks[i]] = request->candidates[i];
    return shared;
}
#endif

/* Makes room for what is noted of the logits; packs the head's outputs for the candidates of a shortlist. */
static void lay_out_logits(run_t *run) {
    const request_t *request = run->request;
    run->logits.totals = take(run, run->rows.max_count * 4);
    run->logits.best = take(run, run->rows.max_count * 4);
    if (!request->candidates) return;
    const int32_t *candidates = request->candidates;
    int64_t num_candidates = request->num_candidates;
#if !defined(__wasm__)
    if (request->candidate_indices && !request->targets && request->num_sources >= SOURCES_PER_LISTING)
        candidates = split_lists(run, &num_candidates);
#endif
    pack_outputs(run, candidates, num_candidates, &run->logits.shortlist.shared);
}

static void return_encoded(run_t *run) {
    int encoded = run->model->logits;
    memcpy(run->request->encoded, run->values[encoded], (size_t)(run->words.count * width_of(run, encoded)) * 4);
}

static void translate(run_t *run) {
    list_words(run);
    lay_out_rows(run);
    lay_out_cache(run);
    lay_out_buffers(run);
    lay_out_logits(run);
    run_program(run, ENCODER);
    if (run->model->is_encoder) return_encoded(run);
    else if (run->request->targets) force(run, count_positions(run->request));
    else decode(run);
}

int engine_translate(model_t *model, const request_t *request, const caller_t *caller) {
    run_t run = {.model = model, .request = request, .caller = {caller, NULL, seconds()}};
    if (check_request(model, request)) return REFUSED;
    if (caller) run.caller.released = caller->release();
    run.arena.chunks = take_arena(model->arenas);
    run.team = team_new(request->num_threads);
    int failed = setjmp(run.failed);
    if (!failed) translate(&run);
    team_free(run.team);
    keep_arena(model->arenas, run.arena.chunks);
    if (caller) caller->regain(run.caller.released);
    return failed;
}
