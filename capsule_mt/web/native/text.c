/* In place of `vsnprintf`, of which the engine's messages need a tenth: %d, %ld, %lld and %s. */
#include <stdarg.h>
#include <stdint.h>

int print_text(char *restrict text, size_t size, const char *restrict format, va_list arguments) {
    size_t length = 0;
    for (const char *place = format; *place; place++) {
        char digits[24], *part = digits + sizeof(digits) - 1;
        int longs = 0;
        *part = 0;
        if (*place != '%') {
            *--part = *place;
        } else {
            while (*++place == 'l') longs++;
            if (*place == 's') {
                part = va_arg(arguments, char *);
            } else {
                int64_t number = longs > 1 ? va_arg(arguments, long long)
                                 : longs   ? va_arg(arguments, long)
                                           : va_arg(arguments, int);
                uint64_t left = number < 0 ? -(uint64_t)number : (uint64_t)number;
                do *--part = (char)('0' + left % 10);
                while (left /= 10);
                if (number < 0) *--part = '-';
            }
        }
        for (; *part; part++)
            if (length + 1 < size) text[length++] = *part;
    }
    if (size) text[length] = 0;
    return (int)length;
}
