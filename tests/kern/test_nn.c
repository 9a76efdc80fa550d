/* The loops of networks: each against its plain version in double, and every instruction set with the same bits. */
#include <float.h>
#include <math.h>
#include "check.h"
#include "kern/nn.h"

enum { MOST = 300 };
static const size_t lengths[] = { 1, 2, 7, 8, 31, 32, 33, 64, 99, 100, 257, MOST };
static float a[MOST], b[MOST], c[MOST], d[MOST];

static uint32_t state_ = 1;
static float next(float scale)
{
    state_ = state_ * 1664525u + 1013904223u;
    return ((float)(int32_t)(state_ >> 8) * 0x1p-23f - 1.0f) * scale;
}

static void fill(void)
{
    for (int i = 0; i < MOST; i++) a[i] = next(6), b[i] = next(2), c[i] = next(1) + 1, d[i] = next(3);
}

/* What one loop writes: up to three arrays and two numbers. */
typedef struct written {
    float x[3][MOST];
    float number[2];
} written;

typedef void (*run_fn)(const ls__nn_kernels *k, written *w, size_t n);

#define RUN(name) static void name(const ls__nn_kernels *k, written *w, size_t n)
RUN(exps)
{
    k->exp(w->x[0], a, n);
}
#define ACTIVATIONS(id, f)                                       \
    RUN(activate_##f)                                            \
    {                                                            \
        k->activate[id](w->x[0], a, n);                          \
    }                                                            \
    RUN(finish_##f)                                              \
    {                                                            \
        memcpy(w->x[1], a, sizeof a);                            \
        k->finish[id](w->x[0], w->x[1], b, n % 2 ? d : NULL, n); \
    }                                                            \
    RUN(back_##f)                                                \
    {                                                            \
        memcpy(w->x[0], b, sizeof b);                            \
        k->activate_back[id](w->x[0], d, a, n, n % 2);           \
    }
ACTIVATIONS(LS_IDENTITY, identity)
ACTIVATIONS(LS_GELU_TANH, gelu_tanh)
ACTIVATIONS(LS_GELU_ERF, gelu_erf)
ACTIVATIONS(LS_SILU, silu)
ACTIVATIONS(LS_RELU, relu)
ACTIVATIONS(LS_TANH, hyperbolic)
RUN(layer_norm)
{
    k->layer_norm(w->x[0], a, c, b, n, 1e-5f, &w->number[0], &w->number[1]);
}
RUN(layer_norm_back)
{
    memcpy(w->x[0], b, sizeof b);
    memcpy(w->x[1], c, sizeof c);
    memcpy(w->x[2], d, sizeof d);
    k->layer_norm_back(w->x[0], n % 2, d, a, c, n, 0.25f, 0.5f, w->x[1], w->x[2]);
}
RUN(rms_norm)
{
    k->rms_norm(w->x[0], a, c, n, 1e-5f, &w->number[0]);
}
RUN(rms_norm_back)
{
    memcpy(w->x[0], b, sizeof b);
    memcpy(w->x[1], c, sizeof c);
    k->rms_norm_back(w->x[0], n % 2, d, a, c, n, 0.5f, w->x[1]);
}
RUN(max)
{
    w->number[0] = k->max(a, n);
}
RUN(sum)
{
    w->number[0] = k->sum(c, n);
}
RUN(dot)
{
    w->number[0] = k->dot(c, c, n);
}
/* n elements as rows of 1, 3, 5 or 16 channels: what does not fill a row is left out. */
static size_t channels_of(size_t n)
{
    static const size_t counts[] = { 1, 3, 5, 16 };
    size_t best = 1;
    for (int i = 0; i < 4; i++)
        if (counts[i] <= n && n % 4 == (size_t)i) best = counts[i];
    return best;
}
RUN(channel_sums)
{
    k->channel_sums(w->x[0], a, n / channels_of(n), channels_of(n));
}
RUN(channel_squares)
{
    k->channel_squares(w->x[0], b, c, n / channels_of(n), channels_of(n));
}
RUN(channel_affine)
{
    k->channel_affine(w->x[0], a, n % 3 ? d : NULL, b, c, n % 2, n / channels_of(n), channels_of(n));
}
RUN(channel_back_sums)
{
    memcpy(w->x[2], d, sizeof d);
    k->channel_back_sums(w->x[0], w->x[1], w->x[2], n % 3 ? b : NULL, a, c, n / channels_of(n), channels_of(n));
}
RUN(channel_norm_back)
{
    memcpy(w->x[0], b, sizeof b);
    k->channel_norm_back(w->x[0], n % 2, d, a, b, c, d, b, n / channels_of(n), channels_of(n));
}
RUN(channel_max)
{
    const float *rows[] = { NULL, a, b, NULL, d, a };
    uint8_t places[MOST];
    k->channel_max(w->x[0], places, rows, 6, n);
    for (size_t i = 0; i < n; i++) w->x[1][i] = places[i];
    memcpy(w->x[2], d, sizeof d);
    k->channel_max_back(w->x[2], c, places, 2, n);
}
RUN(winograd)
{
    memcpy(w->x[1], d, sizeof d);
    k->winograd_in(w->x[0], 16, a, 4 * 16, 16);
    k->winograd_out(w->x[1], 2 * 16, 1 + n % 2, 1 + n / 2 % 2, b, 16, 16, n % 3);
}
RUN(exp_shift_sum)
{
    memcpy(w->x[0], a, sizeof a);
    w->number[0] = k->exp_shift_sum(w->x[0], n, 0.5f, 3);
}
RUN(softmax_back)
{
    memcpy(w->x[0], a, sizeof a);
    memcpy(w->x[1], d, sizeof d);
    k->softmax_back(w->x[0], w->x[1], n, 0.5f, 3, 0.25f, 0.1f);
}
RUN(swiglu)
{
    k->swiglu(w->x[0], a, b, n);
}
RUN(swiglu_back)
{
    memcpy(w->x[0], b, sizeof b);
    memcpy(w->x[1], c, sizeof c);
    k->swiglu_back(w->x[0], w->x[1], n % 2, d, a, b, n);
}
RUN(rotate)
{
    memcpy(w->x[0], a, sizeof a);
    k->rotate(w->x[0], b, c, n / 2, false);
}
RUN(rotate_back)
{
    memcpy(w->x[0], a, sizeof a);
    k->rotate(w->x[0], b, c, n / 2, true);
}
RUN(add)
{
    k->add(w->x[0], a, b, n);
}
RUN(mul)
{
    memcpy(w->x[0], d, sizeof d);
    k->mul(w->x[0], a, b, n, n % 2);
}
RUN(axpy)
{
    memcpy(w->x[0], d, sizeof d);
    k->axpy(w->x[0], 0.3f, a, n);
}
RUN(scale)
{
    k->scale(w->x[0], 0.3f, a, n);
}

#define LOOP(f) \
    {           \
#f, f   \
    }
#define LOOPS3(f) LOOP(activate_##f), LOOP(finish_##f), LOOP(back_##f)
static const struct {
    const char *name;
    run_fn run;
} loops[] = { LOOP(exps),
              LOOPS3(identity),
              LOOPS3(gelu_tanh),
              LOOPS3(gelu_erf),
              LOOPS3(silu),
              LOOPS3(relu),
              LOOPS3(hyperbolic),
              LOOP(layer_norm),
              LOOP(layer_norm_back),
              LOOP(rms_norm),
              LOOP(rms_norm_back),
              LOOP(swiglu),
              LOOP(swiglu_back),
              LOOP(rotate),
              LOOP(rotate_back),
              LOOP(max),
              LOOP(sum),
              LOOP(dot),
              LOOP(channel_sums),
              LOOP(channel_squares),
              LOOP(channel_affine),
              LOOP(channel_back_sums),
              LOOP(channel_norm_back),
              LOOP(channel_max),
              LOOP(winograd),
              LOOP(exp_shift_sum),
              LOOP(softmax_back),
              LOOP(add),
              LOOP(mul),
              LOOP(axpy),
              LOOP(scale) };
enum { LOOP_COUNT = sizeof loops / sizeof *loops };

static void every_loop_agrees_with_its_plain_version(void **state)
{
    (void)state;
    fill();
    for (int i = 0; i < LOOP_COUNT; i++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            static written fast, plain;
            memset(&fast, 0, sizeof fast);
            memset(&plain, 0, sizeof plain);
            loops[i].run(ls__nn_kernels_best(), &fast, lengths[l]);
            loops[i].run(&ls__nn_kernels_reference, &plain, lengths[l]);
            const float *x = &fast.x[0][0], *y = &plain.x[0][0];
            for (size_t j = 0; j < sizeof fast / sizeof(float); j++)
                if (!(fabs((double)x[j] - y[j]) <= 5e-6 * fmax(1, fabs((double)y[j]))))
                    fail_msg("%s, length %zu: value %zu is %.9g, plain %.9g", loops[i].name, lengths[l], j, x[j], y[j]);
        }
}

static void every_instruction_set_gives_the_same_bits(void **state)
{
    (void)state;
    fill();
    for (int i = 0; i < LOOP_COUNT; i++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            static written one, other;
            memset(&one, 0, sizeof one);
            loops[i].run(ls__nn_kernels_at(0), &one, lengths[l]);
            for (int v = 1; ls__nn_kernels_at(v); v++) {
                memset(&other, 0, sizeof other);
                loops[i].run(ls__nn_kernels_at(v), &other, lengths[l]);
                if (memcmp(&one, &other, sizeof one))
                    fail_msg("%s, length %zu: %s and %s differ", loops[i].name, lengths[l], ls__nn_kernels_at(0)->name,
                             ls__nn_kernels_at(v)->name);
            }
        }
}

/* Relative error of exp and of the tails of the activations over their whole range. */
static void exp_and_activations_are_exact_to_the_last_places(void **state)
{
    (void)state;
    const ls__nn_kernels *k = ls__nn_kernels_best();
    for (double at = -87; at < 88; at += 0.00731) {
        float x = (float)at, y;
        k->exp(&y, &x, 1);
        if (fabs(y / exp((double)x) - 1) > 3e-7) fail_msg("exp(%.9g) is %.9g, expected %.9g", x, y, exp((double)x));
    }
    for (double at = -8; at < 8; at += 0.000731) {
        float x = (float)at, y, expected;
        for (int f = 0; f < LS_ACTIVATION_COUNT; f++) {
            k->activate[f](&y, &x, 1);
            ls__nn_kernels_reference.activate[f](&expected, &x, 1);
            /* An error of the argument of exp is relative to the result times that argument. And 1 + erf cancels left of 0: there
             * the error is absolute. */
            double limit = f == LS_GELU_ERF ? 4e-7 * fmax(1, fabs(x)) : 1e-5 * fabs(expected) + 1e-30;
            if (fabs((double)y - expected) > limit)
                fail_msg("activation %d of %.9g is %.9g, expected %.9g", f, x, y, expected);
        }
    }
}

static void a_nan_is_never_lost(void **state)
{
    (void)state;
    float x[40], y[40];
    const ls__nn_kernels *k;
    for (int v = 0; (k = ls__nn_kernels_at(v)); v++)
        for (int at = 0; at < 40; at++) {
            for (int i = 0; i < 40; i++) x[i] = (float)i - 100;
            x[at] = NAN;
            assert_true(isnan(k->max(x, 40)));
            assert_true(isnan(k->sum(x, 40)));
            for (int f = 0; f < LS_ACTIVATION_COUNT; f++) {
                k->activate[f](y, x, 40);
                assert_true(isnan(y[at]));
            }
            k->exp(y, x, 40);
            assert_true(isnan(y[at]));
            assert_true(isnan(k->exp_shift_sum(x, 40, 1, 0)));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_loop_agrees_with_its_plain_version),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(exp_and_activations_are_exact_to_the_last_places),
        cmocka_unit_test(a_nan_is_never_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
