/* The thread's floating-point mode: rounding to nearest, no traps, and denormal numbers flushed to zero or kept.
 *
 * Numbers below 2^-126 (1e-38) cost Intel's CPUs a hundred cycles each in products and FMA, and gradients get there. So all that
 * computes a model, its gradients and their update flushes them: a denormal operand counts as 0, and so does a result. Collectives
 * keep them: they add what they are given, and additions are not slow.
 *
 * Both set the mode themselves, whatever the caller has, or the bits would depend on who calls; and restore it. A scope:
 *
 *     LS__FLUSH_DENORMALS();   to the end of the block
 *
 * On x86-64 a result is flushed if it is denormal after rounding, on Arm before. Those between 2^-126 - 2^-150 and 2^-126
 * round up to 2^-126 on x86-64 and become 0 on Arm: the only known case in which the two compute different bits. */
#ifndef LS_KERN_FLOAT_MODE_H
#define LS_KERN_FLOAT_MODE_H

#include <stdint.h>

typedef uint64_t ls__float_mode;

#if defined(__x86_64__)
#include <xmmintrin.h>
enum { LS__MODE_KEEP = 0x1f80, LS__MODE_FLUSH = 0x1f80 | 0x8000 | 0x40 }; /* MXCSR: traps masked; FTZ and DAZ */
static inline ls__float_mode ls__float_mode_get(void)
{
    return _mm_getcsr();
}
static inline void ls__float_mode_set(ls__float_mode mode)
{
    _mm_setcsr((unsigned)mode);
}
#elif defined(__aarch64__)
enum { LS__MODE_KEEP = 0, LS__MODE_FLUSH = 1 << 24 }; /* FPCR: FZ */
static inline ls__float_mode ls__float_mode_get(void)
{
    ls__float_mode mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode)::"memory");
    return mode;
}
static inline void ls__float_mode_set(ls__float_mode mode)
{
    __asm__ volatile("msr fpcr, %0" ::"r"(mode) : "memory");
}
#else
enum { LS__MODE_KEEP = 0, LS__MODE_FLUSH = 0 }; /* not known here: denormal numbers are kept */
static inline ls__float_mode ls__float_mode_get(void)
{
    return 0;
}
static inline void ls__float_mode_set(ls__float_mode mode)
{
    (void)mode;
}
#endif

/* Sets a mode and returns the one before. Flags of earlier exceptions (x86-64's last bits) do not count as a difference. */
static inline ls__float_mode ls__float_mode_enter(ls__float_mode mode)
{
    ls__float_mode before = ls__float_mode_get();
    if ((before ^ mode) & ~(ls__float_mode)0x3f) ls__float_mode_set(mode);
    return before;
}

static inline void ls__float_mode_leave(const ls__float_mode *before)
{
    ls__float_mode_enter(*before);
}

#define LS__FLOAT_MODE(mode)                                                                      \
    __attribute__((cleanup(ls__float_mode_leave), unused)) const ls__float_mode ls__mode_before = \
        ls__float_mode_enter(mode)
#define LS__FLUSH_DENORMALS() LS__FLOAT_MODE(LS__MODE_FLUSH)
#define LS__KEEP_DENORMALS()  LS__FLOAT_MODE(LS__MODE_KEEP)

#endif
