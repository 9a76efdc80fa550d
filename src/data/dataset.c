/* What all datasets share. See lockstep/data.h. */
#include "lockstep/data.h"

#include "base/status.h"
#include "base/text.h"
#include "data/datasets.h"

void ls_dataset_free(ls_dataset **dataset)
{
    if (!dataset) return;
    const ls_dataset *d = *dataset;
    if (d && d->free) d->free(d->self);
    *dataset = NULL;
}

ls_status ls__sample_check(const ls_dataset *d, const void *worker, uint64_t sample)
{
    if (sample >= d->count)
        return ls__fail(LS_EINVAL, "sample %llu does not exist; the dataset has %llu sample%s, from 0",
                        (unsigned long long)sample, (unsigned long long)d->count, ls__s((int64_t)d->count));
    if (d->worker_open && !worker)
        return ls__fail(LS_EINVAL, "get() of this dataset needs a worker's state; call its worker_open() first");
    return LS_OK;
}
