/* Sentences about ranks and how they use their cores. */
#ifndef LS_CLI_RANK_USE_H
#define LS_CLI_RANK_USE_H

#include "lockstep/measure.h"

enum { DEVICE_LINES = 6, DEVICE_TEXT = 400, DEVICE_ROLES = 6 };

typedef struct device_lines {
    int count;
    char line[DEVICE_LINES][DEVICE_TEXT];
} device_lines;

/* Which ranks are busier or less busy than the median, and which are runnable but not scheduled; a sentence each. Never empty if
 * there are counted steps. */
void device_verdicts(const ls_run *run, device_lines *out);
/* "main 91%, 2 loaders 0.4% 0.3%, checkpoint writer 0.1%": shares of a core. Empty: not known. */
void device_threads(const ls_run_rank *r, char out[DEVICE_TEXT]);
/* What a thread does, by its name: "loader"; or the name itself. */
const char *device_thread_role(const char *name);
/* The same as a number: 0 is the main thread, DEVICE_ROLES is any other; and what to call it. */
int device_role(const char *name);
const char *device_role_name(int role);
/* Threads of one role: "2 loaders 0.4% 0.3%", or if not `named` "2: 0.4% 0.3%". Empty: there are none. */
void device_role_text(const ls_run_rank *r, int role, bool named, char out[DEVICE_TEXT]);

/* The power of the node that rank r runs on: "83 W, 2.1 J per step", or why it is not known. False: the run did not look for it. */
bool device_power(const ls_run *run, int r, char *out, size_t bytes);
/* The next rank, from `r` on, that is the first of its node; -1: there is none. */
int device_next_machine(const ls_run *run, int r);
/* "less busy", "busier" (than the median) or "". */
const char *device_verdict(ls_use_level use);

#endif
