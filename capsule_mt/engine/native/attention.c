/* Attention to the words of a source, to the hypotheses' own past, and from a recurrent decoder (additive). */
#include "operations.h"

typedef struct {
    run_t *run;
    int out, query;       /* buffers */
    int64_t heads, width; /* width of all heads */
    int64_t bytes;        /* of a row's keys, and also of its values, which follow them */
    const char *stored;   /* the keys and values to attend to, side by side; NULL if the cache has those of each step */
    int64_t cache;        /* the index of the cache, or -1 */
    int64_t head;         /* the head whose attention is recorded, or -1 */
    int is_streamed;      /* each step reads the keys again, and few rows share them: the next ones are prefetched */
    float *scores;
} attention_t;

/* Stores the keys and the values of a buffer's rows; `keys` and `values` are the columns where they begin. */
static void store_rows(run_t *run, const attention_t *attention, int buffer, int64_t keys, int64_t values, int64_t rows,
                      char *stored) {
    const kernels_t *kernels = run->model->kernels;
    long heads = (long)attention->heads, width = (long)(attention->width / attention->heads);
    for (int64_t row = 0; row < rows; row++, stored += 2 * attention->bytes) {
        const float *numbers = row_of(run, buffer, row);
        kernels->store_heads(numbers + keys, heads, width, run->model->halves, stored);
        kernels->store_heads(numbers + values, heads, width, run->model->halves, stored + attention->bytes);
    }
}

/* Points `keys` at the past of a hypothesis: at each step another row, its ancestor there. Returns how many there are. */
static long find_past(const attention_t *attention, int64_t row, const char **keys) {
    const run_t *run = attention->run;
    const int32_t *ancestors = run->rows.ancestors + row * run->rows.max_steps;
    char **blocks = run->cache.past + attention->cache * run->rows.max_steps;
    int64_t bytes = 2 * attention->bytes, step = run->rows.step;
    for (int64_t j = 0; j < step; j++) keys[j] = blocks[j] + ancestors[j] * bytes;
    keys[step] = blocks[step] + row * bytes;
    return (long)step + 1;
}

/* Points `keys` at rows that lie side by side: the words of a source, or the positions of a given target up to this one. */
static long find_stored(const attention_t *attention, int64_t row, const char **keys) {
    const run_t *run = attention->run;
    int64_t source = source_of(run, space_of(run, attention->out), row), first = run->words.first[source];
    int64_t num_keys = run->request->lengths[source];
    if (attention->cache >= 0) {
        num_keys = run->rows.position[row] + 1;
        first = row + 1 - num_keys;
    }
    for (int64_t j = 0; j < num_keys; j++) keys[j] = attention->stored + (first + j) * 2 * attention->bytes;
    return (long)num_keys;
}

static long find_keys(const attention_t *attention, int64_t row, const char **keys) {
    return attention->stored ? find_stored(attention, row, keys) : find_past(attention, row, keys);
}

/* If a row has this many bytes of keys and values, a batch's have left the cache since the last step. Tests under sanitizers
 * have small models. */
#if defined(IS_SANITIZED)
#define MIN_FAR_BYTES 0
#else
#define MIN_FAR_BYTES (64 << 10)
#endif

/* Points `keys` at what this row attends to, to be prefetched while the row before attends to its own. Returns how many there
 * are: none if the cache has them. */
static long find_next_keys(const attention_t *attention, const queries_t *queries, int64_t row, int64_t end,
                           const char **keys) {
    int is_far = queries->num_keys * 2 * attention->bytes >= MIN_FAR_BYTES;
    return attention->is_streamed && is_far && row * attention->heads < end ? find_keys(attention, row, keys) : 0;
}

/* Returns how many rows from this one on, up to item `end`, attend to the same words: their keys are read once. */
static long num_together(const attention_t *attention, int64_t row, int64_t end) {
    const run_t *run = attention->run;
    int space = space_of(run, attention->out);
    long rows = 1;
    if (!attention->stored || attention->cache >= 0) return rows;
    while (rows < MAX_QUERIES && (row + rows + 1) * attention->heads <= end &&
           source_of(run, space, row + rows) == source_of(run, space, row)) rows++;
    return rows;
}

/* Attends for items `first` to `end`: an item is a head of a row. */
static void attend(void *context, int64_t first, int64_t end, int thread) {
    const attention_t *attention = context;
    run_t *run = attention->run;
    int64_t heads = attention->heads;
    const char **keys = run->cache.keys + thread * 2 * run->cache.max_keys, **next_keys = keys + run->cache.max_keys;
    queries_t queries = {.query_step = (long)width_of(run, attention->query), .heads = (long)heads,
                         .width = (long)(attention->width / heads), .keys = keys,
                         .value_offset = (long)attention->bytes, .halves = run->model->halves,
                         .scores = attention->scores + thread * MAX_QUERIES * run->cache.max_keys * heads,
                         .next_keys = next_keys};
    for (int64_t row = first / heads; row * heads < end; row += queries.rows) {
        int64_t first_head = row * heads < first ? first - row * heads : 0;
        int64_t end_head = end - row * heads < heads ? end - row * heads : heads;
        queries.num_keys = find_keys(attention, row, keys);
        queries.rows = first_head ? 1 : num_together(attention, row, end);
        queries.num_next_keys = find_next_keys(attention, &queries, row + queries.rows, end, next_keys);
        queries.query = row_of(run, attention->query, row);
        queries.output = row_of(run, attention->out, row);
        run->model->kernels->attend(&queries, (long)first_head, (long)end_head);
        if (attention->head < first_head || attention->head >= end_head) continue;
        for (int64_t r = 0; r < queries.rows; r++)
            memcpy(attended_by(run, run->rows.step, row + r),
                   queries.scores + (r * heads + attention->head) * queries.num_keys, (size_t)queries.num_keys * 4);
    }
}

static attention_t new_attention(run_t *run, const operation_t *op, int query, int64_t heads) {
    int64_t width = width_of(run, OUT_OF(op));
    int64_t bytes = run->model->kernels->stored_bytes((long)heads, (long)(width / heads), run->model->halves);
    return (attention_t){.run = run, .out = OUT_OF(op), .query = query, .heads = heads, .width = width,
                         .bytes = bytes, .cache = -1, .head = -1};
}

/* Bytes of the scores of all threads. */
static int64_t scores_size(const run_t *run, const attention_t *attention) {
    return team_size(run->team) * MAX_QUERIES * run->cache.max_keys * attention->heads * 4;
}

static void share_attention(run_t *run, attention_t *attention, int64_t num_keys) {
    int64_t heads = attention->heads, rows = num_rows(run, space_of(run, attention->out));
    team_share(run->team, rows * heads, num_keys * attention->width / heads * COST_OF_KEY, attend, attention);
}

void attend_words(run_t *run, const operation_t *op) {
    int joined = op->slots[ATTEND_WORDS_joined];
    attention_t attention = new_attention(run, op, joined, op->slots[ATTEND_WORDS_heads]);
    int64_t width = attention.width, scores = aligned(scores_size(run, &attention));
    char *memory = scratch_of(run, scores + run->words.count * 2 * attention.bytes);
    attention.scores = (float *)memory;
    attention.stored = memory + scores;
    store_rows(run, &attention, joined, width, 2 * width, run->words.count, memory + scores);
    share_attention(run, &attention, run->words.count / run->request->num_sources);
}

void attend_source(run_t *run, const operation_t *op) {
    const request_t *request = run->request;
    attention_t attention = new_attention(run, op, op->slots[ATTEND_SOURCE_query], op->slots[ATTEND_SOURCE_heads]);
    if (run->attended && op->slots[ATTEND_SOURCE_layer] == request->layer) {
        run->attended[run->rows.step] = take(run, run->rows.count * request->longest_source * 4);
        attention.head = request->head;
    }
    char **stored = run->cache.source + (op - run->model->programs[DECODER]);
    if (!*stored) { /* the first step: the words stay the same */
        int64_t keys = op->slots[ATTEND_SOURCE_keys], values = keys + op->slots[ATTEND_SOURCE_values];
        *stored = take(run, run->words.count * 2 * attention.bytes);
        store_rows(run, &attention, op->slots[ATTEND_SOURCE_memory], keys, values, run->words.count, *stored);
    }
    attention.stored = *stored;
    attention.is_streamed = !run->rows.position;
    attention.scores = scratch_of(run, scores_size(run, &attention));
    share_attention(run, &attention, run->words.count / request->num_sources);
}

void attend_past(run_t *run, const operation_t *op) {
    int joined = op->slots[ATTEND_PAST_joined];
    attention_t attention = new_attention(run, op, joined, op->slots[ATTEND_PAST_heads]);
    int64_t width = attention.width;
    attention.cache = op->slots[ATTEND_PAST_cache];
    char *block = take(run, run->rows.count * 2 * attention.bytes);
    store_rows(run, &attention, joined, width, 2 * width, run->rows.count, block);
    if (run->rows.position) attention.stored = block;
    else run->cache.past[attention.cache * run->rows.max_steps + run->rows.step] = block;
    attention.is_streamed = !run->rows.position;
    attention.scores = scratch_of(run, scores_size(run, &attention));
    int64_t mean_past = run->request->longest / 2 + 1; /* of the positions of a target that are computed at once */
    share_attention(run, &attention, run->rows.position ? mean_past : run->rows.step + 1);
}

void attend_additively(run_t *run, const operation_t *op) {
    const kernels_t *kernels = run->model->kernels;
    int query = op->slots[ADDITIVE_query], keys = op->slots[ADDITIVE_keys], values = op->slots[ADDITIVE_values];
    int64_t width = width_of(run, query), out_width = width_of(run, OUT_OF(op));
    const float *score = vector_of(run, op->slots[ADDITIVE_score]);
    float score_sum = 0;
    for (int64_t i = 0; i < width; i++) score_sum += score[i];
    for (int64_t row = 0; row < run->rows.count; row++) {
        int64_t source = run->rows.source[row], count = run->request->lengths[source];
        float *weights = scratch_of(run, count * 4), *out = row_of(run, OUT_OF(op), row);
        for (int64_t j = 0; j < count; j++)
            weights[j] = kernels->tanh_score(row_of(run, query, row), row_of(run, keys, run->words.first[source] + j),
                                             score, score_sum, (long)width);
        kernels->softmax(weights, 1, (long)count);
        memset(out, 0, (size_t)out_width * 4);
        for (int64_t j = 0; j < count; j++)
            kernels->add_scaled(out, row_of(run, values, run->words.first[source] + j), weights[j], (long)out_width);
    }
}
