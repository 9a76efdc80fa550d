/* The run directory: run.json (what was asked for), metrics.jsonl (an object a step), and the model's folder files. */
#ifndef LS_TRAIN_RUN_DIR_H
#define LS_TRAIN_RUN_DIR_H

#include "lockstep/train.h"

typedef struct ls__run_dir {
    char *path;  /* NULL: there is none */
    int metrics; /* descriptor of metrics.jsonl */
    int events;  /* and of TensorBoard's file; -1: there is none */
} ls__run_dir;

/* Whether a run may be written there: LS_EINVAL if it holds one already. Writes nothing. */
LS_MUST_CHECK ls_status ls__run_dir_check(const char *path);
/* Makes the folder, run.json and an empty metrics.jsonl. */
LS_MUST_CHECK ls_status ls__run_dir_open(ls__run_dir *run, const char *path, const ls_train *train);
/* The folder of a run that goes on after the training's step: lines of later steps, which will come again, are cut off. */
LS_MUST_CHECK ls_status ls__run_dir_reopen(ls__run_dir *run, const char *path, const ls_train *train);
void ls__run_dir_close(ls__run_dir *run);
/* Appends one line. */
LS_MUST_CHECK ls_status ls__run_dir_add(ls__run_dir *run, const ls_train_metrics *metrics);

#endif
