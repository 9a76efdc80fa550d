/* Waiting on a word of shared memory, between threads or between processes that share the mapping. */
#ifndef LS_BASE_FUTEX_H
#define LS_BASE_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

/* Sleeps while *word == expected, at most `timeout_ns` (< 0: without limit). May return spuriously: the caller must
 * check its condition again. */
void ls__futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns);
/* Wakes all threads that sleep on `word`. */
void ls__futex_wake_all(_Atomic uint32_t *word);

/* A hint to the core that this is a spin loop. */
static inline void ls__cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

#endif
