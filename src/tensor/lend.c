/* Memory that the caller lends: that of gradients, which hold nothing while forward goes on.
 *
 * What an operation makes in forward is dead after its own backward. The walk back writes the gradients of later operations
 * before that, and those of earlier ones after. So a result may lie where the gradients of parameters will be that only
 * operations before it use: a layer's activations in the gradients of the layers below. `lent_free` is how far that goes,
 * and moves on with each parameter that is used; results are laid one behind the other below it.
 *
 * In backward nothing is taken from there, and what was there does not come back to the free list. */
#include "tensor/tape.h"

enum { LINE = 64 }; /* results begin on a cache line, as in the arena */

void ls_tape_lend(ls_tape *t, float *memory, size_t count)
{
    uintptr_t skip = memory ? -(uintptr_t)memory % LINE / sizeof(float) : 0;
    bool some = memory && count > skip;
    t->lent = some ? memory + skip : NULL;
    t->lent_count = some ? count - skip : 0;
    ls__lent_begin(t);
}

void ls__lent_begin(ls_tape *t)
{
    t->lent_used = 0;
    t->lent_next = 0;
    t->lent_free = t->pass.eval ? t->lent_count : 0; /* no backward will come */
}

/* Whether p's gradient begins in what is lent, and from where to where it lies there. */
static bool lies_there(const ls_tape *t, const ls_param *p, size_t *begin, size_t *end)
{
    uintptr_t base = (uintptr_t)t->lent, at = (uintptr_t)p->grad;
    if (!p->grad || at < base || at - base >= t->lent_count * sizeof(float)) return false;
    size_t count = 1;
    for (int i = 0; i < p->dims; i++) count *= (size_t)p->shape[i];
    *begin = (at - base) / sizeof(float);
    *end = *begin + count;
    return true;
}

bool ls__lent_use(ls_tape *t, const char *op, const ls_param *p)
{
    size_t begin, end;
    if (!t->lent || !p->pending || !lies_there(t, p, &begin, &end) || p->index >= t->lent_next) return true;
    ls__tape_fail(t, ls__fail(LS_ESTATE,
                              "%s: '%s' is used again, and the memory of its gradient was lent to the tape; lend only "
                              "gradients of parameters that one operation uses",
                              op, p->name));
    return false;
}

void ls__lent_advance(ls_tape *t)
{
    if (!t->lent || t->pass.eval) return;
    for (; t->lent_next < t->n_params; t->lent_next++) {
        const ls_param *p = &t->params[t->lent_next];
        size_t begin, end;
        if (!lies_there(t, p, &begin, &end)) continue;
        if (!p->pending || begin < t->lent_free || end > t->lent_count) return;
        t->lent_free = end;
    }
}

float *ls__lent_take(ls_tape *t, size_t count)
{
    if (!t->open || t->lent_used >= t->lent_free || count > t->lent_free - t->lent_used) return NULL;
    float *at = t->lent + t->lent_used;
    t->lent_used += (count * sizeof(float) + LINE - 1) / LINE * (LINE / sizeof(float));
    return at;
}

float *ls__lent_rest(const ls_tape *t, size_t count)
{
    if (!t->open || t->lent_used >= t->lent_count || count > t->lent_count - t->lent_used) return NULL;
    return t->lent + t->lent_used;
}
