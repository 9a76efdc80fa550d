/* Findings and notes as sentences. The library computes (lockstep/measure.h); every form of a report prints these. */
#ifndef LS_CLI_FINDINGS_TEXT_H
#define LS_CLI_FINDINGS_TEXT_H

#include "lockstep/measure.h"

typedef struct finding_text {
    char what[320];     /* "rank 1 stalls all ranks 41.0 ms per step in data loading" */
    char evidence[400]; /* "its data takes 52.0 ms, the other rank's 11.0 ms; ..." */
    char remedy[400];   /* "its reads are slow: ..." */
} finding_text;

finding_text finding_describe(const ls_run *run, const ls_finding *finding);
/* Whether it is known who waits for whom: some collective is known on two ranks, or there is none. */
bool findings_waits_known(const ls_run *run);

typedef struct note_text {
    char text[600];
} note_text;

note_text note_describe(const ls_run *run, const ls_note *note);

/* The reason of waiting: "data", or "run-queue delay" for what was not scheduled. */
const char *cause_name(const ls_wait_cause *cause);

#endif
