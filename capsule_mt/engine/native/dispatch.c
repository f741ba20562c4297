/* Which tier of kernels this processor runs. */
#include "kernels.h"

#include <string.h>

#if defined(__x86_64__) || defined(_M_X64)
#define ON_X86
#include <cpuid.h>
#endif

#if defined(__wasm__)
extern const kernels_t kernels_simd128;
#else
extern const kernels_t kernels_portable;
#endif
long prefetch_ahead = 16384;

#if defined(ON_X86)
extern const kernels_t kernels_avx2, kernels_avxvnni, kernels_avx512;

enum { HAS_AVX2 = 1, HAS_AVXVNNI = 2, HAS_AVX512 = 4, HAS_AMX = 8 };

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

extern const kernels_t kernels_amx;

/* Asks the system once for the tiles of AMX, for all threads of this process. */
static int may_use_tiles(void) {
    enum { UNKNOWN, NO, YES };
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    static int answer = UNKNOWN; /* two threads may both ask, and get the same */
    int state = __atomic_load_n(&answer, __ATOMIC_RELAXED);
    if (state == UNKNOWN) {
        state = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) ? NO : YES;
        __atomic_store_n(&answer, state, __ATOMIC_RELAXED);
    }
    return state == YES;
}
#endif

/* Zen 4 prefetches weights by itself, and slows down if the code does, too: with prefetches far ahead, a product with one row
 * read its weights from the third cache at 70 GB/s; without them, or with those of lines that are about to be read, at 88. */
static __attribute__((constructor)) void set_prefetch(void) {
    enum { FAMILY_OF_ZEN_4 = 25, AMD = 0x68747541 /* Auth, of AuthenticAMD */ };
    unsigned a, b, c, d;
    if (!__get_cpuid(0, &a, &b, &c, &d) || b != AMD || !__get_cpuid(1, &a, &b, &c, &d)) return;
    if ((a >> 8 & 15) + (a >> 20 & 255) == FAMILY_OF_ZEN_4) prefetch_ahead = 256;
}

/* cpuid and xgetbv themselves: __builtin_cpu_supports answers 0 under some runtimes. */
static int x86_tiers(void) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    int fma = c >> 12 & 1, saves = c >> 27 & 1, halves = c >> 29 & 1;
    if (!saves || !fma || !halves) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b >> 5 & 1)) return 0;
    int avx512 = (b >> 16 & 1) && (b >> 17 & 1) && (b >> 30 & 1) && (b >> 31 & 1) && (c >> 11 & 1);
    int tiers = avx512 && (low & 0xe6) == 0xe6 ? HAS_AVX2 | HAS_AVX512 : HAS_AVX2;
    int tiles = (d >> 24 & 1) && (d >> 25 & 1) && (low >> 17 & 3) == 3;
    if ((tiers & HAS_AVX512) && tiles) tiers |= HAS_AMX;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1) ? tiers | HAS_AVXVNNI : tiers;
}
#elif defined(__aarch64__)
extern const kernels_t kernels_dotprod;
#if defined(__linux__)
#include <sys/auxv.h>
static int has_dotprod(void) { return getauxval(AT_HWCAP) >> 20 & 1; }
#else
static int has_dotprod(void) { return 1; } /* every arm64 Mac has it */
#endif
#endif

const kernels_t *choose_kernels(const char *name) {
    const kernels_t *available[5];
    int count = 0;
#if defined(ON_X86)
    int tiers = x86_tiers();
#if defined(__linux__)
    int may_be_amx = !name || !strcmp(name, kernels_amx.name); /* else the system is not asked */
    if ((tiers & HAS_AMX) && may_be_amx && may_use_tiles()) available[count++] = &kernels_amx;
#endif
    if (tiers & HAS_AVX512) available[count++] = &kernels_avx512;
    if (tiers & HAS_AVXVNNI) available[count++] = &kernels_avxvnni;
    if (tiers & HAS_AVX2) available[count++] = &kernels_avx2;
#elif defined(__aarch64__)
    if (has_dotprod()) available[count++] = &kernels_dotprod;
#endif
#if defined(__wasm__) /* a module is loaded where there is SIMD, or not at all */
    available[count++] = &kernels_simd128;
#else
    available[count++] = &kernels_portable;
#endif
    for (int i = 0; i < count; i++)
        if (!name || !strcmp(name, available[i]->name)) return available[i];
    return NULL;
}
