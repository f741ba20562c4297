/* Greedy and beam search, by the rules of transformers' `generate()`. */
#include "run.h"

#include <math.h>

typedef struct {
    float score;     /* of a finished one with the length penalty; a prefix and a forced end are left out */
    float agreement; /* to the last token, if PAST and FUTURE are read */
    int64_t length;
    int32_t *tokens;
    float *log_probs; /* of all tokens */
    int32_t *rows; /* of a finished one, if something is read: the row that it had at each step */
} hypothesis_t;

/* The tokens that a source may write, ascending; all if `tokens` is NULL. */
typedef struct {
    int64_t length;
    const int32_t *places; /* among the candidates */
    int32_t *tokens;
} list_t;

typedef struct {
    int64_t source, num_finished;
    int64_t rows; /* in this step: one until its hypotheses differ, then one for each beam; none after the last token */
    int64_t read_rows; /* after these: they only read the last tokens of finished hypotheses, for PAST and FUTURE */
    const int64_t *prefix; /* what its translations begin with */
    int64_t prefix_length;
    list_t list;
    float *unpenalized; /* the logits of the start token and the tokens so far, before `repetition_penalty`, or NULL */
    hypothesis_t *running, *next, *finished; /* [num_beams] each; `next` becomes `running` */
} search_t;

typedef struct {
    float score, log_prob, agreement; /* `log_prob` is of this token alone */
    int32_t row, token;               /* the row among the source's rows */
} candidate_t;

/* The place of a token in a list, or -1. */
static int64_t place_of(const list_t *list, int64_t token) {
    if (!list->tokens) return token;
    int64_t first = 0, end = list->length;
    while (first < end) {
        int64_t middle = (first + end) / 2;
        if (list->tokens[middle] < token) first = middle + 1;
        else end = middle;
    }
    return first < list->length && list->tokens[first] == token ? first : -1;
}

static void forbid_token(const list_t *list, int64_t token, float *logits) {
    int64_t place = place_of(list, token);
    if (place >= 0) logits[place] = -INFINITY;
}

/* The token of a hypothesis at a position, of which the start token has the first. */
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
        int64_t place = place_of(&search->list, token_at(request, hypothesis, i));
        if (place >= 0) search->unpenalized[i] = logits[place];
    }
    for (int64_t i = 0; i <= hypothesis->length; i++) {
        int64_t place = place_of(&search->list, token_at(request, hypothesis, i));
        if (place < 0) continue;
        float value = search->unpenalized[i] - shift;
        logits[place] = shift + (value < 0 ? value * penalty : value / penalty);
    }
}

/* The logit of a candidate as the model gave it: what a token reports is the model's own log-probability. */
static float own_logit(const request_t *request, const search_t *search, const hypothesis_t *hypothesis, int64_t token,
                       float logit) {
    if (!search->unpenalized) return logit;
    for (int64_t i = 0; i <= hypothesis->length; i++)
        if (token_at(request, hypothesis, i) == token) return search->unpenalized[i];
    return logit;
}

/* Forbids every token that would complete an n-gram for the second time; the start token counts. */
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

/* The logits of what a source may write, and how many they are; those of a list are put into `logits`. */
static float *logits_of(const run_t *run, const list_t *list, int64_t row, float *logits, long *count) {
    *count = list->tokens ? (long)list->length : (long)run->model->vocabulary;
    if (!list->tokens) return row_of(run, run->model->logits, row);
    const float *all = run->values[run->model->logits] + row * run->request->num_candidates;
    for (int64_t i = 0; i < list->length; i++) logits[i] = all[list->places[i]];
    return logits;
}

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
        const float *logits = logits_of(run, &sums->lists[run->row_source[row]], row, memory, &count);
        run->totals[row] = run->model->kernels->log_sum_exp(logits, count);
    }
}

/* A greedy search for tokens alone takes no exponentials. */
static int is_scored(const request_t *request) { return request->num_beams > 1 || !request->unscored; }

/* Fills in `totals`. */
static void sum_exponentials(run_t *run, const list_t *lists) {
    sums_t sums = {run, lists, NULL, run->request->num_candidates * 4};
    int64_t count = run->request->candidates ? run->request->num_candidates : run->model->vocabulary;
    sums.scratch = scratch_of_threads(run, &sums.scratch_size);
    team_share(run->team, run->rows, count * 32, sum_rows, &sums);
}

/* The log-probability of a token, or 0 where a shortlist is without it. */
static float log_prob_of(const list_t *list, int64_t token, const float *logits, float total) {
    int64_t place = place_of(list, token);
    return place < 0 ? 0 : logits[place] - total;
}

/* How much the model agrees to a token, given its two best. */
static float agreement_to(const list_t *list, int64_t token, const float *logits, const float *best_two,
                          const int32_t *best_places) {
    int64_t place = place_of(list, token);
    if (place < 0) return 0;
    return 1 / (1 + expf((place == best_places[0] ? best_two[1] : best_two[0]) - logits[place]));
}

/* The continuation by the next token of the prefix. */
static candidate_t follow_prefix(const run_t *run, const search_t *search, const float *logits, float total,
                                 const float *best_two, const int32_t *best_places) {
    const hypothesis_t *hypothesis = search->running;
    int32_t token = (int32_t)search->prefix[hypothesis->length];
    float log_prob = log_prob_of(&search->list, token, logits, total);
    float agreement = run->curves ? agreement_to(&search->list, token, logits, best_two, best_places) : 0;
    return (candidate_t){hypothesis->score, log_prob, agreement, 0, token};
}

static int follows_prefix(const search_t *search) { return search->running->length < search->prefix_length; }

/* The best continuations of the hypotheses of a source, best first; returns how many. */
static int64_t continuations(run_t *run, const search_t *search, int64_t first_row, candidate_t *best, float *values,
                             int32_t *indices) {
    const request_t *request = run->request;
    const kernels_t *kernels = run->model->kernels;
    const list_t *list = &search->list;
    int64_t wanted = request->num_beams == 1 ? 1 : 2 * request->num_beams, kept = 0;
    for (int64_t row = 0; row < search->rows; row++) {
        long count;
        float *memory = scratch_of(run, list->length * 4), *logits = logits_of(run, list, first_row + row, memory, &count);
        const hypothesis_t *hypothesis = search->running + row;
        float total = 0, forced = 0, best_two[2] = {-INFINITY, -INFINITY};
        int32_t best_places[2] = {-1, -1};
        int64_t found = 1;
        int is_forced = 0;
        if (!run->team && is_scored(request)) /* while the logits are in the cache */
            run->totals[first_row + row] = kernels->log_sum_exp(logits, count);
        total = is_scored(request) ? run->totals[first_row + row] : 0;
        if (run->curves) kernels->top(logits, count, 2, best_two, best_places);
        if (follows_prefix(search)) {
            best[0] = follow_prefix(run, search, logits, total, best_two, best_places);
            return 1;
        }
        if (request->forced[search->source] && hypothesis->length == request->limits[search->source] - 1) {
            values[0] = total;
            indices[0] = (int32_t)place_of(list, request->end_token);
            if (is_scored(request)) forced = log_prob_of(list, request->end_token, logits, total);
            is_forced = 1;
        } else if (run->is_previewed) {
            indices[0] = run->best[first_row + row];
            values[0] = 0;
        } else {
            penalize_repetition(request, search, hypothesis, total, logits);
            forbid(request, list, hypothesis, logits);
            if (request->renormalize_logits && is_scored(request)) total = kernels->log_sum_exp(logits, count);
            found = kernels->top(logits, count, (long)wanted, values, indices);
        }
        for (int64_t i = 0; i < found; i++) {
            float score = hypothesis->score + (values[i] - total), logit = values[i];
            int64_t place = kept < wanted ? kept++ : wanted;
            if (place == wanted && !(score > best[wanted - 1].score)) break; /* the others are worse still */
            if (place == wanted) place--;
            for (; place > 0 && best[place - 1].score < score; place--) best[place] = best[place - 1];
            float rival = indices[i] == best_places[0] ? best_two[1] : best_two[0];
            int32_t token = list->tokens ? list->tokens[indices[i]] : indices[i];
            if (!is_forced && !request->renormalize_logits) logit = own_logit(request, search, hypothesis, token, logit);
            float agreement = run->curves ? 1 / (1 + expf(rival - logit)) : 0;
            best[place] = (candidate_t){score, forced + (logit - total), agreement, (int32_t)row, token};
        }
    }
    return kept;
}

static void extend(hypothesis_t *to, const hypothesis_t *from, candidate_t candidate) {
    memcpy(to->tokens, from->tokens, (size_t)from->length * 4);
    memcpy(to->log_probs, from->log_probs, (size_t)from->length * 4);
    to->tokens[from->length] = candidate.token;
    to->log_probs[from->length] = candidate.log_prob;
    to->length = from->length + 1;
    to->score = candidate.score;
    to->agreement = candidate.agreement;
}

/* Keeps a finished hypothesis if it is among the best. */
static void finish(const run_t *run, search_t *search, int64_t first_row, candidate_t candidate, float score) {
    hypothesis_t *finished = search->finished;
    int64_t place = search->num_finished, num_beams = run->request->num_beams;
    if (place == num_beams) {
        if (score <= finished[num_beams - 1].score) return;
        place--;
    } else {
        search->num_finished++;
    }
    hypothesis_t slot = finished[place];
    for (; place > 0 && finished[place - 1].score < score; place--) finished[place] = finished[place - 1];
    extend(&slot, search->running + candidate.row, candidate);
    slot.score = score;
    if (slot.rows) {
        int64_t row = first_row + candidate.row;
        memcpy(slot.rows, run->ancestors + row * run->most_steps, (size_t)run->step * 4);
        slot.rows[run->step] = (int32_t)row;
    }
    finished[place] = slot;
}

#define LONGEST_CYCLE 16

/* Whether the last tokens of a hypothesis with one more, as many as the request says, repeat those before them. */
static int repeats_itself(const request_t *request, const search_t *search, candidate_t candidate) {
    const hypothesis_t *hypothesis = search->running + candidate.row;
    int64_t most = request->most_repeated, last = hypothesis->length;
    if (most <= 0 || last < search->prefix_length) return 0;
#define TOKEN(i) ((i) == last ? candidate.token : hypothesis->tokens[i])
    for (int64_t cycle = 1; cycle <= LONGEST_CYCLE && cycle + most <= last + 1; cycle++) {
        int64_t i = 0;
        while (i < most && TOKEN(last - i) == TOKEN(last - i - cycle)) i++;
        if (i == most) return 1;
    }
#undef TOKEN
    return 0;
}

/* Advances one source by a token, its last one if it `finishes`. Fills `parents`, the rows of its next hypotheses;
 * returns whether it goes on. These are the rules of transformers' beam search. */
static int advance(run_t *run, search_t *search, int64_t first_row, const candidate_t *best, int64_t count,
                   int finishes, int64_t *parents) {
    const request_t *request = run->request;
    int64_t num_beams = request->num_beams, length = run->step + 1, kept = 0;
    search->rows = follows_prefix(search) ? 1 : num_beams;
    int at_limit = finishes || length == request->limits[search->source];
    int full = search->num_finished == num_beams && request->early_stopping == 1;
    float divisor = powf((float)length, request->length_penalty);
    for (int64_t i = 0; i < count; i++) {
        int ends = at_limit || best[i].token == request->end_token || repeats_itself(request, search, best[i]);
        if (ends && i < num_beams && !full && best[i].score > -INFINITY)
            finish(run, search, first_row, best[i], best[i].score / divisor);
        if (!ends && kept < search->rows) {
            extend(search->next + kept, search->running + best[i].row, best[i]);
            parents[kept++] = first_row + best[i].row;
        }
    }
    hypothesis_t *next = search->next;
    search->next = search->running;
    search->running = next;
    if (at_limit || kept < search->rows) return 0;
    if (search->num_finished < num_beams) return 1;
    if (num_beams == 1 || request->early_stopping == 1) return 0;
    int hopes = request->early_stopping == 2 && request->length_penalty > 0;
    float limit = (float)request->limits[search->source];
    float reachable = hopes ? powf(limit, request->length_penalty) : divisor;
    return search->running[0].score / reachable > search->finished[num_beams - 1].score;
}

/* Gives rows of the next step, from `new_row` on, to the hypotheses that end in this one with another token than the end
 * token: PAST and FUTURE have not read it, whether other hypotheses go on or not. Fills `parents` as `advance` does;
 * returns how many. */
static int64_t read_last_tokens(run_t *run, const search_t *search, int64_t new_row, int64_t *parents) {
    int64_t rows = 0;
    if (run->step + 1 >= run->most_steps) return 0; /* the model has no further position */
    for (int64_t i = 0; i < search->num_finished; i++) {
        hypothesis_t *hypothesis = search->finished + i;
        int32_t last = hypothesis->tokens[hypothesis->length - 1];
        if (hypothesis->length != run->step + 1 || last == run->request->end_token) continue;
        parents[rows] = hypothesis->rows[run->step];
        run->tokens[new_row + rows] = last;
        run->agreements[new_row + rows] = hypothesis->agreement;
        hypothesis->rows[run->step + 1] = (int32_t)(new_row + rows);
        rows++;
    }
    return rows;
}

static hypothesis_t *new_hypotheses(run_t *run, int64_t count) {
    hypothesis_t *hypotheses = take_zeros(run, count * (int64_t)sizeof(hypothesis_t));
    int32_t *tokens = take(run, count * run->request->longest * 4);
    float *log_probs = take(run, count * run->request->longest * 4);
    int32_t *rows = run->curves || run->attended ? take(run, count * run->most_steps * 4) : NULL;
    for (int64_t i = 0; i < count; i++) {
        hypotheses[i].tokens = tokens + i * run->request->longest;
        hypotheses[i].log_probs = log_probs + i * run->request->longest;
        hypotheses[i].rows = rows ? rows + i * run->most_steps : NULL;
    }
    return hypotheses;
}

void reorder(run_t *run, const int64_t *parent_rows, int64_t rows) {
    int64_t most_steps = run->most_steps;
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
        int32_t *ancestors = run->new_ancestors + row * most_steps;
        memcpy(ancestors, run->ancestors + parent_rows[row] * most_steps, (size_t)run->step * 4);
        ancestors[run->step] = (int32_t)parent_rows[row];
    }
    int32_t *ancestors = run->ancestors;
    run->ancestors = run->new_ancestors;
    run->new_ancestors = ancestors;
}

/* What the head attends to in each step of a hypothesis; nothing if that is empty. */
static void write_received(const run_t *run, const search_t *search, const hypothesis_t *hypothesis, float *received) {
    int64_t width = run->request->longest_source, num_words = run->request->lengths[search->source];
    int is_empty = hypothesis->tokens[0] == run->request->end_token;
    for (int64_t t = 0; t < hypothesis->length; t++, received += width) {
        if (is_empty) memset(received, 0, (size_t)num_words * 4);
        else memcpy(received, attended_by(run, t, hypothesis->rows[t]), (size_t)num_words * 4);
    }
}

void start_guided(const run_t *run, int64_t source, const float *curves, float *guided) {
    int64_t longest = run->request->longest_source, num_words = run->request->lengths[source];
    memset(guided, 0, (size_t)(4 * longest) * 4);
    memcpy(guided, curves, (size_t)num_words * 4);
    memcpy(guided + longest, curves + longest, (size_t)num_words * 4);
}

void add_guided(const run_t *run, int64_t source, const float *before, const float *after, float agreement,
                float *guided) {
    int64_t longest = run->request->longest_source;
    float *future = guided + longest, *fall = future + longest, *agreed = fall + longest;
    for (int64_t j = 0; j < run->request->lengths[source]; j++) {
        float step = fmaxf(before[longest + j] - after[longest + j], 0);
        fall[j] += step;
        agreed[j] += step * agreement;
        guided[j] = after[j];
        future[j] = after[longest + j];
    }
}

/* Sums up the curves of a hypothesis, or of none; see `guided` in engine.h. */
static void write_guided(const run_t *run, const search_t *search, const hypothesis_t *hypothesis, float *guided) {
    const request_t *request = run->request;
    int64_t last = hypothesis ? hypothesis->length : 0;
    int32_t first_row = (int32_t)search->source;
    const int32_t *rows = hypothesis ? hypothesis->rows : &first_row;
    while (last && (hypothesis->tokens[last - 1] == request->end_token ||
                    hypothesis->tokens[last - 1] == request->pad_token)) last--;
    if (last >= run->most_steps) last = run->most_steps - 1;
    start_guided(run, search->source, curves_of(run, 0, rows[0]), guided);
    for (int64_t t = 1; t <= last; t++) {
        const float *curves = curves_of(run, t, rows[t]);
        float agreement = curves[2 * request->longest_source];
        add_guided(run, search->source, curves_of(run, t - 1, rows[t - 1]), curves, agreement, guided);
    }
}

static void write_results(const run_t *run, const search_t *search) {
    const request_t *request = run->request;
    for (int64_t i = 0; i < request->num_return_sequences; i++) {
        int64_t place = search->source * request->num_return_sequences + i, longest = request->longest_source;
        int64_t *tokens = request->tokens + place * request->longest;
        const hypothesis_t *hypothesis = i < search->num_finished ? search->finished + i : NULL;
        int64_t length = request->found_lengths[place] = hypothesis ? hypothesis->length : 0;
        for (int64_t j = 0; j < request->longest; j++)
            tokens[j] = j < length ? hypothesis->tokens[j] : request->pad_token;
        request->scores[place] = hypothesis ? hypothesis->score : -1e9f;
        if (hypothesis)
            memcpy(request->log_probs + place * request->longest, hypothesis->log_probs, (size_t)length * 4);
        if (run->attended && hypothesis)
            write_received(run, search, hypothesis, request->received + place * request->longest * longest);
        if (run->curves) write_guided(run, search, hypothesis, request->guided + place * 4 * longest);
    }
}

/* What a source may write; `num_listed` counts what those before it may. */
static list_t list_of(run_t *run, int64_t source, int64_t *num_listed) {
    const request_t *request = run->request;
    list_t list = {0, NULL, NULL};
    if (!request->candidates) return list;
    list.length = request->list_lengths[source];
    list.places = request->list_places + *num_listed;
    list.tokens = take(run, list.length * 4);
    for (int64_t i = 0; i < list.length; i++) list.tokens[i] = request->candidates[list.places[i]];
    *num_listed += list.length;
    return list;
}

void decode(run_t *run) {
    const request_t *request = run->request;
    int64_t num_sources = request->num_sources, num_beams = request->num_beams;
    search_t *searches = take(run, num_sources * (int64_t)sizeof(search_t));
    list_t *lists = take(run, num_sources * (int64_t)sizeof(list_t));
    int64_t *parents = take(run, run->most_rows * 8);
    candidate_t *best = take(run, (2 * num_beams + 1) * (int64_t)sizeof(candidate_t));
    float *values = take(run, (2 * num_beams + 1) * 4);
    int32_t *indices = take(run, (2 * num_beams + 1) * 4);
    int64_t num_listed = 0;
    const int64_t *prefix = request->prefixes;
    float *unpenalized = request->repetition_penalty == 1 ? NULL : take(run, (request->longest + 1) * 4);
    for (int64_t i = 0; i < num_sources; i++) {
        searches[i] = (search_t){.source = i, .rows = 1, .unpenalized = unpenalized};
        searches[i].running = new_hypotheses(run, num_beams);
        searches[i].next = new_hypotheses(run, num_beams);
        searches[i].finished = new_hypotheses(run, num_beams);
        searches[i].list = lists[i] = list_of(run, i, &num_listed);
        if (prefix) {
            searches[i].prefix = prefix;
            prefix += searches[i].prefix_length = request->prefix_lengths[i];
        }
        run->row_source[i] = i;
        run->tokens[i] = request->start_token;
    }
    run->rows = num_sources;
    for (run->step = 0; run->step < run->most_steps && run->rows; run->step++) {
        if (run->team) team_step(run->team, run->step, seconds());
        run_program(run, 1);
        if (run->step == 0 && request->first_logits)
            memcpy(request->first_logits, run->values[run->model->logits],
                   (size_t)(num_sources * run->model->vocabulary) * 4);
        if (run->team && is_scored(request)) sum_exponentials(run, lists);
        int finishes = must_finish(run);
        int64_t active = 0, rows = 0, next_row = 0;
        for (int64_t i = 0; next_row < run->rows; i++) {
            search_t search = searches[i];
            int64_t first_row = next_row;
            next_row += search.rows + search.read_rows;
            search.read_rows = 0;
            if (search.rows) {
                int64_t count = continuations(run, &search, first_row, best, values, indices);
                if (!advance(run, &search, first_row, best, count, finishes, parents + rows)) search.rows = 0;
                int64_t end = rows + search.rows;
                if (run->curves) search.read_rows = read_last_tokens(run, &search, end, parents + end);
            }
            if (!search.rows && !search.read_rows) {
                write_results(run, &search);
                continue;
            }
            for (int64_t j = 0; j < search.rows; j++) {
                run->tokens[rows + j] = search.running[j].tokens[run->step];
                if (run->curves) run->agreements[rows + j] = search.running[j].agreement;
            }
            searches[active++] = search;
            rows += search.rows + search.read_rows;
        }
        reorder(run, parents, rows);
        for (int64_t i = 0, row = 0; i < active; i++)
            for (int64_t end = row + searches[i].rows + searches[i].read_rows; row < end; row++) run->row_source[row] = searches[i].source;
        run->rows = rows;
    }
}
