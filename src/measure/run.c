/* Opening and freeing a run. */
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "measure/model.h"
#include "measure/read.h"

ls_status ls_run_open(ls_run **out, const char *path, const ls_run_options *options)
{
    LS__NEED(out, "out");
    ls_run_options o = options ? *options : (ls_run_options){ 0 };
    *out = NULL;
    LS__NEED(path, "path");
    ls_run *run = calloc(1, sizeof *run);
    if (!run) return ls__fail(LS_ENOMEM, "%s: out of memory", path);
    run->path = strdup(path);
    run->internal = calloc(1, sizeof(ls__run_internal));
    ls_status status =
        run->path && run->internal ? ls__run_load(run, o.newest_bytes) : ls__fail(LS_ENOMEM, "%s: out of memory", path);
    if (!status && !o.events_only) status = ls__run_join_collectives(run);
    if (!status && !o.events_only) status = ls__run_account(run, &o);
    if (!status && !o.events_only) status = ls__run_use(run);
    if (!status && !o.events_only) status = ls__run_attribute(run);
    if (!status && !o.events_only) status = ls__run_find(run);
    if (status) ls_run_free(&run);
    *out = run;
    return status;
}

void ls_run_free(ls_run **prun)
{
    ls_run *run = prun ? *prun : NULL;
    if (!run) return;
    for (size_t i = 0; i < run->n_notes; i++) free(run->notes[i].text);
    if (run->n_steps) free(run->steps[0].rank);
    ls__run_collectives_free(run);
    for (int r = 0; r < run->ranks && run->rank; r++) ls__events_free(&run->rank[r]);
    free(run->rank);
    free(run->steps);
    free(run->collectives);
    free(run->attributions);
    ls__wait_matrix_free(run);
    free(run->wait_causes);
    free(run->comm);
    free(run->findings);
    free(run->notes);
    free(run->internal);
    free(run->path);
    free(run);
    *prun = NULL;
}
