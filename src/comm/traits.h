/* What the kinds of collectives (lockstep/record.h has the list) have in common and what not: who sends, who receives, how much.
 *
 * Argument checks, eager messages and the algorithms of the transports follow from it. */
#ifndef LS_COMM_TRAITS_H
#define LS_COMM_TRAITS_H

#include "comm/group.h"

typedef enum ls__members { LS__NONE = 0, LS__ALL, LS__ROOT, LS__ALL_BUT_ROOT } ls__members;

typedef struct ls__traits {
    ls__members sends, receives;
    bool send_blocks; /* the input is a block for each rank */
    bool recv_blocks; /* the output is */
    bool rooted;      /* `root` is a rank of the group */
    bool reduces;     /* `op` is applied */
} ls__traits;

extern const ls__traits ls__traits_of[LS_COLLECTIVE_KINDS];

/* Whether its row says who sends and who receives, from which the algorithms follow. */
static inline bool ls__kind_is_complete(ls_collective_kind kind)
{
    const ls__traits *t = &ls__traits_of[kind];
    bool one_side = ls__is_p2p(kind) || kind == LS_COLLECTIVE_PARALLEL_FOR, nothing = kind == LS_COLLECTIVE_BARRIER;
    return nothing || (one_side ? t->sends || t->receives : t->sends && t->receives);
}
static inline bool ls__is_member(ls__members members, int rank, int root)
{
    return members == LS__ALL || (members == LS__ROOT && rank == root) || (members == LS__ALL_BUT_ROOT && rank != root);
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
/* Whether each rank's input is small enough to travel with its arrival. Depends only on what the fingerprint holds, so all ranks
 * decide alike. */
static inline bool ls__work_is_eager(const ls_work *w, size_t most)
{
    return w->kind != LS_COLLECTIVE_PARALLEL_FOR && !w->parts && w->block_bytes * (size_t)ls__work_blocks(w) <= most;
}

#endif
