/* The parts of the launcher, shared by cli/launch*.c only. */
#ifndef LS_CLI_LAUNCH_PARTS_H
#define LS_CLI_LAUNCH_PARTS_H

#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>
#include "cli/launch.h"
#include "comm/job.h"
#include "comm/kept.h"
#include "comm/tcp.h"

/* ---- launch_bind.c: which rank runs where. */

typedef struct launch_cores {
    int threads;   /* how many threads a rank should use */
    bool bound;    /* `set` says where */
    cpu_set_t set; /* logical processors */
} launch_cores;

/* Divides the cores this process may use among `ranks` ranks. More ranks than cores, or `bind` false: no rank is bound,
 * and `threads` is what each has on average, at least 1. */
void launch_divide_cores(int ranks, bool bind, launch_cores *out);

/* ---- launch_output.c: what the ranks print. */

enum { LAUNCH_STDOUT = 0, LAUNCH_STDERR = 1 };

typedef struct launch_output launch_output;

/* Prepares the output of all ranks for one attempt (0: files are made anew; later ones are added to them). LS_EINVAL:
 * the options cannot be. */
ls_status launch_output_open(launch_output **out, const launch_options *options, int attempt);
/* What `rank` shall have as its stdout or stderr; -1: what we have. Valid until launch_output_start(). */
int launch_output_fd(const launch_output *output, int rank, int stream);
/* All ranks were started: from now on their output is carried, by a thread. */
ls_status launch_output_start(launch_output *output);
/* Prints a message of the launcher to stderr, between the lines of the ranks. Never waits for the reader. */
void launch_output_say(launch_output *output, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Waits until all that was printed is carried (at most `wait_ms`; < 0: as long as it takes) and frees. False:
 * some of it was lost. */
bool launch_output_close(launch_output **output, int wait_ms);

/* ---- launch_start.c: starts the process of a rank. */

/* What all ranks of an attempt have in common. */
typedef struct launch_common {
    char **argv;
    int job_fd;
    int attempt;
    int kept_fd;          /* kept memory of an elastic job; -1: none */
    sigset_t mask;        /* of signals, as we got it */
    struct rlimit files;  /* likewise */
    bool ignored_sigpipe; /* likewise */
    char master_port[16];
    char run_id[64];
    /* Of a job on several machines; `store` "": it is on one. */
    char store[128], secret[LS__SECRET_BYTES];
    int generation, first_rank, world_size, node, nodes;
} launch_common;

/* Starts one rank. On failure *error is the errno of the step that failed, and *step says which. */
pid_t launch_start(const launch_options *options, const launch_common *common, const launch_output *output, int rank,
                   const launch_cores *cores, int *error, const char **step);

/* ---- launch_front.c: the process that the user started, and the launcher. */

/* Starts the launcher. In the child -1 is returned, and *front becomes readable when the front has ended (-1: no process could be
 * started, and this one continues alone). The front forwards `signals`, which must be blocked, and returns the launcher's exit code
 * when it and all its processes have ended. */
int launch_front(const sigset_t *signals, int *front);
/* Ends processes that left their rank's process group and outlived it; they are our children now. When they end we inherit their
 * children, so this is repeated until there are none. */
void launch_end_orphans(void);

/* ---- launch_watch.c: watches the ranks. */

typedef struct launch_rank {
    pid_t pid; /* 0: not started, or ended */
    int pidfd;
    int stop_signal;       /* 0: not stopped */
    bool stop_is_quiet;    /* all ranks were stopped with the launcher */
    uint32_t state_before; /* of the stop */
    int64_t stopped_at;
} launch_rank;

enum { POLL_SIGNALS, POLL_FRONT, POLL_CONTROL, POLL_RANKS }; /* what launch_watch() waits for */

typedef enum launch_phase {
    LAUNCH_RUNNING,
    LAUNCH_FAILED,     /* grace period of the others */
    LAUNCH_TERMINATED, /* SIGTERM was sent */
    LAUNCH_KILLED,
} launch_phase;

typedef struct launch {
    const launch_options *options;
    launch_options own;             /* what `options` points to: the number of ranks may change */
    struct launch_elastic *elastic; /* NULL: the job is not elastic */
    struct launch_keeper *keeper;   /* NULL: the job is on one machine */
    launch_common common;
    launch_cores *cores;
    launch_output *output;
    ls__job *job;
    int signals, front;
    int alive; /* ranks that run */
    launch_phase phase;
    int64_t failed_at; /* ls_now() of the first failure */
    int exit_code;
    bool end_requested; /* by a signal: no restart */
    int end_signal;     /* an elastic job: by this one, which its ranks answer by saving; 0: none */
    bool front_gone;    /* the front was killed */
    bool hopeless;      /* the ranks cannot be started: no restart */
    bool suspended;     /* with all ranks, by Ctrl-Z */
    int64_t interrupted_at;
    struct pollfd *polls; /* signals, the front, then the ranks' pidfds */
    launch_rank ranks[];
} launch;

/* ---- launch_elastic.c: jobs that go on when ranks are lost. */

/* Makes kept memory. */
ls_status launch_elastic_open(launch *l);
void launch_elastic_close(launch *l);
/* A rank is lost: `how` describes it. The generation ends. True: the job will go on. */
bool launch_elastic_lost(launch *l, int rank, const char *how);
/* A rank has ended with LS__KEPT_EXIT. True: because the number of ranks changes, as ranks or launcher have noted. */
bool launch_elastic_changed(launch *l);
/* Whether it ended for want of ranks, after saving its state. */
bool launch_elastic_gave_up(const launch *l);
/* All ranks have ended. True: another generation begins, with l->own.ranks ranks. */
bool launch_elastic_next(launch *l);
/* Makes the job memory that of the next generation, without what ranks hold in it (comm/kept.h). */
ls_status launch_elastic_renew(launch *l, int timeout_ms);
/* The job ends by a signal. */
void launch_elastic_stop(launch *l);

/* For a keeper, which is told when a generation begins and reports how it ended. */
void launch_elastic_begin(launch *l, const char *why, int64_t lost_us_ago);
typedef struct launch_elastic_outcome {
    int64_t step; /* finished */
    int lost, leaving, slots;
    bool changed, ready, noted;
} launch_elastic_outcome;
launch_elastic_outcome launch_elastic_end(launch *l);
/* The ranks shall end this generation after a step. */
void launch_elastic_ask_for_change(launch *l);
/* A point at which tests kill a keeper: LS__POINT_KEEPER. */
void launch_elastic_keeper_point(launch *l);

/* ---- keeper.c: the ranks of one machine of several. Without a keeper these do nothing. */

/* All generations. */
int launch_keep(launch *l);
/* Of the machine; NULL: there is no keeper. */
const char *launch_keeper_name(const launch *l);
void launch_keeper_report_loss(launch *l, int rank, const char *how);
void launch_keeper_point(launch *l);
/* What the coordinator says. */
void launch_keeper_listen(launch *l);
/* Whether a signal means that the machine leaves the job: its ranks shall hand over their slots, and the keeper ends with them. */
bool launch_keeper_leaves(launch *l, int number);
/* How long the loop may wait; -1: no limit. */
int launch_keeper_wait_ms(const launch *l);

/* One start of all ranks until all are gone. */
int launch_run_once(launch *l);
/* A signal for the job, which its ranks get. */
void launch_pass_on(launch *l, int number);
/* To the process groups of all ranks. */
void launch_signal_all(launch *l, int number);
/* The first failure decides the exit code; the other ranks have the grace period. */
void launch_fail(launch *l, int exit_code);
/* Enters a later phase. */
void launch_enter(launch *l, launch_phase to);
/* Returns when all ranks have ended. */
void launch_watch(launch *l);

#endif
