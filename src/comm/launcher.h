/* Who am I? Rank and size of this process, as the launcher that started it says through the environment.
 *
 * A pure function of the variables: it reads them through the caller's `get` and touches nothing else. */
#ifndef LS_COMM_LAUNCHER_H
#define LS_COMM_LAUNCHER_H

#include "lockstep/base.h"

typedef enum ls__launcher {
    LS__LAUNCHER_NONE = 0, /* nobody: a world of one */
    LS__LAUNCHER_LOCKSTEP, /* lockstep run: the job's memory is inherited */
    LS__LAUNCHER_OPENMPI,  /* mpirun of Open MPI */
    LS__LAUNCHER_PMIX,     /* something else that speaks PMIx; size is not told */
    LS__LAUNCHER_MPICH,    /* mpirun of MPICH and its relatives, by PMI */
    LS__LAUNCHER_SLURM,    /* srun */
    LS__LAUNCHER_TORCHRUN, /* RANK and WORLD_SIZE, and nothing that data could travel through */
} ls__launcher;

typedef struct ls__launch_info {
    ls__launcher launcher;
    int rank;
    int size;       /* -1: the launcher does not tell (PMIx); MPI knows once it has started */
    int local_rank; /* among the ranks of this machine; -1: not told */
    int local_size; /* -1: not told */
    int node;       /* -1: not told */
    int job_fd;     /* the job's memory; -1: none */
    int restarts;   /* how often the job was started again */
} ls__launch_info;

/* "lockstep run", "mpirun (Open MPI)"...: for messages. */
const char *ls__launcher_name(ls__launcher launcher);

/* Reads the variables through get(user, name), which returns NULL for one that is not set (getenv's rules). Numbers
 * that cannot be, and variables that contradict each other, are LS_EINVAL with both quoted. */
LS_MUST_CHECK ls_status ls__launch_info_read(ls__launch_info *out, const char *(*get)(void *user, const char *name),
                                             void *user);

#endif
