/* The logits: of given targets, and, where a search needs only the largest, a preview by fewer bits of the weights. */
#include "operations.h"

#include <math.h>

#if defined(__wasm__) /* whose tier has no preview */
int find_best_tokens(run_t *run, const operation_t *op, const linear_t *head, const float *x, int64_t rows) {
    (void)run, (void)op, (void)head, (void)x, (void)rows;
    return 0;
}
#else

/* A preview of rows of the head's inputs. */
typedef struct {
    run_t *run;
    const linear_t *head;
    const void *weights; /* fewer bits of the head; NULL: all bits, by which only the largest outputs are noted */
    const float *x;
    int64_t rows;
    void *rounded;           /* the rows, for the products */
    contenders_t *contenders; /* [threads, rows] */
    int is_refined;           /* a single row has its estimates: its contenders are noted by all bits */
} preview_t;

static contenders_t *contenders_of(const preview_t *preview, int64_t thread, int64_t row) {
    return preview->contenders + thread * preview->rows + row;
}

/* How far a logit may be from its preview, in standard deviations. With errors of random signs, one in 10^13 is farther off;
 * of 15 million logits of three real models, none was off by more than 6.0. */
#define DEVIATIONS 7.5f

/* The Euclidean length; the number of inputs of a previewed head is a multiple of eight. */
static float length_of(const float *x, int64_t count) {
    float squares = 0, parts[8] = {0};
    for (int64_t i = 0; i < count; i += 8)
        for (int k = 0; k < 8; k++) parts[k] += x[i + k] * x[i + k];
    for (int k = 0; k < 8; k++) squares += parts[k];
    return sqrtf(squares);
}

static void preview_blocks(void *context, int64_t first, int64_t end, int thread) {
    const preview_t *preview = context;
    const kernels_t *kernels = preview->run->model->kernels;
    contenders_t *contenders = contenders_of(preview, thread, 0);
    if (preview->is_refined)
        kernels->refine(preview->head, preview->weights, preview->rounded, contenders, (long)first, (long)end);
    else
        kernels->preview(preview->head, preview->weights, (long)preview->rows, preview->rounded, contenders, (long)first,
                         (long)end);
}

static void share_preview(preview_t *preview) {
    const linear_t *head = preview->head;
    int64_t blocks = preview->run->model->kernels->num_blocks(head);
    if (blocks)
        team_share(preview->run->team, blocks, head->outputs / blocks * head->inputs * preview->rows, preview_blocks,
                   preview);
}

/* Takes the memory of a preview, and lists the tokens that the search forbids: they must not be chosen. */
static preview_t new_preview(run_t *run, const linear_t *head, const void *weights, const float *x, int64_t rows) {
    const kernels_t *kernels = run->model->kernels;
    const request_t *request = run->request;
    int64_t rounded = aligned(kernels->scratch(head, (long)rows)), threads = team_size(run->team);
    int64_t lists = threads * rows * (int64_t)sizeof(contenders_t), estimates = (head->outputs + 64) * 4;
    char *memory = scratch_of(run, rounded + lists + estimates + request->num_suppress_tokens * 4 + 4);
    preview_t preview = {run, head, weights, x, rows, memory, (contenders_t *)(memory + rounded), 0};
    int32_t *forbidden = (int32_t *)(memory + rounded + lists + estimates);
    int64_t num_forbidden = request->num_suppress_tokens;
    for (int64_t i = 0; i < num_forbidden; i++) forbidden[i] = request->suppress_tokens[i];
    if (run->rows.step < request->min_new_tokens && request->end_token >= 0)
        forbidden[num_forbidden++] = (int32_t)request->end_token;
    for (int64_t row = 0; row < rows; row++) {
        float reach = weights ? DEVIATIONS * length_of(x + row * head->inputs, head->inputs) : 0;
        for (int64_t thread = 0; thread < threads; thread++) {
            contenders_t *contenders = contenders_of(&preview, thread, row);
            contenders->forbidden = forbidden;
            contenders->num_forbidden = (long)num_forbidden;
            contenders->count = 0;
            contenders->reach = reach;
            contenders->threshold = -INFINITY;
            contenders->estimates = (float *)(memory + rounded + lists);
            contenders->best = -1;
        }
    }
    return preview;
}

/* Computes the logit with the largest estimate: outputs that cannot reach it are dropped before their lower bits are read. */
static void refine_row(preview_t *preview) {
    const kernels_t *kernels = preview->run->model->kernels;
    int64_t threads = team_size(preview->run->team);
    const float *estimates = preview->contenders->estimates;
    long best = -1;
    for (int64_t thread = 0; thread < threads; thread++) {
        long output = preview->contenders[thread].best;
        if (output >= 0 && (best < 0 || estimates[output] > estimates[best])) best = output;
    }
    float threshold = best < 0 ? -INFINITY : kernels->compute(preview->head, 1, 0, preview->rounded, best);
    for (int64_t thread = 0; thread < threads; thread++) preview->contenders[thread].threshold = threshold;
    preview->is_refined = 1;
    share_preview(preview);
}

/* Returns the token with the largest logit of a row among its contenders, or -1 if those are too many. The logits that
 * decide are computed as the product does, and the lower token wins a tie, as in a search without previews. */
static int32_t choose_best(const preview_t *preview, int64_t row) {
    const run_t *run = preview->run;
    const kernels_t *kernels = run->model->kernels;
    int32_t best = -1;
    float largest = -INFINITY;
    for (int64_t thread = 0; thread < team_size(run->team); thread++) {
        const contenders_t *contenders = contenders_of(preview, thread, row);
        if (contenders->count > MAX_CONTENDERS) return -1;
        for (long i = 0; i < contenders->count; i++)
            if (contenders->values[i] > largest) {
                largest = contenders->values[i];
                best = contenders->outputs[i];
            }
    }
    if (best < 0 || !preview->contenders->reach) return best; /* without reach, the values are the logits */
    float max_logit = kernels->compute(preview->head, (long)preview->rows, (long)row, preview->rounded, best);
    for (int64_t thread = 0; thread < team_size(run->team); thread++) {
        const contenders_t *contenders = contenders_of(preview, thread, row);
        for (long i = 0; i < contenders->count; i++) {
            int32_t output = contenders->outputs[i];
            if (contenders->values[i] + contenders->reach * contenders->radii[output] < max_logit || output == best)
                continue;
            float logit = kernels->compute(preview->head, (long)preview->rows, (long)row, preview->rounded, output);
            if (logit > max_logit || (logit == max_logit && output < best)) {
                max_logit = logit;
                best = output;
            }
        }
    }
    return best;
}

int find_best_tokens(run_t *run, const operation_t *op, const linear_t *head, const float *x, int64_t rows) {
    if (op != run->model->head || !head->int8 || op->slots[LINEAR_twice] || FORBIDS_PREVIEW(run->request)) return 0;
    const kernels_t *kernels = run->model->kernels;
    const void *weights = rows > kernels->max_preview_rows(head) ? NULL : preview_of(run->model, head);
    run->logits.is_previewed = 0;
    if (!weights && rows < kernels->min_unwritten_rows(head)) return 0;
    preview_t preview = new_preview(run, head, weights, x, rows);
    kernels->round_inputs(head, x, (long)rows, preview.rounded);
    share_preview(&preview);
    if (weights && rows == 1) refine_row(&preview);
    for (int64_t row = 0; row < rows; row++) {
        run->logits.best[row] = choose_best(&preview, row);
        if (run->logits.best[row] < 0) return 0;
    }
    return run->logits.is_previewed = 1;
}
#endif

void score_rows(run_t *run, const float *inputs, int64_t count) {
    const operation_t *head = run->model->head;
    map_rows(run, head, inputs, count, run->values[OUT_OF(head)]);
}
