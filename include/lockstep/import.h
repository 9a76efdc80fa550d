/* lockstep/import.h: traces of the PyTorch profiler and dumps of its Flight Recorder as a run folder that lockstep/measure.h, and
 * with it `lockstep report`, `trace` and `top --once`, read like a run of our own.
 *
 *     const char *files[] = { "traces" };
 *     ls_import_result result;
 *     if (ls_import(&(ls_import_options){ .files = files, .count = 1, .out = "runs/theirs" }, &result)) ...
 *     ls_import_result_free(&result);
 *
 * Input    Kineto's JSON (prof.export_chrome_trace()), plain, gzip or zstd, one file per rank or several in one. Files are not
 *          trusted; what is broken in them is skipped, and a note says so.
 * Memory   a few percent of the JSON: a document is never in memory as a whole.
 * Threads  files are read by as many threads as there are cores. */
#ifndef LOCKSTEP_IMPORT_H
#define LOCKSTEP_IMPORT_H

#include <stdbool.h>
#include "lockstep/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ls_import_kind {
    LS_IMPORT_TRACES = 0, /* Kineto's JSON */
    /* dumps of the Flight Recorder, one per rank, as JSON or as pickles, of which nothing is executed. The folder gets what they show of
     * a job that hangs, for `lockstep report`. There are no steps in them */
    LS_IMPORT_FLIGHT_RECORDER = 1,
} ls_import_kind;

typedef struct ls_import_options {
    ls_import_kind kind;      /* of the files; 0: traces */
    const char *const *files; /* or folders of them; "-": standard input, of traces */
    size_t count;
    const char *out; /* the run folder that is made; an earlier import there is replaced at the end */
    int threads;     /* that read files at the same time; 0: as many as cores */
    /* Called now and then while files are read: bytes of them so far, of how many (0: not known). May be NULL. */
    void (*progress)(void *user, uint64_t done, uint64_t all);
    void *user;
    void *reserved[2];
} ls_import_options;

typedef struct ls_import_result {
    int ranks;   /* of the job */
    int present; /* ranks whose traces were read */
    int64_t steps;
    int64_t collectives; /* matched between two or more ranks */
    uint64_t events;     /* in the files */
    uint64_t broken;     /* of them, skipped */
    uint64_t bytes;      /* of JSON */
    int64_t uncertainty; /* of the clocks, the worst; ns */
    char **notes;        /* what is missing or odd, a sentence each; report prints them, too */
    size_t n_notes;
    int64_t reserved[4];
} ls_import_result;

/* On failure nothing is left in `out` that a reader would take for a run, but an earlier import, as it was. *result is to be freed in any case. */
LS_API LS_MUST_CHECK ls_status ls_import(const ls_import_options *options, ls_import_result *result);
LS_API void ls_import_result_free(ls_import_result *result);

#ifdef __cplusplus
}
#endif
#endif
