/* Small collectives: when every rank has every rank's data, each computes its own result. */
#ifndef LS_COMM_SMALL_H
#define LS_COMM_SMALL_H

#include "comm/group.h"

/* in[r] is what rank r contributed; ranks that contribute nothing may have any pointer. */
void ls__small_finish(const ls_group *g, const ls_work *w, const void **in);

#endif
