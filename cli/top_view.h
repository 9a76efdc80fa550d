/* What `lockstep top` shows: the newest steps of a run, gathered and drawn. */
#ifndef LS_CLI_TOP_VIEW_H
#define LS_CLI_TOP_VIEW_H

#include <stdbool.h>
#include <stdio.h>
#include "lockstep/measure.h"

enum { TOP_FINDINGS = 2 };

typedef struct top_rank {
    bool present, closed, local; /* local: its process is on this machine, and alive */
    char host[65], state;        /* state: the kernel's letter; 0: not known */
    int pid;
    double ns[LS_PHASE_COUNT]; /* of a step, mean over the window */
    double step_ns, sched_delay_ns;
    double cpu;     /* cores busy; < 0: not known */
    double memory;  /* bytes; 0: not known */
    int waits_for;  /* the rank that it waited for most; -1: none */
    uint64_t ticks; /* CPU time that the kernel had counted, and when: for the next look */
    int64_t ticks_at;
} top_rank;

typedef struct top_view {
    int ranks;
    top_rank *rank;
    int64_t step, steps; /* newest step that all have; of how many, 0: not known */
    double loss;         /* NaN: not known */
    double step_ns;      /* mean over the window */
    size_t window;       /* steps in it */
    double tokens_per_s; /* 0: not known */
    double idle_s;       /* since the newest event */
    bool ended, killed;  /* all records were closed; or processes are gone without that */
    int findings;        /* of the window, most expensive first */
    char finding[TOP_FINDINGS][320];
} top_view;

/* Looks at the run; what `before` (NULL: nothing) knew of CPU time makes the rates. On failure *out is empty. */
LS_MUST_CHECK ls_status top_look(top_view *out, const char *path, const top_view *before);
void top_view_free(top_view *v);

typedef struct top_form {
    FILE *to;
    int columns, rows;    /* of the terminal; rows 0: any number */
    bool color, terminal; /* terminal: each line clears the rest of its row */
} top_form;
void top_draw(const top_view *v, const char *path, const top_form *form);

#endif
