/* The C interface of the engine, which Python calls through ctypes.
 *
 * A model is linear maps, vectors, buffers and two programs: the encoder's runs once for a batch, the decoder's once for
 * each target position, unless the model only encodes. ../operations.def documents the operations; each row is computed
 * by itself.
 * CONTRIBUTING.md explains the whole.
 */
#ifndef CAPSULE_MT_ENGINE_H
#define CAPSULE_MT_ENGINE_H

#include "options.h" /* written by ../build.py from the table of options */

#include <stdint.h>

#if defined(_WIN32)
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/* Changes with this interface, and with the options in a request. */
#define ENGINE_VERSION (25 * 65536 + OPTIONS_LAYOUT)

/* What the rows of a buffer are: the words of all sources, the sources, the hypotheses, or states of the hypotheses, which
 * move along when beams are reordered. */
enum space { OF_WORDS, OF_SOURCES, OF_HYPOTHESES, OF_STATES };

/* How weights are stored. CODES of int8 come with `magnitudes`, the largest magnitude of each row. A linear map of
 * CODES_BY_ROW keeps codes in the order of its rows: for a head of which most calls select a few outputs. */
enum type { FLOAT32, FLOAT16, BFLOAT16, CODES, CODES_BY_ROW };

/* A request's `stop`: FINISH ends it with the translations so far, GIVE_UP with none. */
enum stop { GO_ON, FINISH, GIVE_UP };

/* The kinds of operations, and the indices of their slots, such as EMBED_table. */
#define OPERATION(name, help, wants, ...) name,
enum kind {
#include "../operations.def"
    NUM_KINDS
};
#undef OPERATION
#define OPERATION(name, help, wants, ...) enum { __VA_ARGS__ };
#define OUT(slot) slot
#define BUFFER(slot) slot
#define MAYBE_BUFFER(slot) slot
#define MAP(slot) slot
#define MAYBE_MAP(slot) slot
#define VECTOR(slot) slot
#define MAYBE_VECTOR(slot) slot
#define TABLE(slot) slot
#define NUMBER(slot) slot
#define OPTION(slot, preset) slot
#define REAL(slot) slot
#include "../operations.def"
#undef OPERATION
#undef OUT
#undef BUFFER
#undef MAYBE_BUFFER
#undef MAP
#undef MAYBE_MAP
#undef VECTOR
#undef MAYBE_VECTOR
#undef TABLE
#undef NUMBER
#undef OPTION
#undef REAL
#define MAX_SLOTS 12

typedef struct {
    int32_t kind;
    union {
        int32_t slots[MAX_SLOTS];
        float reals[MAX_SLOTS];
    };
} operation_t;

typedef struct model model_t;

typedef struct {
    OPTION_FIELDS /* such as `num_beams`; of a forced pass, their defaults */
    int64_t num_sources;
    const int64_t *words;   /* the tokens of all sources, one after the other */
    const int64_t *lengths; /* [num_sources] */
    const int64_t *limits;  /* [num_sources] tokens that may follow the start token */
    const int32_t *forced;  /* [num_sources] 1: the end token is forced at the limit */
    int64_t scored; /* 0: a greedy search skips the softmax; `scores` and `log_probs` are undefined */
    int64_t start_token, end_token, pad_token;
    int64_t longest;        /* the largest limit: the width of the results */
    int64_t longest_source; /* the largest length */
    int64_t layer, head;    /* whose attention to the source is read; -1 for none */
    int64_t num_threads;    /* that share the work on a row; results do not depend on it */
    /* The shortlist, or NULL: the tokens that the translations of any source may have, ascending; how many of them those of
     * each source may have; and their indices among the candidates, ascending, one source after the other, or NULL if each
     * source may have all. */
    const int32_t *candidates;
    int64_t num_candidates;
    const int64_t *list_lengths;
    const int32_t *candidate_indices;
    /* Tokens that the translations of each source begin with, one source after the other, and their number; or NULL. */
    const int64_t *prefixes, *prefix_lengths;
    /* Given translations, or NULL for a search: their tokens after the start token, one target after the other. The
     * program's states, limits and beams are ignored. With a shortlist, log-probabilities are among its tokens. */
    const int64_t *targets, *target_lengths;
    const int8_t *scored_targets; /* [tokens of all targets] 0: no log-probability, which saves its logits; NULL: all */
    float *target_log_probs;      /* result [tokens of all targets], NaN where there is none */
    /* Results of a search. A length is 0 where there are fewer translations than `num_return_sequences`. */
    int64_t *tokens;        /* [num_sources, num_return_sequences, longest], padded */
    int64_t *translation_lengths; /* [num_sources, num_return_sequences] */
    float *scores;          /* the log-probability over the length to the length penalty
                             * [num_sources, num_return_sequences] */
    float *log_probs;       /* of each token, of a forced end too [num_sources, num_return_sequences, longest] */
    float *first_logits;    /* [num_sources, vocabulary], or NULL, as it is with a shortlist */
    /* With `layer` and `head`: what each token of a translation attends to, zeros for one that is an end token alone
     * [num_sources, num_return_sequences, longest, longest_source]. With `targets`: each of their tokens
     * [tokens of all targets, longest_source]. */
    float *attention;
    /* Of a model without a decoder, which needs nothing else but the sources and `num_threads`: the buffer that it returns,
     * one source after the other [words of all sources, width of the buffer]. NULL for other models. */
    float *encoded;
    /* NULL, or an `enum stop` that another thread may change: read before each operation. */
    const int32_t *stop;
} request_t;

EXPORTED int engine_version(void);
/* The reason why the last call of this thread failed. */
EXPORTED const char *engine_error(void);
/* The name of the tier that a model made with this name (or "") would have; "" if the processor does not have it. */
EXPORTED const char *engine_tier(const char *name);
/* The kernels of a tier (a `kernels_t` of kernels.h), for tests; NULL if the processor does not have it. */
EXPORTED const void *engine_kernels(const char *tier);
/* c [rows, columns] = a [rows, inner] b [inner, columns], summed in double precision. */
EXPORTED void engine_product(const float *a, const float *b, float *c, int64_t rows, int64_t inner, int64_t columns);
/* Widens `count` numbers of any type but CODES to floats. */
EXPORTED void engine_widen(const void *source, int type, float *target, int64_t count);
/* Widens CODES [rows, width] to floats. */
EXPORTED void engine_widen_codes(const int8_t *codes, const float *magnitudes, float *target, int64_t rows,
                                 int64_t width);
/* The reverse: what `engine_pack` makes of floats [rows, width] in an int8 map. */
EXPORTED void engine_round_codes(const float *source, int8_t *codes, float *magnitudes, int64_t rows, int64_t width);
/* Decodes a stream of `size` bytes (entropy.c) into the rows of a matrix of codes [rows, columns] whose class is `class`:
 * `classes` has four bits for each row, the lower ones first; or NULL, for all rows. `frequencies`: of the codes from
 * -`max_code` to `max_code`, each of them two bytes, little-endian. Returns 0, or -2 if the stream is damaged. */
EXPORTED int engine_expand(const uint8_t *stream, int64_t size, const uint8_t *frequencies, int64_t max_code,
                           const uint8_t *classes, int class, int8_t *codes, int64_t rows, int64_t columns);
/* The reverse, for all rows, into a stream of at most `max_size` bytes; returns its size, -1 if it does not fit, or -2 for a
 * code whose frequency is 0. */
EXPORTED int64_t engine_compress(const int8_t *codes, int64_t rows, int64_t columns, const uint8_t *frequencies,
                                 int64_t max_code, uint8_t *stream, int64_t max_size);
/* Reads the leading pieces of a SentencePiece model of `size` bytes, up to the first that is not a text, a score and perhaps
 * a kind in lengths of one byte; returns the bytes that they take. `texts` has room for `size` bytes; each text begins at one
 * of `starts` [count + 1], and ends with a zero. `scores`: F32, little-endian. */
EXPORTED int64_t engine_read_pieces(const uint8_t *content, int64_t size, uint8_t *texts, int32_t *starts,
                                    uint8_t *scores, uint8_t *kinds, int64_t *count);

/* The pieces of a SentencePiece model, by their texts. */
typedef struct {
    int64_t count;
    const uint8_t *texts;      /* each ends with a zero */
    const int32_t *starts;     /* [count + 1], where each text begins */
    const uint8_t *kinds;      /* as SentencePiece numbers them */
    const float *scores;       /* [count] */
    const double *wide_scores; /* [count], used instead unless NULL */
    double unknown_penalty;    /* how much lower than `min_score` a character without a piece scores */
    int64_t num_slots;         /* a power of two, at least twice `count` */
    int32_t *slots;            /* zeros */
    /* what `engine_index_pieces` fills in, of the pieces that text is cut into: */
    int64_t longest;          /* characters */
    int64_t has_inner_spaces; /* whether one has a space after its beginning, or a zero */
    double min_score;         /* of normal pieces */
    int64_t num_distinct;     /* different texts, of all pieces */
} pieces_t;

/* Fills in the slots, in which the functions below look up texts. Of equal texts, the last one that text is cut into counts.
 * Returns 0 or REFUSED. */
EXPORTED int engine_index_pieces(pieces_t *pieces);
/* Returns the index of the piece of any kind with this text, or -1. */
EXPORTED int64_t engine_find_piece(const pieces_t *pieces, const uint8_t *text, int64_t size);
/* Cuts a text in UTF-8 into the pieces with the largest sum of scores (Viterbi). Fills in the length of each in characters,
 * and its index, -1 if it is unknown; returns how many there are, or NO_MEMORY. */
EXPORTED int64_t engine_segment(const pieces_t *pieces, const uint8_t *text, int64_t size, int32_t *lengths,
                                int32_t *indices);
/* The number of values that are infinite or NaN; of CODES, those that are -128. */
EXPORTED int64_t engine_count_invalid(const void *values, int type, int64_t count);
/* The number of values below zero. */
EXPORTED int64_t engine_count_negative(const float *values, int64_t count);
/* A checksum of `size` bytes, for finding damage: every change within eight bytes of them changes it. */
EXPORTED uint64_t engine_checksum(const uint8_t *content, int64_t size);
EXPORTED model_t *engine_new(const char *tier, int64_t vocabulary, int64_t num_caches);
EXPORTED void engine_free(model_t *model);
/* The following return -1 where memory is short, and -2 for a refusal: see `engine_error`. Those that add something return
 * its number. */
/* `type` says how its weights are stored: FLOAT32, FLOAT16, which takes no other weights, CODES, or CODES_BY_ROW, which only
 * the head may be. */
EXPORTED int engine_add_linear(model_t *model, int64_t outputs, int64_t inputs, int type);
/* Packs `outputs` rows of a linear map, from `first` on; `bias` may be NULL. `magnitudes` is for CODES. A map takes
 * memory when its first rows are packed. */
EXPORTED int engine_pack(model_t *model, int linear, int64_t first, int64_t outputs, const void *weight, int type,
                         const float *magnitudes, const void *bias, int bias_type);
EXPORTED int engine_add_vector(model_t *model, const void *values, int64_t count, int type);
/* Rows of numbers for EMBED, which are kept as they are stored; `magnitudes` is for CODES. */
EXPORTED int engine_add_table(model_t *model, const void *values, int64_t rows, int64_t width, int type,
                              const float *magnitudes);
/* The rows of a linear map that is packed, for EMBED: `magnitudes` as it was packed from CODES in int8, else NULL. */
EXPORTED int engine_add_packed_table(model_t *model, int linear, const float *magnitudes);
/* Marian's positions: sines in the first half of the width, then cosines; number k of either has the frequency
 * 10000^(-2 k / span). `start`: the number of the first position. */
EXPORTED int engine_add_positions(model_t *model, int64_t count, int64_t width, int64_t span, int64_t start);
EXPORTED int engine_add_buffer(model_t *model, int space, int64_t width);
/* `logits`: the buffer that holds the logits after the decoder's program; without a decoder, the buffer of words that a
 * request returns as `encoded`. */
EXPORTED int engine_set_programs(model_t *model, const operation_t *encoder, int64_t num_encoder,
                                 const operation_t *decoder, int64_t num_decoder, int logits);
/* Calls `observer` with the inputs [rows, inputs] of each product of a linear map, from now on; NULL for none. */
typedef void (*observer_t)(int linear, const float *inputs, int64_t rows);
EXPORTED void engine_observe(model_t *model, observer_t observer);
/* The likely translations of each source token: those of token s are `starts[s]` to `starts[s + 1]` of the tokens. */
typedef struct {
    int64_t source_vocabulary, vocabulary;
    const int32_t *starts;        /* [source_vocabulary + 1] */
    const uint16_t *small_tokens; /* NULL if the ids of the vocabulary need more than two bytes */
    const int32_t *tokens;        /* used if `small_tokens` is NULL */
    int64_t num_frequent;
    const int32_t *frequent; /* what every translation may have */
    int64_t multiple;        /* the number of candidates is rounded up to a multiple of this, before extra ones */
} lexicon_t;

/* Returns the length of the longest of `count` lists that begin at these offsets [count + 1]; -1 if the offsets descend. */
EXPORTED int64_t engine_longest_list(const int32_t *starts, int64_t count);
/* Returns how many tokens are outside of a vocabulary; narrows them to two bytes unless `narrow` is NULL. */
EXPORTED int64_t engine_narrow_tokens(const int32_t *tokens, int64_t count, int64_t vocabulary, uint16_t *narrow);

/* Sources whose candidates are listed: their tokens, and extra candidates of each, one source after the other. */
typedef struct {
    int64_t count;
    const int64_t *words, *lengths;              /* [count] lengths */
    const int64_t *extra_tokens, *extra_lengths; /* [count] lengths */
} sources_t;

/* Fills in the shortlist of a request; returns the number of its candidates, of which there are at most as many as tokens
 * in the vocabulary. The lexicon is not checked. */
EXPORTED int64_t engine_list_candidates(const lexicon_t *lexicon, const sources_t *sources, int32_t *candidates,
                                        int64_t *list_lengths, int32_t *candidate_indices, int64_t max_indices);
/* A caller's lock, such as Python's, which is released while the engine works. Every LOOK_SECONDS the engine calls `look`
 * with the lock, unless it is NULL, and gives up if it does not return 0. */
typedef struct {
    void *(*release)(void); /* returns what `regain` takes */
    void (*regain)(void *);
    int (*look)(void);
} caller_t;
#define LOOK_SECONDS 0.05

/* Threads may call it with one model at the same time. `caller` may be NULL. Returns -3 if `stop` or the caller made it give
 * up. */
EXPORTED int engine_translate(model_t *model, const request_t *request, const caller_t *caller);

#endif
