/* The run folder: run.json (the settings), config.toml (the same as the program's options), metrics.jsonl (one object per step),
 * and the files of the model. */
#ifndef LS_TRAIN_RUN_DIR_H
#define LS_TRAIN_RUN_DIR_H

#include "train/task.h"

typedef struct ls__run_dir {
    char *path;  /* NULL: none */
    int metrics; /* descriptor of metrics.jsonl, which is locked */
    int events;  /* descriptor of TensorBoard's file; -1: none */
    bool fresh;  /* a new run; without a step it is removed */
    bool made;   /* the folder did not exist before */
} ls__run_dir;

/* Whether a new run may use the folder: LS_EINVAL if it holds a run or a model, unless `overwrite`, or if another process
 * trains in it. Writes nothing. */
LS_MUST_CHECK ls_status ls__run_dir_check(const char *path, bool overwrite);
/* Waits, but not for ever, until no process trains in the folder. For the next generation of an elastic run: the first rank of
 * the one before may live on for a moment, on a machine that is lost. */
void ls__run_dir_await(const char *path);
/* Creates and locks the folder, and writes run.json and an empty metrics.jsonl. On failure nothing is left. */
LS_MUST_CHECK ls_status ls__run_dir_open(ls__run_dir *run, const ls_train *t);

/* Locks the folder of a run to be resumed. */
LS_MUST_CHECK ls_status ls__run_dir_lock(ls__run_dir *run, const char *path);
/* Once locked: continues after the run's step. Lines of later steps, which will be repeated, and incomplete files of a killed process
 * are removed, and run.json is rewritten. */
LS_MUST_CHECK ls_status ls__run_dir_reopen(ls__run_dir *run, const ls_train *t);
/* Removes the record of earlier ranks. */
void ls__run_dir_remove_events(const ls__run_dir *run);
/* When an adapter was saved, removes a whole model that the run has replaced, and the reverse. */
void ls__run_dir_remove_other_form(const ls__run_dir *run, bool adapter);
bool ls__run_dir_has_model(const char *path);

void ls__run_dir_close(ls__run_dir *run);
/* Closes it and removes what ls__run_dir_open() and the run created. */
void ls__run_dir_remove(ls__run_dir *run);

/* Appends one line. */
LS_MUST_CHECK ls_status ls__run_dir_add(ls__run_dir *run, const ls__task_type *task, const ls_train_metrics *metrics);

#endif
