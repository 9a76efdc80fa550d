/* Shards that are written together: all of them get their names, or none. */
#ifndef LS_DATA_SHARD_SET_H
#define LS_DATA_SHARD_SET_H

#include <stdbool.h>
#include "lockstep/base.h"

typedef struct ls__shard_set ls__shard_set;

/* Begins a set OUTPUT-00000.bin, OUTPUT-00001.bin...; its folder is created if it does not exist. What a killed process left of such a
 * set is completed or removed. Without `replace`, existing shards of that name are LS_EINVAL. On failure *out is NULL. */
LS_MUST_CHECK ls_status ls__shard_set_open(ls__shard_set **out, const char *output, bool replace);
/* Where shard `number` is to be written, to be freed; NULL: no memory. */
char *ls__shard_set_path(const ls__shard_set *set, uint64_t number);
/* Replaces the existing shards by the new ones, numbered from 0 without gaps. Frees the set, also on failure; then the old ones
 * stay, unless the message states otherwise. */
LS_MUST_CHECK ls_status ls__shard_set_commit(ls__shard_set **set);
/* Removes what was written, and frees the set. Accepts NULL. */
void ls__shard_set_cancel(ls__shard_set **set);

/* To be called before `path` is read: if it belongs to a set whose replacement was interrupted, the replacement is completed.
 * *changed: it was, or another process did it; the list of files must be read again. */
LS_MUST_CHECK ls_status ls__shard_set_complete(const char *path, bool *changed);

#endif
