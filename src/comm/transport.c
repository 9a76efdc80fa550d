/* The transports, one table of functions each. */
#include "comm/group.h"

/* The first that serves a group is used: cheaper ones come first. */
static const ls__transport *const transports[] = {
    &ls__self_transport,
    &ls__shm_transport,
    &ls__multi_transport,
};

const ls__transport *ls__transport_find(const ls_world *world, int nodes)
{
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++)
        if (transports[i]->serves(world, nodes)) return transports[i];
    return NULL;
}
