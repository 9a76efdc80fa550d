/* The table of fast loops. The same source (loops.h) is compiled once per instruction set, each build fills a table,
 * and select.h chooses one. Tests go through all that the CPU can run. */
#ifndef LS_KERN_TABLE_H
#define LS_KERN_TABLE_H

#include <stdbool.h>
#include "kern/optim.h"
#include "lockstep/base.h"

typedef struct ls__kernels {
    const char *name; /* "plain", "avx2", "avx512" */
    /* By element type; see ls__reduce_arrays(). */
    void (*reduce[LS_DTYPE_COUNT])(ls_op op, void *const *out, int outs, const void *const *in, int p, size_t count,
                                   bool stream);
    void (*copy_stream)(void *dst, const void *src, size_t bytes);
    void (*add_f32)(float *out, const float *a, const float *b, size_t count);
    void (*scale_f32)(float *out, const float *a, float factor, size_t count);
    void (*f32_to_bf16)(uint16_t *out, const float *a, size_t count);
    void (*bf16_to_f32)(float *out, const uint16_t *a, size_t count);
    void (*f32_to_f16)(uint16_t *out, const float *a, size_t count);
    void (*f16_to_f32)(float *out, const uint16_t *a, size_t count);
    ls__optim_fn *update[LS__OPTIM_COUNT];
    double (*sum_squares)(const float *x, size_t count);
} ls__kernels;

/* Table `index` of those that this CPU can run, best first; NULL past the last. */
const ls__kernels *ls__kernels_at(int index);
/* The one in use. */
const ls__kernels *ls__kernels_best(void);

#endif
