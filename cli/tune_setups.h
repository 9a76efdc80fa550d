/* The set-ups that `lockstep tune` chooses from. What the command line states stays as it is. */
#ifndef LS_CLI_TUNE_SETUPS_H
#define LS_CLI_TUNE_SETUPS_H

#include <stdbool.h>
#include <stddef.h>
#include "lockstep/predict.h"

enum { TUNE_AUTO = -1, TUNE_KEEP = 0 }; /* workers: `auto`; anything: as given, or train's default */

typedef struct tune_setup {
    int ranks, threads;
    double bucket_mb;
    int workers, prefetch;
    bool bfloat16;
    int batch_size, slots; /* both or none */
} tune_setup;

/* What may be changed, and from where. */
typedef struct tune_space {
    bool ranks, threads, bucket, loader, wire, batch;
    int cores;
    int batch_size, slots; /* as given */
    int given_ranks;       /* 0: not given, or the launcher's */
    int given_threads;
} tune_space;

/* " -n 2 --threads 1": the options of `lockstep train` that make it so; "" if nothing is changed. */
void tune_setup_options(const tune_setup *s, char *out, size_t bytes);
/* What a predictor is asked. */
ls_setup tune_setup_question(const tune_setup *s, const tune_space *space);

/* Ranks, threads and micro-batches; nothing else is changed. Fills at most `limit`, and returns how many. */
size_t tune_layouts(const tune_space *space, tune_setup *out, size_t limit);
/* `from` with one other thing changed: bucket, workers, prefetch or wire. */
size_t tune_variants(const tune_space *space, const tune_setup *from, tune_setup *out, size_t limit);

#endif
