/* Reads goldens.bin, which make_goldens.py wrote, and compares with it. */
#ifndef LS_TESTS_TENSOR_GOLDENS_H
#define LS_TESTS_TENSOR_GOLDENS_H

#include <math.h>
#include "base/file.h"
#include "check.h"

typedef struct goldens {
    char *text;
    size_t bytes;
} goldens;

static inline void goldens_open(goldens *g)
{
    char path[4096];
    const char *source = getenv("LOCKSTEP_SOURCE");
    snprintf(path, sizeof path, "%s/tests/tensor/goldens.bin", source ? source : ".");
    check_ok(ls__file_read(path, 1 << 24, &g->text, &g->bytes));
}

/* The record called `name`: copies its values to out, which has room for `count`, the number it must have. */
static inline void goldens_find(const goldens *g, const char *name, float *out, size_t count)
{
    const char *at = g->text, *end = g->text + g->bytes;
    while (at < end) {
        char found[64];
        size_t n;
        int length;
        if (sscanf(at, "%63s %zu%n", found, &n, &length) != 2) fail_msg("goldens.bin: no record at %td", at - g->text);
        at += length + 1;
        if (!strcmp(found, name)) {
            if (n != count) fail_msg("goldens.bin: %s has %zu values, expected %zu", name, n, count);
            memcpy(out, at, n * sizeof *out);
            return;
        }
        at += n * sizeof *out;
    }
    fail_msg("goldens.bin: no '%s'; run make_goldens.py", name);
}

/* got[] is what the record `name` says, with an error of at most `limit` times the largest value. */
static inline void goldens_check(const goldens *g, const char *name, const float *got, size_t count, double limit)
{
    float *expected = malloc(count * sizeof *expected);
    goldens_find(g, name, expected, count);
    double largest = 1e-6;
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)expected[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - (double)expected[i]) <= limit * largest))
            fail_msg("%s[%zu] is %.9g, PyTorch says %.9g (error %.2g of the largest, limit %.0g)", name, i,
                     (double)got[i], (double)expected[i], fabs((double)got[i] - (double)expected[i]) / largest, limit);
    free(expected);
}

#endif
