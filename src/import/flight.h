/* Dumps of PyTorch's Flight Recorder: which collectives each rank of a job called last, and which of them it completed. */
#ifndef LS_IMPORT_FLIGHT_H
#define LS_IMPORT_FLIGHT_H

#include <jansson.h>
#include "import/join.h"
#include "lockstep/import.h"

typedef struct ls__flight {
    int rank;
    json_t *dump; /* in either form, as JSON */
    const char *path;
} ls__flight;

/* What the dumps show of a job that hangs, for import.json: {"verdict": [...], "groups": [...], "ranks": [...]}. `dumps` are in the
 * order of ranks. NULL: out of memory. */
json_t *ls__flight_explain(const ls__flight *dumps, size_t count, int ranks);

/* ls_import() of dumps; *result is zero. */
LS_MUST_CHECK ls_status ls__flight_import(const ls_import_options *o, ls_import_result *result);

#endif
