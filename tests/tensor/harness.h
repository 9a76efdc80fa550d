/* What the tests of operations share: values that tests/tensor/make_goldens.py can make too, parameters made of them,
 * and the cases, one per operation and form, which drive both the central differences and the comparison with PyTorch.
 */
#ifndef LS_TESTS_TENSOR_HARNESS_H
#define LS_TESTS_TENSOR_HARNESS_H

#include <math.h>
#include "check.h"
#include "lockstep/tensor.h"
#include "tensor/hooks.h"

/* Element i of array `seed`: in [-1, 1), the same in Python. */
static inline float test_value(uint32_t seed, uint32_t i)
{
    uint32_t x = i * 2654435761u + seed * 40503u + 12345u;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return (float)(int32_t)(x >> 8) * 0x1p-23f - 1.0f;
}

static inline void test_fill(float *to, int64_t count, uint32_t seed, float scale, float shift)
{
    for (int64_t i = 0; i < count; i++) to[i] = test_value(seed, (uint32_t)i) * scale + shift;
}

static inline int64_t param_count(const ls_param *p)
{
    int64_t n = 1;
    for (int i = 0; i < p->dims; i++) n *= p->shape[i];
    return n;
}

/* A parameter with memory of its own, value j = test_value(seed, j) * scale + shift. */
static inline ls_param test_param(const char *name, uint32_t seed, float scale, float shift, int64_t s0, int64_t s1,
                                  int64_t s2, int64_t s3)
{
    ls_param p = { .name = name, .shape = { s0, s1, s2, s3 } };
    while (p.dims < LS_MAX_DIMS && p.shape[p.dims]) p.dims++;
    p.value = malloc((size_t)param_count(&p) * sizeof(float));
    p.grad = malloc((size_t)param_count(&p) * sizeof(float));
    test_fill(p.value, param_count(&p), seed, scale, shift);
    for (int64_t i = 0; i < param_count(&p); i++) p.grad[i] = NAN; /* must be overwritten */
    return p;
}

static inline void free_params(ls_param *p, int n)
{
    for (int i = 0; i < n; i++) {
        free(p[i].value);
        free(p[i].grad);
    }
}

/* ---- The cases */

enum { CASE_PARAMS = 4 };

typedef struct op_case {
    const char *name;
    struct {
        int64_t shape[LS_MAX_DIMS];
        float scale, shift;
    } p[CASE_PARAMS]; /* parameter 0 is x */
    ls_tensor *(*build)(ls_tape *t, ls_param *p);
    bool kinks; /* not smooth: central differences need care */
} op_case;

static inline int case_params(const op_case *c, ls_param out[CASE_PARAMS])
{
    static const char *const names[CASE_PARAMS] = { "x", "a", "b", "c" };
    int n = 0;
    for (; n < CASE_PARAMS && c->p[n].shape[0]; n++) {
        const int64_t *s = c->p[n].shape;
        out[n] = test_param(names[n], (uint32_t)n + 1, c->p[n].scale, c->p[n].shift, s[0], s[1], s[2], s[3]);
    }
    return n;
}

/* sum(build(...) * weights) with weights from seed 99; *out is what build returned. */
static inline ls_tensor *case_loss(const op_case *c, ls_tape *t, ls_param *p, ls_tensor **out)
{
    static float weights[1 << 14];
    test_fill(weights, 1 << 14, 99, 1, 0);
    ls_tensor *y = *out = c->build(t, p);
    if (!y) fail_msg("%s: %s", c->name, ls_error());
    assert_true(ls_tensor_count(y) <= 1 << 14);
    return ls_sum(t, ls_mul(t, y, ls_tape_input(t, weights, y->dims, y->shape)));
}

extern const op_case op_cases[];
extern const int n_op_cases;

#endif
