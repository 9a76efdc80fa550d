/* The table of tasks, and what several of them share. */
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

const ls_task_info *ls_task_get_info(ls_task task)
{
    const ls__task_type *t = ls__task_of(task);
    return t ? &t->info : NULL;
}

double ls__task_step_samples(const ls_train_options *o)
{
    return (double)o->batch_size * (double)o->slots;
}

/* ---- Accuracy. */
enum { RIGHT, ALL, COUNTS };

static size_t n_counts(const ls_train_options *o)
{
    (void)o;
    return COUNTS;
}

static void count(const ls_train_options *o, const ls__micro_batch *b, const int32_t *predictions, double *counts)
{
    const float *weights = b->model.weights;
    (void)o;
    for (int64_t i = 0; i < b->targets; i++) {
        if (weights && weights[i] == 0) continue;
        counts[ALL]++;
        counts[RIGHT] += predictions[i] == b->model.targets[i];
    }
}

static void score(const ls_train_options *o, const double *counts, double *metrics)
{
    (void)o;
    metrics[0] = counts[ALL] > 0 ? counts[RIGHT] / counts[ALL] : 0;
}

const ls__scoring ls__accuracy = { .n_counts = n_counts, .count = count, .score = score };
