/* The kinds of collectives. See traits.h. */
#include "comm/traits.h"

const ls__traits ls__traits_of[LS_COLLECTIVE_KINDS] = {
    [LS_COLLECTIVE_ALLREDUCE] = { .sends = LS__ALL, .receives = LS__ALL, .reduces = true },
    [LS_COLLECTIVE_REDUCE] = { .sends = LS__ALL, .receives = LS__ROOT, .rooted = true, .reduces = true },
    [LS_COLLECTIVE_REDUCE_SCATTER] = { .sends = LS__ALL, .receives = LS__ALL, .send_blocks = true, .reduces = true },
    [LS_COLLECTIVE_ALLGATHER] = { .sends = LS__ALL, .receives = LS__ALL, .recv_blocks = true },
    [LS_COLLECTIVE_BROADCAST] = { .sends = LS__ROOT, .receives = LS__ALL_BUT_ROOT, .rooted = true },
    [LS_COLLECTIVE_GATHER] = { .sends = LS__ALL, .receives = LS__ROOT, .recv_blocks = true, .rooted = true },
    [LS_COLLECTIVE_SCATTER] = { .sends = LS__ROOT, .receives = LS__ALL, .send_blocks = true, .rooted = true },
    [LS_COLLECTIVE_ALLTOALL] = { .sends = LS__ALL, .receives = LS__ALL, .send_blocks = true, .recv_blocks = true },
    [LS_COLLECTIVE_BARRIER] = { .sends = LS__NONE, .receives = LS__NONE },
    [LS_COLLECTIVE_PARALLEL_FOR] = { .sends = LS__ALL, .receives = LS__NONE }, /* chunks read the inputs in place */
    /* `root` is the other rank. */
    [LS_COLLECTIVE_SEND] = { .sends = LS__ALL, .receives = LS__NONE, .rooted = true },
    [LS_COLLECTIVE_RECEIVE] = { .sends = LS__NONE, .receives = LS__ALL, .rooted = true },
};
