/* The loader's parts, and what training uses of it besides lockstep/data.h. */
#ifndef LS_DATA_LOADER_H
#define LS_DATA_LOADER_H

#include "lockstep/data.h"

enum { LS__LOADER_WORKERS = 256 }; /* at most */

/* Fills in defaults. */
LS_MUST_CHECK ls_status ls__loader_check(const ls_dataset *dataset, ls_loader_options *o);

/* The batch of any slot of a step, also of another rank's, built by the caller's thread. What ls_loader_next() returns
 * does not change. Valid until the next call on the loader. */
LS_MUST_CHECK ls_status ls__loader_get(ls_loader *loader, const ls_loader_state *at, int slot, ls_batch **out);

#endif
