/* Who sends, who receives, and how much, in a work: from the traits of its kind (record/collectives.h). */
#ifndef LS_COMM_TRAITS_H
#define LS_COMM_TRAITS_H

#include "comm/group.h"
#include "record/collectives.h"

static inline bool ls__is_member(ls__members members, int rank, int root)
{
    return members == LS__ALL || (members == LS__ROOT && rank == root) || (members == LS__OTHERS && rank != root);
}
/* Whether `rank` contributes data, and whether it gets any from others. */
static inline bool ls__work_sends(const ls_work *w, int rank)
{
    if (w->kind == LS_COLLECTIVE_PARALLEL_FOR && !w->send) return false;
    return ls__is_member(ls__traits_of[w->kind].sends, rank, w->root);
}
static inline bool ls__work_receives(const ls_work *w, int rank)
{
    return ls__is_member(ls__traits_of[w->kind].receives, rank, w->root);
}
/* Blocks of the input of a rank that sends. */
static inline int ls__work_blocks(const ls_work *w)
{
    return ls__traits_of[w->kind].send_blocks ? w->group->size : 1;
}
/* Bytes that `rank` contributes. */
static inline size_t ls__work_send_bytes(const ls_work *w, int rank)
{
    return ls__work_sends(w, rank) ? w->block_bytes * (size_t)ls__work_blocks(w) : 0;
}
/* Whether each rank's input is small enough to be published with its arrival. Depends only on what the fingerprint holds, so all ranks
 * decide alike. */
static inline bool ls__work_is_eager(const ls_work *w, size_t most)
{
    return w->kind != LS_COLLECTIVE_PARALLEL_FOR && !w->parts && w->block_bytes * (size_t)ls__work_blocks(w) <= most;
}

#endif
