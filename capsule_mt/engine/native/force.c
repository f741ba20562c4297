/* The log-probabilities of given translations. All positions of all translations are rows of one step; a model whose
 * states another operation than SSRU writes goes from one token to the next. */
#include "run.h"

#include <math.h>

typedef struct {
    int64_t source, step, input, output; /* tokens; no `output`, -1, where PAST and FUTURE read the last token */
    int64_t result;                      /* the index of `output` among all targets' tokens */
    float agreement;                     /* the model's, to `input` */
} position_t;

typedef struct {
    run_t *run;
    position_t *positions;
    int64_t *row_positions; /* the position of each row */
    int64_t first;
} scores_t;

/* Fills in the positions of all targets, one after the other; returns how many. */
static int64_t list_positions(const run_t *run, position_t *positions) {
    const request_t *request = run->request;
    int64_t count = 0, first = 0;
    for (int64_t i = 0; i < request->num_sources; i++) {
        int64_t length = request->target_lengths[i];
        const int64_t *target = request->targets + first;
        int ends = target[length - 1] == request->end_token || target[length - 1] == request->pad_token;
        int reads_last = request->guided && !ends && length < run->model->longest_target;
        for (int64_t t = 0; t < length + reads_last; t++) {
            int64_t input = t ? target[t - 1] : request->start_token, output = t < length ? target[t] : -1;
            positions[count++] = (position_t){i, t, input, output, first + t, 0};
        }
        first += length;
    }
    return count;
}

static void score_positions(void *context, int64_t first, int64_t end, int thread) {
    const scores_t *scores = context;
    const run_t *run = scores->run;
    const kernels_t *kernels = run->model->kernels;
    (void)thread;
    for (int64_t row = first; row < end; row++) {
        position_t *position = scores->positions + scores->row_positions[scores->first + row];
        if (position->output < 0) continue;
        const float *logits = row_of(run, run->model->logits, row);
        float value = logits[position->output], best[2] = {-INFINITY, -INFINITY};
        int32_t indices[2] = {-1, -1};
        run->request->target_log_probs[position->result] =
            value - kernels->log_sum_exp(logits, (long)run->model->vocabulary);
        if (!run->recorded.curves) continue;
        kernels->top(logits, (long)run->model->vocabulary, 2, best, indices);
        float agreement = 1 / (1 + expf((indices[0] == position->output ? best[1] : best[0]) - value));
        if (position[1].step == position->step + 1) position[1].agreement = agreement;
    }
}

/* Runs the rows, and writes their results; `curves` [positions, curve width]. */
static void run_rows(run_t *run, scores_t *scores, float *curves) {
    const request_t *request = run->request;
    int64_t width = curve_width(request);
    run_program(run, DECODER);
    for (int64_t row = 0; row < run->rows.count; row++) {
        const position_t *position = scores->positions + scores->row_positions[row];
        if (run->recorded.attended && position->output >= 0) {
            float *target = request->received + position->result * request->longest_source;
            memcpy(target, attended_by(run, run->rows.step, row), (size_t)request->lengths[position->source] * 4);
        }
        if (run->recorded.curves)
            memcpy(curves + scores->row_positions[row] * width, curves_of(run, run->rows.step, row), (size_t)width * 4);
    }
    for (int64_t row = 0; row < run->rows.count; row += SCORED_ROWS) {
        int64_t count = run->rows.count - row < SCORED_ROWS ? run->rows.count - row : SCORED_ROWS;
        scores->first = row;
        score_rows(run, row, count);
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

/* Sums up the curves of each target, up to its end or its padding. */
static void sum_curves(const run_t *run, const position_t *positions, int64_t count, const float *curves) {
    const request_t *request = run->request;
    int64_t width = curve_width(request);
    for (int64_t i = 0, first = 0; i < count; first = i) {
        int64_t source = positions[first].source;
        float *guided = request->guided + source * 4 * request->longest_source;
        start_guided(run, source, curves + first * width, guided);
        for (i++; i < count && positions[i].step; i++) {
            int64_t output = positions[i - 1].output;
            if (output == request->end_token || output == request->pad_token) break;
            add_guided(run, source, curves + (i - 1) * width, curves + i * width, positions[i].agreement, guided);
        }
        while (i < count && positions[i].step) i++;
    }
}

void force(run_t *run, int64_t max_positions) {
    position_t *positions = take_zeros(run, (max_positions + 1) * (int64_t)sizeof(position_t));
    int64_t *parents = take(run, max_positions * 8), count = list_positions(run, positions);
    float *curves = run->recorded.curves ? take(run, count * curve_width(run->request) * 4) : NULL;
    scores_t scores = {run, positions, take(run, max_positions * 8), 0};
    start_rows(run, &scores, count);
    run_rows(run, &scores, curves);
    while (!run->rows.position) {
        move_rows(run, &scores, count, parents);
        if (!run->rows.count) break;
        run->rows.step++;
        run_rows(run, &scores, curves);
    }
    if (curves) sum_curves(run, positions, count, curves);
}
