/* Whether programs and requests fit a model: what is checked here, the operations rely on. */
#include "run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(_MSC_VER)
#define THREAD_LOCAL __declspec(thread)
#else
#define THREAD_LOCAL __thread
#endif

static THREAD_LOCAL char message[256];

const char *engine_error(void) { return message; }

int wrong(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    return IS_WRONG;
}

/* The slots of each kind. */
enum slot { NO_SLOT, OUT, BUFFER, MAYBE_BUFFER, MAP, MAYBE_MAP, VECTOR, MAYBE_VECTOR, TABLE, NUMBER, REAL };
static const struct {
    const char *name;
    char slots[MOST_SLOTS];
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

/* The slots name what there is. */
static int check_slots(const model_t *model, const operation_t *op) {
    const char *slots = kinds[op->kind].slots;
    for (int i = 0; i < MOST_SLOTS && slots[i] != NO_SLOT; i++) {
        int is_maybe = slots[i] == MAYBE_BUFFER || slots[i] == MAYBE_MAP || slots[i] == MAYBE_VECTOR, count = 0;
        switch ((enum slot)slots[i]) {
            case OUT: case BUFFER: case MAYBE_BUFFER: count = model->num_buffers; break;
            case MAP: case MAYBE_MAP: count = model->num_linears; break;
            case VECTOR: case MAYBE_VECTOR: case TABLE: count = model->num_vectors; break;
            case NO_SLOT: case NUMBER: case REAL: continue;
        }
        if (op->slots[i] >= count || op->slots[i] < (is_maybe ? -1 : 0))
            return wrong("slot %d of %s is %d, of %d", i, kinds[op->kind].name, op->slots[i], count);
        int is_vector = slots[i] == VECTOR || slots[i] == MAYBE_VECTOR;
        if ((is_vector || slots[i] == TABLE) && op->slots[i] >= 0 &&
            model->vectors[op->slots[i]].is_table == is_vector)
            return wrong("slot %d of %s is a %s", i, kinds[op->kind].name, is_vector ? "table" : "vector");
    }
    return 0;
}

/* The sizes of what the slots name fit each other: all that the operation wants holds. */
static int check_sizes(const model_t *model, const operation_t *op, int which) {
    const char *wanted = NULL;
    int64_t width = model->buffers[OUT_OF(op)].width;
    int space = model->buffers[OUT_OF(op)].space, of_words = space == OF_WORDS, of_step = space >= OF_HYPOTHESES;
#define SLOT(slot) ((int64_t)op->slots[slot])
#define WIDTH(slot) model->buffers[op->slots[slot]].width
#define COUNT(slot) model->vectors[op->slots[slot]].count
#define SPACE(slot) model->buffers[op->slots[slot]].space
#define INPUTS(slot) model->linears[op->slots[slot]].inputs
#define OUTPUTS(slot) model->linears[op->slots[slot]].outputs
#define SAME_ROWS(slot) (SPACE(slot) == space || (SPACE(slot) >= OF_HYPOTHESES && of_step))
#define WANT(condition) \
    if (!wanted && !(condition)) wanted = #condition;
#define ANYTHING
    if (of_step != which)
        return wrong("%s: rows of the %s", kinds[op->kind].name, of_step ? "decoder, in the encoder" : "encoder, in the decoder");
    WANT(width > 0)
    switch ((enum kind)op->kind) {
#define OPERATION(name, help, wants, ...) case name: wants break;
#include "../operations.def"
#undef OPERATION
        case NUM_KINDS: break;
    }
    return wanted ? wrong("%s: %s does not hold", kinds[op->kind].name, wanted) : 0;
}

/* How many tokens and positions an operation has rows for. */
static void note_limits(model_t *model, const operation_t *op) {
    int64_t width = model->buffers[OUT_OF(op)].width, rows = INT64_MAX, positions = INT64_MAX;
    int of_words = model->buffers[OUT_OF(op)].space == OF_WORDS;
    if (op->kind == EMBED) {
        rows = COUNT(EMBED_table) / width;
        if (op->slots[EMBED_positions] >= 0) positions = COUNT(EMBED_positions) / width;
    }
    if (op->kind == ADD_POSITIONS) positions = COUNT(ADD_POSITIONS_positions) / width;
    int64_t *longest = of_words ? &model->longest_source : &model->longest_target;
    if (of_words && rows < model->source_vocabulary) model->source_vocabulary = rows;
    if (positions < *longest) *longest = positions;
}

/* Which operation needs each buffer first and last: the encoder's, then the decoder's. What has to stay from one
 * position to the next, or is read before it is written, is needed by all. */
static void find_lives(const model_t *model, int64_t *first, int64_t *last) {
    int64_t encoder = model->num_operations[0], all = encoder + model->num_operations[1];
    for (int i = 0; i < model->num_buffers; i++) first[i] = last[i] = -1;
    for (int64_t t = 0; t < all; t++) {
        const operation_t *op = t < encoder ? model->programs[0] + t : model->programs[1] + t - encoder;
        for (int i = MOST_SLOTS - 1; i >= 0; i--) { /* what is read, then what is written */
            int slot = kinds[op->kind].slots[i], buffer = op->slots[i];
            if ((slot != OUT && slot != BUFFER && slot != MAYBE_BUFFER) || buffer < 0) continue;
            int stays = model->buffers[buffer].space == OF_STATES || buffer == model->logits ||
                        (slot == OUT && op->kind == COPY && op->slots[COPY_once]);
            int is_late = t >= encoder && first[buffer] >= 0 && first[buffer] < encoder;
            if (first[buffer] < 0 || stays) first[buffer] = stays || slot != OUT ? 0 : t;
            if (last[buffer] < all) last[buffer] = stays || is_late || op == model->head ? all : t; /* `score_rows` */
        }
    }
}

int64_t goes_by_rows(const model_t *model, int which, int64_t first) {
    const operation_t *ops = model->programs[which];
    int64_t end = first;
    for (; end < model->num_operations[which]; end++) {
        const operation_t *op = ops + end;
        if ((op->kind != LINEAR && op->kind != NORM) || op == model->head) break;
        if (model->buffers[OUT_OF(op)].space != model->buffers[OUT_OF(ops + first)].space) break;
    }
    return end - first;
}

/* Operations that run together on some rows all need what one of them does, but for the rows that pass between them. */
static void join_lives(model_t *model, int64_t *first, int64_t *last) {
    int64_t encoder = model->num_operations[0], all = encoder + model->num_operations[1], count = 1;
    for (int i = 0; i < model->num_buffers; i++) model->buffers[i].passing = 0;
    for (int64_t t = 0; t < all; t += count) {
        int64_t together = t < encoder ? goes_by_rows(model, 0, t) : goes_by_rows(model, 1, t - encoder);
        count = together > 1 ? together : 1;
        for (int i = 0; i < model->num_buffers; i++) {
            int begins = first[i] >= t && first[i] < t + count, ends = last[i] >= t && last[i] < t + count;
            model->buffers[i].passing |= begins && ends && together > 1;
            if (begins && !ends) first[i] = t;
            if (ends && !begins) last[i] = t + count - 1;
        }
    }
}

int plan_memory(model_t *model) {
    size_t count = (size_t)model->num_buffers + 1;
    int64_t *first = malloc(count * 8), *last = malloc(count * 8), *free_after = malloc(count * 8);
    free(model->places);
    model->places = malloc(count * sizeof(buffer_t));
    model->num_places = 0;
    int failed = !first || !last || !free_after || !model->places ? NO_MEMORY : 0;
    if (!failed) {
        find_lives(model, first, last);
        join_lives(model, first, last);
    }
    for (int64_t t = 0; !failed && t < model->num_operations[0] + model->num_operations[1]; t++)
        for (int i = 0; i < model->num_buffers; i++) {
            buffer_t *buffer = model->buffers + i;
            if (first[i] != t) continue;
            int place = 0, space = buffer->passing ? OF_PASSING : buffer->space;
            while (place < model->num_places &&
                   (free_after[place] >= t || model->places[place].space != space)) place++;
            if (place == model->num_places) model->places[model->num_places++] = (buffer_t){space, 0, place, 0};
            if (buffer->width > model->places[place].width) model->places[place].width = buffer->width;
            free_after[place] = last[i];
            buffer->place = place;
        }
    free(first);
    free(last);
    free(free_after);
    return failed;
}

int check_programs(model_t *model) {
    const operation_t *head = NULL;
    model->source_vocabulary = model->longest_source = model->longest_target = INT64_MAX;
    for (int which = 0; which < 2; which++)
        for (int64_t i = 0; i < model->num_operations[which]; i++) {
            const operation_t *op = model->programs[which] + i;
            if (op->kind < 0 || op->kind >= NUM_KINDS) return wrong("there is no operation %d", op->kind);
            if (check_slots(model, op) || check_sizes(model, op, which)) return IS_WRONG;
            note_limits(model, op);
            if (which == 1 && OUT_OF(op) == model->logits) head = op;
            model->goes_by_steps |= model->buffers[OUT_OF(op)].space == OF_STATES;
        }
    if (!head || head->kind != LINEAR || head->slots[LINEAR_fold] != 1)
        return wrong("no linear map of the decoder writes the logits");
    model->head = head;
    if (model->buffers[model->logits].width != model->vocabulary)
        return wrong("%lld logits for a vocabulary of %lld", (long long)model->buffers[model->logits].width,
                     (long long)model->vocabulary);
    return 0;
}

/* Whether tokens are in a vocabulary. */
static int check_tokens(const char *name, const int64_t *tokens, int64_t count, int64_t vocabulary) {
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= vocabulary)
            return wrong("%s: token %lld is outside of the vocabulary of %lld", name, (long long)tokens[i],
                         (long long)vocabulary);
    return 0;
}

/* Whether the model has what is to be read. */
static int check_readings(const model_t *model, const request_t *request) {
    int has_head = 0, has_guided = 0;
    for (int64_t i = 0; i < model->num_operations[1]; i++) {
        const operation_t *op = model->programs[1] + i;
        if (op->kind == GUIDED_ROUTING) has_guided = 1;
        if (op->kind == ATTEND_SOURCE && op->slots[ATTEND_SOURCE_layer] == request->layer && request->layer >= 0)
            has_head = request->head >= 0 && request->head < op->slots[ATTEND_SOURCE_heads];
    }
    if (request->received && !has_head)
        return wrong("the model has no head %lld in layer %lld that attends to the source", (long long)request->head,
                     (long long)request->layer);
    return request->guided && !has_guided ? wrong("the model has no PAST and FUTURE") : 0;
}

/* Tokens of each source, at least `least` of them and at most the limits allow. */
static int check_lists(const model_t *model, const char *name, const int64_t *tokens, const int64_t *lengths,
                       const int64_t *limits, int64_t num_sources, int64_t least) {
    for (int64_t i = 0; i < num_sources; i++) {
        if (lengths[i] < least || lengths[i] > limits[i])
            return wrong("%s %lld has %lld tokens, the limit is %lld", name, (long long)i, (long long)lengths[i],
                         (long long)limits[i]);
        if (check_tokens(name, tokens, lengths[i], model->vocabulary)) return IS_WRONG;
        tokens += lengths[i];
    }
    return 0;
}

int check_request(const model_t *model, const request_t *request) {
    int64_t num_words = 0, longest = 0;
    if (!model->head) return wrong("the model has no programs");
    if (check_readings(model, request)) return IS_WRONG;
    for (int64_t i = 0; i < request->num_sources; i++) {
        if (request->lengths[i] < 1) return wrong("source %lld has no token", (long long)i);
        if (request->limits[i] < 1 || request->limits[i] > request->longest)
            return wrong("the limit of source %lld is %lld", (long long)i, (long long)request->limits[i]);
        if (request->lengths[i] > longest) longest = request->lengths[i];
        num_words += request->lengths[i];
    }
    if (longest > model->longest_source)
        return wrong("a source of %lld tokens, but there are positions for %lld", (long long)longest,
                     (long long)model->longest_source);
    if (request->longest > model->longest_target)
        return wrong("a limit of %lld tokens, but there are positions for %lld", (long long)request->longest,
                     (long long)model->longest_target);
    if (longest != request->longest_source) return wrong("the longest source has %lld tokens", (long long)longest);
    if (request->num_beams < 1 || request->num_return_sequences < 1 || request->num_return_sequences > request->num_beams)
        return wrong("%lld translations of %lld beams", (long long)request->num_return_sequences,
                     (long long)request->num_beams);
    if (request->prefixes && check_lists(model, "prefix", request->prefixes, request->prefix_lengths, request->limits,
                                         request->num_sources, 0))
        return IS_WRONG;
    if (request->targets && check_lists(model, "target", request->targets, request->target_lengths, request->limits,
                                        request->num_sources, 1))
        return IS_WRONG;
    for (int64_t i = 0; request->candidates && i < request->num_candidates; i++) {
        int64_t token = request->candidates[i];
        if (check_tokens("the shortlist", &token, 1, model->vocabulary)) return IS_WRONG;
    }
    int64_t end = request->end_token < 0 ? 0 : request->end_token;
    for (int64_t i = 0; i < request->num_suppress_tokens; i++) {
        int64_t token = request->suppress_tokens[i];
        if (check_tokens("suppress_tokens", &token, 1, model->vocabulary)) return IS_WRONG;
    }
    return check_tokens("the source", request->words, num_words, model->source_vocabulary) ||
                   check_tokens("the start token", &request->start_token, 1, model->vocabulary) ||
                   check_tokens("the end token", &end, 1, model->vocabulary)
               ? IS_WRONG
               : 0;
}
