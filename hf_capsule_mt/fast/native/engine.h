/* The C interface of the engine, which Python calls through ctypes. Version 6.
 *
 * A model is linear maps, vectors, buffers and two programs: the encoder's runs once for a batch, the decoder's once for
 * each target position. fast/programs.py writes the programs; an operation is documented at its name.
 */
#ifndef CAPSULE_MT_ENGINE_H
#define CAPSULE_MT_ENGINE_H

#include <stdint.h>

#if defined(_WIN32)
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

#define ENGINE_VERSION 6

/* What the rows of a buffer are: the words of all sources, the sources, the hypotheses, or the hypotheses with what is
 * in them moved along as beams are reordered. */
enum space { OF_WORDS, OF_SOURCES, OF_HYPOTHESES, OF_STATES };

/* a, b, c, d and out are buffers; w are linear maps or vectors; n and f are settings. Every row goes on its own. */
enum kind {
    EMBED,         /* out = f0 * table w0 [token] + positions w1 [position]; no positions if w1 < 0 */
    LINEAR,        /* out = activation n0 of (linear map w0 of a); a row is n1 rows of the map */
    NORM,          /* out = LayerNorm(out + a), gain w0, bias w1, epsilon f0; a may be -1 */
    ADD,           /* out = out + a */
    COPY,          /* out[n0 : n0 + width of a] = a; of a source's row for each of its hypotheses */
    ATTEND_WORDS,  /* out = attention of a = [query, key, value] of a word to the words of its source; n0 heads */
    ATTEND_PAST,   /* out = attention of a = [query, key, value] to the hypothesis so far, cache n1; n0 heads */
    ATTEND_SOURCE, /* out = attention of query a to the words' b: keys from column n1, values n2 after; n0 heads */
    EM_ROUTING,    /* out = capsules of a = votes [n0, n1, n2] and, from column n4 unless -1, activations; n3 iterations,
                      betas w0 and w1, lambdas w2, least variance f0 */
    DYNAMIC_ROUTING,  /* out = capsules of votes a [n0, n1, n2]; n3 iterations, normalised if n4 */
    GUIDED_START,  /* out [n0, n1] = squash(mean of votes a [n0, n1] over the words) of a source */
    EXP_TWICE,     /* out = exp(2 out) */
    GUIDED_ROUTING, /* out [n3, n1] = the first n3 of n0 capsules, PAST and then as many of FUTURE: votes b, exponentials of their projections c, start d
                      projected, query a projected; n2 iterations, linear map w0 of a capsule, score w1 */
    LSTM_WORDS,    /* out[n1 : ] = states over the words, gates a without the state's part, linear map w0 of the state;
                      from the last word to the first if n0 */
    LSTM_STEP,     /* out = state, b = cell, both before and after; gates a */
    GRU_WORDS,     /* as LSTM_WORDS, for a GRU: a is the input's part, w0 has the state's bias */
    GRU_STEP,      /* out = new state of the parts a of the input and b of the state, and of the old state c */
    ADDITIVE,      /* out = sum of the words' c weighed by softmax(w1 . tanh(query a + keys b)), of exponentials */
    MEAN_WORDS,    /* out = mean of a over the words of a source */
    POOL_WORDS,    /* out = largest, mean, first and last of a over the words of a source */
    SEPARABLE_ROUTING, /* out [n0, width] = capsules of a source's words a: votes b [n2, n0, width] of n1 iterations;
                      inputs of the score c (or -1), positions w0, the score's maps w1 and w2 (or -1) */
    ADD_POSITIONS, /* out = out + positions w0 of the word in its source */
    ACTIVATE,      /* out[n0 : ] = activation n1 of out[n0 : ] */
    WEIGHTED_SUM   /* out = sum of n0 parts of a * b */
};

typedef struct {
    int32_t kind, out, a, b, c, d;
    int32_t w[3];
    int32_t n[6];
    float f[2];
} operation_t;

typedef struct model model_t;

typedef struct {
    int64_t num_sources;
    const int64_t *words;   /* the tokens of all sources, one after the other */
    const int64_t *lengths; /* [num_sources] */
    const int64_t *limits;  /* [num_sources] tokens that may follow the start token */
    const int32_t *forced;  /* [num_sources] 1: the end token is forced at the limit */
    const int32_t *suppressed; /* tokens that are never written */
    int64_t num_suppressed;
    int64_t num_beams, num_returned, least_tokens, no_repeat_ngram;
    int64_t start_token, end_token, pad_token;
    float length_penalty;
    int32_t early_stopping; /* 0 no, 1 yes, 2 never */
    int64_t longest;        /* of the limits: the width of the results */
    int64_t *tokens;        /* result [num_sources, num_returned, longest] */
    float *scores;          /* result [num_sources, num_returned] */
    float *first_logits;    /* result [num_sources, vocabulary], or NULL, as it is with a shortlist */
    int64_t longest_source; /* of the lengths */
    /* Results of a program with GUIDED_ROUTING, or NULL; they need `scores`. For each word its share of PAST and of
     * FUTURE when the translation has been read, by how much FUTURE fell on the way, and how much of that the model
     * agreed to (modeling/coverage.py): [num_sources, num_returned, 4, longest_source]. With a `layer`, the first of the four is
     * the most that its `head` attends to the word in an ATTEND_SOURCE, at any step that writes a token, also the end
     * token; 0 of an empty translation. */
    float *coverage;
    float *log_probs;       /* the mean log-probability of a token, of a forced end too [num_sources, num_returned] */
    /* The shortlist, or NULL: the tokens that any of the sources may write, ascending, and for each source how many it
     * may write and their places among these, ascending, one source after the other. */
    const int32_t *candidates;
    int64_t num_candidates;
    const int64_t *list_lengths;
    const int32_t *list_places;
    int64_t layer, head; /* -1 for PAST and FUTURE */
    int64_t num_threads; /* that share the work on a row; the results are those of one */
} request_t;

EXPORTED int engine_version(void);
/* The name of the tier that a model made with this name (or "") would have; "" if the processor does not have it. */
EXPORTED const char *engine_tier(const char *name);
/* The kernels of a tier (a `kernels_t` of kernels.h), for tests; NULL if the processor does not have it. */
EXPORTED const void *engine_kernels(const char *tier);
EXPORTED model_t *engine_new(const char *tier, int64_t vocabulary, int64_t num_caches);
EXPORTED void engine_free(model_t *model);
/* These return the number of what was added, or -1 where memory is short. */
EXPORTED int engine_add_linear(model_t *model, int64_t outputs, int64_t inputs, const float *weight, const float *bias,
                               int int8);
EXPORTED int engine_add_vector(model_t *model, const float *values, int64_t count);
EXPORTED int engine_add_buffer(model_t *model, int space, int64_t width);
/* `logits`: the buffer that holds the logits after the decoder's program. */
EXPORTED int engine_set_programs(model_t *model, const operation_t *encoder, int64_t num_encoder,
                                 const operation_t *decoder, int64_t num_decoder, int logits);
/* 0, or -1 where memory is short. Threads may call it with one model at the same time. */
EXPORTED int engine_translate(const model_t *model, const request_t *request);

#endif
