/* Short runs of `lockstep train` for `lockstep tune`. Each result is written to a file before the next run starts, so that a run of tune
 * that was killed continues where it was. */
#ifndef LS_CLI_TUNE_TRIALS_H
#define LS_CLI_TUNE_TRIALS_H

#include <jansson.h>
#include "lockstep/base.h"

typedef struct tune_trials {
    const char *dir; /* of tune.jsonl and the runs */
    char **launcher; /* words before the program; ends with NULL, and may be empty */
    char **options;  /* of train, as given, without those that trials set; ends with NULL */
    json_t *done;    /* key: ns. What failed is run again by the next command: its reason may be gone */
    int made;        /* runs of this process */
    int reused;      /* results of earlier processes */
    double seconds;  /* that they took */
    int lock;        /* of the folder; closed on exec */
    int trial_lock;  /* likewise, inherited by short runs */
} tune_trials;

/* Locks `dir`, and reads the results of an earlier run of tune there, if that had the same options, launcher, kernels and number of cores.
 * LS_EINVAL: another tune is in progress in it, or it is a run's. LS_EABORTED: a signal came. */
LS_MUST_CHECK ls_status tune_trials_open(tune_trials *t, int cores);
void tune_trials_close(tune_trials *t);

/* The median step of a run with these options added, ns: that of the file if it has the key, otherwise of a run in the folder `name`
 * of dir. LS_EABORTED: a signal came. Another error: it failed, and the message is its last line. */
LS_MUST_CHECK ls_status tune_trial(tune_trials *t, const char *key, const char *options, const char *name, int steps,
                                   double *step);

/* From now on SIGINT, SIGTERM and SIGHUP end the current run, and tune_trial() returns LS_EABORTED. */
void tune_catch_signals(void);
/* The signal that came; 0: none. */
int tune_stop_signal(void);

/* How many words the option `name`, which has 1 word or 2, has at argv[i]: --steps 3, --steps=3; 0: it is another one. */
int tune_option_words(const char *name, int words, int argc, char **argv, int i);
/* Options that trials set themselves, or that would end, save or print something. Returns how many words such an option has at
 * argv[i]; 0: it is none. */
int tune_trial_ignores(int argc, char **argv, int i);

#endif
