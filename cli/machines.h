/* The parts of the coordinator, shared by cli/coordinator.c, cli/membership.c, cli/machines.c and cli/job_store.c only. */
#ifndef LS_CLI_MACHINES_H
#define LS_CLI_MACHINES_H

#include <sys/types.h>
#include "cli/control.h"
#include "cli/coordinator.h"
#include "comm/tcp.h"

/* ---- job_store.c: what the ranks find each other through (comm/tcp.h). */

typedef struct job_store job_store;

/* Serves `connection` from now on, which has sent its first line. */
bool job_store_add(job_store **store, control *connection);
/* Answers what has come. */
void job_store_serve(job_store *store);
int job_store_count(const job_store *store);
int job_store_fd(const job_store *store, int i);
/* Another generation: forgets all, and closes the connections of earlier ranks. */
void job_store_free(job_store **store);

/* ---- machines.c */

typedef enum machine_state {
    MACHINE_ABSENT,
    MACHINE_STARTING, /* its keeper was started, or has lost its connection, and is expected */
    MACHINE_THERE,    /* its keeper waits */
    MACHINE_RUNNING,  /* ranks run */
} machine_state;

typedef struct machine {
    host host;
    bool listed;  /* by the user */
    bool is_here; /* the coordinator's own */
    machine_state state;
    int64_t since;   /* in this state */
    int64_t try_at;  /* absent: when to start its keeper */
    int tries;       /* in vain */
    bool started;    /* once, or more often */
    bool returning;  /* its keeper has lost its connection, and may come back with the state */
    bool detached;   /* nothing would report the end of that keeper: ssh lost its connection, or we ended it */
    int patience_ms; /* of MACHINE_STARTING */
    pid_t starter;   /* the process that starts the keeper: ssh; 0: none */
    char keeper[32]; /* which of the processes that were its keeper, by its own word */
    control link;
    int missing; /* ranks that were lost and not replaced */
    bool ready;  /* has the state of the run */
    /* Of this generation. */
    int first, ranks;
    int lost, leaving, code;
    bool changed;
} machine;

/* Starts the keeper of a machine: `words` are the command line that it gives its ranks. */
bool machine_start(machine *m, const coordinator_options *o, const launch_options *launch, const char *address,
                   const char *secret, int argc, char **argv);
/* The address at which this machine is reached from the others, without a port. */
void machines_own_address(const hosts *h, char *out, size_t bytes);
/* Whether a name means the machine that this process is on. */
bool machine_is_here(const char *name);

/* ---- The coordinator. */

enum { MAX_GUESTS = 64 };

typedef enum coordinator_phase {
    COORDINATOR_GATHERING, /* at first: until all machines are there */
    COORDINATOR_RUNNING,
    COORDINATOR_ENDING,  /* ranks are being ended, because some are lost */
    COORDINATOR_WAITING, /* until a machine is there from which the run can be continued */
} coordinator_phase;

typedef struct coordinator {
    const coordinator_options *options;
    const launch_options *launch;
    int argc;
    char **argv;
    int listener, signals;
    char address[128], secret[LS__SECRET_BYTES];
    machine *machines; /* listed ones first seen first */
    int n;
    control guests[MAX_GUESTS]; /* connections that have not sent their first line */
    job_store *store;

    coordinator_phase phase;
    int64_t begun; /* of the phase */
    int64_t looped;
    int generation, restarts, in_vain, slots;
    int64_t step, began_at; /* finished steps: now, and when the generation began */
    char why[256];          /* the next generation begins */
    int64_t lost_at;        /* 0: no loss */
    char last_why[256];     /* the same of the generation that runs */
    int64_t last_lost_at;
    bool any_lost, asked, stateful, noted;
    int code;
    bool over, end_requested;
    int end_signal;  /* that asked for the end; 0: none, or the ranks are to be killed */
    int64_t kill_at; /* of ranks that had a signal to end; 0: never */
    int64_t interrupted_at, looked_at;
    struct timespec hostfile_time;
} coordinator;

/* A line for the user. */
void coordinator_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A rank or a machine was lost at `when`: the generation ends. */
void coordinator_note_loss(coordinator *c, int64_t when, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Sends a line to all machines on which ranks run. */
void coordinator_tell_running(coordinator *c, const char *line);

/* ---- membership.c: who is there. */

void membership_set_state(machine *m, machine_state state);
/* The connection to a keeper is lost. */
void membership_lost(coordinator *c, machine *m, const char *how);
/* The ranks that a machine which waits should have; 0: none, or it is not there. */
int membership_ranks_of(const machine *m);
void membership_accept(coordinator *c);
/* Hears what has come, and finds out who has not been heard for too long. */
void membership_hear(coordinator *c, int64_t now);
/* The machines that the user lists. */
void membership_use_list(coordinator *c, const hosts *h);
/* Looks at the hostfile, starts keepers that are missing, and asks the ranks for a change if other machines can compute. */
void membership_renew(coordinator *c, int64_t now);

#endif
