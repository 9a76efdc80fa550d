/* Which transport a group uses. */
#include "comm/group.h"

static const ls__transport *const transports[] = {
#define X(name) &ls__##name##_transport,
    LS__TRANSPORT_LIST(X)
#undef X
};

const ls__transport *ls__transport_find(const ls_world *world, int nodes)
{
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++)
        if (transports[i]->serves(world, nodes)) return transports[i];
    return NULL;
}
