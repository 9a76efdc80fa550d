/* The command line of `lockstep train`. */
#ifndef LS_CLI_TRAIN_OPTIONS_H
#define LS_CLI_TRAIN_OPTIONS_H

#include "cli/options.h"
#include "lockstep/train.h"

typedef struct train_arguments {
    ls_train_options train; /* without data, which are in the lists */
    option_list data, val_data;
    int ranks;             /* to start on this machine; 0: one, or as many as the launcher started */
    bool elastic;          /* a rank that is lost does not end the run */
    int max_restarts;      /* elastic: lost ranks that are replaced */
    double rank_timeout;   /* seconds after which a stopped rank is given up; 0: 30 */
    int accumulate;        /* micro-batches of a step on each rank; 0: not given */
    const char *model;     /* name of a size */
    const char *run_dir;   /* NULL: runs/NAME */
    const char *resume;    /* the folder given with --resume, "" without one; NULL: a new run */
    ls_train_saved *saved; /* the options of a resumed run; texts of `train` are in it */
    char **words[2];       /* copies of argv that `data` and `val_data` point into */
    char *named;           /* memory of run_dir, if it is from `name`; NULL: none */
    const char *name;      /* NULL: the start time */
    const char *prompt;    /* of the sample at the end; NULL: a newline, or the beginning of a story */
    int sample_tokens;     /* length of the sample at the end; 0: none */
    int64_t log_every;
    bool quiet;
    const char *launcher; /* "mpirun" or "srun", if that has started the ranks; NULL: `lockstep train` itself */
} train_arguments;

/* Returns -1 to continue, or an exit code. The command line overrides the options of a resumed run. argv is not changed. */
int train_arguments_read(train_arguments *a, int argc, char **argv);
void train_arguments_free(train_arguments *a);

/* Whether an option is on the command line. */
bool train_option_given(const char *option, int argc, char **argv);
/* Refuses options that would have no effect: -1, or an exit code. */
int train_arguments_check(const train_arguments *a, int argc, char **argv);

#endif
