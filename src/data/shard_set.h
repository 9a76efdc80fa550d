/* Shards that are written together: all of them get their names, or none. */
#ifndef LS_DATA_SHARD_SET_H
#define LS_DATA_SHARD_SET_H

#include <stdbool.h>
#include "lockstep/base.h"

typedef struct ls__shard_set ls__shard_set;

/* Begins a set OUTPUT-00000.bin and so on, in a folder that is made if need be. What an earlier run that was killed left of
 * such a set is completed or removed. Without `replace`, shards of that name that are there are LS_EINVAL. On failure *out is
 * NULL. */
LS_MUST_CHECK ls_status ls__shard_set_open(ls__shard_set **out, const char *output, bool replace);
/* Where shard `number` is to be written, to be freed; NULL: no memory. */
char *ls__shard_set_path(const ls__shard_set *set, uint64_t number);
/* Puts the shards, numbered from 0 without gaps, in the place of those that were there. Frees the set, also on failure; then
 * the old ones stay, unless the message says otherwise. */
LS_MUST_CHECK ls_status ls__shard_set_commit(ls__shard_set **set);
/* Gives up: removes what was written, and frees the set. Accepts NULL. */
void ls__shard_set_cancel(ls__shard_set **set);

/* For who is about to read `path`: if it is one of a set whose replacement was interrupted, the replacement is completed.
 * *changed: it was, or another process did it meanwhile; look again which files there are. */
LS_MUST_CHECK ls_status ls__shard_set_settle(const char *path, bool *changed);

#endif
