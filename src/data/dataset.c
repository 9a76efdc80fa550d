/* What all datasets share. See lockstep/data.h. */
#include <stdarg.h>
#include "base/status.h"
#include "lockstep/data.h"

ls_status ls_dataset_fail(ls_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    status = ls__vfail(status, format, args);
    va_end(args);
    return status;
}

void ls_dataset_free(ls_dataset **dataset)
{
    if (!dataset) return;
    const ls_dataset *d = *dataset;
    if (d && d->free) d->free(d->self);
    *dataset = NULL;
}
