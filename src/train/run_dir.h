/* The run directory: run.json (the settings), metrics.jsonl (an object a step), and the model's folder files. */
#ifndef LS_TRAIN_RUN_DIR_H
#define LS_TRAIN_RUN_DIR_H

#include "lockstep/train.h"

typedef struct ls__run_dir {
    char *path;  /* NULL: there is none */
    int metrics; /* descriptor of metrics.jsonl, which is locked */
    int events;  /* and of TensorBoard's file; -1: there is none */
    bool fresh;  /* the run began here; what it wrote is of no use unless a step is made */
    bool made;   /* the folder was not there before */
} ls__run_dir;

/* Whether a new run may be written there: LS_EINVAL if a run or a model is there already, which `overwrite` allows, or if another
 * process trains there. Writes nothing. */
LS_MUST_CHECK ls_status ls__run_dir_check(const char *path, bool overwrite);
/* Makes the folder, locks it, and writes run.json and an empty metrics.jsonl. On failure it leaves nothing behind. */
LS_MUST_CHECK ls_status ls__run_dir_open(ls__run_dir *run, const ls_train *t);

/* Locks the folder of a run that is to be resumed. */
LS_MUST_CHECK ls_status ls__run_dir_lock(ls__run_dir *run, const char *path);
/* Once locked: goes on after the training's step. Lines of later steps, which will come again, are cut off, what a kill left half
 * written is removed, and run.json is written anew. */
LS_MUST_CHECK ls_status ls__run_dir_reopen(ls__run_dir *run, const ls_train *t);
bool ls__run_dir_has_model(const char *path);

void ls__run_dir_close(ls__run_dir *run);
/* Closes it and removes what ls__run_dir_open() and the run made. */
void ls__run_dir_remove(ls__run_dir *run);

/* Appends one line. */
LS_MUST_CHECK ls_status ls__run_dir_add(ls__run_dir *run, const ls_train_metrics *metrics);

#endif
