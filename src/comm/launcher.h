/* Which rank this process is: rank and size, from the environment variables of the launcher that started it.
 *
 * A pure function of the variables: it reads them through the caller's `get` and has no other input. */
#ifndef LS_COMM_LAUNCHER_H
#define LS_COMM_LAUNCHER_H

#include "lockstep/base.h"

typedef enum ls__launcher {
    LS__LAUNCHER_NONE = 0, /* a world of one rank */
    LS__LAUNCHER_LOCKSTEP, /* lockstep run: the job memory is inherited */
    LS__LAUNCHER_OPENMPI,  /* mpirun of Open MPI */
    LS__LAUNCHER_PMIX,     /* another PMIx launcher; the size is not known */
    LS__LAUNCHER_MPICH,    /* mpirun of MPICH and MPIs derived from it, by PMI */
    LS__LAUNCHER_SLURM,    /* srun */
    LS__LAUNCHER_TORCHRUN, /* RANK and WORLD_SIZE, and no transport */
} ls__launcher;

typedef struct ls__launch_info {
    ls__launcher launcher;
    int rank;
    int size;       /* -1: not known (PMIx) until MPI has started */
    int local_rank; /* among the ranks of this node; -1: not known */
    int local_size; /* -1: not known */
    int node;       /* -1: not known */
    int job_fd;     /* the job memory; -1: none */
    int restarts;   /* how often the job was restarted */
    int kept_fd;    /* kept memory of an elastic job; 0: none */
} ls__launch_info;

/* "lockstep run", "mpirun (Open MPI)"...: for messages. */
const char *ls__launcher_name(ls__launcher launcher);

/* Reads the variables through get(user, name), which returns NULL for one that is not set (like getenv). Invalid numbers,
 * and variables that contradict each other, are LS_EINVAL with a message that quotes them. */
LS_MUST_CHECK ls_status ls__launch_info_read(ls__launch_info *out, const char *(*get)(void *user, const char *name),
                                             void *user);

#endif
