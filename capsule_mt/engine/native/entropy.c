/* Codes of int8 in as few bits as their frequencies allow: an entropy coder, the range variant of asymmetric numeral systems
 * (Duda 2013, arXiv:1311.2540). Decoding a code takes two table lookups and one multiplication.
 *
 * A stream is the first state of each of the LANES lanes, 8 bytes each, and then words of 4 bytes, all little-endian. The code
 * of a column belongs to lane column % LANES: neighbours do not wait for each other.
 */
#include "model.h"

#include <string.h>

#define LANES 4
#define BITS 14 /* of a frequency: they sum up to TOTAL */
#define TOTAL (1 << BITS)
#define LOWEST (1ull << 31) /* a state is not below it, between codes */
#define WORD 4
#define MAX_CODE 127
#define DAMAGED "a damaged stream of codes"

/* Which code each of the TOTAL slots stands for, where its slots begin, and how many it has. */
typedef struct {
    uint8_t symbols[TOTAL];
    uint16_t starts[2 * MAX_CODE + 1], frequencies[2 * MAX_CODE + 1];
} slots_t;

/* Reads the frequencies of the codes -`max_code` to `max_code`; returns whether they sum up to TOTAL. */
static int fill_slots(slots_t *slots, const uint8_t *frequencies, int64_t max_code) {
    int total = 0;
    if (max_code < 0 || max_code > MAX_CODE) return 0;
    for (int symbol = 0; symbol <= 2 * max_code; symbol++) {
        int frequency = frequencies[2 * symbol] | frequencies[2 * symbol + 1] << 8;
        if (frequency > TOTAL - total) return 0;
        slots->starts[symbol] = (uint16_t)total;
        slots->frequencies[symbol] = (uint16_t)frequency;
        memset(slots->symbols + total, symbol, (size_t)frequency);
        total += frequency;
    }
    return total == TOTAL;
}

static uint64_t read_number(const uint8_t *bytes, int count) {
    uint64_t number = 0;
    while (count--) number = number << 8 | bytes[count];
    return number;
}

static void write_number(uint8_t *bytes, int count, uint64_t number) {
    for (int i = 0; i < count; i++, number >>= 8) bytes[i] = (uint8_t)number;
}

int engine_expand(const uint8_t *stream, int64_t size, const uint8_t *frequencies, int64_t max_code,
                  const uint8_t *classes, int class, int8_t *codes, int64_t rows, int64_t columns) {
    slots_t slots;
    const uint8_t *end = stream + size;
    uint64_t states[LANES];
    if (size < 8 * LANES || !fill_slots(&slots, frequencies, max_code)) return refuse(DAMAGED);
    for (int lane = 0; lane < LANES; lane++, stream += 8) states[lane] = read_number(stream, 8);
    for (int64_t row = 0; row < rows; row++, codes += columns) {
        if (classes && (classes[row / 2] >> 4 * (row % 2) & 15) != class) continue;
        for (uint64_t column = 0; column < (uint64_t)columns; column++) {
            uint64_t state = states[column % LANES], slot = state % TOTAL;
            int symbol = slots.symbols[slot];
            state = slots.frequencies[symbol] * (state / TOTAL) + slot - slots.starts[symbol];
            if (state < LOWEST) {
                if (end - stream < WORD) return refuse(DAMAGED);
                state = state << 32 | read_number(stream, WORD);
                stream += WORD;
            }
            states[column % LANES] = state;
            codes[column] = (int8_t)(symbol - max_code);
        }
    }
    for (int lane = 0; lane < LANES; lane++) /* where the encoder began */
        if (states[lane] != LOWEST) return refuse(DAMAGED);
    return stream == end ? 0 : refuse(DAMAGED);
}

int64_t engine_compress(const int8_t *codes, int64_t rows, int64_t columns, const uint8_t *frequencies,
                        int64_t max_code, uint8_t *stream, int64_t max_size) {
    slots_t slots;
    uint8_t *first = stream + max_size;
    uint64_t states[LANES] = {LOWEST, LOWEST, LOWEST, LOWEST};
    if (!fill_slots(&slots, frequencies, max_code)) return refuse("frequencies that do not sum up to %d", TOTAL);
    for (int64_t i = rows * columns - 1; i >= 0; i--) { /* what is written last is read first */
        int64_t symbol = codes[i] + max_code, lane = i % columns % LANES;
        uint64_t state = states[lane];
        if (symbol < 0 || symbol > 2 * max_code || !slots.frequencies[symbol])
            return refuse("the code %d, whose frequency is 0", codes[i]);
        uint64_t frequency = slots.frequencies[symbol];
        if (state >= (LOWEST / TOTAL << 32) * frequency) { /* the decoder reads a word where the state is below LOWEST */
            if (first - stream < WORD) return NO_MEMORY;
            first -= WORD;
            write_number(first, WORD, state);
            state >>= 32;
        }
        states[lane] = state / frequency * TOTAL + state % frequency + slots.starts[symbol];
    }
    if (first - stream < 8 * LANES) return NO_MEMORY;
    first -= 8 * LANES;
    for (int lane = 0; lane < LANES; lane++) write_number(first + 8 * lane, 8, states[lane]);
    memmove(stream, first, (size_t)(stream + max_size - first));
    return stream + max_size - first;
}
