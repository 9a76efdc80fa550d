/* Eager collectives: when a rank has the data of all ranks, it computes its own result. */
#ifndef LS_COMM_EAGER_H
#define LS_COMM_EAGER_H

#include "comm/group.h"

/* in[r] is what rank r contributed. It is not read for ranks that contribute nothing. The list may be changed. */
void ls__eager_finish(const ls_group *g, const ls_work *w, const void **in);

#endif
