/* What the arguments of an event contain about a collective. */
#ifndef LS_IMPORT_CALLS_H
#define LS_IMPORT_CALLS_H

#include "import/document.h"
#include "import/trace.h"

/* An argument of an event; false: it has none of that name. */
bool ls__argument(const ls__trace_event *e, const char *key, ls__text *out);
/* A group by its name and ranks ("[0, 1]"), which is added if it is new; UINT32_MAX: out of memory. */
uint32_t ls__group_of(ls__trace *t, ls__text name, ls__text ranks);
/* Whether a list of ranks was cut: "[0, ..., 7]". */
bool ls__ranks_are_cut(ls__text ranks);
/* Kind, size, group and number from the arguments of record_param_comms or of an NCCL kernel, as far as they are there. False: it is not a
 * collective that counts. */
bool ls__call_read(ls__trace *t, const ls__trace_event *e, ls__call *call);
/* The size of a c10d operator's data, what the rank sends, where shapes were recorded; 0: not known. */
int64_t ls__call_bytes(const ls__trace_event *e, int kind);

#endif
