/* What all datasets share. See lockstep/data.h. */
#include "lockstep/data.h"

void ls_dataset_free(ls_dataset **dataset)
{
    if (!dataset) return;
    const ls_dataset *d = *dataset;
    if (d && d->free) d->free(d->self);
    *dataset = NULL;
}
