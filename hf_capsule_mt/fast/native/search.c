/* Greedy and beam search, by the rules of transformers' `generate()`. */
#include "run.h"

#include <math.h>

typedef struct {
    float score;
    int64_t length;
    int32_t *tokens;
} hypothesis_t;

typedef struct {
    int64_t source, num_finished;
    hypothesis_t *running, *next, *finished; /* [num_beams] each; `next` becomes `running` */
} search_t;

typedef struct {
    float score;
    int32_t row, token; /* the row among those of the source */
} candidate_t;

/* Forbids every token that would complete an n-gram for the second time; the start token counts. */
static void forbid_repeated(const request_t *request, const hypothesis_t *hypothesis, float *logits) {
    int64_t n = request->no_repeat_ngram, length = hypothesis->length + 1;
    if (n <= 0 || length + 1 < n) return;
#define TOKEN(i) ((i) == 0 ? request->start_token : hypothesis->tokens[(i) - 1])
    for (int64_t i = 0; i + n <= length; i++) {
        int64_t j = 0;
        while (j < n - 1 && TOKEN(i + j) == TOKEN(length - n + 1 + j)) j++;
        if (j == n - 1) logits[TOKEN(i + n - 1)] = -INFINITY;
    }
#undef TOKEN
}

static void forbid(const request_t *request, const hypothesis_t *hypothesis, float *logits) {
    for (int64_t i = 0; i < request->num_suppressed; i++) logits[request->suppressed[i]] = -INFINITY;
    forbid_repeated(request, hypothesis, logits);
    if (hypothesis->length < request->least_tokens && request->end_token >= 0)
        logits[request->end_token] = -INFINITY;
}

/* The best continuations of the hypotheses of a source, best first; returns how many. */
static int64_t continuations(run_t *run, const search_t *search, int64_t first_row, candidate_t *best, float *values,
                             int32_t *indices) {
    const request_t *request = run->request;
    int64_t wanted = request->num_beams == 1 ? 1 : 2 * request->num_beams, count = 0;
    for (int64_t row = 0; row < run->beams; row++) {
        float *logits = row_of(run, run->model->logits, first_row + row);
        const hypothesis_t *hypothesis = search->running + row;
        float total = 0;
        int64_t found = 1;
        if (request->forced[search->source] && hypothesis->length == request->limits[search->source] - 1) {
            values[0] = 0;
            indices[0] = (int32_t)request->end_token;
        } else {
            if (request->num_beams > 1 || request->scores)
                total = run->model->kernels->log_sum_exp(logits, (long)run->model->vocabulary);
            forbid(request, hypothesis, logits);
            found = run->model->kernels->top(logits, (long)run->model->vocabulary, (long)wanted, values, indices);
        }
        for (int64_t i = 0; i < found; i++) {
            float score = hypothesis->score + (values[i] - total);
            int64_t place = count < wanted ? count++ : wanted;
            if (place == wanted && !(score > best[wanted - 1].score)) break; /* the others are worse still */
            if (place == wanted) place--;
            for (; place > 0 && best[place - 1].score < score; place--) best[place] = best[place - 1];
            best[place] = (candidate_t){score, (int32_t)row, indices[i]};
        }
    }
    return count;
}

static void extend(hypothesis_t *to, const hypothesis_t *from, candidate_t candidate) {
    memcpy(to->tokens, from->tokens, (size_t)from->length * 4);
    to->tokens[from->length] = candidate.token;
    to->length = from->length + 1;
    to->score = candidate.score;
}

/* Keeps a finished hypothesis if it is among the best. */
static void finish(search_t *search, int64_t num_beams, const hypothesis_t *from, candidate_t candidate, float score) {
    hypothesis_t *finished = search->finished;
    int64_t place = search->num_finished;
    if (place == num_beams) {
        if (score <= finished[num_beams - 1].score) return;
        place--;
    } else {
        search->num_finished++;
    }
    hypothesis_t slot = finished[place];
    for (; place > 0 && finished[place - 1].score < score; place--) finished[place] = finished[place - 1];
    extend(&slot, from, candidate);
    slot.score = score;
    finished[place] = slot;
}

/* Advances one source by a token. Fills `parents` (rows among those of the source) of its next hypotheses; returns
 * whether it goes on. These are the rules of transformers' beam search. */
static int advance(run_t *run, search_t *search, const candidate_t *best, int64_t count, int64_t *parents) {
    const request_t *request = run->request;
    int64_t num_beams = request->num_beams, length = run->step + 1, kept = 0;
    int at_limit = length == request->limits[search->source];
    int full = search->num_finished == num_beams && request->early_stopping == 1;
    float divisor = powf((float)length, request->length_penalty);
    for (int64_t i = 0; i < count; i++) {
        int ends = at_limit || best[i].token == request->end_token;
        if (ends && i < num_beams && !full)
            finish(search, num_beams, search->running + best[i].row, best[i], best[i].score / divisor);
        if (!ends && kept < num_beams) {
            extend(search->next + kept, search->running + best[i].row, best[i]);
            parents[kept++] = best[i].row;
        }
    }
    hypothesis_t *next = search->next;
    search->next = search->running;
    search->running = next;
    if (at_limit || kept < num_beams) return 0;
    if (search->num_finished < num_beams) return 1;
    if (num_beams == 1 || request->early_stopping == 1) return 0;
    int hopes = request->early_stopping == 2 && request->length_penalty > 0;
    float reachable = hopes ? powf((float)request->longest, request->length_penalty) : divisor;
    return search->running[0].score / reachable > search->finished[num_beams - 1].score;
}

static hypothesis_t *new_hypotheses(run_t *run, int64_t count) {
    hypothesis_t *hypotheses = take_zeros(run, count * (int64_t)sizeof(hypothesis_t));
    int32_t *tokens = take(run, count * run->request->longest * 4);
    for (int64_t i = 0; i < count; i++) hypotheses[i].tokens = tokens + i * run->request->longest;
    return hypotheses;
}

/* Moves the states and the ancestors of the hypotheses to their new rows. */
static void reorder(run_t *run, const int64_t *parent_rows, int64_t rows) {
    int64_t longest = run->request->longest;
    for (int i = 0; i < run->model->num_buffers; i++) {
        if (space_of(run, i) != OF_STATES) continue;
        for (int64_t row = 0; row < rows; row++)
            memcpy(run->spare[i] + row * width_of(run, i), row_of(run, i, parent_rows[row]),
                   (size_t)width_of(run, i) * 4);
        float *values = run->values[i];
        run->values[i] = run->spare[i];
        run->spare[i] = values;
    }
    for (int64_t row = 0; row < rows; row++) {
        int32_t *ancestors = run->new_ancestors + row * longest;
        memcpy(ancestors, run->ancestors + parent_rows[row] * longest, (size_t)run->step * 4);
        ancestors[run->step] = (int32_t)parent_rows[row];
    }
    int32_t *ancestors = run->ancestors;
    run->ancestors = run->new_ancestors;
    run->new_ancestors = ancestors;
}

static void write_results(const request_t *request, const search_t *search) {
    for (int64_t i = 0; i < request->num_returned; i++) {
        int64_t place = search->source * request->num_returned + i;
        int64_t *tokens = request->tokens + place * request->longest;
        const hypothesis_t *hypothesis = i < search->num_finished ? search->finished + i : NULL;
        int64_t length = hypothesis ? hypothesis->length : 0;
        for (int64_t j = 0; j < request->longest; j++)
            tokens[j] = j < length ? hypothesis->tokens[j] : request->pad_token;
        if (request->scores) request->scores[place] = hypothesis ? hypothesis->score : -1e9f;
    }
}

void decode(run_t *run) {
    const request_t *request = run->request;
    int64_t num_sources = request->num_sources, num_beams = request->num_beams, most = num_sources * num_beams;
    search_t *searches = take(run, num_sources * (int64_t)sizeof(search_t));
    int64_t *parents = take(run, most * 8);
    candidate_t *best = take(run, (2 * num_beams + 1) * (int64_t)sizeof(candidate_t));
    float *values = take(run, (2 * num_beams + 1) * 4);
    int32_t *indices = take(run, (2 * num_beams + 1) * 4);
    for (int64_t i = 0; i < num_sources; i++) {
        searches[i] = (search_t){.source = i};
        searches[i].running = new_hypotheses(run, num_beams);
        searches[i].next = new_hypotheses(run, num_beams);
        searches[i].finished = new_hypotheses(run, num_beams);
        run->row_source[i] = i;
        run->tokens[i] = request->start_token;
    }
    /* All beams begin alike: the first step has one row for each source. */
    run->rows = num_sources;
    run->beams = 1;
    for (run->step = 0; run->step < request->longest && run->rows; run->step++) {
        run_program(run, 1);
        if (run->step == 0 && request->first_logits)
            memcpy(request->first_logits, run->values[run->model->logits],
                   (size_t)(num_sources * run->model->vocabulary) * 4);
        int64_t active = 0, rows = 0;
        for (int64_t i = 0; i * run->beams < run->rows; i++) {
            search_t search = searches[i];
            int64_t first_row = i * run->beams, count = continuations(run, &search, first_row, best, values, indices);
            if (!advance(run, &search, best, count, parents + rows)) {
                write_results(request, &search);
                continue;
            }
            for (int64_t j = 0; j < num_beams; j++) {
                parents[rows + j] += first_row;
                run->tokens[rows + j] = search.running[j].tokens[run->step];
            }
            searches[active++] = search;
            rows += num_beams;
        }
        reorder(run, parents, rows);
        for (int64_t row = 0; row < rows; row++) run->row_source[row] = searches[row / num_beams].source;
        run->rows = rows;
        run->beams = num_beams;
    }
}
