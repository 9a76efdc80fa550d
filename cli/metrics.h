/* metrics.jsonl, read back: what the training said of each step. */
#ifndef LS_CLI_METRICS_H
#define LS_CLI_METRICS_H

#include "lockstep/base.h"

typedef struct metrics_line { /* NaN: not there */
    double step, time, loss, eval_loss, lr, grad_norm, tokens_per_s, step_ms, memory_bytes;
} metrics_line;

typedef struct metrics {
    metrics_line *lines;
    size_t count;
} metrics;

/* Reads the complete lines of RUN/metrics.jsonl. A missing file has no lines and is not a failure. */
LS_MUST_CHECK ls_status metrics_read(metrics *out, const char *run_dir);
void metrics_free(metrics *m);

#endif
