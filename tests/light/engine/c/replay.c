/* Carry out calls of the engine that were written to a file: see EmulatedLibrary in tests/light/engine/drivers.py.
 *
 *     replay --tier NAME      print the tier that the engine would take
 *     replay CALLS RESULTS    numbers are 64 bits; the result is what the last call wrote through its pointers
 */
#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *calls;

static void *bytes(int64_t count) {
    char *memory = malloc((size_t)count + 1);
    if (!memory || fread(memory, 1, (size_t)count, calls) != (size_t)count) exit(2);
    memory[count] = 0;
    return memory;
}
static int64_t number(void) {
    int64_t value;
    if (fread(&value, 8, 1, calls) != 1) exit(2);
    return value;
}

/* Bytes after their number, or NULL. */
static void *some_bytes(void) {
    int64_t count = number();
    return count < 0 ? NULL : bytes(count);
}

static int translate(model_t *model, FILE *results) {
    request_t *request = bytes(number());
    int64_t num_pointers = number();
    struct {
        void *memory;
        int64_t count;
    } outputs[16];
    int num_outputs = 0;
    for (int64_t i = 0; i < num_pointers; i++) {
        int64_t offset = number(), count = number(), is_output = number();
        void *memory = bytes(count);
        memcpy((char *)request + offset, &memory, sizeof(memory));
        if (!is_output) continue;
        outputs[num_outputs].memory = memory;
        outputs[num_outputs++].count = count;
    }
    if (engine_translate(model, request, NULL)) {
        printf("%s\n", engine_error());
        return 3;
    }
    for (int i = 0; i < num_outputs; i++) fwrite(outputs[i].memory, 1, (size_t)outputs[i].count, results);
    return 0;
}

int main(int count, char **arguments) {
    if (count == 3 && !strcmp(arguments[1], "--tier")) {
        printf("%s", engine_tier(arguments[2]));
        return 0;
    }
    if (count != 3 || !(calls = fopen(arguments[1], "rb"))) return 2;
    FILE *results = fopen(arguments[2], "wb");
    model_t *model = NULL;
    int failed = 0;
    for (int call; !failed && (call = fgetc(calls)) != EOF;) {
        int64_t a = number(), b = number(), c = number();
        if (call == 'm') model = engine_new(bytes(number()), a, b);
        if (call == 'l') failed = engine_add_linear(model, a, b, (int)c) < 0;
        if (call == 'w') {
            int type = (int)number(), bias_type = (int)number();
            void *weight = some_bytes(), *largest = some_bytes(), *bias = some_bytes();
            failed = engine_pack(model, (int)a, b, c, weight, type, largest, bias, bias_type) < 0;
        }
        if (call == 'v') failed = engine_add_vector(model, some_bytes(), a, (int)b) < 0;
        if (call == 'e') {
            void *values = some_bytes();
            failed = engine_add_table(model, values, a, b, (int)c, some_bytes()) < 0;
        }
        if (call == 'k') failed = engine_add_packed_table(model, (int)a, some_bytes()) < 0;
        if (call == 's') failed = engine_add_positions(model, a, b, c, number()) < 0;
        if (call == 'b') failed = engine_add_buffer(model, (int)a, b) < 0;
        if (call == 'p') {
            operation_t *encoder = some_bytes();
            failed = engine_set_programs(model, encoder, a, some_bytes(), b, (int)c) < 0;
        }
        if (call == 't') failed = translate(model, results);
    }
    engine_free(model);
    return fclose(results) || failed;
}
