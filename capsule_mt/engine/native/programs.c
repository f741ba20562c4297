/* Checks that programs and requests fit a model, which the operations rely on; plans which buffers share memory. */
#include "model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_CACHES 1024
#define MAX_WIDTH (1 << 27) /* as MAX_NUMBER of models/settings.py */

#if defined(_MSC_VER)
#define THREAD_LOCAL __declspec(thread)
#else
#define THREAD_LOCAL __thread
#endif

static THREAD_LOCAL char message[256];

const char *engine_error(void) { return message; }

int refuse(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    return REFUSED;
}

/* The name of each kind of operation, and what its slots refer to. */
enum slot { NO_SLOT, OUT, BUFFER, MAYBE_BUFFER, MAP, MAYBE_MAP, VECTOR, MAYBE_VECTOR, TABLE, NUMBER, REAL };
static const struct {
    const char *name;
    char slots[MAX_SLOTS];
} kinds[] = {
#define OUT(slot) OUT
#define BUFFER(slot) BUFFER
#define MAYBE_BUFFER(slot) MAYBE_BUFFER
#define MAP(slot) MAP
#define MAYBE_MAP(slot) MAYBE_MAP
#define VECTOR(slot) VECTOR
#define MAYBE_VECTOR(slot) MAYBE_VECTOR
#define TABLE(slot) TABLE
#define NUMBER(slot) NUMBER
#define OPTION(slot, preset) NUMBER
#define REAL(slot) REAL
#define OPERATION(name, help, wants, ...) {#name, {__VA_ARGS__}},
#include "../operations.def"
#undef OPERATION
};

/* Checks that every slot names a buffer, a map or a vector that exists. */
static int check_slots(const model_t *model, const operation_t *op) {
    const char *slots = kinds[op->kind].slots;
    for (int i = 0; i < MAX_SLOTS && slots[i] != NO_SLOT; i++) {
        int is_maybe = slots[i] == MAYBE_BUFFER || slots[i] == MAYBE_MAP || slots[i] == MAYBE_VECTOR, count = 0;
        switch ((enum slot)slots[i]) {
            case OUT: case BUFFER: case MAYBE_BUFFER: count = model->num_buffers; break;
            case MAP: case MAYBE_MAP: count = model->num_linears; break;
            case VECTOR: case MAYBE_VECTOR: case TABLE: count = model->num_vectors; break;
            case NO_SLOT: case NUMBER: case REAL: continue;
        }
        if (op->slots[i] >= count || op->slots[i] < (is_maybe ? -1 : 0))
            return refuse("slot %d of %s is %d, of %d", i, kinds[op->kind].name, op->slots[i], count);
        int is_vector = slots[i] == VECTOR || slots[i] == MAYBE_VECTOR;
        if ((is_vector || slots[i] == TABLE) && op->slots[i] >= 0 &&
            model->vectors[op->slots[i]].is_table == is_vector)
            return refuse("slot %d of %s is a %s", i, kinds[op->kind].name, is_vector ? "table" : "vector");
        if ((slots[i] != MAP && slots[i] != MAYBE_MAP) || op->slots[i] < 0) continue;
        const linear_t *linear = model->linears + op->slots[i];
        if (!linear->bias) return refuse("slot %d of %s is a map without weights", i, kinds[op->kind].name);
        if (linear->by_row && (op->kind != LINEAR || OUT_OF(op) != model->logits))
            return refuse("slot %d of %s is a map by row, which only the head may be", i, kinds[op->kind].name);
    }
    return 0;
}

/* Checks that sizes fit each other: every WANT of the operation holds. */
static int check_sizes(const model_t *model, const operation_t *op, int program) {
    const char *violated = NULL;
    int64_t width = model->buffers[OUT_OF(op)].width;
    int space = model->buffers[OUT_OF(op)].space, of_words = space == OF_WORDS, of_step = space >= OF_HYPOTHESES;
#define SLOT(slot) ((int64_t)op->slots[slot])
#define WIDTH(slot) model->buffers[op->slots[slot]].width
#define COUNT(slot) model->vectors[op->slots[slot]].count
#define ROW_WIDTH(slot) model->vectors[op->slots[slot]].width
#define SPACE(slot) model->buffers[op->slots[slot]].space
#define INPUTS(slot) model->linears[op->slots[slot]].inputs
#define OUTPUTS(slot) model->linears[op->slots[slot]].outputs
#define SAME_ROWS(slot) (SPACE(slot) == space || (SPACE(slot) >= OF_HYPOTHESES && of_step))
#if defined(__wasm__) /* where the texts of the conditions would be a twentieth of the module */
#define WANT(condition) \
    if (!violated && !(condition)) violated = "a condition on its sizes";
#else /* not by a macro inside: it would expand the names that the text shows */
#define WANT(condition) \
    if (!violated && !(condition)) violated = #condition;
#endif
#define ANYTHING
    if (of_step != program)
        return refuse("%s: rows of the %s", kinds[op->kind].name,
                      of_step ? "decoder, in the encoder" : "encoder, in the decoder");
    WANT(width > 0)
    switch ((enum kind)op->kind) {
#define OPERATION(name, help, wants, ...) case name: wants break;
#include "../operations.def"
#undef OPERATION
        case NUM_KINDS: break;
    }
    return violated ? refuse("%s: %s does not hold", kinds[op->kind].name, violated) : 0;
}

/* Lowers the model's limits for tokens and positions to the rows that an operation's tables have. */
static void note_limits(model_t *model, const operation_t *op) {
    int64_t width = model->buffers[OUT_OF(op)].width, rows = INT64_MAX, positions = INT64_MAX;
    int of_words = model->buffers[OUT_OF(op)].space == OF_WORDS;
    if (op->kind == EMBED) {
        rows = COUNT(EMBED_table) / width;
        if (op->slots[EMBED_positions] >= 0) positions = COUNT(EMBED_positions) / width;
    }
    if (op->kind == ADD_POSITIONS) positions = COUNT(ADD_POSITIONS_positions) / width;
    int64_t *limit = of_words ? &model->longest_source : &model->longest_target;
    if (of_words && rows < model->source_vocabulary) model->source_vocabulary = rows;
    if (positions < *limit) *limit = positions;
}

/* Finds the first and the last operation that need each buffer; the decoder's operations count on from the encoder's. All
 * operations need a buffer that persists from one position to the next; a buffer that is read before it is written
 * lives from the first operation on. */
static void find_lifetimes(const model_t *model, int64_t *first, int64_t *last) {
    int64_t encoder = model->num_operations[ENCODER], num_operations = encoder + model->num_operations[DECODER];
    for (int i = 0; i < model->num_buffers; i++) first[i] = last[i] = -1;
    for (int64_t t = 0; t < num_operations; t++) {
        const operation_t *op = t < encoder ? model->programs[ENCODER] + t : model->programs[DECODER] + t - encoder;
        for (int i = MAX_SLOTS - 1; i >= 0; i--) { /* what is read, then what is written */
            int slot = kinds[op->kind].slots[i], buffer = op->slots[i];
            if ((slot != OUT && slot != BUFFER && slot != MAYBE_BUFFER) || buffer < 0) continue;
            int stays = model->buffers[buffer].space == OF_STATES || buffer == model->logits ||
                        (slot == OUT && op->kind == COPY && op->slots[COPY_once]);
            int is_late = t >= encoder && first[buffer] >= 0 && first[buffer] < encoder;
            if (first[buffer] < 0 || stays) first[buffer] = stays || slot != OUT ? 0 : t;
            int stays_to_end = stays || is_late || op == model->head; /* of a head: see `score_rows` */
            if (last[buffer] < num_operations) last[buffer] = stays_to_end ? num_operations : t;
        }
    }
}

int64_t num_fused(const model_t *model, int program, int64_t first) {
    const operation_t *ops = model->programs[program];
    int64_t end = first;
    for (; end < model->num_operations[program]; end++) {
        const operation_t *op = ops + end;
        if ((op->kind != LINEAR && op->kind != NORM) || op == model->head) break;
        if (model->buffers[OUT_OF(op)].space != model->buffers[OUT_OF(ops + first)].space) break;
    }
    return end - first;
}

/* Extends lifetimes to whole groups of fused operations, which run together on a block of rows. A buffer that only
 * passes rows inside a group is transient. */
static void join_lifetimes(model_t *model, int64_t *first, int64_t *last) {
    int64_t encoder = model->num_operations[ENCODER], num_operations = encoder + model->num_operations[DECODER];
    int64_t count = 1;
    for (int i = 0; i < model->num_buffers; i++) model->buffers[i].is_transient = 0;
    for (int64_t t = 0; t < num_operations; t += count) {
        int64_t fused = t < encoder ? num_fused(model, ENCODER, t) : num_fused(model, DECODER, t - encoder);
        count = fused > 1 ? fused : 1;
        for (int i = 0; i < model->num_buffers; i++) {
            int begins = first[i] >= t && first[i] < t + count, ends = last[i] >= t && last[i] < t + count;
            model->buffers[i].is_transient |= begins && ends && fused > 1;
            if (begins && !ends) first[i] = t;
            if (ends && !begins) last[i] = t + count - 1;
        }
    }
}

int plan_memory(model_t *model) {
    size_t count = (size_t)model->num_buffers + 1;
    int64_t *first = malloc(count * 8), *last = malloc(count * 8), *free_after = malloc(count * 8);
    free(model->regions);
    model->regions = malloc(count * sizeof(buffer_t));
    model->num_regions = 0;
    int failed = !first || !last || !free_after || !model->regions ? NO_MEMORY : 0;
    if (!failed) {
        find_lifetimes(model, first, last);
        join_lifetimes(model, first, last);
        for (int i = 0; i < model->num_buffers; i++)
            if (first[i] < 0) first[i] = last[i] = 0; /* unused, but needs a region: states are cleared */
    }
    for (int64_t t = 0; !failed && t < model->num_operations[ENCODER] + model->num_operations[DECODER]; t++)
        for (int i = 0; i < model->num_buffers; i++) {
            buffer_t *buffer = model->buffers + i;
            if (first[i] != t) continue;
            int region = 0, space = buffer->is_transient ? OF_BLOCKS : buffer->space;
            while (region < model->num_regions &&
                   (free_after[region] >= t || model->regions[region].space != space)) region++;
            if (region == model->num_regions) model->regions[model->num_regions++] = (buffer_t){space, 0, region, 0};
            if (buffer->width > model->regions[region].width) model->regions[region].width = buffer->width;
            free_after[region] = last[i];
            buffer->region = region;
        }
    free(first);
    free(last);
    free(free_after);
    return failed;
}

/* Checks the numbers whose products are sizes of memory. */
static int check_buffers(const model_t *model) {
    if (model->num_caches < 0 || model->num_caches > MAX_CACHES)
        return refuse("%lld caches, of at most %d", (long long)model->num_caches, MAX_CACHES);
    for (int i = 0; i < model->num_buffers; i++) {
        const buffer_t *buffer = model->buffers + i;
        if (buffer->space < OF_WORDS || buffer->space > OF_STATES)
            return refuse("buffer %d is of space %d", i, buffer->space);
        if (buffer->width < 1 || buffer->width > MAX_WIDTH)
            return refuse("buffer %d has the width %lld", i, (long long)buffer->width);
    }
    return 0;
}

/* Checks that no operation but the head uses the logits, which have fewer rows where targets are scored, and that each
 * cache has one width, that of its only operation. */
static int check_owners(const model_t *model) {
    char is_used[MAX_CACHES] = {0};
    for (int program = ENCODER; program <= DECODER; program++)
        for (int64_t i = 0; i < model->num_operations[program]; i++) {
            const operation_t *op = model->programs[program] + i;
            for (int slot = 0; slot < MAX_SLOTS && op != model->head; slot++) {
                int kind = kinds[op->kind].slots[slot];
                if ((kind == OUT || kind == BUFFER || kind == MAYBE_BUFFER) && op->slots[slot] == model->logits)
                    return refuse("%s uses the buffer of the logits", kinds[op->kind].name);
            }
            if (op->kind != ATTEND_PAST) continue;
            char *is_taken = is_used + op->slots[ATTEND_PAST_cache];
            if (*is_taken) return refuse("two operations use cache %d", op->slots[ATTEND_PAST_cache]);
            *is_taken = 1;
        }
    return 0;
}

int check_programs(model_t *model) {
    const operation_t *head = NULL;
    int is_encoder = !model->num_operations[DECODER];
    if (check_buffers(model)) return REFUSED;
    model->source_vocabulary = model->longest_source = model->longest_target = INT64_MAX;
    model->is_recurrent = 0;
    for (int program = ENCODER; program <= DECODER; program++)
        for (int64_t i = 0; i < model->num_operations[program]; i++) {
            const operation_t *op = model->programs[program] + i;
            if (op->kind < 0 || op->kind >= NUM_KINDS) return refuse("there is no operation %d", op->kind);
            if (check_slots(model, op) || check_sizes(model, op, program)) return REFUSED;
            note_limits(model, op);
            if ((program == DECODER || is_encoder) && OUT_OF(op) == model->logits) head = op;
            model->is_recurrent |= model->buffers[OUT_OF(op)].space == OF_STATES;
        }
    if (is_encoder) {
        if (!head || model->buffers[model->logits].space != OF_WORDS)
            return refuse("there is no decoder, and the encoder writes no buffer of words that is returned");
        model->is_encoder = 1;
        return 0;
    }
    if (!head || head->kind != LINEAR || head->slots[LINEAR_fold] != 1)
        return refuse("no linear map of the decoder writes the logits");
    model->head = head;
    if (model->buffers[model->logits].width != model->vocabulary)
        return refuse("%lld logits for a vocabulary of %lld", (long long)model->buffers[model->logits].width,
                      (long long)model->vocabulary);
    return check_owners(model);
}

/* Checks that tokens are in a vocabulary. */
static int check_tokens(const char *name, const int64_t *tokens, int64_t count, int64_t vocabulary) {
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= vocabulary)
            return refuse("%s: token %lld is outside the vocabulary of %lld", name, (long long)tokens[i],
                          (long long)vocabulary);
    return 0;
}

/* Checks that the model has the head that the request reads. */
static int check_readings(const model_t *model, const request_t *request) {
    int has_head = 0;
    for (int64_t i = 0; i < model->num_operations[DECODER]; i++) {
        const operation_t *op = model->programs[DECODER] + i;
        if (op->kind != ATTEND_SOURCE || op->slots[ATTEND_SOURCE_layer] != request->layer || request->layer < 0) continue;
        has_head = request->head >= 0 && request->head < op->slots[ATTEND_SOURCE_heads];
        if (!has_head) break; /* every operation of this layer is read */
    }
    if (request->attention && !has_head)
        return refuse("the model has no head %lld in layer %lld that attends to the source", (long long)request->head,
                      (long long)request->layer);
    return 0;
}

/* Checks the tokens of each source: at least `min_tokens`, at most its limit. */
static int check_lists(const model_t *model, const char *name, const int64_t *tokens, const int64_t *lengths,
                       const int64_t *limits, int64_t num_sources, int64_t min_tokens) {
    for (int64_t i = 0; i < num_sources; i++) {
        if (lengths[i] < min_tokens)
            return refuse("%s %lld has %lld tokens, at least %lld must be there", name, (long long)i,
                          (long long)lengths[i], (long long)min_tokens);
        if (lengths[i] > limits[i])
            return refuse("%s %lld has %lld tokens, the limit is %lld", name, (long long)i, (long long)lengths[i],
                          (long long)limits[i]);
        if (check_tokens(name, tokens, lengths[i], model->vocabulary)) return REFUSED;
        tokens += lengths[i];
    }
    return 0;
}

/* Checks that the sources fit the model's positions. */
static int check_sources(const model_t *model, const request_t *request) {
    int64_t longest_source = 0;
    for (int64_t i = 0; i < request->num_sources; i++) {
        if (request->lengths[i] < 1) return refuse("source %lld has no token", (long long)i);
        if (request->lengths[i] > longest_source) longest_source = request->lengths[i];
    }
    if (longest_source > model->longest_source)
        return refuse("a source of %lld tokens, but there are positions for %lld", (long long)longest_source,
                      (long long)model->longest_source);
    if (longest_source != request->longest_source)
        return refuse("the longest source has %lld tokens", (long long)longest_source);
    return 0;
}

/* Checks that the limits fit the model's positions. */
static int check_limits(const model_t *model, const request_t *request) {
    for (int64_t i = 0; i < request->num_sources; i++)
        if (request->limits[i] < 1 || request->limits[i] > request->longest)
            return refuse("the limit of source %lld is %lld", (long long)i, (long long)request->limits[i]);
    if (request->longest > model->longest_target)
        return refuse("a limit of %lld tokens, but there are positions for %lld", (long long)request->longest,
                      (long long)model->longest_target);
    return 0;
}

/* Checks tokens of 32 bits. */
static int check_small_tokens(const model_t *model, const char *name, const int32_t *tokens, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        int64_t token = tokens[i];
        if (check_tokens(name, &token, 1, model->vocabulary)) return REFUSED;
    }
    return 0;
}

static int check_source_tokens(const model_t *model, const request_t *request) {
    int64_t num_words = 0;
    for (int64_t i = 0; i < request->num_sources; i++) num_words += request->lengths[i];
    return check_tokens("the source", request->words, num_words, model->source_vocabulary);
}

/* Checks all tokens of a request. */
static int check_vocabulary(const model_t *model, const request_t *request) {
    int64_t num_candidates = request->candidates ? request->num_candidates : 0;
    int64_t end = request->end_token < 0 ? 0 : request->end_token; /* a negative one is none */
    if (request->prefixes && check_lists(model, "prefix", request->prefixes, request->prefix_lengths, request->limits,
                                         request->num_sources, 0))
        return REFUSED;
    if (request->targets && check_lists(model, "target", request->targets, request->target_lengths, request->limits,
                                        request->num_sources, 1))
        return REFUSED;
    for (int64_t i = 1; i < num_candidates; i++)
        if (request->candidates[i] <= request->candidates[i - 1])
            return refuse("the shortlist: tokens must ascend, but %d follows %d", request->candidates[i],
                          request->candidates[i - 1]);
    if (check_small_tokens(model, "the shortlist", request->candidates, num_candidates) ||
        check_small_tokens(model, "suppress_tokens", request->suppress_tokens, request->num_suppress_tokens) ||
        check_source_tokens(model, request) ||
        check_tokens("the start token", &request->start_token, 1, model->vocabulary) ||
        check_tokens("the end token", &end, 1, model->vocabulary))
        return REFUSED;
    return 0;
}

/* Checks a request of a model without a decoder: nothing may make the operations look for one. */
static int check_encoding(const model_t *model, const request_t *request) {
    if (!request->encoded || request->num_beams || request->longest || request->targets || request->candidates ||
        request->attention)
        return refuse("the model has no decoder: it encodes sources, and does nothing else");
    return check_sources(model, request) || check_source_tokens(model, request) ? REFUSED : 0;
}

int check_request(const model_t *model, const request_t *request) {
    if (model->is_encoder) return check_encoding(model, request);
    if (!model->head) return refuse("the model has no programs");
    if (request->encoded) return refuse("the model has a decoder: it does not return what it encodes");
    if (check_readings(model, request) || check_sources(model, request) || check_limits(model, request)) return REFUSED;
    if (request->num_beams < 1 || request->num_return_sequences < 1 ||
        request->num_return_sequences > request->num_beams)
        return refuse("%lld translations of %lld beams", (long long)request->num_return_sequences,
                      (long long)request->num_beams);
    return check_vocabulary(model, request);
}
