/* The command line of `lockstep train`. */
#ifndef LS_CLI_TRAIN_OPTIONS_H
#define LS_CLI_TRAIN_OPTIONS_H

#include "cli/options.h"
#include "lockstep/train.h"

typedef struct train_arguments {
    ls_train_options train; /* without data, which are in the lists */
    option_list data, val_data;
    int ranks;                          /* to start on this machine; 0: one, or as many as the launcher started */
    bool elastic;                       /* a rank that is lost does not end the run */
    int max_restarts;                   /* elastic: lost ranks that are replaced */
    const char *hosts, *hostfile, *rsh; /* elastic, on several machines */
    double machine_timeout;             /* seconds; 0: 2 */
    double rank_timeout;                /* seconds that a rank may be stopped; 0: 30 */
    int accumulate;                     /* micro-batches of a step on each rank; 0: not given */
    const char *model;                  /* name of a size */
    const char *run_dir;                /* NULL: runs/NAME */
    const char *resume;                 /* the folder given with --resume, "" without one; NULL: a new run */
    bool overwrite;                     /* a run or model in the run folder is replaced */
    ls_train_saved *saved;              /* the options of a resumed run; texts of `train` are in it */
    char **words[2];                    /* copies of argv that `data` and `val_data` point into */
    const char *config;                 /* the file given with --config; NULL: none */
    bool print_config;                  /* print the configuration instead of training */
    int argc;                           /* the command line, */
    char **argv;                        /* with the options of the file inserted */
    char **merged;                      /* memory of argv, and */
    char *merged_text;                  /* of its words from the file; NULL: as it was given */
    char *config_text;                  /* what is stored with the run, if that was asked for */
    const char *inject;                 /* as given; NULL: none */
    char *named;                        /* memory of run_dir, if it is from `name`; NULL: none */
    const char *name;                   /* NULL: the start time */
    int64_t log_every;
    bool quiet;
    bool no_save;         /* neither checkpoints nor the model, and runs/last stays as it is */
    bool tune;            /* find the fastest settings first */
    const char *launcher; /* "mpirun" or "srun", if that has started the ranks; NULL: `lockstep train` itself */
} train_arguments;

/* Returns -1 to continue, or an exit code. The command line overrides the options of a resumed run. argv is not changed. */
int train_arguments_read(train_arguments *a, int argc, char **argv);
void train_arguments_free(train_arguments *a);

/* The options of the command as rows with their destinations in `a`, for the caller to free. NULL: out of memory, which is reported. */
option_row *train_rows(train_arguments *a);
/* What `a` is before anything is read into it. */
train_arguments train_arguments_defaults(void);

/* Reads the file of a->config and sets argv to the command line with those of its options in front that the command line has neither itself
 * nor the opposite of. Returns -1, or an exit code. */
int train_config_merge(train_arguments *a, int argc, char **argv);
/* Writes a configuration that --config reads: what differs from the defaults, and the other options as comments. */
void train_config_write(const train_arguments *a, FILE *to);
/* The same as text, for the run folder. NULL: out of memory. */
char *train_config_text(const train_arguments *a);

/* Whether an option is on the command line. */
bool train_option_given(const char *option, int argc, char **argv);
/* Whether an option would have no effect. */
bool train_option_is_idle(const char *option, const train_arguments *a);
/* Refuses options that would have no effect: -1, or an exit code. */
int train_arguments_check(const train_arguments *a, int argc, char **argv);

#endif
