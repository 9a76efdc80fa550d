/* Chooses the loops for this CPU. See select.h. */
#include "kern/select.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"

extern const ls__kernels ls__kernels_plain;
extern const ls__nn_kernels ls__nn_kernels_plain;
#if defined(__x86_64__)
extern const ls__kernels ls__kernels_avx2, ls__kernels_avx512;
extern const ls__nn_kernels ls__nn_kernels_avx2, ls__nn_kernels_avx512;
#elif defined(__aarch64__)
extern const ls__nn_kernels ls__nn_kernels_neon;
#endif

static bool has_avx512(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

static bool has_avx2(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

static bool has_neon(void)
{
#ifdef __aarch64__
    return true; /* part of the architecture */
#else
    return false;
#endif
}

static bool has_plain(void)
{
    return true;
}

/* All that exist, best first. Where one was not compiled for this architecture, its tables are NULL. */
static const struct {
    ls__instruction_set set;
    bool (*runs)(void);
} known[] = {
#if defined(__x86_64__)
    { { "avx512", 3, &ls__kernels_avx512, &ls__nn_kernels_avx512 }, has_avx512 },
    { { "avx2", 2, &ls__kernels_avx2, &ls__nn_kernels_avx2 }, has_avx2 },
    { { "neon", 1, NULL, NULL }, has_neon },
#elif defined(__aarch64__)
    { { "avx512", 3, NULL, NULL }, has_avx512 },
    { { "avx2", 2, NULL, NULL }, has_avx2 },
    { { "neon", 1, &ls__kernels_plain, &ls__nn_kernels_neon }, has_neon },
#else
    { { "avx512", 3, NULL, NULL }, has_avx512 },
    { { "avx2", 2, NULL, NULL }, has_avx2 },
    { { "neon", 1, NULL, NULL }, has_neon },
#endif
    { { "plain", 0, &ls__kernels_plain, &ls__nn_kernels_plain }, has_plain },
};
enum { KNOWN = sizeof known / sizeof *known };

const ls__instruction_set *ls__instruction_set_at(int index)
{
    for (int i = 0; i < KNOWN; i++)
        if (known[i].runs() && index-- == 0) return &known[i].set;
    return NULL;
}

static const char *forced(void)
{
    const char *name = getenv("LOCKSTEP_KERNELS");
    return name && *name ? name : NULL;
}

/* The number in `known` of LOCKSTEP_KERNELS; KNOWN: there is no such name. */
static int forced_index(const char *name)
{
    int i = 0;
    while (i < KNOWN && strcmp(known[i].set.name, name)) i++;
    return i;
}

static const ls__instruction_set *_Atomic used;

const ls__instruction_set *ls__instruction_set_used(void)
{
    const ls__instruction_set *s = atomic_load_explicit(&used, memory_order_relaxed);
    if (s) return s;
    const char *name = forced();
    int i = name ? forced_index(name) : KNOWN;
    s = i < KNOWN && known[i].runs() ? &known[i].set : ls__instruction_set_at(0);
    atomic_store_explicit(&used, s, memory_order_relaxed);
    return s;
}

void ls__instruction_set_use(const ls__instruction_set *s)
{
    atomic_store_explicit(&used, s, memory_order_relaxed);
}

const char *ls__kernels_note(void)
{
    if (forced() || strcmp(ls__instruction_set_used()->name, "plain")) return NULL;
#ifdef __x86_64__
    return "the CPU or the virtual machine does not offer AVX2 with FMA: same results, much slower";
#else
    return "there are no kernels for this architecture but plain C: same results, much slower";
#endif
}

ls_status ls__kernels_check(void)
{
    const char *name = forced(), *missing = ls__cpu_mark ? ls__cpu_lacks() : NULL;
    if (missing)
        return ls__fail(LS_EUNSUPPORTED, "this build needs a CPU with %s; compile without -march to run on any",
                        missing);
    if (!name) return LS_OK;
    int i = forced_index(name);
    if (i == KNOWN)
        return ls__fail(LS_EINVAL, "LOCKSTEP_KERNELS: unknown value '%.40s'; it must be avx512, avx2, neon or plain",
                        name);
    if (!known[i].runs())
        return ls__fail(LS_EINVAL, "LOCKSTEP_KERNELS: this CPU cannot run '%s'; its best is '%s'", name,
                        ls__instruction_set_at(0)->name);
    return LS_OK;
}

const ls__kernels *ls__kernels_at(int index)
{
    const ls__instruction_set *s = ls__instruction_set_at(index);
    return s ? s->loops : NULL;
}

const ls__nn_kernels *ls__nn_kernels_at(int index)
{
    const ls__instruction_set *s = ls__instruction_set_at(index);
    return s ? s->nn : NULL;
}

const ls__kernels *ls__kernels_best(void)
{
    return ls__instruction_set_used()->loops;
}

const ls__nn_kernels *ls__nn_kernels_best(void)
{
    return ls__instruction_set_used()->nn;
}
