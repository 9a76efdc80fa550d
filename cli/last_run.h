/* runs/last, a link to the run that was started last in this folder: what commands look at that are given no run. */
#ifndef LS_CLI_LAST_RUN_H
#define LS_CLI_LAST_RUN_H

/* Makes runs/last point to a run's folder. Where links are not possible there is none. */
void last_run_set(const char *run_dir);

/* `given`, or runs/last. NULL, with a message printed, if nothing was given and there is no last run. */
const char *last_run_or(const char *given, const char *command);

#endif
