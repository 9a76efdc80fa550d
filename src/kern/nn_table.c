/* Picks the loops of nn.h for this CPU; see table.c for why by hand. */
#include "kern/nn.h"

#include <stdatomic.h>

extern const ls__nn_kernels ls__nn_kernels_baseline;
#ifdef __x86_64__
extern const ls__nn_kernels ls__nn_kernels_avx2, ls__nn_kernels_avx512;
#endif

const ls__nn_kernels *ls__nn_kernels_at(int index)
{
    const ls__nn_kernels *all[3];
    int n = 0;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        all[n++] = &ls__nn_kernels_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) all[n++] = &ls__nn_kernels_avx2;
#endif
    all[n++] = &ls__nn_kernels_baseline;
    return index < n ? all[index] : NULL;
}

const ls__nn_kernels *ls__nn_kernels_best(void)
{
    static const ls__nn_kernels *_Atomic best;
    const ls__nn_kernels *k = atomic_load_explicit(&best, memory_order_relaxed);
    if (!k) {
        k = ls__nn_kernels_at(0);
        atomic_store_explicit(&best, k, memory_order_relaxed);
    }
    return k;
}
