/* Routings of capsules: of layers and heads (EM, dynamic), of words (PAST and FUTURE), and of a source (separable). */
#include "operations.h"

static float *scratch_of_thread(const loop_t *loop, int thread) {
    return (float *)(loop->scratch + thread * loop->scratch_size);
}

static void em_rows(void *context, int64_t first, int64_t end, int thread) {
    const loop_t *loop = context;
    run_t *run = loop->run;
    const int32_t *slots = loop->op->slots;
    int activations = slots[EM_ROUTING_activations];
    em_routing_t routing = {.beta_a = vector_of(run, slots[EM_ROUTING_beta_a]),
                            .beta_u = vector_of(run, slots[EM_ROUTING_beta_u]),
                            .lambdas = vector_of(run, slots[EM_ROUTING_lambdas]),
                            .min_variance = loop->op->reals[EM_ROUTING_min_variance],
                            .iterations = slots[EM_ROUTING_iterations],
                            .num_inputs = slots[EM_ROUTING_inputs],
                            .num_outputs = slots[EM_ROUTING_capsules],
                            .width = slots[EM_ROUTING_width],
                            .scratch = scratch_of_thread(loop, thread)};
    for (int64_t row = first; row < end; row++) {
        routing.votes = row_of(run, slots[EM_ROUTING_votes], row);
        routing.activations = activations < 0 ? NULL : routing.votes + activations;
        routing.capsules = row_of(run, OUT_OF(loop->op), row);
        run->model->kernels->em_routing(&routing);
    }
}

static void dynamic_rows(void *context, int64_t first, int64_t end, int thread) {
    const loop_t *loop = context;
    run_t *run = loop->run;
    const int32_t *slots = loop->op->slots;
    dynamic_routing_t routing = {.iterations = slots[DYNAMIC_ROUTING_iterations],
                                 .normalize = slots[DYNAMIC_ROUTING_normalize],
                                 .num_inputs = slots[DYNAMIC_ROUTING_inputs],
                                 .num_outputs = slots[DYNAMIC_ROUTING_capsules],
                                 .width = slots[DYNAMIC_ROUTING_width],
                                 .scratch = scratch_of_thread(loop, thread)};
    for (int64_t row = first; row < end; row++) {
        routing.votes = row_of(run, slots[DYNAMIC_ROUTING_votes], row);
        routing.capsules = row_of(run, OUT_OF(loop->op), row);
        run->model->kernels->dynamic_routing(&routing);
    }
}

/* Lets the threads share the rows of a routing of `votes` [inputs, capsules, width]. */
static void share_rows(run_t *run, const operation_t *op, int64_t inputs, int64_t capsules, int64_t width,
                       int64_t iterations, body_t body) {
    loop_t loop = {run, op, NULL, 4 * (2 * inputs * (capsules + 1) + capsules * (width + 6) + 256)};
    loop.scratch = scratch_of_threads(run, &loop.scratch_size);
    team_share(run->team, num_rows(run, space_of(run, OUT_OF(op))),
               inputs * capsules * width * iterations * COST_OF_EXPONENTIAL, body, &loop);
}

void em_routing(run_t *run, const operation_t *op) {
    share_rows(run, op, op->slots[EM_ROUTING_inputs], op->slots[EM_ROUTING_capsules], op->slots[EM_ROUTING_width],
               op->slots[EM_ROUTING_iterations], em_rows);
}

void dynamic_routing(run_t *run, const operation_t *op) {
    share_rows(run, op, op->slots[DYNAMIC_ROUTING_inputs], op->slots[DYNAMIC_ROUTING_capsules],
               op->slots[DYNAMIC_ROUTING_width], op->slots[DYNAMIC_ROUTING_iterations], dynamic_rows);
}

/* ---- PAST and FUTURE */

void guided_start(run_t *run, const operation_t *op) {
    const kernels_t *kernels = run->model->kernels;
    int64_t capsules = op->slots[GUIDED_START_capsules], width = op->slots[GUIDED_START_width];
    for (int64_t source = 0; source < run->request->num_sources; source++) {
        float *out = row_of(run, OUT_OF(op), source);
        memset(out, 0, (size_t)(capsules * width) * 4);
        for (int64_t j = 0; j < run->request->lengths[source]; j++) {
            const float *votes = row_of(run, op->slots[GUIDED_START_votes], run->words.first[source] + j);
            kernels->add_scaled(out, votes, 1.f / (float)capsules, (long)(capsules * width));
        }
        for (int64_t c = 0; c < capsules; c++) kernels->squash(out + c * width, (long)width);
    }
}

/* The routing of one row: its settings, its source, and a thread's memory. */
typedef struct {
    run_t *run;
    int votes, projections; /* buffers */
    const linear_t *linear; /* projects a capsule */
    const float *score;
    float score_sum;
    int64_t capsules, width, iterations;
    int64_t num_guiding;              /* capsules that are PAST or FUTURE, the first ones; the others are redundant */
    int64_t num_words, first_word; /* of the source */
    char *rounded;             /* for the product */
    float *logits, *shares;    /* [num_words, capsules] */
    float *guides, *routed;    /* [capsules, width]: what the words are compared with, and what they add up to */
} guided_t;

/* Bytes of a product with the capsules of a row. */
static int64_t guided_product_size(const run_t *run, const operation_t *op) {
    const linear_t *linear = run->model->linears + op->slots[GUIDED_ROUTING_map];
    return aligned(run->model->kernels->scratch(linear, op->slots[GUIDED_ROUTING_capsules]));
}

static guided_t new_guided(const loop_t *loop, int thread) {
    run_t *run = loop->run;
    const operation_t *op = loop->op;
    guided_t guided = {.run = run, .votes = op->slots[GUIDED_ROUTING_votes],
                       .projections = op->slots[GUIDED_ROUTING_projected],
                       .linear = run->model->linears + op->slots[GUIDED_ROUTING_map],
                       .score = vector_of(run, op->slots[GUIDED_ROUTING_score]),
                       .capsules = op->slots[GUIDED_ROUTING_capsules], .width = op->slots[GUIDED_ROUTING_width],
                       .iterations = op->slots[GUIDED_ROUTING_iterations], .num_guiding = op->slots[GUIDED_ROUTING_kept]};
    for (int64_t i = 0; i < guided.width; i++) guided.score_sum += guided.score[i];
    guided.rounded = loop->scratch + thread * loop->scratch_size;
    guided.logits = (float *)(guided.rounded + guided_product_size(run, op));
    guided.shares = guided.logits + run->request->longest_source * guided.capsules;
    guided.guides = guided.shares + run->request->longest_source * guided.capsules;
    guided.routed = guided.guides + guided.capsules * guided.width;
    return guided;
}

/* Adds to the logits how well each word fits each capsule, given the query of the row. */
static void score_words(const guided_t *guided, const float *query) {
    const kernels_t *kernels = guided->run->model->kernels;
    int64_t capsules = guided->capsules, width = guided->width;
    for (int64_t c = 0; c < capsules; c++) kernels->add_scaled(guided->guides + c * width, query, 1, (long)width);
    kernels->exp_twice(guided->guides, (long)(capsules * width));
    for (int64_t j = 0; j < guided->num_words; j++) {
        const float *projected = row_of(guided->run, guided->projections, guided->first_word + j);
        float *logits = guided->logits + j * capsules;
        for (int64_t c = 0; c < capsules; c++)
            logits[c] += kernels->tanh_score(guided->guides + c * width, projected + c * width, guided->score,
                                             guided->score_sum, (long)width);
    }
}

/* Shares each word out among all capsules, and adds the votes for the first `count` of them up. */
static void route_words(const guided_t *guided, int64_t count) {
    const kernels_t *kernels = guided->run->model->kernels;
    int64_t capsules = guided->capsules, width = guided->width;
    memcpy(guided->shares, guided->logits, (size_t)(guided->num_words * capsules) * 4);
    kernels->softmax(guided->shares, (long)guided->num_words, (long)capsules);
    for (int64_t c = 0; c < count; c++) {
        float *capsule = guided->routed + c * width;
        memset(capsule, 0, (size_t)width * 4);
        for (int64_t j = 0; j < guided->num_words; j++)
            kernels->add_scaled(capsule, row_of(guided->run, guided->votes, guided->first_word + j) + c * width,
                                guided->shares[j * capsules + c], (long)width);
        kernels->squash(capsule, (long)width);
    }
}

/* The capsules, projected, are what the next iteration compares the words with. */
static void project_capsules(const guided_t *guided) {
    const kernels_t *kernels = guided->run->model->kernels;
    long capsules = (long)guided->capsules;
    kernels->round_inputs(guided->linear, guided->routed, capsules, guided->rounded);
    kernels->multiply(guided->linear, guided->routed, capsules, guided->guides, NO_ACTIVATION, guided->rounded, 0,
                      kernels->num_blocks(guided->linear));
}

static void guide_rows(void *context, int64_t first, int64_t end, int thread) {
    const loop_t *loop = context;
    run_t *run = loop->run;
    const operation_t *op = loop->op;
    guided_t guided = new_guided(loop, thread);
    for (int64_t row = first; row < end; row++) {
        int64_t source = run->rows.source[row];
        guided.num_words = run->request->lengths[source];
        guided.first_word = run->words.first[source];
        memcpy(guided.guides, row_of(run, op->slots[GUIDED_ROUTING_start], source),
               (size_t)(guided.capsules * guided.width) * 4);
        memset(guided.logits, 0, (size_t)(guided.num_words * guided.capsules) * 4);
        for (int64_t t = 1; t < guided.iterations; t++) { /* GUIDED_START was the first */
            int is_last = t == guided.iterations - 1;
            score_words(&guided, row_of(run, op->slots[GUIDED_ROUTING_query], row));
            route_words(&guided, is_last ? guided.num_guiding : guided.capsules);
            if (!is_last) project_capsules(&guided);
        }
        memcpy(row_of(run, OUT_OF(op), row), guided.routed, (size_t)(guided.num_guiding * guided.width) * 4);
    }
}

void guided_routing(run_t *run, const operation_t *op) {
    int64_t longest = run->request->longest_source, capsules = op->slots[GUIDED_ROUTING_capsules];
    int64_t width = op->slots[GUIDED_ROUTING_width], iterations = op->slots[GUIDED_ROUTING_iterations];
    int64_t numbers = 2 * longest * capsules + 2 * capsules * width;
    loop_t loop = {run, op, NULL, guided_product_size(run, op) + 4 * numbers};
    loop.scratch = scratch_of_threads(run, &loop.scratch_size);
    team_share(run->team, run->rows.count, longest * capsules * width * iterations * COST_OF_KEY, guide_rows, &loop);
}

/* ---- of a source, with separable scores */

/* The routing of one source: its settings, its words, and memory. */
typedef struct {
    run_t *run;
    int votes, scores;         /* buffers; `scores` is -1 where votes are compared themselves */
    int positions;             /* a vector, or -1 */
    const linear_t *inner, *outer; /* map the capsules that are compared with scores */
    int64_t capsules, width, iterations, sets;
    int64_t compared_width; /* of a capsule when it is compared */
    int64_t num_words, first_word;
    char *rounded;
    float *logits, *shares;              /* [num_words, capsules] */
    float *placed, *hidden, *compared;   /* [capsules, ...]: with positions; after `inner`; after `outer` */
} separable_t;

static separable_t new_separable(run_t *run, const operation_t *op) {
    const int32_t *slots = op->slots;
    separable_t routing = {.run = run, .votes = slots[SEPARABLE_ROUTING_votes],
                           .scores = slots[SEPARABLE_ROUTING_scores],
                           .positions = slots[SEPARABLE_ROUTING_positions],
                           .capsules = slots[SEPARABLE_ROUTING_capsules],
                           .iterations = slots[SEPARABLE_ROUTING_iterations],
                           .sets = slots[SEPARABLE_ROUTING_sets]};
    int64_t longest = run->request->longest_source, capsules = routing.capsules, hidden_width = 0, product = 0;
    routing.width = routing.compared_width = width_of(run, OUT_OF(op)) / capsules;
    if (routing.scores >= 0) {
        const kernels_t *kernels = run->model->kernels;
        routing.inner = run->model->linears + slots[SEPARABLE_ROUTING_inner];
        routing.outer = run->model->linears + slots[SEPARABLE_ROUTING_outer];
        hidden_width = routing.inner->outputs;
        routing.compared_width = routing.outer->outputs;
        product = kernels->scratch(routing.inner, (long)capsules) + kernels->scratch(routing.outer, (long)capsules) + 64;
    }
    product = aligned(product);
    int64_t numbers = 2 * longest * capsules + capsules * (routing.width + hidden_width + routing.compared_width);
    routing.rounded = scratch_of(run, product + 4 * numbers);
    routing.logits = (float *)(routing.rounded + product);
    routing.shares = routing.logits + longest * capsules;
    routing.placed = routing.shares + longest * capsules;
    routing.hidden = routing.placed + capsules * routing.width;
    routing.compared = routing.hidden + capsules * hidden_width;
    return routing;
}

/* The votes of a word of the source for iteration `t`: of one set, or of a set for each. */
static const float *votes_of(const separable_t *routing, int64_t word, int64_t t) {
    int64_t set = routing->sets > 1 ? t : 0;
    return row_of(routing->run, routing->votes, routing->first_word + word) + set * routing->capsules * routing->width;
}

/* Shares each word out among the capsules, and adds its votes up. */
static void sum_votes(const separable_t *routing, int64_t t, float *out) {
    const kernels_t *kernels = routing->run->model->kernels;
    int64_t capsules = routing->capsules, width = routing->width;
    memcpy(routing->shares, routing->logits, (size_t)(routing->num_words * capsules) * 4);
    memset(out, 0, (size_t)(capsules * width) * 4);
    for (int64_t j = 0; j < routing->num_words; j++) {
        const float *votes = votes_of(routing, j, t);
        float *shares = routing->shares + j * capsules;
        kernels->softmax(shares, 1, (long)capsules);
        for (int64_t c = 0; c < capsules; c++)
            kernels->add_scaled(out + c * width, votes + c * width, shares[c], (long)width);
    }
    for (int64_t c = 0; c < capsules; c++) kernels->squash(out + c * width, (long)width);
}

/* Returns what the words are compared with [capsules, compared width]. */
static const float *prepare_capsules(const separable_t *routing, const float *out) {
    run_t *run = routing->run;
    int64_t capsules = routing->capsules, numbers = capsules * routing->width;
    memcpy(routing->placed, out, (size_t)numbers * 4);
    if (routing->positions >= 0)
        run->model->kernels->add_scaled(routing->placed, vector_of(run, routing->positions), 1, (long)numbers);
    if (routing->scores < 0) return routing->placed;
    multiply(run, routing->inner, routing->placed, capsules, routing->hidden, RELU, routing->rounded);
    multiply(run, routing->outer, routing->hidden, capsules, routing->compared, NO_ACTIVATION, routing->rounded);
    return routing->compared;
}

static float inner_product(const float *a, const float *b, int64_t count) {
    float sum = 0;
    for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

static void add_agreement(const separable_t *routing, int64_t t, const float *compared) {
    int64_t capsules = routing->capsules, width = routing->compared_width;
    for (int64_t j = 0; j < routing->num_words; j++) {
        const float *votes = votes_of(routing, j, t), *score = NULL;
        if (routing->scores >= 0) score = row_of(routing->run, routing->scores, routing->first_word + j);
        for (int64_t c = 0; c < capsules; c++)
            routing->logits[j * capsules + c] += inner_product(score ? score : votes + c * width, compared + c * width,
                                                               width);
    }
}

void separable_routing(run_t *run, const operation_t *op) {
    separable_t routing = new_separable(run, op);
    for (int64_t source = 0; source < run->request->num_sources; source++) {
        float *out = row_of(run, OUT_OF(op), source);
        routing.num_words = run->request->lengths[source];
        routing.first_word = run->words.first[source];
        memset(routing.logits, 0, (size_t)(routing.num_words * routing.capsules) * 4);
        for (int64_t t = 0; t < routing.iterations; t++) {
            sum_votes(&routing, t, out);
            if (t < routing.iterations - 1) add_agreement(&routing, t, prepare_capsules(&routing, out));
        }
    }
}
