/* Every operation gives the same bits with every instruction set of this CPU, on one thread and on three: with ordinary values, with
 * ones whose products are too small to be normal, and with NaN, infinities, zeros and the largest numbers. */
#include "harness.h"
#include "kern/select.h"

/* ---- Shapes that end inside blocks, panels and vectors, where the cases that all tests share are small. */

static ls_tensor *linear(ls_tape *t, ls_param *p)
{
    ls_linear_options o = { .activation = LS_GELU_ERF };
    return ls_linear(t, ls_tape_param(t, &p[0]), &p[1], &p[2], &o);
}
static ls_tensor *linear_transposed(ls_tape *t, ls_param *p)
{
    ls_linear_options o = { .transposed = true, .input_activation = LS_SILU };
    return ls_linear(t, ls_tape_param(t, &p[0]), &p[1], NULL, &o);
}
static ls_tensor *attention(ls_tape *t, ls_param *p)
{
    ls_attention_options o = { .heads = 3, .kv_heads = 1, .window = 77, .dropout = 0.2f };
    return ls_attention(t, ls_tape_param(t, &p[0]), &o);
}
static ls_tensor *conv2d(ls_tape *t, ls_param *p)
{
    return ls_conv2d(t, ls_tape_param(t, &p[0]), &p[1], &p[2], &(ls_conv2d_options){ .padding = 1 });
}
static ls_tensor *conv2d_stride(ls_tape *t, ls_param *p)
{
    return ls_conv2d(t, ls_tape_param(t, &p[0]), &p[1], NULL, &(ls_conv2d_options){ .stride = 3, .padding = 2 });
}
static ls_tensor *linear_cross_entropy(ls_tape *t, ls_param *p)
{
    static int32_t targets[67];
    static float weights[67];
    for (int i = 0; i < 67; i++) {
        targets[i] = i * 15 % 1009;
        weights[i] = (float)(i % 5) * 0.25f;
    }
    return ls_linear_cross_entropy(t, ls_tape_param(t, &p[0]), &p[1],
                                   &(ls_cross_entropy_options){ .targets = targets, .weights = weights });
}

static const op_case odd_cases[] = {
    { "linear, wide", { { { 385, 130 }, 1, 0 }, { { 130, 41 }, 1, 0 }, { { 41 }, 1, 0 } }, linear, false },
    { "linear, thin", { { { 29, 517 }, 1, 0 }, { { 517, 515 }, 1, 0 }, { { 515 }, 1, 0 } }, linear, false },
    { "linear, few rows", { { { 3, 130 }, 1, 0 }, { { 130, 1033 }, 1, 0 }, { { 1033 }, 1, 0 } }, linear, false },
    { "linear, one column", { { { 301, 67 }, 1, 0 }, { { 67, 1 }, 1, 0 }, { { 1 }, 1, 0 } }, linear, false },
    { "linear, transposed", { { { 97, 513 }, 1, 0 }, { { 129, 513 }, 1, 0 } }, linear_transposed, false },
    { "linear, transposed, one row", { { { 1, 1021 }, 1, 0 }, { { 131, 1021 }, 1, 0 } }, linear_transposed, false },
    { "attention, window and dropout", { { { 1, 131, 5 * 37 }, 2, 0 } }, attention, false },
    { "attention, width 1", { { { 2, 33, 5 }, 2, 0 } }, attention, false },
    { "conv2d", { { { 2, 9, 11, 17 }, 1, 0 }, { { 19, 17, 3, 3 }, 1, 0 }, { { 19 }, 1, 0 } }, conv2d, false },
    { "conv2d, as Winograd",
      { { { 1, 13, 9, 33 }, 1, 0 }, { { 35, 33, 3, 3 }, 1, 0 }, { { 35 }, 1, 0 } },
      conv2d,
      false },
    { "conv2d, stride", { { { 3, 10, 7, 5 }, 1, 0 }, { { 7, 5, 5, 3 }, 1, 0 } }, conv2d_stride, false },
    { "linear_cross_entropy", { { { 67, 130 }, 1, 0 }, { { 1009, 130 }, 1, 0 } }, linear_cross_entropy, false },
};

/* ---- Values */

typedef enum kind { ORDINARY, TINY, SPECIAL, KINDS } kind;
static const char *const kind_names[KINDS] = { "ordinary", "tiny", "special" };

static void change(ls_param *p, uint32_t seed, kind k)
{
    static const float special[] = { 0.0f,    -0.0f,     INFINITY, -INFINITY, NAN, 1e-45f,
                                     -1e-40f, 0x1p-126f, 3e38f,    -3e38f,    1,   -1 };
    for (int64_t i = 0; i < param_count(p); i++) {
        uint32_t r = (uint32_t)((test_value(seed + 50, (uint32_t)i) + 1) * 0x1p22f);
        if (k == TINY) p->value[i] = ldexpf(p->value[i], -(int)(r % 110));
        if (k == SPECIAL && r % 61 == 0) p->value[i] = special[r / 61 % 12];
    }
}

/* ---- Result and gradients of a case, one after another. The bits of a NaN differ between CPUs. */

typedef struct outcome {
    uint32_t *bits;
    size_t count;
} outcome;

static void append(outcome *o, const float *x, int64_t count)
{
    o->bits = realloc(o->bits, (o->count + (size_t)count) * sizeof *o->bits);
    for (int64_t i = 0; i < count; i++) {
        memcpy(&o->bits[o->count], &x[i], sizeof *o->bits);
        if (isnan(x[i])) o->bits[o->count] = 0x7fc00000;
        o->count++;
    }
}

static outcome outcome_of(const op_case *c, kind k, int threads)
{
    ls_param p[CASE_PARAMS];
    ls_tape *t;
    ls_tensor *y = NULL, *loss;
    outcome o = { 0 };
    int n = case_params(c, p);
    for (int i = 0; i < n; i++) change(&p[i], (uint32_t)i, k);
    check_ok(ls_tape_open(&t, &(ls_tape_options){ .threads = threads }));
    check_ok(ls_tape_begin(t, p, n, &(ls_pass){ .seed = 5, .stream = 7 }));
    if (c->build == linear_cross_entropy)
        loss = y = c->build(t, p);
    else
        loss = case_loss(c, t, p, &y);
    check_ok(ls_tape_status(t));
    append(&o, y->data, ls_tensor_count(y));
    check_ok(ls_tape_backward(t, loss));
    for (int i = 0; i < n; i++) append(&o, p[i].grad, param_count(&p[i]));
    ls_tape_free(&t);
    free_params(p, n);
    return o;
}

static void check_case(const op_case *c, kind k)
{
    const ls__instruction_set *s;
    outcome first = { 0 };
    for (int v = 0; (s = ls__instruction_set_at(v)); v++)
        for (int threads = 1; threads <= 3; threads += 2) {
            ls__instruction_set_use(s);
            outcome o = outcome_of(c, k, threads);
            ls__instruction_set_use(NULL);
            if (!first.bits) {
                first = o;
                continue;
            }
            assert_int_equal(o.count, first.count);
            for (size_t i = 0; i < o.count; i++)
                if (o.bits[i] != first.bits[i])
                    fail_msg("%s, %s values: element %zu of %zu is %#x with %s on %d threads, %#x with %s on one",
                             c->name, kind_names[k], i, o.count, o.bits[i], s->name, threads, first.bits[i],
                             ls__instruction_set_at(0)->name);
            free(o.bits);
        }
    free(first.bits);
}

static void operations_have_the_same_bits(void **state)
{
    (void)state;
    for (kind k = 0; k < KINDS; k++) {
        for (int i = 0; i < n_op_cases; i++) check_case(&op_cases[i], k);
        for (size_t i = 0; i < sizeof odd_cases / sizeof *odd_cases; i++) check_case(&odd_cases[i], k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
