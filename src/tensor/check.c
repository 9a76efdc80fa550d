/* Checks of what a pass and its operations are given. */
#include "tensor/tape.h"

#include <stdio.h>
#include <string.h>

const char *ls__shape_text(char text[LS__SHAPE_TEXT], int dims, const int64_t *shape)
{
    size_t at = 0;
    for (int i = 0; i < dims; i++)
        at += (size_t)snprintf(text + at, LS__SHAPE_TEXT - at, "%s%lld", i ? ", " : "(", (long long)shape[i]);
    snprintf(text + at, LS__SHAPE_TEXT - at, "%s", dims ? ")" : "()");
    return text;
}

ls_tensor *ls__shape_error(ls_tape *t, const char *op, const char *a_name, int a_dims, const int64_t *a_shape,
                           const char *b_name, int b_dims, const int64_t *b_shape, const char *why)
{
    char a[LS__SHAPE_TEXT], b[LS__SHAPE_TEXT];
    return ls__tape_fail(t,
                         ls__fail(LS_EINVAL, "%s: %s %s does not fit %s %s: %s", op, a_name,
                                  ls__shape_text(a, a_dims, a_shape), b_name, ls__shape_text(b, b_dims, b_shape), why));
}

static bool reads_half(const char *op)
{
    static const char *const known[] = { "linear", "linear_joint", "embedding", "linear_cross_entropy" };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(op, known[i])) return true;
    return false;
}

bool ls__param_given(ls_tape *t, const char *op, const ls_param *p)
{
    if (p && p->tape == t && (!p->half || reads_half(op))) return true;
    if (p && p->tape == t) {
        ls__tape_fail(t, ls__fail(LS_EUNSUPPORTED,
                                  "%s: parameter '%s' is bfloat16; only linear layers and embeddings read that", op,
                                  p->name));
        return false;
    }
    ls__tape_fail(t,
                  p ? ls__fail(LS_EINVAL, "%s: parameter '%s' is not among those given to ls_tape_begin()", op, p->name)
                    : ls__fail(LS_EINVAL, "%s: a parameter is NULL", op));
    return false;
}

bool ls__activation_exists(ls_tape *t, const char *op, ls_activation activation)
{
    if ((unsigned)activation < LS_ACTIVATION_COUNT) return true;
    ls__tape_fail(t, ls__fail(LS_EINVAL, "%s: unknown activation %d", op, (int)activation));
    return false;
}

bool ls__param_fits(ls_tape *t, const char *op, const ls_param *p, int64_t s0, int64_t s1, int64_t s2, int64_t s3,
                    const ls_tensor *x)
{
    const int64_t want[LS_MAX_DIMS] = { s0, s1, s2, s3 };
    int dims = 0;
    while (dims < LS_MAX_DIMS && want[dims]) dims++;
    if (!ls__param_given(t, op, p)) return false;
    if (p->dims == dims && !memcmp(p->shape, want, (size_t)dims * sizeof *want)) return true;
    char expected[LS__SHAPE_TEXT + 16];
    snprintf(expected, sizeof expected, "expected ");
    ls__shape_text(expected + strlen(expected), dims, want);
    ls__shape_error(t, op, "input", x->dims, x->shape, p->name, p->dims, p->shape, expected);
    return false;
}

ls_status ls__pass_check(const ls_pass *pass)
{
    if ((unsigned)pass->mode > LS_PASS_EVAL) return ls__fail(LS_EINVAL, "tape: unknown pass mode %d", (int)pass->mode);
    if (pass->stream >> 48)
        return ls__fail(LS_EINVAL, "tape: stream is %llu; it must be below 2^48", (unsigned long long)pass->stream);
    return LS_OK;
}

ls_status ls__param_check(const ls_param *p, int i)
{
    const char *name = p->name ? p->name : "no name";
    char text[LS__SHAPE_TEXT];
    bool bad = false;
    if (p->dims < 1 || p->dims > LS_MAX_DIMS)
        return ls__fail(LS_EINVAL, "tape: parameter %d ('%s') has %d dimensions; there must be from 1 to %d", i, name,
                        p->dims, LS_MAX_DIMS);
    for (int k = 0; k < p->dims; k++) bad = bad || p->shape[k] < 1;
    if (bad)
        return ls__fail(LS_EINVAL,
                        "tape: parameter %d ('%s') has the invalid shape %s: each dimension must be at least 1", i,
                        name, ls__shape_text(text, p->dims, p->shape));
    if (p->half && (p->grad || p->value || p->dims != 2))
        return ls__fail(LS_EINVAL,
                        "tape: parameter %d ('%s') is bfloat16: it must be a matrix with neither float32 values nor a "
                        "gradient",
                        i, name);
    if (!p->value && !p->half)
        return ls__fail(LS_EINVAL, "tape: parameter %d ('%s') has no memory: its value is NULL", i, name);
    return LS_OK;
}
