/* The table of tasks. */
#include "train/task.h"

#define X(name, value, text) extern const ls__task_type ls__task_##text;
LS_TASK_LIST(X)
#undef X

#define X(name, value, text) [name] = &ls__task_##text,
static const ls__task_type *const tasks[LS_TASK_COUNT] = { LS_TASK_LIST(X) };
#undef X

const ls__task_type *ls__task_of(ls_task task)
{
    return (unsigned)task < LS_TASK_COUNT ? tasks[task] : NULL;
}

const char *ls_task_name(ls_task task)
{
    const ls__task_type *t = ls__task_of(task);
    return t ? t->name : NULL;
}

const char *ls_task_metric(ls_task task, int i)
{
    const ls__task_type *t = ls__task_of(task);
    return t && i >= 0 && i < LS_MAX_METRICS ? t->metrics[i] : NULL;
}

const char *ls_task_unit(ls_task task)
{
    const ls__task_type *t = ls__task_of(task);
    return t ? t->unit : "tokens";
}
