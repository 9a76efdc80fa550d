/* An elastic job on several machines: see coordinator.c. */
#ifndef LS_CLI_COORDINATOR_H
#define LS_CLI_COORDINATOR_H

#include "cli/hosts.h"
#include "cli/launch.h"

typedef struct coordinator_options {
    hosts hosts;
    const char *hostfile;   /* where they are from, and read again when it changes; NULL: from the command line */
    const char *rsh;        /* what starts a command on another machine: "ssh" */
    double machine_timeout; /* seconds of silence after which a machine is lost */
} coordinator_options;

/* Starts `lockstep` with the words argv[0 .. argc-1] on all machines and stays until the job has ended. Returns an exit code.
 * `launch` is what each machine's keeper starts its ranks with. */
int coordinate(const coordinator_options *options, const launch_options *launch, int argc, char **argv);

#endif
