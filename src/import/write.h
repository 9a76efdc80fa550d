/* The run folder that an import makes. */
#ifndef LS_IMPORT_WRITE_H
#define LS_IMPORT_WRITE_H

#include <jansson.h>
#include "import/join.h"

/* OUT/events/rank-R.bin. `slots`: micro-batches of a step, of all ranks; 0: not known. `zero`: since 1970, what the record's times count
 * from. */
LS_MUST_CHECK ls_status ls__write_events(const ls__trace *t, const char *out, int ranks, int slots, int node, int local,
                                         int64_t zero);
/* OUT/profile/rank-R.json: what each operator, or kernel, cost. */
LS_MUST_CHECK ls_status ls__write_profile(const ls__trace *t, const char *out, int ranks);
/* The rank's part of OUT/import.json. NULL: out of memory. */
json_t *ls__describe_trace(const ls__trace *t);
/* sizes.c: an array of how fast collectives of each kind and size were, over all ranks. `ranks`: of the job. On failure *out is NULL. */
LS_MUST_CHECK ls_status ls__describe_sizes(ls__trace **traces, size_t count, int ranks, json_t **out);

#endif
