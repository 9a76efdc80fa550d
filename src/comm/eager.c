/* See eager.h. */
#include "comm/eager.h"

#include <string.h>
#include "comm/traits.h"
#include "kern/reduce.h"

void ls__eager_finish(const ls_group *g, const ls_work *w, const void **in)
{
    const ls__traits *t = &ls__traits_of[w->kind];
    size_t block = w->block_bytes, own = t->send_blocks ? (size_t)g->rank * block : 0;
    if (!block || !ls__work_receives(w, g->rank)) return;
    if (t->reduces) {
        void *out = w->recv;
        for (int r = 0; own && r < g->size; r++) in[r] = (const char *)in[r] + own;
        ls__reduce_arrays(w->type, w->op, &out, 1, in, g->size, w->count, false);
        return;
    }
    for (int r = 0; r < g->size; r++)
        if (ls__work_sends(w, r))
            memcpy((char *)w->recv + (t->recv_blocks ? (size_t)r * block : 0), (const char *)in[r] + own, block);
}
