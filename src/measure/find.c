#include "measure/model.h"
ls_status ls__run_find(ls_run *run)
{
    (void)run;
    return LS_OK;
}
