/* The log-probabilities of given translations. All positions of all translations are rows of one step. Only a model with
 * states that another operation than SSRU writes goes from one token to the next. */
#include "lists.h"

#include <math.h>

typedef struct {
    int64_t source, step, input, output; /* the latter two are tokens */
    int64_t result;                      /* the index of `output` among all targets' tokens */
} position_t;

typedef struct {
    run_t *run;
    position_t *positions;
    int64_t *row_positions; /* the position of each row */
    int64_t *scored_rows;   /* the rows whose logits are needed */
    float *inputs;          /* [SCORED_ROWS, inputs of the head], of such rows */
    list_t *lists;          /* of each source */
    char *scratch;
    int64_t scratch_size;   /* of each thread */
    int64_t first;          /* of `scored_rows`, whose logits are there */
} scores_t;

/* Fills in the positions of all targets, one after the other. */
static void list_positions(const run_t *run, position_t *positions) {
    const request_t *request = run->request;
    int64_t count = 0, first = 0;
    for (int64_t i = 0; i < request->num_sources; i++) {
        int64_t length = request->target_lengths[i];
        const int64_t *target = request->targets + first;
        for (int64_t t = 0; t < length; t++) {
            int64_t input = t ? target[t - 1] : request->start_token;
            positions[count++] = (position_t){i, t, input, target[t], first + t};
        }
        first += length;
    }
}

static void score_positions(void *context, int64_t first, int64_t end, int thread) {
    const scores_t *scores = context;
    run_t *run = scores->run;
    const kernels_t *kernels = run->model->kernels;
    float *memory = (float *)(scores->scratch + thread * scores->scratch_size);
    for (int64_t row = first; row < end; row++) {
        const position_t *position = scores->positions + scores->row_positions[scores->scored_rows[scores->first + row]];
        const list_t *list = scores->lists + position->source;
        long count;
        const float *logits = logits_of(run, list, row, memory, &count);
        int64_t index = index_of(list, position->output);
        run->request->target_log_probs[position->result] =
            index < 0 ? NAN : logits[index] - kernels->log_sum_exp(logits, count);
    }
}

/* Lists the rows whose logits are needed; returns their number. */
static int64_t list_scored_rows(const run_t *run, const scores_t *scores) {
    const request_t *request = run->request;
    int64_t num_scored = 0;
    for (int64_t row = 0; row < run->rows.count; row++) {
        int64_t result = scores->positions[scores->row_positions[row]].result;
        if (!request->scored_targets || request->scored_targets[result])
            scores->scored_rows[num_scored++] = row;
        else
            request->target_log_probs[result] = NAN;
    }
    return num_scored;
}

/* Runs the rows, and writes their results. */
static void run_rows(run_t *run, scores_t *scores) {
    const request_t *request = run->request;
    const operation_t *head = run->model->head;
    int64_t width = width_of(run, head->slots[LINEAR_source]);
    run_program(run, DECODER);
    for (int64_t row = 0; run->attended && row < run->rows.count; row++) {
        const position_t *position = scores->positions + scores->row_positions[row];
        float *target = request->attention + position->result * request->longest_source;
        memcpy(target, attended_by(run, run->rows.step, row), (size_t)request->lengths[position->source] * 4);
    }
    int64_t num_scored = list_scored_rows(run, scores);
    for (int64_t first = 0; first < num_scored; first += SCORED_ROWS) {
        int64_t count = num_scored - first < SCORED_ROWS ? num_scored - first : SCORED_ROWS;
        const float *inputs = scores->inputs;
        if (num_scored == run->rows.count) inputs = row_of(run, head->slots[LINEAR_source], first);
        for (int64_t i = 0; i < count && inputs == scores->inputs; i++)
            memcpy(scores->inputs + i * width, row_of(run, head->slots[LINEAR_source], scores->scored_rows[first + i]),
                   (size_t)width * 4);
        scores->first = first;
        score_rows(run, inputs, count);
        team_share(run->team, count, run->model->vocabulary * 32, score_positions, scores);
    }
}

static void set_row(run_t *run, int64_t row, const position_t *position) {
    run->rows.source[row] = position->source;
    run->rows.tokens[row] = position->input;
    if (run->rows.position) run->rows.position[row] = position->step;
}

/* Begins with all positions at once, or, for a model that goes step by step, with the first one of each target. */
static void start_rows(run_t *run, const scores_t *scores, int64_t count) {
    run->rows.count = run->rows.step = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!run->rows.position && scores->positions[i].step) continue;
        set_row(run, run->rows.count, scores->positions + i);
        scores->row_positions[run->rows.count++] = i;
    }
}

/* Goes on to the next position of each target that has one. */
static void move_rows(run_t *run, const scores_t *scores, int64_t count, int64_t *parents) {
    int64_t num_rows = 0;
    for (int64_t row = 0; row < run->rows.count; row++) {
        int64_t next = scores->row_positions[row] + 1;
        if (next == count || !scores->positions[next].step) continue; /* it is of another target */
        parents[num_rows] = row;
        scores->row_positions[num_rows++] = next;
    }
    reorder(run, parents, num_rows);
    for (int64_t row = 0; row < num_rows; row++) set_row(run, row, scores->positions + scores->row_positions[row]);
    run->rows.count = num_rows;
}

/* Takes the lists of all sources out of the request, and memory for the logits of one for each thread. */
static void list_sources(run_t *run, scores_t *scores) {
    int64_t num_listed = 0;
    scores->lists = take(run, run->request->num_sources * (int64_t)sizeof(list_t));
    for (int64_t i = 0; i < run->request->num_sources; i++) scores->lists[i] = list_of(run, i, &num_listed);
    scores->scratch_size = aligned(run->request->candidates ? run->request->num_candidates * 4 : 4);
    scores->scratch = take(run, scores->scratch_size * team_size(run->team));
}

void force(run_t *run, int64_t count) {
    position_t *positions = take(run, count * (int64_t)sizeof(position_t));
    int64_t *parents = take(run, count * 8);
    int64_t width = width_of(run, run->model->head->slots[LINEAR_source]);
    scores_t scores = {.run = run, .positions = positions};
    scores.row_positions = take(run, count * 8);
    scores.scored_rows = take(run, count * 8);
    scores.inputs = take(run, SCORED_ROWS * width * 4);
    list_sources(run, &scores);
    list_positions(run, positions);
    start_rows(run, &scores, count);
    run_rows(run, &scores);
    while (!run->rows.position) {
        move_rows(run, &scores, count, parents);
        if (!run->rows.count) break;
        run->rows.step++;
        run_rows(run, &scores);
    }
}
