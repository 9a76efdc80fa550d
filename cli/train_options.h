/* The command line of `lockstep train`. */
#ifndef LS_CLI_TRAIN_OPTIONS_H
#define LS_CLI_TRAIN_OPTIONS_H

#include "cli/options.h"
#include "lockstep/train.h"

typedef struct train_arguments {
    ls_train_options train; /* without data, which is in the lists */
    option_list data, val_data;
    int ranks;             /* to start on this machine; 0: one, or as many as the launcher started */
    int accumulate;        /* micro-batches of a step on each rank; 0: not given */
    const char *model;     /* name of a size */
    const char *run_dir;   /* NULL: runs/NAME */
    const char *resume;    /* NULL: a new run; otherwise run_dir is set */
    ls_train_saved *saved; /* what a run that is resumed was started with; texts of `train` are in it */
    char **words[2];       /* memory of the lists */
    char *named;           /* memory of a run_dir that was made of `name`; NULL: none */
    const char *name;      /* NULL: the time of the start */
    const char *prompt;    /* that the samples at the end begin with; NULL: a line's end, or a story's beginning */
    int sample_tokens;     /* length of the sample at the end; 0: none */
    int64_t log_every;
    bool quiet;
    const char *launcher; /* "mpirun" or "srun", if that has started the ranks; NULL: we did */
} train_arguments;

/* Returns -1 to go on, or an exit code. For a run that is resumed, the run's own options come first, and those of the command
 * line over them. argv is left as it is. */
int train_arguments_read(train_arguments *a, int argc, char **argv);
void train_arguments_free(train_arguments *a);

/* Whether an option is on the command line. */
bool train_option_given(const char *option, int argc, char **argv);
/* Refuses options that would have no effect: -1, or an exit code. */
int train_arguments_check(const train_arguments *a, int argc, char **argv);

#endif
