/* Work on the chunks of files by several threads, with the results in order. */
#ifndef LS_DATA_PARALLEL_H
#define LS_DATA_PARALLEL_H

#include "data/documents.h"

typedef struct ls__chunk_job {
    ls__chunks chunks;
    int threads; /* 0: as many as there are cores */
    void *user;
    /* In each thread: its state, before its first chunk and after its last. Both may be NULL. */
    ls_status (*open)(void *user, void **state);
    void (*free)(void *user, void *state);
    /* In any thread, several at once: processes a chunk; the result is passed to `put` (NULL: none). */
    ls_status (*work)(void *user, void *state, const ls__chunk *chunk, void **result);
    /* In the order of the chunks, one at a time, in any thread. Takes the result over, also on failure. */
    ls_status (*put)(void *user, const ls__chunk *chunk, void *result);
    void (*discard)(void *result); /* a result that is not put, after a failure elsewhere */
} ls__chunk_job;

/* Runs it all; the failure of the earliest chunk that failed, if any did. */
LS_MUST_CHECK ls_status ls__chunk_job_run(ls__chunk_job *p);

#endif
