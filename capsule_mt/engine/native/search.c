/* Greedy and beam search, by the rules of transformers' `generate()`. */
#include "lists.h"

#include <math.h>

typedef struct {
    float score; /* without the tokens of a prefix and a forced end; with the length penalty once it is finished */
    int64_t length;
    int32_t *tokens;
    float *log_probs; /* of all tokens */
    int32_t *rows;    /* the row that it had at each step, once it is finished, if attention is read */
} hypothesis_t;

/* The search for the translations of one source. */
typedef struct {
    int64_t source, num_finished;
    int64_t rows; /* in this step: 1 until its hypotheses differ, then one for each beam; 0 after the last token */
    const int64_t *prefix; /* the tokens that its translations begin with */
    int64_t prefix_length;
    list_t list;
    float *unpenalized; /* the logits of the start token and the tokens so far, before `repetition_penalty`, or NULL */
    hypothesis_t *running, *next, *finished; /* [num_beams] each; `next` becomes `running` */
} search_t;

typedef struct {
    float score, log_prob; /* `log_prob` is of this token alone */
    int32_t row, token;    /* the row among the source's rows */
} candidate_t;

/* The best continuations of a source in one step, best first. */
typedef struct {
    candidate_t *best;
    int64_t count, max_count;
    float *values; /* scratch of `top`, as `indices` */
    int32_t *indices;
} beam_t;

/* ---- which tokens may come next */

static void forbid_token(const list_t *list, int64_t token, float *logits) {
    int64_t index = index_of(list, token);
    if (index >= 0) logits[index] = -INFINITY;
}

/* The token of a hypothesis at a position; the start token has the first. */
static int64_t token_at(const request_t *request, const hypothesis_t *hypothesis, int64_t position) {
    return position ? hypothesis->tokens[position - 1] : request->start_token;
}

/* Applies `repetition_penalty` as transformers does: to logits in a greedy search, which takes no softmax, and to
 * log-probabilities in beam search. All are read before the first is written, so a token that came twice is penalized
 * once. */
static void penalize_repetition(const request_t *request, const search_t *search, const hypothesis_t *hypothesis,
                                float total, float *logits) {
    float penalty = request->repetition_penalty, shift = request->num_beams > 1 ? total : 0;
    if (!search->unpenalized) return;
    for (int64_t i = 0; i <= hypothesis->length; i++) {
        int64_t index = index_of(&search->list, token_at(request, hypothesis, i));
        if (index >= 0) search->unpenalized[i] = logits[index];
    }
    for (int64_t i = 0; i <= hypothesis->length; i++) {
        int64_t index = index_of(&search->list, token_at(request, hypothesis, i));
        if (index < 0) continue;
        float value = search->unpenalized[i] - shift;
        logits[index] = shift + (value < 0 ? value * penalty : value / penalty);
    }
}

/* The model's own logit of a candidate: a token reports the log-probability that a forced pass gives it. */
static float model_logit(const request_t *request, const search_t *search, const hypothesis_t *hypothesis,
                         int64_t token, float logit) {
    if (!search->unpenalized) return logit;
    for (int64_t i = 0; i <= hypothesis->length; i++)
        if (token_at(request, hypothesis, i) == token) return search->unpenalized[i];
    return logit;
}

/* Forbids every token that would complete an n-gram for the second time; the start token counts, as in transformers. */
static void forbid_repeated(const request_t *request, const list_t *list, const hypothesis_t *hypothesis,
                            float *logits) {
    int64_t n = request->no_repeat_ngram_size, length = hypothesis->length + 1;
    if (n <= 0 || length + 1 < n) return;
    for (int64_t i = 0; i + n <= length; i++) {
        int64_t j = 0;
        while (j < n - 1 && token_at(request, hypothesis, i + j) == token_at(request, hypothesis, length - n + 1 + j))
            j++;
        if (j == n - 1) forbid_token(list, token_at(request, hypothesis, i + n - 1), logits);
    }
}

static void forbid(const request_t *request, const list_t *list, const hypothesis_t *hypothesis, float *logits) {
    for (int64_t i = 0; i < request->num_suppress_tokens; i++) forbid_token(list, request->suppress_tokens[i], logits);
    forbid_repeated(request, list, hypothesis, logits);
    if (hypothesis->length < request->min_new_tokens && request->end_token >= 0)
        forbid_token(list, request->end_token, logits);
}

/* ---- probabilities */

typedef struct {
    run_t *run;
    const list_t *lists; /* of each source */
    char *scratch;
    int64_t scratch_size; /* of each thread */
} sums_t;

static void sum_rows(void *context, int64_t first, int64_t end, int thread) {
    const sums_t *sums = context;
    run_t *run = sums->run;
    for (int64_t row = first; row < end; row++) {
        long count;
        float *memory = (float *)(sums->scratch + thread * sums->scratch_size);
        const float *logits = logits_of(run, &sums->lists[run->rows.source[row]], row, memory, &count);
        run->logits.totals[row] = run->model->kernels->log_sum_exp(logits, count);
    }
}

/* Whether a search needs the softmax: a greedy search for tokens alone does not. */
static int is_scored(const request_t *request) { return request->num_beams > 1 || request->scored; }

/* Lets the threads fill in `totals`. */
static void sum_exponentials(run_t *run, const list_t *lists) {
    sums_t sums = {run, lists, NULL, run->request->num_candidates * 4};
    int64_t count = run->request->candidates ? run->request->num_candidates : run->model->vocabulary;
    sums.scratch = scratch_of_threads(run, &sums.scratch_size);
    team_share(run->team, run->rows.count, count * 32, sum_rows, &sums);
}

/* The log-probability of a token, or 0 if the shortlist lacks it. */
static float log_prob_of(const list_t *list, int64_t token, const float *logits, float total) {
    int64_t index = index_of(list, token);
    return index < 0 ? 0 : logits[index] - total;
}

/* ---- a step of a source */

static int follows_prefix(const search_t *search) { return search->running->length < search->prefix_length; }

/* The continuation by the next token of the prefix: its score stays, as transformers' does of decoder_input_ids. */
static candidate_t follow_prefix(const request_t *request, const search_t *search, const float *logits, float total) {
    const hypothesis_t *hypothesis = search->running;
    int32_t token = (int32_t)search->prefix[hypothesis->length];
    float log_prob = is_scored(request) ? log_prob_of(&search->list, token, logits, total) : 0;
    return (candidate_t){hypothesis->score, log_prob, 0, token};
}

/* Inserts a candidate by its score, behind equal ones; returns whether it is among the best. */
static int add_candidate(beam_t *beam, candidate_t candidate) {
    candidate_t *best = beam->best;
    int64_t rank = beam->count;
    if (rank == beam->max_count) {
        if (!(candidate.score > best[--rank].score)) return 0;
    } else {
        beam->count++;
    }
    for (; rank > 0 && best[rank - 1].score < candidate.score; rank--) best[rank] = best[rank - 1];
    best[rank] = candidate;
    return 1;
}

/* Fills in the best continuations of the hypotheses of a source. */
static void find_continuations(run_t *run, const search_t *search, int64_t first_row, beam_t *beam) {
    const request_t *request = run->request;
    const kernels_t *kernels = run->model->kernels;
    const list_t *list = &search->list;
    beam->count = 0;
    for (int64_t row = 0; row < search->rows; row++) {
        const hypothesis_t *hypothesis = search->running + row;
        float *totals = run->logits.totals + first_row + row;
        long count;
        float *memory = scratch_of(run, list->length * 4);
        float *logits = logits_of(run, list, first_row + row, memory, &count);
        float forced_log_prob = 0;
        int64_t num_values = 1;
        int is_forced = 0;
        if (!run->team && is_scored(request)) *totals = kernels->log_sum_exp(logits, count); /* while they are in the cache */
        float total = is_scored(request) ? *totals : 0;
        if (follows_prefix(search)) {
            beam->best[0] = follow_prefix(request, search, logits, total);
            beam->count = 1;
            return;
        }
        if (request->forced[search->source] && hypothesis->length == request->limits[search->source] - 1) {
            /* transformers gives a forced end the probability 1: the score stays; `log_probs` has the model's own */
            beam->values[0] = total;
            if (is_scored(request)) forced_log_prob = log_prob_of(list, request->end_token, logits, total);
            is_forced = 1;
        } else if (run->logits.is_previewed) {
            beam->indices[0] = run->logits.best[first_row + row];
            beam->values[0] = 0;
        } else {
            penalize_repetition(request, search, hypothesis, total, logits);
            forbid(request, list, hypothesis, logits);
            if (request->renormalize_logits && is_scored(request)) total = kernels->log_sum_exp(logits, count);
            num_values = kernels->top(logits, count, (long)beam->max_count, beam->values, beam->indices);
        }
        for (int64_t i = 0; i < num_values; i++) {
            int32_t token = (int32_t)request->end_token; /* a forced end, which the list may lack */
            if (!is_forced) token = list->tokens ? list->tokens[beam->indices[i]] : beam->indices[i];
            float score = hypothesis->score + (beam->values[i] - total), logit = beam->values[i];
            if (!is_forced && !request->renormalize_logits)
                logit = model_logit(request, search, hypothesis, token, logit);
            candidate_t candidate = {score, forced_log_prob + (logit - total), (int32_t)row, token};
            if (!add_candidate(beam, candidate)) break; /* the next values are smaller still */
        }
    }
}

static void extend(hypothesis_t *extended, const hypothesis_t *hypothesis, candidate_t candidate) {
    memcpy(extended->tokens, hypothesis->tokens, (size_t)hypothesis->length * 4);
    memcpy(extended->log_probs, hypothesis->log_probs, (size_t)hypothesis->length * 4);
    extended->tokens[hypothesis->length] = candidate.token;
    extended->log_probs[hypothesis->length] = candidate.log_prob;
    extended->length = hypothesis->length + 1;
    extended->score = candidate.score;
}

/* Keeps a finished hypothesis if it is among the best. */
static void finish(const run_t *run, search_t *search, int64_t first_row, candidate_t candidate, float score) {
    hypothesis_t *finished = search->finished;
    int64_t rank = search->num_finished, num_beams = run->request->num_beams;
    if (rank == num_beams) {
        if (score <= finished[num_beams - 1].score) return;
        rank--;
    } else {
        search->num_finished++;
    }
    hypothesis_t slot = finished[rank]; /* its memory is reused: it is unused yet, or the worst hypothesis */
    for (; rank > 0 && finished[rank - 1].score < score; rank--) finished[rank] = finished[rank - 1];
    extend(&slot, search->running + candidate.row, candidate);
    slot.score = score;
    if (slot.rows) {
        int64_t row = first_row + candidate.row;
        memcpy(slot.rows, run->rows.ancestors + row * run->rows.max_steps, (size_t)run->rows.step * 4);
        slot.rows[run->rows.step] = (int32_t)row;
    }
    finished[rank] = slot;
}

#define LONGEST_CYCLE 16

/* Whether the last `most_repeated` tokens of a hypothesis and a candidate repeat a cycle of 1 to 16 tokens. */
static int repeats_itself(const request_t *request, const search_t *search, candidate_t candidate) {
    const hypothesis_t *hypothesis = search->running + candidate.row;
    int64_t num_repeated = request->most_repeated, last = hypothesis->length;
    if (num_repeated <= 0 || last < search->prefix_length) return 0; /* a prefix may repeat itself */
#define TOKEN(i) ((i) == last ? candidate.token : hypothesis->tokens[i])
    for (int64_t cycle = 1; cycle <= LONGEST_CYCLE && cycle + num_repeated <= last + 1; cycle++) {
        int64_t i = 0;
        while (i < num_repeated && TOKEN(last - i) == TOKEN(last - i - cycle)) i++;
        if (i == num_repeated) return 1;
    }
    return 0;
}

/* Whether no running hypothesis can become better than the worst finished one, by `early_stopping`. */
static int is_decided(const run_t *run, const search_t *search, float divisor) {
    const request_t *request = run->request;
    int64_t num_beams = request->num_beams;
    if (search->num_finished < num_beams) return 0;
    if (num_beams == 1 || request->early_stopping == 1) return 1;
    /* With "never" and a penalty that favours length, transformers divides by the longest length there may be; else by
     * this step's, a guess that a longer hypothesis could prove wrong. */
    if (request->early_stopping == 2 && request->length_penalty > 0)
        divisor = powf((float)request->limits[search->source], request->length_penalty);
    return !(search->running[0].score / divisor > search->finished[num_beams - 1].score);
}

/* Advances one source by a token, its last one if it `finishes`. Fills in `parents`, the rows of its next hypotheses;
 * returns whether it goes on. */
static int advance(run_t *run, search_t *search, int64_t first_row, const beam_t *beam, int finishes, int64_t *parents) {
    const request_t *request = run->request;
    int64_t num_beams = request->num_beams, length = run->rows.step + 1, num_running = 0;
    search->rows = follows_prefix(search) ? 1 : num_beams;
    int at_limit = finishes || length == request->limits[search->source];
    int is_full = search->num_finished == num_beams && request->early_stopping == 1;
    float divisor = powf((float)length, request->length_penalty);
    /* There are two candidates a beam: if half of them end, the others still fill the beams. One that ends counts only if
     * it is among the first `num_beams`, as in transformers. */
    for (int64_t i = 0; i < beam->count; i++) {
        candidate_t candidate = beam->best[i];
        int ends = at_limit || candidate.token == request->end_token || repeats_itself(request, search, candidate);
        if (ends && i < num_beams && !is_full && candidate.score > -INFINITY)
            finish(run, search, first_row, candidate, candidate.score / divisor);
        if (!ends && num_running < search->rows) {
            extend(search->next + num_running, search->running + candidate.row, candidate);
            parents[num_running++] = first_row + candidate.row;
        }
    }
    hypothesis_t *next = search->next;
    search->next = search->running;
    search->running = next;
    if (at_limit || num_running < search->rows) return 0; /* too few tokens are allowed to fill the beams */
    return !is_decided(run, search, divisor);
}

void reorder(run_t *run, const int64_t *parent_rows, int64_t count) {
    int64_t max_steps = run->rows.max_steps, step = run->rows.step;
    for (int i = 0; i < run->model->num_buffers; i++) {
        if (space_of(run, i) != OF_STATES) continue;
        for (int64_t row = 0; row < count; row++)
            memcpy(run->spare[i] + row * width_of(run, i), row_of(run, i, parent_rows[row]),
                   (size_t)width_of(run, i) * 4);
        float *values = run->values[i];
        run->values[i] = run->spare[i];
        run->spare[i] = values;
    }
    /* Keys and values stay where they were written: a hypothesis finds them by its ancestors. */
    for (int64_t row = 0; row < count; row++) {
        int32_t *ancestors = run->rows.new_ancestors + row * max_steps;
        memcpy(ancestors, run->rows.ancestors + parent_rows[row] * max_steps, (size_t)step * 4);
        ancestors[step] = (int32_t)parent_rows[row];
    }
    int32_t *ancestors = run->rows.ancestors;
    run->rows.ancestors = run->rows.new_ancestors;
    run->rows.new_ancestors = ancestors;
}

/* ---- results */

/* Writes what the head attends to in each step of a hypothesis; zeros if that is an end token alone. */
static void write_attention(const run_t *run, const search_t *search, const hypothesis_t *hypothesis, float *target) {
    int64_t width = run->request->longest_source, num_words = run->request->lengths[search->source];
    int is_empty = hypothesis->tokens[0] == run->request->end_token;
    for (int64_t t = 0; t < hypothesis->length; t++, target += width) {
        if (is_empty) memset(target, 0, (size_t)num_words * 4);
        else memcpy(target, attended_by(run, t, hypothesis->rows[t]), (size_t)num_words * 4);
    }
}

static void write_results(const run_t *run, const search_t *search) {
    const request_t *request = run->request;
    for (int64_t i = 0; i < request->num_return_sequences; i++) {
        int64_t index = search->source * request->num_return_sequences + i, longest_source = request->longest_source;
        int64_t *tokens = request->tokens + index * request->longest;
        const hypothesis_t *hypothesis = i < search->num_finished ? search->finished + i : NULL;
        int64_t length = request->translation_lengths[index] = hypothesis ? hypothesis->length : 0;
        for (int64_t j = 0; j < request->longest; j++)
            tokens[j] = j < length ? hypothesis->tokens[j] : request->pad_token;
        request->scores[index] = hypothesis ? hypothesis->score : -1e9f;
        if (hypothesis)
            memcpy(request->log_probs + index * request->longest, hypothesis->log_probs, (size_t)length * 4);
        if (run->attended && hypothesis)
            write_attention(run, search, hypothesis, request->attention + index * request->longest * longest_source);
    }
}

/* ---- the search */

/* The searches that still go on, in the order of their rows. */
typedef struct {
    search_t *searches;
    int64_t count;
    list_t *lists;    /* of each source */
    int64_t *parents; /* of each row of the next step */
    beam_t beam;
} decoding_t;

static hypothesis_t *new_hypotheses(run_t *run, int64_t count) {
    hypothesis_t *hypotheses = take_zeros(run, count * (int64_t)sizeof(hypothesis_t));
    int64_t longest = run->request->longest, max_steps = run->rows.max_steps;
    int32_t *tokens = take(run, count * longest * 4);
    float *log_probs = take(run, count * longest * 4);
    int32_t *rows = run->attended ? take(run, count * max_steps * 4) : NULL;
    for (int64_t i = 0; i < count; i++) {
        hypotheses[i].tokens = tokens + i * longest;
        hypotheses[i].log_probs = log_probs + i * longest;
        hypotheses[i].rows = rows ? rows + i * max_steps : NULL;
    }
    return hypotheses;
}

/* Every source begins with one hypothesis, of the start token. */
static decoding_t start_decoding(run_t *run) {
    const request_t *request = run->request;
    int64_t num_sources = request->num_sources, num_beams = request->num_beams, num_listed = 0;
    decoding_t decoding = {.count = num_sources};
    beam_t *beam = &decoding.beam;
    decoding.searches = take(run, num_sources * (int64_t)sizeof(search_t));
    decoding.lists = take(run, num_sources * (int64_t)sizeof(list_t));
    decoding.parents = take(run, run->rows.max_count * 8);
    beam->max_count = num_beams == 1 ? 1 : 2 * num_beams;
    beam->best = take(run, (2 * num_beams + 1) * (int64_t)sizeof(candidate_t));
    beam->values = take(run, (2 * num_beams + 1) * 4);
    beam->indices = take(run, (2 * num_beams + 1) * 4);
    const int64_t *prefix = request->prefixes;
    float *unpenalized = request->repetition_penalty == 1 ? NULL : take(run, (request->longest + 1) * 4);
    for (int64_t i = 0; i < num_sources; i++) {
        search_t *search = decoding.searches + i;
        *search = (search_t){.source = i, .rows = 1, .unpenalized = unpenalized};
        search->running = new_hypotheses(run, num_beams);
        search->next = new_hypotheses(run, num_beams);
        search->finished = new_hypotheses(run, num_beams);
        search->list = decoding.lists[i] = list_of(run, i, &num_listed);
        if (prefix) {
            search->prefix = prefix;
            prefix += search->prefix_length = request->prefix_lengths[i];
        }
        run->rows.source[i] = i;
        run->rows.tokens[i] = request->start_token;
    }
    run->rows.count = num_sources;
    return decoding;
}

/* Takes the next token of a source, whose rows begin at `first_row` now and at `new_row` in the next step. */
static void step_source(run_t *run, decoding_t *decoding, search_t *search, int64_t first_row, int64_t new_row,
                        int finishes) {
    int64_t *parents = decoding->parents + new_row;
    find_continuations(run, search, first_row, &decoding->beam);
    if (!advance(run, search, first_row, &decoding->beam, finishes, parents)) search->rows = 0;
    for (int64_t i = 0; i < search->rows; i++)
        run->rows.tokens[new_row + i] = search->running[i].tokens[run->rows.step];
}

/* Takes the next token of every source; writes the results of those that are done, and moves the others up. Returns the
 * rows of the next step. */
static int64_t step_sources(run_t *run, decoding_t *decoding, int finishes) {
    int64_t num_active = 0, first_row = 0, new_row = 0;
    for (int64_t i = 0; i < decoding->count; i++) {
        search_t search = decoding->searches[i];
        int64_t rows = search.rows;
        step_source(run, decoding, &search, first_row, new_row, finishes);
        first_row += rows;
        if (search.rows) {
            decoding->searches[num_active++] = search;
            new_row += search.rows;
        } else {
            write_results(run, &search);
        }
    }
    decoding->count = num_active;
    return new_row;
}

/* Moves what rows keep to their rows of the next step. */
static void move_rows(run_t *run, const decoding_t *decoding, int64_t count) {
    reorder(run, decoding->parents, count);
    for (int64_t i = 0, row = 0; i < decoding->count; i++) {
        const search_t *search = decoding->searches + i;
        for (int64_t end = row + search->rows; row < end; row++)
            run->rows.source[row] = search->source;
    }
    run->rows.count = count;
}

/* Whether nothing reads the logits of this step: all sources follow their prefixes, and scores are not requested. */
static int reads_no_logits(const run_t *run, const decoding_t *decoding) {
    if (FORBIDS_PREVIEW(run->request)) return 0;
    for (int64_t i = 0; i < decoding->count; i++)
        if (!follows_prefix(decoding->searches + i)) return 0;
    return 1;
}

void decode(run_t *run) {
    const request_t *request = run->request;
    decoding_t decoding = start_decoding(run);
    for (run->rows.step = 0; run->rows.step < run->rows.max_steps && run->rows.count; run->rows.step++) {
        if (run->team) team_step(run->team, run->rows.step, seconds());
        run->logits.is_unread = reads_no_logits(run, &decoding);
        run_program(run, DECODER);
        if (run->rows.step == 0 && request->first_logits)
            memcpy(request->first_logits, run->values[run->model->logits],
                   (size_t)(request->num_sources * run->model->vocabulary) * 4);
        if (run->team && is_scored(request)) sum_exponentials(run, decoding.lists);
        move_rows(run, &decoding, step_sources(run, &decoding, should_finish(run)));
    }
}
