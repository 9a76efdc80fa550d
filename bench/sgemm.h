/* SGEMM of other libraries, as yardsticks: found at run time, so that nothing of ours depends on them.
 *
 * OpenBLAS  libopenblas.so.0, or the file that LOCKSTEP_OPENBLAS names; numpy's wheels bring one (numpy.libs/). An OpenBLAS older
 *           than the CPU may take it for one of long ago; where OPENBLAS_CORETYPE is not set, it gets the name of kernels that fit.
 * MKL       libmkl_rt, or the file that LOCKSTEP_MKL names. Torch's wheels have it inside libtorch_cpu.so, where torch.mm calls it. */
#ifndef LS_BENCH_SGEMM_H
#define LS_BENCH_SGEMM_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kern/gemm.h"

typedef void (*cblas_fn)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                         const float *b, int ldb, float beta, float *c, int ldc);
typedef void (*cblas64_fn)(int order, int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                           int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
typedef void (*fortran_fn)(const char *ta, const char *tb, const int *m, const int *n, const int *k, const float *alpha,
                           const float *a, const int *lda, const float *b, const int *ldb, const float *beta, float *c,
                           const int *ldc);

/* One of the three functions; none: ours. */
typedef struct sgemm {
    const char *name;
    cblas_fn cblas;
    cblas64_fn cblas64;
    fortran_fn fortran;
    void (*set_threads)(int threads);
} sgemm;
enum { MOST_SGEMM = 3 };

static inline void *symbol_of(void *library, const char *name)
{
    return library ? dlsym(library, name) : NULL;
}

/* The first of these that can be loaded; `named` must be if it is given. */
static inline void *library_of(const char *named, const char *const names[], int count)
{
    void *library = named ? dlopen(named, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (named && !library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    for (int i = 0; !library && i < count; i++) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* False: it has none of the functions. */
static inline bool sgemm_in(void *library, const char *name, const char *const set_threads[], int count, sgemm *out)
{
    *out = (sgemm){ .name = name };
    out->cblas = (cblas_fn)symbol_of(library, "cblas_sgemm");
    if (!out->cblas) out->cblas64 = (cblas64_fn)symbol_of(library, "scipy_cblas_sgemm64_");
    if (!out->cblas && !out->cblas64) out->fortran = (fortran_fn)symbol_of(library, "sgemm_");
    for (int i = 0; !out->set_threads && i < count; i++)
        out->set_threads = (void (*)(int))symbol_of(library, set_threads[i]);
    return out->set_threads && (out->cblas || out->cblas64 || out->fortran);
}

/* Ours first, then those that are installed; returns how many. */
static inline int find_sgemm(sgemm out[MOST_SGEMM])
{
    int n = 0;
    out[n++] = (sgemm){ .name = "lockstep" };
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
        setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
    else if (__builtin_cpu_supports("avx2"))
        setenv("OPENBLAS_CORETYPE", __builtin_cpu_is("amd") ? "Zen" : "Haswell", 0);
#endif
    /* Its threads then wait on the cores for some 10 ms (2^25 cycles) before they sleep; by default up to 100 ms, in which others are
     * measured. */
    setenv("OPENBLAS_THREAD_TIMEOUT", "25", 0);
    void *library = library_of(getenv("LOCKSTEP_OPENBLAS"), (const char *[]){ "libopenblas.so.0" }, 1);
    const char *const of_openblas[] = { "openblas_set_num_threads", "scipy_openblas_set_num_threads64_" };
    if (sgemm_in(library, "openblas", of_openblas, 2, &out[n])) n++;
    library =
        library_of(getenv("LOCKSTEP_MKL"), (const char *[]){ "libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so" }, 3);
    const char *const of_mkl[] = { "MKL_Set_Num_Threads", "MKL_Set_Num_Threads_Local" };
    if (sgemm_in(library, "mkl", of_mkl, 2, &out[n])) n++;
    return n;
}

static inline void run_sgemm(const sgemm *s, const ls__gemm *g, int threads, float *workspace)
{
    enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };
    int ta = g->a_trans ? TRANSPOSED : PLAIN, tb = g->b_trans ? TRANSPOSED : PLAIN;
    int m = (int)g->m, n = (int)g->n, k = (int)g->k, lda = (int)g->lda, ldb = (int)g->ldb, ldc = (int)g->ldc;
    float one = 1, beta = g->add ? 1 : 0;
    if (s->cblas)
        s->cblas(ROW_MAJOR, ta, tb, m, n, k, one, g->a, lda, g->b, ldb, beta, g->c, ldc);
    else if (s->cblas64)
        s->cblas64(ROW_MAJOR, ta, tb, g->m, g->n, g->k, one, g->a, g->lda, g->b, g->ldb, beta, g->c, g->ldc);
    else if (s->fortran) /* column by column, so C^T = B^T A^T */
        s->fortran(g->b_trans ? "T" : "N", g->a_trans ? "T" : "N", &n, &m, &k, &one, g->b, &ldb, g->a, &lda, &beta,
                   g->c, &ldc);
    else
        ls__gemm_run(g, 1, threads, workspace, NULL);
}

#endif
