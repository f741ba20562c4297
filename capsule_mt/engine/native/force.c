/* The log-probabilities of given translations. All positions of all translations are rows of one step; a model whose
 * states another operation than SSRU writes goes from one token to the next. */
#include "run.h"

#include <math.h>

typedef struct {
    int64_t source, step, reads, writes; /* tokens; `writes` is -1 where the last token is read for PAST and FUTURE */
    int64_t result;                      /* the place of the token among all targets' tokens */
    float agreement;                     /* to the token that it reads */
} position_t;

typedef struct {
    run_t *run;
    position_t *positions;
    int64_t *at; /* the position of each row */
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
            int64_t reads = t ? target[t - 1] : request->start_token, writes = t < length ? target[t] : -1;
            positions[count++] = (position_t){i, t, reads, writes, first + t, 0};
        }
        first += length;
    }
    return count;
}

static void score_some(void *context, int64_t first, int64_t end, int thread) {
    const scores_t *scores = context;
    const run_t *run = scores->run;
    const kernels_t *kernels = run->model->kernels;
    (void)thread;
    for (int64_t row = first; row < end; row++) {
        position_t *position = scores->positions + scores->at[scores->first + row];
        if (position->writes < 0) continue;
        const float *logits = row_of(run, run->model->logits, row);
        float value = logits[position->writes], best[2] = {-INFINITY, -INFINITY};
        int32_t places[2] = {-1, -1};
        run->request->target_log_probs[position->result] =
            value - kernels->log_sum_exp(logits, (long)run->model->vocabulary);
        if (!run->curves) continue;
        kernels->top(logits, (long)run->model->vocabulary, 2, best, places);
        float agreement = 1 / (1 + expf((places[0] == position->writes ? best[1] : best[0]) - value));
        if (position[1].step == position->step + 1) position[1].agreement = agreement;
    }
}

/* Runs the rows, and writes what is wanted of them; `curves` [positions, curve width]. */
static void run_rows(run_t *run, scores_t *scores, float *curves) {
    const request_t *request = run->request;
    int64_t width = curve_width(request);
    run_program(run, 1);
    for (int64_t row = 0; row < run->rows; row++) {
        const position_t *position = scores->positions + scores->at[row];
        if (run->attended && position->writes >= 0) {
            float *to = request->received + position->result * request->longest_source;
            memcpy(to, attended_by(run, run->step, row), (size_t)request->lengths[position->source] * 4);
        }
        if (run->curves)
            memcpy(curves + scores->at[row] * width, curves_of(run, run->step, row), (size_t)width * 4);
    }
    for (int64_t row = 0; row < run->rows; row += SCORED_ROWS) {
        int64_t count = run->rows - row < SCORED_ROWS ? run->rows - row : SCORED_ROWS;
        scores->first = row;
        score_rows(run, row, count);
        team_share(run->team, count, run->model->vocabulary * 32, score_some, scores);
    }
}

static void set_row(run_t *run, int64_t row, const position_t *position) {
    run->row_source[row] = position->source;
    run->tokens[row] = position->reads;
    if (run->row_position) run->row_position[row] = position->step;
}

void force(run_t *run, int64_t most_positions) {
    const request_t *request = run->request;
    position_t *positions = take_zeros(run, (most_positions + 1) * (int64_t)sizeof(position_t));
    int64_t *at = take(run, most_positions * 8), *parents = take(run, most_positions * 8);
    int64_t count = list_positions(run, positions), rows = 0;
    float *curves = run->curves ? take(run, count * curve_width(request) * 4) : NULL;
    scores_t scores = {run, positions, at, 0};
    run->step = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!run->row_position && positions[i].step) continue;
        set_row(run, rows, positions + i);
        at[rows++] = i;
    }
    for (run->rows = rows; run->rows; run->step++) {
        run_rows(run, &scores, curves);
        if (run->row_position) break;
        rows = 0;
        for (int64_t row = 0; row < run->rows; row++) {
            int64_t next = at[row] + 1;
            if (next == count || !positions[next].step) continue;
            parents[rows] = row;
            at[rows++] = next;
        }
        reorder(run, parents, rows);
        for (run->rows = 0; run->rows < rows; run->rows++) set_row(run, run->rows, positions + at[run->rows]);
    }
    for (int64_t i = 0, first = 0; run->curves && i < count; first = i) {
        float *guided = request->guided + positions[first].source * 4 * request->longest_source;
        start_guided(run, positions[first].source, curves + first * curve_width(request), guided);
        for (i++; i < count && positions[i].step && (positions[i - 1].writes != request->end_token &&
                                                     positions[i - 1].writes != request->pad_token); i++)
            add_guided(run, positions[first].source, curves + (i - 1) * curve_width(request),
                       curves + i * curve_width(request), positions[i].agreement, guided);
        while (i < count && positions[i].step) i++;
    }
}
