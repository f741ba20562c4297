/* Functions that are smaller than those of the C library, or that the host has; included before every file. */
#ifndef CAPSULE_MT_WEB_LIBRARY_H
#define CAPSULE_MT_WEB_LIBRARY_H

#include <math.h>
#include <stdio.h>

#define vsnprintf print_text /* text.c */

/* of JavaScript's `Math`: for the positions, when a model is loaded, the length penalty, and EM routing of wide capsules */
#define HOST(name) __attribute__((import_module("math"), import_name(#name)))
HOST(sin) double sin_of_host(double angle);
HOST(cos) double cos_of_host(double angle);
HOST(pow) double pow_of_host(double base, double exponent);
HOST(log1p) double log1p_of_host(double number);
#define sin sin_of_host
#define cos cos_of_host
#define pow pow_of_host
#define powf(base, exponent) ((float)pow_of_host(base, exponent))
#define log1pf(number) ((float)log1p_of_host(number))

int print_text(char *restrict text, size_t size, const char *restrict format, va_list arguments);

#endif
