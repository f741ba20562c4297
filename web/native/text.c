/* In place of `vsnprintf`, of which the engine's messages need a tenth: %d, %ld, %lld and %s. */
#include <stdarg.h>
#include <stdint.h>

int print_text(char *restrict text, size_t size, const char *restrict format, va_list arguments) {
    size_t length = 0;
    for (const char *cursor = format; *cursor; cursor++) {
        char digits[24], *part = digits + sizeof(digits) - 1;
        int longs = 0;
        *part = 0;
        if (*cursor != '%') {
            *--part = *cursor;
        } else {
            while (*++cursor == 'l') longs++;
            if (*cursor == 's') {
                part = va_arg(arguments, char *);
            } else {
                int64_t number = longs > 1 ? va_arg(arguments, long long)
                                 : longs   ? va_arg(arguments, long)
                                           : va_arg(arguments, int);
                uint64_t remaining = number < 0 ? -(uint64_t)number : (uint64_t)number;
                do *--part = (char)('0' + remaining % 10);
                while (remaining /= 10);
                if (number < 0) *--part = '-';
            }
        }
        for (; *part; part++)
            if (length + 1 < size) text[length++] = *part;
    }
    if (size) text[length] = 0;
    return (int)length;
}
