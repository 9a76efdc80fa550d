/* Small collectives: when every rank has every rank's data, each computes its own result. */
#ifndef LS_COMM_EAGER_H
#define LS_COMM_EAGER_H

#include "comm/group.h"

/* in[r] is what rank r contributed; ranks that contribute nothing may have any pointer. */
void ls__eager_finish(const ls_group *g, const ls_work *w, const void **in);

#endif
