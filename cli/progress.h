/* What a training run shows in progress: one line that is redrawn on a terminal, plain lines elsewhere. */
#ifndef LS_CLI_PROGRESS_H
#define LS_CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include "lockstep/train.h"

typedef struct progress {
    ls_task task;
    bool terminal;
    int64_t every;   /* plain lines: steps between them */
    double smoothed; /* a step's milliseconds, recent ones counting more */
    bool drawn;      /* the redrawn line is there and must be ended before other output */
    int64_t drawn_at;
    ls_train_metrics pending; /* newer than what is drawn; step 0: none */
} progress;

/* every 0: about 20 lines in all. */
void progress_init(progress *p, const ls_train_options *options, int64_t every, bool terminal);
/* The redrawn line, within `columns`: the least important parts are omitted if they do not fit. */
void progress_line(const progress *p, const ls_train_metrics *m, int columns, char *line, size_t bytes);
/* best: the evaluation after this step is the best so far. */
void progress_show(progress *p, const ls_train_metrics *m, bool best);
/* Ends the redrawn line, so that other output can follow. */
void progress_end(progress *p);

#endif
