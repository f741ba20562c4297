/* Lexical shortlists: the tokens that the translations of sources may have, by what their tokens are likely to become. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

/* A set of tokens is a bit for each, in words of 64. */
typedef uint64_t bits_t;

static void add_token(bits_t *set, int64_t token) { set[token / 64] |= (bits_t)1 << token % 64; }
static int has_token(const bits_t *set, int64_t token) { return set[token / 64] >> token % 64 & 1; }

/* Adds the translations of a source's tokens, and what every translation may have. Returns 0 or REFUSED. */
static int add_translations(const lexicon_t *lexicon, const int64_t *words, int64_t length, bits_t *set) {
    for (int64_t i = 0; i < lexicon->num_frequent; i++) add_token(set, lexicon->frequent[i]);
    for (int64_t i = 0; i < length; i++) {
        if (words[i] < 0 || words[i] >= lexicon->source_vocabulary)
            return refuse("the source: token %lld is outside the vocabulary of %lld", (long long)words[i],
                          (long long)lexicon->source_vocabulary);
        for (int64_t k = lexicon->starts[words[i]]; k < lexicon->starts[words[i] + 1]; k++)
            add_token(set, lexicon->small_tokens ? lexicon->small_tokens[k] : lexicon->tokens[k]);
    }
    return 0;
}

/* As in Marian, fills the set up to a multiple, with the tokens that follow the frequent ones in the vocabulary. */
static void fill_up(const lexicon_t *lexicon, bits_t *set, int64_t count) {
    for (int64_t token = lexicon->num_frequent; token < lexicon->vocabulary && count % lexicon->multiple; token++)
        if (!has_token(set, token)) {
            add_token(set, token);
            count++;
        }
}

static int64_t count_tokens(const bits_t *set, int64_t size) {
    int64_t count = 0;
    for (int64_t i = 0; i < size; i++) count += __builtin_popcountll(set[i]);
    return count;
}

/* Fills in the candidates of each source, and in the last set those of all. Returns 0 or REFUSED. */
static int find_candidates(const lexicon_t *lexicon, const sources_t *sources, bits_t *sets, int64_t size) {
    const int64_t *words = sources->words, *extra_tokens = sources->extra_tokens;
    bits_t *joint = sets + sources->count * size;
    for (int64_t source = 0; source < sources->count; source++, sets += size) {
        if (add_translations(lexicon, words, sources->lengths[source], sets)) return REFUSED;
        fill_up(lexicon, sets, count_tokens(sets, size));
        for (int64_t i = 0; i < sources->extra_lengths[source]; i++) {
            if (extra_tokens[i] < 0 || extra_tokens[i] >= lexicon->vocabulary)
                return refuse("the shortlist: token %lld is outside the vocabulary of %lld", (long long)extra_tokens[i],
                              (long long)lexicon->vocabulary);
            add_token(sets, extra_tokens[i]);
        }
        words += sources->lengths[source];
        extra_tokens += sources->extra_lengths[source];
        for (int64_t i = 0; i < size; i++) joint[i] |= sets[i];
    }
    return 0;
}

/* Writes the tokens of the last set, and the indices of each source's tokens among them. */
static int64_t write_candidates(const bits_t *sets, int64_t num_sources, int64_t size, int32_t *ranks, int32_t *candidates,
                                int64_t *list_lengths, int32_t *indices) {
    const bits_t *joint = sets + num_sources * size;
    int64_t count = 0;
    for (int64_t i = 0; i < size; i++) {
        ranks[i] = (int32_t)count;
        for (bits_t remaining = joint[i]; remaining; remaining &= remaining - 1)
            candidates[count++] = (int32_t)(i * 64 + __builtin_ctzll(remaining));
    }
    if (num_sources == 1) { /* it has all of them; counting bits takes half of the time */
        list_lengths[0] = count;
        for (int64_t i = 0; i < count; i++) indices[i] = (int32_t)i;
        return count;
    }
    for (int64_t source = 0; source < num_sources; source++, sets += size) {
        list_lengths[source] = count_tokens(sets, size);
        for (int64_t i = 0; i < size; i++)
            for (bits_t remaining = sets[i]; remaining; remaining &= remaining - 1) {
                bits_t below = (remaining & -remaining) - 1;
                *indices++ = ranks[i] + __builtin_popcountll(joint[i] & below);
            }
    }
    return count;
}

int64_t engine_list_candidates(const lexicon_t *lexicon, const sources_t *sources, int32_t *candidates,
                               int64_t *list_lengths, int32_t *candidate_indices, int64_t max_indices) {
    int64_t size = (lexicon->vocabulary + 63) / 64, num_sets = sources->count + 1;
    bits_t *sets = calloc((size_t)(num_sets * size) + 1, sizeof(bits_t));
    int32_t *ranks = malloc((size_t)size * 4 + 4);
    int64_t result = sets && ranks ? find_candidates(lexicon, sources, sets, size) : NO_MEMORY;
    if (!result && count_tokens(sets, sources->count * size) > max_indices)
        result = refuse("the shortlist has more than %lld tokens", (long long)max_indices);
    if (!result)
        result = write_candidates(sets, sources->count, size, ranks, candidates, list_lengths, candidate_indices);
    free(sets);
    free(ranks);
    return result;
}

int64_t engine_longest_list(const int32_t *starts, int64_t count) {
    int64_t longest = 0;
    int descends = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t length = (int64_t)starts[i + 1] - starts[i];
        descends |= length < 0;
        longest = length > longest ? length : longest;
    }
    return descends ? -1 : longest;
}

int64_t engine_narrow_tokens(const int32_t *tokens, int64_t count, int64_t vocabulary, uint16_t *narrow) {
    int64_t num_outside = 0;
    for (int64_t i = 0; i < count; i++) num_outside += tokens[i] < 0 || tokens[i] >= vocabulary;
    for (int64_t i = 0; i < count && narrow; i++) narrow[i] = (uint16_t)tokens[i];
    return num_outside;
}
