/* What the kinds of collectives move, from the columns of LS_COLLECTIVE_LIST (lockstep/record.h).
 *
 * Argument checks, eager messages and the algorithms of the transports follow from it (comm/traits.h), and the analysis derives what a
 * collective must move at least (measure/comm.c). */
#ifndef LS_RECORD_COLLECTIVES_H
#define LS_RECORD_COLLECTIVES_H

#include <stdbool.h>
#include "lockstep/record.h"

typedef enum ls__members { LS__NONE = 0, LS__ALL, LS__ROOT, LS__OTHERS } ls__members;
enum { LS__WHOLE = 0, LS__BLOCKS = 1 };

typedef struct ls__traits {
    ls__members sends, receives;
    bool send_blocks; /* the input is a block for each rank */
    bool recv_blocks; /* the output is */
    bool reduces;     /* `op` is applied */
} ls__traits;

extern const ls__traits ls__traits_of[LS_COLLECTIVE_KINDS];

/* A message between two ranks. */
static inline bool ls__is_p2p(ls_collective_kind kind)
{
    return kind == LS_COLLECTIVE_SEND || kind == LS_COLLECTIVE_RECEIVE;
}
/* Whether one rank differs from the others: the root, or the other rank of a message. */
static inline bool ls__is_rooted(ls_collective_kind kind)
{
    return ls__is_p2p(kind) || ls__traits_of[kind].sends == LS__ROOT || ls__traits_of[kind].receives == LS__ROOT;
}
/* Whether all ranks must have arrived before any of them leaves. */
static inline bool ls__is_symmetric(ls_collective_kind kind)
{
    return (unsigned)kind < LS_COLLECTIVE_KINDS && ls__traits_of[kind].sends == ls__traits_of[kind].receives;
}

#endif
