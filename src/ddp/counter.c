/* The binary counter of partial sums. See counter.h. */
#include "ddp/counter.h"

#include <string.h>
#include <sys/mman.h>
#include "base/status.h"
#include "kern/vector.h"

static size_t level_bytes(const ls__counter *c)
{
    return (c->total ? c->total : 1) * sizeof(float);
}

ls_status ls__counter_reserve(ls__counter *c, uint32_t before)
{
    int k = __builtin_ctz(~before); /* the level where the carry ends */
    if (k >= LS__COUNTER_LEVELS)
        return ls__fail(LS_EINVAL, "accumulate: %u micro-batches without a sync; at most %u", before,
                        (1u << LS__COUNTER_LEVELS) - 1);
    if (c->level[k]) return LS_OK;
    size_t bytes = level_bytes(c);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return ls__fail_errno("accumulate: %.1f MiB for partial sums", (double)bytes / (1 << 20));
    madvise(p, bytes, MADV_HUGEPAGE);
    c->level[k] = p;
    return LS_OK;
}

void ls__counter_add(ls__counter *c, uint32_t before, size_t begin, const float *grad, size_t count)
{
    int end = __builtin_ctz(~before);
    float *out = c->level[end] + begin;
    if (end == 0) {
        memcpy(out, grad, count * sizeof *grad);
        return;
    }
    ls__add_f32(out, c->level[0] + begin, grad, count);
    for (int k = 1; k < end; k++) ls__add_f32(out, c->level[k] + begin, out, count);
}

void ls__counter_finish(const ls__counter *c, uint32_t before, size_t begin, const float *grad, float *out,
                        size_t count)
{
    for (int k = 0; before >> k; k++) {
        if (!(before >> k & 1)) continue;
        ls__add_f32(out, c->level[k] + begin, grad, count);
        grad = out;
    }
    if (grad != out) memcpy(out, grad, count * sizeof *out);
}

double ls__counter_add_weight(ls__counter *c, uint32_t before, double weight)
{
    int k = 0;
    for (; before >> k & 1; k++) weight = c->weight[k] + weight;
    return c->weight[k] = weight;
}

double ls__counter_finish_weight(const ls__counter *c, uint32_t before, double weight)
{
    for (int k = 0; before >> k; k++)
        if (before >> k & 1) weight = c->weight[k] + weight;
    return weight;
}

void ls__counter_free(ls__counter *c)
{
    for (int k = c->given; k < LS__COUNTER_LEVELS; k++)
        if (c->level[k]) munmap(c->level[k], level_bytes(c));
    *c = (ls__counter){ 0 };
}
