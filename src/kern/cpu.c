/* What a build for certain CPUs (-march, -mcpu) may use and this CPU lacks. The compiler defines a macro for each instruction set; those
 * that it only uses where the source names them are left out. */
#include <stddef.h>
#include "kern/select.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* For those that not every compiler's __builtin_cpu_supports() knows. */
LS__ANY_CPU __attribute__((unused)) static bool has_bit(unsigned leaf, unsigned subleaf, int word, int bit)
{
    unsigned r[4]; /* eax, ebx, ecx, edx */
    return __get_cpuid_count(leaf, subleaf, &r[0], &r[1], &r[2], &r[3]) && (r[word] >> bit & 1);
}

LS__ANY_CPU const char *ls__cpu_lacks(void)
{
    __builtin_cpu_init();
#ifdef __AVX512F__
    if (!__builtin_cpu_supports("avx512f")) return "AVX-512";
#endif
#ifdef __AVX512BW__
    if (!__builtin_cpu_supports("avx512bw")) return "AVX-512BW";
#endif
#ifdef __AVX512CD__
    if (!__builtin_cpu_supports("avx512cd")) return "AVX-512CD";
#endif
#ifdef __AVX512DQ__
    if (!__builtin_cpu_supports("avx512dq")) return "AVX-512DQ";
#endif
#ifdef __AVX512VL__
    if (!__builtin_cpu_supports("avx512vl")) return "AVX-512VL";
#endif
#ifdef __AVX512IFMA__
    if (!__builtin_cpu_supports("avx512ifma")) return "AVX-512IFMA";
#endif
#ifdef __AVX512VBMI__
    if (!__builtin_cpu_supports("avx512vbmi")) return "AVX-512VBMI";
#endif
#ifdef __AVX512VBMI2__
    if (!__builtin_cpu_supports("avx512vbmi2")) return "AVX-512VBMI2";
#endif
#ifdef __AVX512VNNI__
    if (!__builtin_cpu_supports("avx512vnni")) return "AVX-512VNNI";
#endif
#ifdef __AVX512BITALG__
    if (!__builtin_cpu_supports("avx512bitalg")) return "AVX-512BITALG";
#endif
#ifdef __AVX512VPOPCNTDQ__
    if (!__builtin_cpu_supports("avx512vpopcntdq")) return "AVX-512VPOPCNTDQ";
#endif
#ifdef __AVX512FP16__
    if (!has_bit(7, 0, 3, 23)) return "AVX-512FP16";
#endif
#ifdef __AVXVNNI__
    if (!has_bit(7, 1, 0, 4)) return "AVX-VNNI";
#endif
#ifdef __GFNI__
    if (!__builtin_cpu_supports("gfni")) return "GFNI";
#endif
#ifdef __AVX2__
    if (!__builtin_cpu_supports("avx2")) return "AVX2";
#endif
#ifdef __FMA__
    if (!__builtin_cpu_supports("fma")) return "FMA";
#endif
#ifdef __FMA4__
    if (!__builtin_cpu_supports("fma4")) return "FMA4";
#endif
#ifdef __XOP__
    if (!__builtin_cpu_supports("xop")) return "XOP";
#endif
#ifdef __BMI__
    if (!__builtin_cpu_supports("bmi")) return "BMI";
#endif
#ifdef __BMI2__
    if (!__builtin_cpu_supports("bmi2")) return "BMI2";
#endif
#ifdef __LZCNT__
    if (!has_bit(0x80000001, 0, 2, 5)) return "LZCNT";
#endif
#ifdef __MOVBE__
    if (!has_bit(1, 0, 2, 22)) return "MOVBE";
#endif
#ifdef __F16C__
    if (!has_bit(1, 0, 2, 29)) return "F16C";
#endif
#ifdef __AVX__
    if (!__builtin_cpu_supports("avx")) return "AVX";
#endif
#ifdef __SSE4_2__
    if (!__builtin_cpu_supports("sse4.2")) return "SSE4.2";
#endif
#ifdef __SSE4_1__
    if (!__builtin_cpu_supports("sse4.1")) return "SSE4.1";
#endif
#ifdef __SSE4A__
    if (!__builtin_cpu_supports("sse4a")) return "SSE4a";
#endif
#ifdef __POPCNT__
    if (!__builtin_cpu_supports("popcnt")) return "POPCNT";
#endif
#ifdef __SSSE3__
    if (!__builtin_cpu_supports("ssse3")) return "SSSE3";
#endif
#ifdef __SSE3__
    if (!__builtin_cpu_supports("sse3")) return "SSE3";
#endif
    return NULL;
}

#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

const char *ls__cpu_lacks(void)
{
    /* From <asm/hwcap.h>, whose names depend on how new the headers are. */
    unsigned long has = getauxval(AT_HWCAP), has2 = getauxval(AT_HWCAP2);
    (void)has, (void)has2;
#ifdef __ARM_FEATURE_SVE2
    if (!(has2 >> 1 & 1)) return "SVE2";
#endif
#ifdef __ARM_FEATURE_SVE
    if (!(has >> 22 & 1)) return "SVE";
#endif
#ifdef __ARM_FEATURE_MATMUL_INT8
    if (!(has2 >> 13 & 1)) return "I8MM";
#endif
#ifdef __ARM_FEATURE_DOTPROD
    if (!(has >> 20 & 1)) return "DotProd";
#endif
#ifdef __ARM_FEATURE_FP16_SCALAR_ARITHMETIC
    if (!(has >> 9 & 1)) return "FP16";
#endif
#ifdef __ARM_FEATURE_ATOMICS
    if (!(has >> 8 & 1)) return "LSE";
#endif
#ifdef __ARM_FEATURE_RCPC
    if (!(has >> 15 & 1)) return "LRCPC";
#endif
    return NULL;
}

#else

const char *ls__cpu_lacks(void)
{
    return NULL;
}
#endif
