/* The pieces of a SentencePiece model: reading them, finding them by their texts, and cutting a text into the likeliest ones.
 * Python takes ten times as long. */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 0x0A, TEXT = 0x0A, SCORE = 0x15, KIND = 0x18 }; /* tags of fields */
enum { NORMAL = 1, USER_DEFINED = 4, SCORE_SIZE = 4, LONGEST = 127 /* bytes: longer lengths and larger kinds take two */ };
enum { MAX_PROBES = 1000 }; /* half of the slots are free, so honest texts take a few dozen */

int64_t engine_read_pieces(const uint8_t *content, int64_t size, uint8_t *texts, int32_t *starts, uint8_t *scores,
                           uint8_t *kinds, int64_t *count) {
    int64_t offset = 0;
    *starts = 0;
    *count = 0;
    while (size - offset >= 4 && content[offset] == PIECES && content[offset + 1] <= LONGEST) {
        const uint8_t *piece = content + offset + 2, *end = piece + content[offset + 1];
        if (end - content > size || piece[0] != TEXT) break;
        const uint8_t *text = piece + 2, *score = text + piece[1];
        int64_t rest = end - score - 1 - SCORE_SIZE; /* of the kind, which may be missing */
        if ((rest != 0 && rest != 2) || score[0] != SCORE || memchr(text, 0, piece[1])) break;
        if (rest && (score[1 + SCORE_SIZE] != KIND || score[2 + SCORE_SIZE] > LONGEST)) break;
        int32_t start = starts[*count];
        memcpy(texts + start, text, piece[1]);
        texts[start + piece[1]] = 0;
        memcpy(scores + SCORE_SIZE * *count, score + 1, SCORE_SIZE);
        kinds[(*count)++] = rest ? score[2 + SCORE_SIZE] : NORMAL;
        starts[*count] = start + piece[1] + 1;
        offset = end - content;
    }
    return offset;
}

/* Text is cut into pieces of these kinds only. */
static int is_matched(const pieces_t *pieces, int64_t index) {
    return pieces->kinds[index] == NORMAL || pieces->kinds[index] == USER_DEFINED;
}

static int continues_character(uint8_t byte) { return (byte & 0xC0) == 0x80; }

static int64_t count_characters(const uint8_t *text, int64_t size) {
    int64_t count = 0;
    for (int64_t i = 0; i < size; i++) count += !continues_character(text[i]);
    return count;
}

/* The hash FNV-1a, byte by byte. */
static const uint64_t FIRST_HASH = 0xCBF29CE484222325u;
static uint64_t add_to_hash(uint64_t hash, uint8_t byte) { return (hash ^ byte) * 0x100000001B3u; }

/* The slot of a text, which is empty if no piece has this text; NULL after too many others. A slot holds an index + 1. */
static int32_t *slot_of(const pieces_t *pieces, uint64_t hash, const uint8_t *text, int64_t size) {
    uint64_t mask = (uint64_t)pieces->num_slots - 1, slot = (hash ^ hash >> 32) & mask;
    for (int probes = 0; probes < MAX_PROBES; probes++, slot = (slot + 1) & mask) {
        int32_t *entry = pieces->slots + slot;
        if (!*entry) return entry;
        const int32_t *start = pieces->starts + *entry - 1;
        if (start[1] - start[0] - 1 == size && !memcmp(pieces->texts + start[0], text, (size_t)size)) return entry;
    }
    return NULL;
}

static int has_inner_spaces(const uint8_t *text, int64_t size) {
    for (int64_t i = 0; i < size; i++)
        if (!text[i] || (i && i + 3 <= size && !memcmp(text + i, "\xE2\x96\x81", 3))) return 1;
    return 0;
}

int engine_index_pieces(pieces_t *pieces) {
    pieces->num_distinct = pieces->longest = pieces->has_inner_spaces = 0;
    pieces->min_score = INFINITY;
    for (int64_t i = 0; i < pieces->count; i++) {
        const uint8_t *text = pieces->texts + pieces->starts[i];
        int64_t size = pieces->starts[i + 1] - pieces->starts[i] - 1;
        uint64_t hash = FIRST_HASH;
        for (int64_t k = 0; k < size; k++) hash = add_to_hash(hash, text[k]);
        int32_t *slot = slot_of(pieces, hash, text, size);
        if (!slot) return refuse("too many pieces whose texts have similar hashes");
        pieces->num_distinct += !*slot;
        if (!*slot || is_matched(pieces, i) || !is_matched(pieces, *slot - 1)) *slot = (int32_t)i + 1;
        if (pieces->kinds[i] == NORMAL) pieces->min_score = fmin(pieces->min_score, pieces->scores[i]);
        if (!is_matched(pieces, i)) continue;
        int64_t length = count_characters(text, size);
        pieces->longest = length > pieces->longest ? length : pieces->longest;
        pieces->has_inner_spaces |= has_inner_spaces(text, size);
    }
    return 0;
}

int64_t engine_find_piece(const pieces_t *pieces, const uint8_t *text, int64_t size) {
    uint64_t hash = FIRST_HASH;
    for (int64_t i = 0; i < size; i++) hash = add_to_hash(hash, text[i]);
    const int32_t *slot = slot_of(pieces, hash, text, size);
    return slot ? *slot - 1 : -1;
}

/* The best way to the end of a part of a text: its score, and its last piece, -1 if this is unknown. */
typedef struct {
    double score;
    int32_t start, piece;
} path_t;

static void extend(path_t *paths, int64_t start, int64_t end, double score, int64_t piece) {
    if (paths[start].score + score > paths[end].score)
        paths[end] = (path_t){paths[start].score + score, (int32_t)start, (int32_t)piece};
}

int64_t engine_segment(const pieces_t *pieces, const uint8_t *text, int64_t size, int32_t *lengths, int32_t *indices) {
    path_t *paths = malloc((size_t)(size + 1) * sizeof(path_t));
    if (!paths) return NO_MEMORY;
    for (int64_t i = 0; i <= size; i++) paths[i].score = i ? -INFINITY : 0;
    for (int64_t start = 0, next; start < size; start = next) {
        uint64_t hash = FIRST_HASH;
        int is_known = 0;
        int64_t end = next = start;
        for (int64_t length = 1; length <= pieces->longest && end < size; length++) {
            do hash = add_to_hash(hash, text[end++]);
            while (end < size && continues_character(text[end]));
            const int32_t *slot = slot_of(pieces, hash, text + start, end - start);
            int64_t piece = slot && *slot && is_matched(pieces, *slot - 1) ? *slot - 1 : -1;
            if (piece >= 0)
                extend(paths, start, end, pieces->wide_scores ? pieces->wide_scores[piece] : pieces->scores[piece], piece);
            if (length > 1) continue;
            next = end;
            is_known = piece >= 0;
        }
        /* a character without a piece is unknown, so that every text has a segmentation */
        if (!is_known) extend(paths, start, next, pieces->min_score - pieces->unknown_penalty, -1);
    }
    int64_t count = 0;
    for (int64_t end = size; end; end = paths[end].start) count++;
    for (int64_t end = size, i = count; end; end = paths[end].start) {
        lengths[--i] = (int32_t)count_characters(text + paths[end].start, end - paths[end].start);
        indices[i] = paths[end].piece;
    }
    free(paths);
    return count;
}
