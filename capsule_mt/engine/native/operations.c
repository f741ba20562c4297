/* The operations of a program: ../operations.def documents each. */
#include "run.h"

#include <math.h>

/* What the threads of a loop share. */
typedef struct {
    run_t *run;
    const operation_t *op;
    char *scratch;
    int64_t scratch_size; /* of each thread */
} loop_t;

typedef struct {
    const kernels_t *kernels;
    const linear_t *linear;
    const float *x;
    int64_t rows;
    float *y;
    int activation;
    const void *rounded;
    const void *upper; /* or NULL: what a preview reads instead of the weights */
    near_t *near;      /* or NULL: what may be the largest is noted, of each thread */
    int refines;       /* what a preview has estimated of one row */
} product_t;

static void multiply_blocks(void *context, int64_t first, int64_t end, int thread) {
    const product_t *p = context;
    if (p->refines) p->kernels->refine(p->linear, p->upper, p->rounded, p->near + thread, (long)first, (long)end);
    else if (p->near)
        p->kernels->preview(p->linear, p->upper, (long)p->rows, p->rounded, p->near + thread * p->rows, (long)first, (long)end);
    else p->kernels->multiply(p->linear, p->x, (long)p->rows, p->y, p->activation, p->rounded, (long)first, (long)end);
}

static void share_product(run_t *run, product_t *product) {
    const linear_t *linear = product->linear;
    int64_t blocks = product->kernels->num_blocks(linear);
    if (blocks) team_share(run->team, blocks, linear->outputs / blocks * linear->inputs * product->rows, multiply_blocks, product);
}

/* y = activation of the linear map of x, in this memory. */
static void multiply_in(run_t *run, const linear_t *linear, const float *x, int64_t rows, float *y, int activation,
                        void *memory) {
    product_t product = {run->model->kernels, linear, x, rows, y, activation, memory, NULL, NULL, 0};
    product.kernels->round_inputs(linear, x, (long)rows, memory);
    share_product(run, &product);
}

/* So many rows at most are rounded twice at once. */
#define CHUNK 256

/* The product of an int8 map with all that the rows hold: also with what rounding them has left. */
static void multiply_twice(run_t *run, const linear_t *linear, const float *x, int64_t rows, float *y) {
    const kernels_t *kernels = run->model->kernels;
    int64_t most = rows < CHUNK ? rows : CHUNK, rounded = (kernels->scratch(linear, (long)most) + 63) / 64 * 64;
    int64_t rest = rounded + most * linear->inputs * 4;
    char *memory = scratch_of(run, rest + most * linear->outputs * 4);
    for (int64_t first = 0; first < rows; first += CHUNK, x += CHUNK * linear->inputs) {
        int64_t count = rows - first < CHUNK ? rows - first : CHUNK;
        float *left = (float *)(memory + rounded), *added = (float *)(memory + rest);
        multiply_in(run, linear, x, count, y, NO_ACTIVATION, memory);
        kernels->leave(linear, x, (long)count, memory, left);
        multiply_in(run, linear, left, count, added, NO_ACTIVATION, memory);
        for (int64_t row = 0; row < count; row++, y += linear->outputs, added += linear->outputs) {
            kernels->add_scaled(y, added, 1, linear->outputs);
            kernels->add_scaled(y, linear->bias, -1, linear->outputs); /* which was added twice */
        }
    }
}

/* Whether only the token with the largest logit is asked for. */
static int wants_best(const request_t *request) {
    return !FORBIDS_PREVIEW(request) && request->unscored && !request->candidates && !request->targets &&
           !request->prefixes && !request->first_logits && !request->guided;
}

#if defined(__wasm__) /* whose tier does not preview */
#define preview(...) 0
#else
/* How far a logit may be from its preview, in standard deviations. Of random signs it is further once in 10^13 times; of
 * 15 million logits of three real models none was by more than 6.0. */
#define DEVIATIONS 7.5f

/* The inputs of a head that is previewed are a multiple of eight. */
static float length_of(const float *x, int64_t count) {
    float squares = 0, parts[8] = {0};
    for (int64_t i = 0; i < count; i += 8)
        for (int k = 0; k < 8; k++) parts[k] += x[i + k] * x[i + k];
    for (int k = 0; k < 8; k++) squares += parts[k];
    return sqrtf(squares);
}

/* The place of the largest logit of a row, given what each thread has found near it; -1 if that is too much. */
static int32_t best_of(const run_t *run, const linear_t *head, int64_t rows, int64_t row, const near_t *near,
                       const void *rounded) {
    const kernels_t *kernels = run->model->kernels;
    int32_t found = -1;
    float largest = -INFINITY, best;
    for (int64_t thread = 0; thread < team_size(run->team); thread++) {
        const near_t *of = near + thread * rows + row;
        if (of->count > MOST_NEAR) return -1;
        for (long i = 0; i < of->count; i++)
            if (of->values[i] > largest) {
                largest = of->values[i];
                found = of->places[i];
            }
    }
    if (found < 0 || !near->reach) return found;
    best = kernels->compute(head, (long)rows, (long)row, rounded, found);
    for (int64_t thread = 0; thread < team_size(run->team); thread++) {
        const near_t *of = near + thread * rows + row;
        for (long i = 0; i < of->count; i++) {
            int32_t place = of->places[i];
            if (of->values[i] + of->reach * of->radii[place] < best || place == found) continue;
            float value = kernels->compute(head, (long)rows, (long)row, rounded, place);
            if (value > best || (value == best && place < found)) {
                best = value;
                found = place;
            }
        }
    }
    return found;
}

/* Finds the token with the largest logit of each row, by `upper` or, if that is NULL, by the whole weights; returns
 * whether all are found. */
static int preview(run_t *run, const linear_t *head, const void *upper, const float *x, int64_t rows) {
    const kernels_t *kernels = run->model->kernels;
    const request_t *request = run->request;
    int64_t rounded = (kernels->scratch(head, (long)rows) + 63) / 64 * 64, threads = team_size(run->team);
    int64_t lists = threads * rows * (int64_t)sizeof(near_t), estimates = (head->outputs + 64) * 4;
    char *memory = scratch_of(run, rounded + lists + estimates + request->num_suppress_tokens * 4 + 4);
    near_t *near = (near_t *)(memory + rounded);
    int32_t *forbidden = (int32_t *)(memory + rounded + lists + estimates);
    int64_t num_forbidden = request->num_suppress_tokens;
    for (int64_t i = 0; i < num_forbidden; i++) forbidden[i] = request->suppress_tokens[i];
    if (run->step < request->min_new_tokens && request->end_token >= 0)
        forbidden[num_forbidden++] = (int32_t)request->end_token;
    for (int64_t row = 0; row < rows; row++) {
        float reach = upper ? DEVIATIONS * length_of(x + row * head->inputs, head->inputs) : 0;
        for (int64_t thread = 0; thread < threads; thread++) {
            near_t *of = near + thread * rows + row;
            of->forbidden = forbidden;
            of->num_forbidden = (long)num_forbidden;
            of->count = 0;
            of->reach = reach;
            of->least = -INFINITY;
            of->estimates = (float *)(memory + rounded + lists);
            of->best = -1;
        }
    }
    product_t product = {kernels, head, x, rows, NULL, NO_ACTIVATION, memory, upper, near, 0};
    kernels->round_inputs(head, x, (long)rows, memory);
    share_product(run, &product);
    if (upper && rows == 1) {
        long best = -1;
        for (int64_t thread = 0; thread < threads; thread++) {
            long other = near[thread].best;
            if (other >= 0 && (best < 0 || near->estimates[other] > near->estimates[best])) best = other;
        }
        float least = best < 0 ? -INFINITY : kernels->compute(head, 1, 0, memory, best);
        for (int64_t thread = 0; thread < threads; thread++) near[thread].least = least;
        product.refines = 1;
        share_product(run, &product);
    }
    for (int64_t row = 0; row < rows; row++) {
        run->best[row] = best_of(run, head, rows, row, near, memory);
        if (run->best[row] < 0) return 0;
    }
    return 1;
}
#endif

/* A LINEAR of rows; with a shortlist, the logits are of its candidates alone. */
static void map(run_t *run, const operation_t *op, const float *x, int64_t rows, float *y) {
    int shortened = run->request->candidates && OUT_OF(op) == run->model->logits;
    const linear_t *linear = shortened ? &run->head : run->model->linears + op->slots[LINEAR_map];
    if (op == run->model->head && linear->int8 && !op->slots[LINEAR_twice] && wants_best(run->request)) {
        const kernels_t *kernels = run->model->kernels;
        const void *upper = rows > kernels->most_previewed(linear) ? NULL : upper_of(run->model);
        run->is_previewed = (upper || rows >= kernels->least_whole(linear)) && preview(run, linear, upper, x, rows);
        if (run->is_previewed) return;
    }
    if (op->slots[LINEAR_twice] && linear->int8) {
        multiply_twice(run, linear, x, rows, y);
        return;
    }
    void *memory = scratch_of(run, run->model->kernels->scratch(linear, (long)rows));
    multiply_in(run, linear, x, rows, y, op->slots[LINEAR_activation], memory);
}

static void embed(run_t *run, const operation_t *op) {
    int of_words = space_of(run, OUT_OF(op)) == OF_WORDS, positions_at = op->slots[EMBED_positions];
    int64_t width = width_of(run, OUT_OF(op)), rows = rows_of(run, space_of(run, OUT_OF(op)));
    const vector_t *table = run->model->vectors + op->slots[EMBED_table];
    const float *positions = positions_at < 0 ? NULL : vector_of(run, positions_at);
    float scale = op->reals[EMBED_scale];
    void *unpacked = table->linear < 0 ? NULL : scratch_of(run, width * 4 + 64);
    for (int64_t row = 0; row < rows; row++) {
        int64_t token = of_words ? run->request->words[row] : run->tokens[row];
        int64_t position = of_words ? run->word_position[row] : run->row_position ? run->row_position[row] : run->step;
        float *out = row_of(run, OUT_OF(op), row);
        float largest = table->largest ? table->largest[token] : 0;
        if (unpacked) run->model->kernels->unpack(run->model->linears + table->linear, (long)token, unpacked);
        read_floats(run->model, unpacked ? unpacked : table->values, table->type, largest, unpacked ? 0 : token * width,
                    width, out);
        for (int64_t i = 0; i < width; i++) out[i] = scale * out[i] + (positions ? positions[position * width + i] : 0);
    }
}

static void copy(run_t *run, const operation_t *op) {
    int out = OUT_OF(op), source = op->slots[COPY_source];
    int64_t rows = rows_of(run, space_of(run, out)), count = op->slots[COPY_count];
    int from_sources = space_of(run, source) == OF_SOURCES;
    if (op->slots[COPY_once] && run->step > 0) return;
    if (!count) count = width_of(run, source);
    for (int64_t row = 0; row < rows; row++) {
        int64_t from = from_sources ? source_of(run, space_of(run, out), row) : row;
        memcpy(row_of(run, out, row) + op->slots[COPY_column], row_of(run, source, from) + op->slots[COPY_start],
               (size_t)count * 4);
    }
}

/* What a number of a key costs, and one that an exponential is taken of. */
#define COST_OF_KEY 16
#define COST_OF_EXPONENTIAL 32

typedef struct {
    run_t *run;
    int out, query;       /* buffers */
    int64_t heads, width; /* width of all heads */
    int64_t bytes;        /* of the keys of a row; as many, its values, follow */
    const char *kept;     /* of the rows that are attended to, or NULL: those of the steps before, in `cache` */
    int64_t cache, head;  /* -1, or whose attention is recorded */
    float *scores;
} attention_t;

/* Keeps the keys and the values of rows of a buffer, which begin at these columns, in `to`. */
static void keep_rows(run_t *run, const attention_t *attention, int buffer, int64_t keys, int64_t values, int64_t rows,
                      char *to) {
    const kernels_t *kernels = run->model->kernels;
    long heads = (long)attention->heads, width = (long)(attention->width / attention->heads);
    for (int64_t row = 0; row < rows; row++, to += 2 * attention->bytes) {
        kernels->keep_heads(row_of(run, buffer, row) + keys, heads, width, run->model->halves, to);
        kernels->keep_heads(row_of(run, buffer, row) + values, heads, width, run->model->halves, to + attention->bytes);
    }
}

/* Rows and their heads. */
static void attend(void *context, int64_t first, int64_t end, int thread) {
    const attention_t *attention = context;
    run_t *run = attention->run;
    int64_t heads = attention->heads, step = 2 * attention->bytes;
    int space = space_of(run, attention->out);
    const char **keys = run->keys + thread * run->most_keys;
    queries_t queries = {.query_step = (long)width_of(run, attention->query), .heads = (long)heads,
                         .width = (long)(attention->width / heads), .keys = keys,
                         .value_offset = (long)attention->bytes, .halves = run->model->halves,
                         .scores = attention->scores + thread * MOST_QUERIES * run->most_keys * heads};
    for (int64_t row = first / heads; row * heads < end; row += queries.rows) {
        int64_t first_head = row * heads < first ? first - row * heads : 0;
        int64_t end_head = end - row * heads < heads ? end - row * heads : heads;
        queries.rows = 1;
        if (!attention->kept) {
            const int32_t *ancestors = run->ancestors + row * run->most_steps;
            char **blocks = run->caches + attention->cache * run->most_steps;
            for (int64_t j = 0; j < run->step; j++) keys[j] = blocks[j] + ancestors[j] * step;
            keys[run->step] = blocks[run->step] + row * step;
            queries.num_keys = (long)run->step + 1;
        } else {
            int64_t source = source_of(run, space, row), from = run->first_word[source];
            queries.num_keys = (long)run->request->lengths[source];
            if (attention->cache >= 0) { /* the rows of the positions before, and its own */
                queries.num_keys = (long)run->row_position[row] + 1;
                from = row + 1 - queries.num_keys;
            } else if (!first_head) {
                while (queries.rows < MOST_QUERIES && (row + queries.rows + 1) * heads <= end &&
                       source_of(run, space, row + queries.rows) == source) queries.rows++;
            }
            for (int64_t j = 0; j < queries.num_keys; j++) keys[j] = attention->kept + (from + j) * step;
        }
        queries.query = row_of(run, attention->query, row);
        queries.output = row_of(run, attention->out, row);
        run->model->kernels->attend(&queries, (long)first_head, (long)end_head);
        if (attention->head < first_head || attention->head >= end_head) continue;
        for (int64_t r = 0; r < queries.rows; r++)
            memcpy(attended_by(run, run->step, row + r),
                   queries.scores + (r * heads + attention->head) * queries.num_keys, (size_t)queries.num_keys * 4);
    }
}

static attention_t new_attention(run_t *run, const operation_t *op, int query, int64_t heads) {
    int64_t width = width_of(run, OUT_OF(op));
    int64_t bytes = run->model->kernels->kept_bytes((long)heads, (long)(width / heads), run->model->halves);
    return (attention_t){.run = run, .out = OUT_OF(op), .query = query, .heads = heads, .width = width,
                         .bytes = bytes, .cache = -1, .head = -1};
}

/* Bytes of the scores of all threads. */
static int64_t scores_size(const run_t *run, const attention_t *attention) {
    return team_size(run->team) * MOST_QUERIES * run->most_keys * attention->heads * 4;
}

static void share_attention(run_t *run, attention_t *attention, int64_t num_keys) {
    int64_t heads = attention->heads, rows = rows_of(run, space_of(run, attention->out));
    team_share(run->team, rows * heads, num_keys * attention->width / heads * COST_OF_KEY, attend, attention);
}

static void attend_words(run_t *run, const operation_t *op) {
    int joined = op->slots[ATTEND_WORDS_joined];
    attention_t attention = new_attention(run, op, joined, op->slots[ATTEND_WORDS_heads]);
    int64_t width = attention.width, scores = (scores_size(run, &attention) + 63) / 64 * 64;
    char *memory = scratch_of(run, scores + run->num_words * 2 * attention.bytes);
    attention.scores = (float *)memory;
    attention.kept = memory + scores;
    keep_rows(run, &attention, joined, width, 2 * width, run->num_words, memory + scores);
    share_attention(run, &attention, run->num_words / run->request->num_sources);
}

static void attend_source(run_t *run, const operation_t *op) {
    const request_t *request = run->request;
    int is_read = run->attended && op->slots[ATTEND_SOURCE_layer] == request->layer;
    attention_t attention = new_attention(run, op, op->slots[ATTEND_SOURCE_query], op->slots[ATTEND_SOURCE_heads]);
    if (is_read) {
        run->attended[run->step] = take(run, run->rows * request->longest_source * 4);
        attention.head = request->head;
    }
    char **kept = run->memories + (op - run->model->programs[1]);
    if (!*kept) {
        int64_t keys = op->slots[ATTEND_SOURCE_keys], values = keys + op->slots[ATTEND_SOURCE_values];
        *kept = take(run, run->num_words * 2 * attention.bytes);
        keep_rows(run, &attention, op->slots[ATTEND_SOURCE_memory], keys, values, run->num_words, *kept);
    }
    attention.kept = *kept;
    attention.scores = scratch_of(run, scores_size(run, &attention));
    share_attention(run, &attention, run->num_words / request->num_sources);
}

static void attend_past(run_t *run, const operation_t *op) {
    int joined = op->slots[ATTEND_PAST_joined];
    attention_t attention = new_attention(run, op, joined, op->slots[ATTEND_PAST_heads]);
    int64_t width = attention.width;
    attention.cache = op->slots[ATTEND_PAST_cache];
    char *block = take(run, run->rows * 2 * attention.bytes);
    keep_rows(run, &attention, joined, width, 2 * width, run->rows, block);
    if (run->row_position) attention.kept = block;
    else run->caches[attention.cache * run->most_steps + run->step] = block;
    attention.scores = scratch_of(run, scores_size(run, &attention));
    share_attention(run, &attention, run->row_position ? run->request->longest / 2 + 1 : run->step + 1);
}

static void em_rows(void *context, int64_t first, int64_t end, int thread) {
    const loop_t *loop = context;
    run_t *run = loop->run;
    const int32_t *slots = loop->op->slots;
    float *memory = (float *)(loop->scratch + thread * loop->scratch_size);
    for (int64_t row = first; row < end; row++) {
        const float *votes = row_of(run, slots[EM_ROUTING_votes], row);
        int activations = slots[EM_ROUTING_activations];
        run->model->kernels->em_routing(
            votes, activations < 0 ? NULL : votes + activations, vector_of(run, slots[EM_ROUTING_beta_a]),
            vector_of(run, slots[EM_ROUTING_beta_u]), vector_of(run, slots[EM_ROUTING_lambdas]),
            slots[EM_ROUTING_iterations], loop->op->reals[EM_ROUTING_min_variance], slots[EM_ROUTING_inputs],
            slots[EM_ROUTING_capsules], slots[EM_ROUTING_width], row_of(run, OUT_OF(loop->op), row), memory);
    }
}

static void dynamic_rows(void *context, int64_t first, int64_t end, int thread) {
    const loop_t *loop = context;
    run_t *run = loop->run;
    const int32_t *slots = loop->op->slots;
    float *memory = (float *)(loop->scratch + thread * loop->scratch_size);
    for (int64_t row = first; row < end; row++)
        run->model->kernels->dynamic_routing(
            row_of(run, slots[DYNAMIC_ROUTING_votes], row), slots[DYNAMIC_ROUTING_iterations],
            slots[DYNAMIC_ROUTING_normalize], slots[DYNAMIC_ROUTING_inputs], slots[DYNAMIC_ROUTING_capsules],
            slots[DYNAMIC_ROUTING_width], row_of(run, OUT_OF(loop->op), row), memory);
}

static void route(run_t *run, const operation_t *op, int64_t inputs, int64_t capsules, int64_t width,
                  int64_t iterations, body_t rows) {
    loop_t loop = {run, op, NULL, 4 * (inputs * (2 * capsules + 1) + capsules * (width + 6) + 256)};
    loop.scratch = scratch_of_threads(run, &loop.scratch_size);
    team_share(run->team, rows_of(run, space_of(run, OUT_OF(op))),
               inputs * capsules * width * iterations * COST_OF_EXPONENTIAL, rows, &loop);
}

static void guided_start(run_t *run, const operation_t *op) {
    int64_t capsules = op->slots[GUIDED_START_capsules], width = op->slots[GUIDED_START_width];
    for (int64_t source = 0; source < run->request->num_sources; source++) {
        float *out = row_of(run, OUT_OF(op), source);
        memset(out, 0, (size_t)(capsules * width) * 4);
        for (int64_t j = 0; j < run->request->lengths[source]; j++)
            run->model->kernels->add_scaled(out, row_of(run, op->slots[GUIDED_START_votes], run->first_word[source] + j),
                                            1.f / (float)capsules, (long)(capsules * width));
        for (int64_t c = 0; c < capsules; c++) run->model->kernels->squash(out + c * width, (long)width);
    }
}

/* Keeps what of each word is PAST and FUTURE; `shares` [count, capsules]: first PAST, then FUTURE. */
static void record_curves(run_t *run, int64_t row, const float *shares, int64_t count, int64_t capsules,
                          int64_t capsules_per_group) {
    int64_t most_words = run->request->longest_source;
    float *past = curves_of(run, run->step, row), *future = past + most_words;
    for (int64_t j = 0; j < count; j++, shares += capsules) {
        past[j] = future[j] = 0;
        for (int64_t c = 0; c < capsules_per_group; c++) {
            past[j] += shares[c];
            future[j] += shares[capsules_per_group + c];
        }
    }
    past[2 * most_words] = run->agreements[row];
}

/* Bytes of a product with the capsules of a row. */
static int64_t guided_product_size(const run_t *run, const operation_t *op) {
    return (run->model->kernels->scratch(run->model->linears + op->slots[GUIDED_ROUTING_map], op->slots[GUIDED_ROUTING_capsules]) + 63) / 64 * 64;
}

static void guide_rows(void *context, int64_t first, int64_t end, int thread) {
    const loop_t *loop = context;
    run_t *run = loop->run;
    const operation_t *op = loop->op;
    const kernels_t *kernels = run->model->kernels;
    int64_t capsules = op->slots[GUIDED_ROUTING_capsules], width = op->slots[GUIDED_ROUTING_width];
    int64_t iterations = op->slots[GUIDED_ROUTING_iterations], kept = op->slots[GUIDED_ROUTING_kept];
    int votes = op->slots[GUIDED_ROUTING_votes], projections = op->slots[GUIDED_ROUTING_projected];
    const float *score = vector_of(run, op->slots[GUIDED_ROUTING_score]);
    float score_sum = 0;
    for (int64_t i = 0; i < width; i++) score_sum += score[i];
    int64_t most_words = run->request->longest_source, product = guided_product_size(run, op);
    const linear_t *linear = run->model->linears + op->slots[GUIDED_ROUTING_map];
    char *memory = loop->scratch + thread * loop->scratch_size;
    float *logits = (float *)(memory + product), *shares = logits + most_words * capsules;
    float *guide = shares + most_words * capsules, *routed = guide + capsules * width;
    for (int64_t row = first; row < end; row++) {
        int64_t source = run->row_source[row], count = run->request->lengths[source];
        const float *query = row_of(run, op->slots[GUIDED_ROUTING_query], row);
        memcpy(guide, row_of(run, op->slots[GUIDED_ROUTING_start], source), (size_t)(capsules * width) * 4);
        memset(logits, 0, (size_t)(count * capsules) * 4);
        for (int64_t t = 1; t < iterations; t++) {
            for (int64_t c = 0; c < capsules; c++) kernels->add_scaled(guide + c * width, query, 1, (long)width);
            kernels->exp_twice(guide, (long)(capsules * width));
            for (int64_t j = 0; j < count; j++) {
                const float *projected = row_of(run, projections, run->first_word[source] + j);
                for (int64_t c = 0; c < capsules; c++)
                    logits[j * capsules + c] += kernels->tanh_score(guide + c * width, projected + c * width, score,
                                                                    score_sum, (long)width);
            }
            memcpy(shares, logits, (size_t)(count * capsules) * 4);
            kernels->softmax(shares, (long)count, (long)capsules);
            int64_t wanted = t == iterations - 1 ? kept : capsules;
            for (int64_t c = 0; c < wanted; c++) {
                float *capsule = routed + c * width;
                memset(capsule, 0, (size_t)width * 4);
                for (int64_t j = 0; j < count; j++)
                    kernels->add_scaled(capsule, row_of(run, votes, run->first_word[source] + j) + c * width,
                                        shares[j * capsules + c], (long)width);
                kernels->squash(capsule, (long)width);
            }
            if (t == iterations - 1) break;
            kernels->round_inputs(linear, routed, (long)capsules, memory);
            kernels->multiply(linear, routed, (long)capsules, guide, NO_ACTIVATION, memory, 0, kernels->num_blocks(linear));
        }
        memcpy(row_of(run, OUT_OF(op), row), routed, (size_t)(kept * width) * 4);
        if (run->curves) record_curves(run, row, shares, count, capsules, kept / 2);
    }
}

static void guided_routing(run_t *run, const operation_t *op) {
    int64_t most_words = run->request->longest_source, capsules = op->slots[GUIDED_ROUTING_capsules];
    int64_t width = op->slots[GUIDED_ROUTING_width], iterations = op->slots[GUIDED_ROUTING_iterations];
    if (run->curves)
        run->curves[run->step] = take(run, run->rows * curve_width(run->request) * 4);
    int64_t numbers = 2 * most_words * capsules + 2 * capsules * width;
    loop_t loop = {run, op, NULL, guided_product_size(run, op) + 4 * numbers};
    loop.scratch = scratch_of_threads(run, &loop.scratch_size);
    team_share(run->team, run->rows, most_words * capsules * width * iterations * COST_OF_KEY, guide_rows, &loop);
}

/* LSTM and GRU layers of one direction over the words of every source, a position at a time. */
static void recur_over_words(run_t *run, int out, int input_gates, const linear_t *linear, int backwards, int column,
                             int is_lstm) {
    const kernels_t *kernels = run->model->kernels;
    int64_t gates = width_of(run, input_gates), width = gates / (is_lstm ? 4 : 3), num_sources = run->request->num_sources;
    int64_t product = (kernels->scratch(linear, (long)num_sources) + 63) / 64 * 64;
    int64_t longest = run->request->longest_source;
    char *memory = scratch_of(run, product + 4 * num_sources * (3 * width + gates) + 8 * num_sources);
    int64_t *active = (int64_t *)(memory + product);
    float *hidden = (float *)(active + num_sources), *cell = hidden + num_sources * width;
    float *joined = cell + num_sources * width, *from_state = joined + num_sources * width;
    memset(hidden, 0, (size_t)(2 * num_sources * width) * 4);
    for (int64_t position = 0; position < longest; position++) {
        int64_t count = 0;
        for (int64_t s = 0; s < num_sources; s++)
            if (position < run->request->lengths[s]) {
                memcpy(joined + count * width, hidden + s * width, (size_t)width * 4);
                active[count++] = s;
            }
        multiply_in(run, linear, joined, count, from_state, NO_ACTIVATION, memory);
        for (int64_t i = 0; i < count; i++) {
            int64_t s = active[i], length = run->request->lengths[s];
            int64_t word = run->first_word[s] + (backwards ? length - 1 - position : position);
            const float *input = row_of(run, input_gates, word);
            float *state = hidden + s * width, *inner = from_state + i * gates;
            if (is_lstm) {
                kernels->add_scaled(inner, input, 1, (long)gates);
                kernels->lstm(inner, state, cell + s * width, (long)width);
            } else {
                kernels->gru(input, inner, state, state, (long)width);
            }
            memcpy(row_of(run, out, word) + column, state, (size_t)width * 4);
        }
    }
}

/* Of given targets, the state before a row is the row before; of a target's first token, zeros. */
static void ssru(run_t *run, const operation_t *op) {
    int gates = op->slots[SSRU_gates], state = op->slots[SSRU_state];
    for (int64_t row = 0; row < run->rows; row++) {
        int64_t before = run->row_position && run->row_position[row] ? row - 1 : row;
        run->model->kernels->ssru(row_of(run, gates, row), row_of(run, state, before), row_of(run, state, row),
                                  row_of(run, OUT_OF(op), row), (long)width_of(run, state));
    }
}

static void additive_attention(run_t *run, const operation_t *op) {
    const kernels_t *kernels = run->model->kernels;
    int query = op->slots[ADDITIVE_query], keys = op->slots[ADDITIVE_keys], values = op->slots[ADDITIVE_values];
    int64_t width = width_of(run, query), out_width = width_of(run, OUT_OF(op));
    const float *score = vector_of(run, op->slots[ADDITIVE_score]);
    float score_sum = 0;
    for (int64_t i = 0; i < width; i++) score_sum += score[i];
    for (int64_t row = 0; row < run->rows; row++) {
        int64_t source = run->row_source[row], count = run->request->lengths[source];
        float *scores = scratch_of(run, count * 4), *out = row_of(run, OUT_OF(op), row);
        for (int64_t j = 0; j < count; j++)
            scores[j] = kernels->tanh_score(row_of(run, query, row), row_of(run, keys, run->first_word[source] + j),
                                            score, score_sum, (long)width);
        kernels->softmax(scores, 1, (long)count);
        memset(out, 0, (size_t)out_width * 4);
        for (int64_t j = 0; j < count; j++)
            kernels->add_scaled(out, row_of(run, values, run->first_word[source] + j), scores[j], (long)out_width);
    }
}

static void pool_words(run_t *run, int out, int words, int only_mean) {
    int64_t width = width_of(run, words);
    for (int64_t source = 0; source < run->request->num_sources; source++) {
        int64_t count = run->request->lengths[source], first = run->first_word[source];
        float *largest = row_of(run, out, source), *mean = only_mean ? largest : largest + width;
        if (!only_mean) {
            memcpy(largest, row_of(run, words, first), (size_t)width * 4);
            for (int64_t j = 1; j < count; j++)
                for (int64_t i = 0; i < width; i++) largest[i] = fmaxf(largest[i], row_of(run, words, first + j)[i]);
            memcpy(largest + 2 * width, row_of(run, words, first), (size_t)width * 4);
            memcpy(largest + 3 * width, row_of(run, words, first + count - 1), (size_t)width * 4);
        }
        memset(mean, 0, (size_t)width * 4);
        for (int64_t j = 0; j < count; j++)
            run->model->kernels->add_scaled(mean, row_of(run, words, first + j), 1.f / (float)count, (long)width);
    }
}

static float inner_product(const float *a, const float *b, int64_t count) {
    float sum = 0;
    for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

static void separable_routing(run_t *run, const operation_t *op) {
    const kernels_t *kernels = run->model->kernels;
    const int32_t *slots = op->slots;
    int votes = slots[SEPARABLE_ROUTING_votes], scores = slots[SEPARABLE_ROUTING_scores];
    const linear_t *inner_map = run->model->linears + slots[SEPARABLE_ROUTING_inner];
    const linear_t *outer_map = run->model->linears + slots[SEPARABLE_ROUTING_outer];
    int64_t capsules = slots[SEPARABLE_ROUTING_capsules], iterations = slots[SEPARABLE_ROUTING_iterations];
    int64_t sets = slots[SEPARABLE_ROUTING_sets], width = width_of(run, OUT_OF(op)) / capsules;
    int64_t longest = run->request->longest_source, hidden = 0, compared_width = width, product = 0;
    if (scores >= 0) {
        hidden = inner_map->outputs;
        compared_width = outer_map->outputs;
        product = kernels->scratch(inner_map, (long)capsules) + kernels->scratch(outer_map, (long)capsules) + 64;
    }
    product = (product + 63) / 64 * 64;
    char *memory = scratch_of(run, product + 4 * (2 * longest * capsules + capsules * (width + hidden + compared_width)));
    float *logits = (float *)(memory + product), *shares = logits + longest * capsules;
    float *placed = shares + longest * capsules, *inner = placed + capsules * width, *compared = inner + capsules * hidden;
    for (int64_t source = 0; source < run->request->num_sources; source++) {
        int64_t count = run->request->lengths[source], first = run->first_word[source];
        float *out = row_of(run, OUT_OF(op), source);
        memset(logits, 0, (size_t)(count * capsules) * 4);
        for (int64_t t = 0; t < iterations; t++) {
            int64_t start = (sets > 1 ? t : 0) * capsules * width;
            memcpy(shares, logits, (size_t)(count * capsules) * 4);
            memset(out, 0, (size_t)(capsules * width) * 4);
            for (int64_t j = 0; j < count; j++) {
                kernels->softmax(shares + j * capsules, 1, (long)capsules);
                for (int64_t c = 0; c < capsules; c++)
                    kernels->add_scaled(out + c * width, row_of(run, votes, first + j) + start + c * width,
                                        shares[j * capsules + c], (long)width);
            }
            for (int64_t c = 0; c < capsules; c++) kernels->squash(out + c * width, (long)width);
            if (t == iterations - 1) break;
            memcpy(placed, out, (size_t)(capsules * width) * 4);
            if (slots[SEPARABLE_ROUTING_positions] >= 0)
                kernels->add_scaled(placed, vector_of(run, slots[SEPARABLE_ROUTING_positions]), 1, (long)(capsules * width));
            const float *score = placed;
            if (scores >= 0) {
                multiply_in(run, inner_map, placed, capsules, inner, RELU, memory);
                multiply_in(run, outer_map, inner, capsules, compared, NO_ACTIVATION, memory);
                score = compared;
            }
            for (int64_t j = 0; j < count; j++)
                for (int64_t c = 0; c < capsules; c++) {
                    const float *word = scores >= 0 ? row_of(run, scores, first + j)
                                                   : row_of(run, votes, first + j) + start + c * width;
                    logits[j * capsules + c] += inner_product(word, score + c * compared_width, compared_width);
                }
        }
    }
}

typedef struct {
    const run_t *run;
    const operation_t *op;
    float *x;
    const float *residual;
} norm_t;

static void norm_rows(void *context, int64_t first, int64_t end, int thread) {
    const norm_t *norm = context;
    const int32_t *slots = norm->op->slots;
    int64_t width = width_of(norm->run, OUT_OF(norm->op));
    (void)thread;
    norm->run->model->kernels->add_norm(
        norm->x + first * width, norm->residual ? norm->residual + first * width : NULL,
        vector_of(norm->run, slots[NORM_gain]), vector_of(norm->run, slots[NORM_bias]), (long)(end - first),
        (long)width, norm->op->reals[NORM_epsilon]);
}

/* So many rows of a LINEAR or a NORM, from `first` on. */
static void execute_rows(run_t *run, const operation_t *op, int64_t first, int64_t count) {
    const int32_t *slots = op->slots;
#define FROM(buffer) row_of(run, buffer, run->model->buffers[buffer].passing ? 0 : first)
    float *out = FROM(OUT_OF(op));
    if (op->kind == LINEAR) {
        map(run, op, FROM(slots[LINEAR_source]), count * slots[LINEAR_fold], out);
        return;
    }
    norm_t norm = {run, op, out, slots[NORM_residual] < 0 ? NULL : FROM(slots[NORM_residual])};
#undef FROM
    team_share(run->team, count, width_of(run, OUT_OF(op)) * COST_OF_KEY, norm_rows, &norm);
}

/* Operations that run together on some rows. */
static void execute_together(run_t *run, const operation_t *ops, int64_t num_ops) {
    int64_t rows = rows_of(run, space_of(run, OUT_OF(ops)));
    int64_t parts = (rows + ROWS_AT_ONCE / 2) / ROWS_AT_ONCE, at_once = parts ? (rows + parts - 1) / parts : rows;
    for (int64_t first = 0; first < rows; first += at_once)
        for (int64_t i = 0; i < num_ops; i++)
            execute_rows(run, ops + i, first, rows - first < at_once ? rows - first : at_once);
}

static void weighted_sum(run_t *run, const operation_t *op) {
    int64_t rows = rows_of(run, space_of(run, OUT_OF(op))), width = width_of(run, OUT_OF(op));
    for (int64_t row = 0; row < rows; row++) {
        const float *weights = row_of(run, op->slots[WEIGHTED_SUM_weights], row);
        const float *parts = row_of(run, op->slots[WEIGHTED_SUM_parts], row);
        for (int64_t i = 0; i < width; i++) {
            float sum = 0;
            for (int64_t part = 0; part < op->slots[WEIGHTED_SUM_count]; part++)
                sum += weights[part * width + i] * parts[part * width + i];
            row_of(run, OUT_OF(op), row)[i] = sum;
        }
    }
}

static void execute(run_t *run, const operation_t *op) {
    const kernels_t *kernels = run->model->kernels;
    const int32_t *slots = op->slots;
    int64_t rows = rows_of(run, space_of(run, OUT_OF(op))), width = width_of(run, OUT_OF(op));
    float *out = run->values[OUT_OF(op)];
    switch ((enum kind)op->kind) {
        case EMBED: embed(run, op); break;
        case LINEAR:
            if (run->request->targets && OUT_OF(op) == run->model->logits) break; /* see `score_rows` */
            execute_rows(run, op, 0, rows);
            break;
        case NORM: execute_rows(run, op, 0, rows); break;
        case ADD: kernels->add_scaled(out, run->values[slots[ADD_addend]], 1, (long)(rows * width)); break;
        case COPY: copy(run, op); break;
        case ATTEND_WORDS: attend_words(run, op); break;
        case ATTEND_PAST: attend_past(run, op); break;
        case ATTEND_SOURCE: attend_source(run, op); break;
        case EM_ROUTING:
            route(run, op, slots[EM_ROUTING_inputs], slots[EM_ROUTING_capsules], slots[EM_ROUTING_width],
                  slots[EM_ROUTING_iterations], em_rows);
            break;
        case DYNAMIC_ROUTING:
            route(run, op, slots[DYNAMIC_ROUTING_inputs], slots[DYNAMIC_ROUTING_capsules],
                  slots[DYNAMIC_ROUTING_width], slots[DYNAMIC_ROUTING_iterations], dynamic_rows);
            break;
        case GUIDED_START: guided_start(run, op); break;
        case EXP_TWICE: kernels->exp_twice(out, (long)(rows * width)); break;
        case GUIDED_ROUTING: guided_routing(run, op); break;
        case LSTM_WORDS:
            recur_over_words(run, OUT_OF(op), slots[LSTM_WORDS_gates], run->model->linears + slots[LSTM_WORDS_map],
                             slots[LSTM_WORDS_backwards], slots[LSTM_WORDS_column], 1);
            break;
        case GRU_WORDS:
            recur_over_words(run, OUT_OF(op), slots[GRU_WORDS_gates], run->model->linears + slots[GRU_WORDS_map],
                             slots[GRU_WORDS_backwards], slots[GRU_WORDS_column], 0);
            break;
        case LSTM_STEP:
            for (int64_t row = 0; row < rows; row++)
                kernels->lstm(row_of(run, slots[LSTM_STEP_gates], row), out + row * width,
                              row_of(run, slots[LSTM_STEP_cell], row), (long)width);
            break;
        case GRU_STEP:
            for (int64_t row = 0; row < rows; row++)
                kernels->gru(row_of(run, slots[GRU_STEP_from_input], row),
                             row_of(run, slots[GRU_STEP_from_state], row), row_of(run, slots[GRU_STEP_state], row),
                             out + row * width, (long)width);
            break;
        case SSRU: ssru(run, op); break;
        case ADDITIVE: additive_attention(run, op); break;
        case MEAN_WORDS: pool_words(run, OUT_OF(op), slots[MEAN_WORDS_words], 1); break;
        case POOL_WORDS: pool_words(run, OUT_OF(op), slots[POOL_WORDS_words], 0); break;
        case SEPARABLE_ROUTING: separable_routing(run, op); break;
        case ADD_POSITIONS:
            for (int64_t row = 0; row < rows; row++)
                kernels->add_scaled(out + row * width, vector_of(run, slots[ADD_POSITIONS_positions]) +
                                    run->word_position[row] * width, 1, (long)width);
            break;
        case ACTIVATE: {
            int column = slots[ACTIVATE_column];
            for (int64_t row = 0; row < rows; row++)
                kernels->apply(out + row * width + column, (long)(width - column), slots[ACTIVATE_activation]);
            break;
        }
        case WEIGHTED_SUM: weighted_sum(run, op); break;
        case NUM_KINDS: break; /* programs.c lets none through */
    }
}

void run_program(run_t *run, int which) {
    for (int64_t i = 0, together; i < run->model->num_operations[which]; i += together > 1 ? together : 1) {
        const operation_t *op = run->model->programs[which] + i;
        together = goes_by_rows(run->model, which, i);
        must_finish(run);
        if (together > 1) execute_together(run, op, together);
        else execute(run, op);
    }
}

void score_rows(run_t *run, int64_t first, int64_t count) {
    const operation_t *head = run->model->head;
    map(run, head, row_of(run, head->slots[LINEAR_source], first), count, run->values[OUT_OF(head)]);
}
