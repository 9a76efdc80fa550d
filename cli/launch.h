/* Starting ranks on this machine and staying with them until all are gone. `lockstep run` is this and nothing else;
 * commands with -n N start themselves through it. */
#ifndef LS_CLI_LAUNCH_H
#define LS_CLI_LAUNCH_H

#include <stdbool.h>
#include "cli/exit_codes.h"

enum { LAUNCH_MAX_RANKS = 512 }; /* on one machine */

typedef struct launch_options {
    int ranks;
    double timeout;      /* seconds that a rank may be missing or stopped; 0: 30; < 0: forever */
    double stop_timeout; /* seconds that a rank may be stopped, if it is not `timeout`; 0: `timeout` */
    double grace;        /* seconds that the other ranks have to end by themselves after one failed; 0: 0.5 */
    int max_restarts; /* how often a failed job is started anew; 0: never. Elastic: how many lost ranks are replaced */
    struct launch_keeper *keeper; /* of a job on several machines: see keeper.c; NULL: it is on one */
    bool elastic;                 /* a rank that is lost does not end the job: see launch_elastic.c */
    bool no_prefix;               /* ranks write to our output themselves; otherwise each line begins with "[RANK] " */
    bool no_stdin;                /* rank 0 reads nothing; otherwise it gets our input, unless that is a terminal */
    bool no_bind;                 /* ranks may run on all cores; otherwise the cores are divided among them */
    /* ranks begin with SIGINT, SIGTERM and SIGHUP blocked, and unblock them when they can handle them */
    bool hold_signals;
    bool own_voice; /* ranks print themselves why they exit with a code; otherwise the launcher prints which one did */
    bool verbose;   /* prints which process is which rank, and on which cores */

    const char *log_dir; /* rank R's output is written to DIR/rank_R/stdout.log and stderr.log; NULL: no files */
    /* which output is written only to the files: "3", or "0:3,1:2" by rank, where 0 is none, 1 stdout, 2 stderr and 3 both;
     * NULL: "3" if there is a log_dir and no `tee`, otherwise none */
    const char *redirects;
    const char *tee; /* which output is written to the files and to our output, in the same form; NULL: none */

    const char *master_addr; /* exported for programs that rendezvous by themselves; NULL: 127.0.0.1 */
    const char *master_port; /* NULL: a port that is free now */
    const char *run_id;      /* NULL: "lockstep-PID" */
    const char *role;        /* NULL: "default" */
} launch_options;

/* Starts argv[0] (looked up in PATH) `ranks` times and returns an exit code: that of the first rank that failed, or one of
 * cli/exit_codes.h. Prints what went wrong. All ranks and what they started are gone when it returns. The process must have
 * no other children and no threads. */
int launch_ranks(const launch_options *options, char **argv);

/* The path of the running program, for a command that starts itself. */
const char *launch_self(void);

#endif
