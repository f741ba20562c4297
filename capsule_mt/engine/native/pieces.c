/* The pieces of a SentencePiece model: a protobuf message, which takes Python ten times as long to read. */
#include "engine.h"

#include <string.h>

enum { PIECES = 0x0A, TEXT = 0x0A, SCORE = 0x15, KIND = 0x18 }; /* tags of fields */
enum { NORMAL = 1, SCORE_SIZE = 4, LONGEST = 127 /* bytes: longer lengths and larger kinds take two */ };

int64_t engine_read_pieces(const uint8_t *content, int64_t size, uint8_t *texts, int64_t *texts_size, uint8_t *scores,
                           uint8_t *kinds, int64_t *count) {
    int64_t offset = 0;
    *texts_size = *count = 0;
    while (size - offset >= 4 && content[offset] == PIECES && content[offset + 1] <= LONGEST) {
        const uint8_t *piece = content + offset + 2, *end = piece + content[offset + 1];
        if (end - content > size || piece[0] != TEXT) break;
        const uint8_t *text = piece + 2, *score = text + piece[1];
        int64_t rest = end - score - 1 - SCORE_SIZE; /* of the kind, which may be missing */
        if ((rest != 0 && rest != 2) || score[0] != SCORE || memchr(text, 0, piece[1])) break;
        if (rest && (score[1 + SCORE_SIZE] != KIND || score[2 + SCORE_SIZE] > LONGEST)) break;
        memcpy(texts + *texts_size, text, piece[1]);
        texts[*texts_size + piece[1]] = 0;
        *texts_size += piece[1] + 1;
        memcpy(scores + SCORE_SIZE * *count, score + 1, SCORE_SIZE);
        kinds[(*count)++] = rest ? score[2 + SCORE_SIZE] : NORMAL;
        offset = end - content;
    }
    return offset;
}
