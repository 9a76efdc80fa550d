/* Update kernels and sums of squares: every version that this CPU runs against its reference, in bits. */
#include "kern/optim.h"
#include "kern/table.h"
#include "kern/values.h"

enum { ROOM = 4200 };
static const size_t counts[] = { 0, 1, 3, 7, 8, 15, 16, 17, 33, 64, 65, 1027, 4096 };
enum { COUNTS = sizeof counts / sizeof *counts };

/* The plain versions. */
static void adamw_reference(float *w, const float *g, float *const *states, size_t count, const ls__optim_args *args)
{
    float *m = states[0], *v = states[1];
    for (size_t i = 0; i < count; i++) {
        float grad = g[i] * args->grad_scale;
        m[i] = args->adamw.beta1 * m[i] + (1 - args->adamw.beta1) * grad;
        v[i] = args->adamw.beta2 * v[i] + (1 - args->adamw.beta2) * (grad * grad);
        float denominator = sqrtf(v[i]) * args->adamw.denom_scale + args->adamw.eps;
        w[i] = args->adamw.keep * w[i] - args->adamw.step_size * (m[i] / denominator);
    }
}

static void sgd_reference(float *w, const float *g, float *const *states, size_t count, const ls__optim_args *args)
{
    (void)states;
    for (size_t i = 0; i < count; i++) w[i] -= args->sgd.lr * (g[i] * args->grad_scale + args->sgd.decay * w[i]);
}

static void sgd_momentum_reference(float *w, const float *g, float *const *states, size_t count,
                                   const ls__optim_args *args)
{
    float *m = states[0];
    for (size_t i = 0; i < count; i++) {
        m[i] = args->sgd.momentum * m[i] + (g[i] * args->grad_scale + args->sgd.decay * w[i]);
        w[i] -= args->sgd.lr * m[i];
    }
}

static void muon_reference(float *w, const float *g, float *const *states, size_t count, const ls__optim_args *args)
{
    float *m = states[0];
    const float *direction = states[1];
    for (size_t i = 0; i < count; i++) {
        m[i] = args->muon.momentum * m[i] + (1 - args->muon.momentum) * (g[i] * args->grad_scale);
        w[i] = args->muon.keep * w[i] - args->muon.lr * direction[i];
    }
}

static float w[ROOM], g[ROOM], m[ROOM], v[ROOM], w2[ROOM], m2[ROOM], v2[ROOM];

static void fill_all(void)
{
    fill_numbers(LS_F32, w, ROOM);
    fill_numbers(LS_F32, g, ROOM);
    fill_numbers(LS_F32, m, ROOM);
    fill_numbers(LS_F32, v, ROOM);
    for (int i = 0; i < ROOM; i++) v[i] *= v[i];
    memcpy(w2, w, sizeof w);
    memcpy(m2, m, sizeof m);
    memcpy(v2, v, sizeof v);
}

typedef void reference_fn(float *w, const float *g, float *const *states, size_t count, const ls__optim_args *args);

static const struct {
    reference_fn *reference;
    ls__optim_args args;
} kernels[LS__OPTIM_COUNT] = {
    [LS__OPTIM_ADAMW] = { adamw_reference,
                          { .grad_scale = 0.7f, .adamw = { 0.999f, 0.9f, 0.95f, 0.01f, 1.3f, 1e-8f } } },
    [LS__OPTIM_SGD] = { sgd_reference, { .grad_scale = 0.7f, .sgd = { 0.1f, 0, 0.01f } } },
    [LS__OPTIM_MUON] = { muon_reference, { .grad_scale = 0.7f, .muon = { 0.999f, 0.95f, 0.01f } } },
    [LS__OPTIM_SGD_MOMENTUM] = { sgd_momentum_reference, { .grad_scale = 0.7f, .sgd = { 0.1f, 0.9f, 0.01f } } },
};

static void check_all(const char *name)
{
    check_same_bits(w, w2, ROOM, sizeof(float), name);
    check_same_bits(m, m2, ROOM, sizeof(float), name);
    check_same_bits(v, v2, ROOM, sizeof(float), name);
}

static void updates(void **state)
{
    (void)state;
    const ls__kernels *k;
    for (int f = 0; f < LS__OPTIM_COUNT; f++) {
        if (!kernels[f].reference) fail_msg("kernel %d has no reference: add one to the table above", f);
        for (int i = 0; (k = ls__kernels_at(i)); i++)
            for (int c = 0; c < COUNTS; c++)
                for (size_t shift = 0; shift < 9; shift++) {
                    fill_all();
                    k->update[f](w + shift, g + 1, (float *[]){ m + 2, v + shift }, counts[c], &kernels[f].args, NULL);
                    kernels[f].reference(w2 + shift, g + 1, (float *[]){ m2 + 2, v2 + shift }, counts[c],
                                         &kernels[f].args);
                    check_all(k->name);
                }
        fill_all();
        ls__optim_update((ls__optim_kernel)f, w, g, (float *[]){ m, v }, ROOM, &kernels[f].args, NULL);
        kernels[f].reference(w2, g, (float *[]){ m2, v2 }, ROOM, &kernels[f].args);
        check_all("ls__optim_update");
    }
}

/* An update that can be taken back: the same values, and the old ones are copied. */
static void updates_with_undo(void **state)
{
    (void)state;
    static float copy[3 * (ROOM + LS__UNDO_GROUP)], old[3][ROOM], back[ROOM + 7];
    const ls__kernels *k;
    for (int f = 0; f < LS__OPTIM_COUNT; f++)
        for (int i = 0; (k = ls__kernels_at(i)); i++)
            for (int c = 0; c < COUNTS; c++) {
                size_t n = counts[c];
                _Atomic int64_t copied = 0;
                ls__optim_undo undo = { .copy = copy, .before = 7, .copied = &copied };
                fill_all();
                memcpy(old[0], w + 1, n * sizeof(float));
                memcpy(old[1], m + 2, n * sizeof(float));
                memcpy(old[2], v, n * sizeof(float));
                k->update[f](w + 1, g, (float *[]){ m + 2, v }, n, &kernels[f].args, &undo);
                kernels[f].reference(w2 + 1, g, (float *[]){ m2 + 2, v2 }, n, &kernels[f].args);
                check_all(k->name);
                for (int a = 0; a <= ls__optim_states[f]; a++) {
                    ls__undo_restore(copy, 7 + n, a, back);
                    check_same_bits(back + 7, old[a], n, sizeof(float), k->name);
                }
                if (n && copied != 7 + (int64_t)n)
                    fail_msg("%s: %zu elements: %lld are copied", k->name, n, (long long)copied);
            }
}

static void sums_of_squares(void **state)
{
    (void)state;
    const ls__kernels *k;
    fill_all();
    for (int i = 0; (k = ls__kernels_at(i)); i++)
        for (int c = 0; c < COUNTS; c++)
            for (size_t shift = 0; shift < 9; shift++) {
                double got = k->sum_squares(w + shift, counts[c]);
                double expected = ls__sum_squares_reference(w + shift, counts[c]);
                check_same_bits(&got, &expected, 1, sizeof(double), k->name);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates),
        cmocka_unit_test(updates_with_undo),
        cmocka_unit_test(sums_of_squares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
