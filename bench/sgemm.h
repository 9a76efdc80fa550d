/* SGEMM of other libraries, as yardsticks: found at run time, so that nothing of ours depends on them.
 *
 * OpenBLAS  libopenblas.so.0. An OpenBLAS older than the CPU may take it for one of long ago; where OPENBLAS_CORETYPE is not
 *           set, it gets the name of kernels that fit.
 * MKL       libmkl_rt, or the file that LOCKSTEP_MKL names (torch's wheels bring one in their environment's lib folder). */
#ifndef LS_BENCH_SGEMM_H
#define LS_BENCH_SGEMM_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "kern/gemm.h"

typedef void (*sgemm_fn)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                         const float *b, int ldb, float beta, float *c, int ldc);

typedef struct sgemm {
    const char *name;
    sgemm_fn fn; /* NULL: ours */
    void (*set_threads)(int threads);
} sgemm;
enum { MOST_SGEMM = 3 };

static inline void *symbol_of(void *library, const char *name)
{
    return library ? dlsym(library, name) : NULL;
}

/* Ours first, then those that are installed; returns how many. */
static inline int find_sgemm(sgemm out[MOST_SGEMM])
{
    int n = 0;
    out[n++] = (sgemm){ "lockstep", NULL, NULL };
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
        setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
    else if (__builtin_cpu_supports("avx2"))
        setenv("OPENBLAS_CORETYPE", __builtin_cpu_is("amd") ? "Zen" : "Haswell", 0);
#endif
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    void *fn = symbol_of(library, "cblas_sgemm"), *threads = symbol_of(library, "openblas_set_num_threads");
    if (fn && threads) out[n++] = (sgemm){ "openblas", (sgemm_fn)fn, (void (*)(int))threads };
    const char *names[] = { getenv("LOCKSTEP_MKL"), "libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so" };
    library = NULL;
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
        library = names[i] ? dlopen(names[i], RTLD_NOW | RTLD_LOCAL) : NULL;
    fn = symbol_of(library, "cblas_sgemm");
    threads = symbol_of(library, "MKL_Set_Num_Threads");
    if (fn && threads) out[n++] = (sgemm){ "mkl", (sgemm_fn)fn, (void (*)(int))threads };
    return n;
}

static inline void run_sgemm(const sgemm *s, const ls__gemm *g, int threads, float *workspace)
{
    enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };
    if (!s->fn)
        ls__gemm_run(g, 1, threads, workspace, NULL);
    else
        s->fn(ROW_MAJOR, g->a_trans ? TRANSPOSED : PLAIN, g->b_trans ? TRANSPOSED : PLAIN, (int)g->m, (int)g->n,
              (int)g->k, 1, g->a, (int)g->lda, g->b, (int)g->ldb, g->add ? 1 : 0, g->c, (int)g->ldc);
}

#endif
