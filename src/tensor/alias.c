/* Aliased memory: gradients, which hold nothing during forward, are used for its results.
 *
 * What an operation computes in forward is dead after its own backward. Before that, backward writes the gradients of later
 * operations; after that, those of earlier ones. So a result may be placed in the gradients of parameters that only earlier
 * operations use: a layer's activations in the gradients of the layers below. `alias_free` is the end of that memory; it
 * advances with each parameter that is used, and results are placed one after the other below it.
 *
 * Backward allocates nothing there, and buffers from there do not return to the free list. */
#include "tensor/hooks.h"
#include "tensor/tape.h"

enum { LINE = 64 }; /* results begin on a cache line, as in the arena */

void ls__tape_alias(ls_tape *t, float *memory, size_t count)
{
    uintptr_t skip = memory ? -(uintptr_t)memory % LINE / sizeof(float) : 0;
    bool some = memory && count > skip;
    t->alias = some ? memory + skip : NULL;
    t->alias_count = some ? count - skip : 0;
    ls__alias_begin(t);
}

void ls__alias_begin(ls_tape *t)
{
    t->alias_used = 0;
    t->alias_next = 0;
    t->alias_free = t->pass.mode == LS_PASS_EVAL ? t->alias_count : 0; /* an eval pass has no backward */
}

/* Whether p's gradient begins in the aliased memory, and where it begins and ends there. */
static bool is_aliased(const ls_tape *t, const ls_param *p, size_t *begin, size_t *end)
{
    uintptr_t base = (uintptr_t)t->alias, at = (uintptr_t)p->grad;
    if (!p->grad || at < base || at - base >= t->alias_count * sizeof(float)) return false;
    size_t count = 1;
    for (int i = 0; i < p->dims; i++) count *= (size_t)p->shape[i];
    *begin = (at - base) / sizeof(float);
    *end = *begin + count;
    return true;
}

bool ls__alias_check(ls_tape *t, const char *op, const ls_param *p)
{
    size_t begin, end;
    if (!t->alias || !p->pending || !is_aliased(t, p, &begin, &end) || p->index >= t->alias_next) return true;
    ls__tape_fail(t, ls__fail(LS_ESTATE,
                              "%s: '%s' is used again, but the tape has aliased the memory of its gradient; alias only "
                              "gradients of parameters that one operation uses",
                              op, p->name));
    return false;
}

void ls__alias_advance(ls_tape *t)
{
    if (!t->alias || t->pass.mode == LS_PASS_EVAL) return;
    for (; t->alias_next < t->n_params; t->alias_next++) {
        const ls_param *p = &t->params[t->alias_next];
        size_t begin, end;
        if (!is_aliased(t, p, &begin, &end)) continue;
        if (!p->pending || begin < t->alias_free || end > t->alias_count) return;
        t->alias_free = end;
    }
}

float *ls__alias_take(ls_tape *t, size_t count)
{
    if (!t->open || t->alias_used >= t->alias_free || count > t->alias_free - t->alias_used) return NULL;
    float *at = t->alias + t->alias_used;
    t->alias_used += (count * sizeof(float) + LINE - 1) / LINE * (LINE / sizeof(float));
    return at;
}

float *ls__alias_rest(const ls_tape *t, size_t count)
{
    if (!t->open || t->alias_used >= t->alias_count || count > t->alias_count - t->alias_used) return NULL;
    return t->alias + t->alias_used;
}
