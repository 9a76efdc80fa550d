/* Who am I: every launcher's variables are understood, and what cannot be is refused with both variables quoted. */
#include "check.h"
#include "comm/launcher.h"

/* An environment is a list of "NAME=value" that ends in NULL. */
static const char *look_up(void *user, const char *name)
{
    size_t n = strlen(name);
    for (const char **e = user; *e; e++)
        if (!strncmp(*e, name, n) && (*e)[n] == '=') return *e + n + 1;
    return NULL;
}

typedef struct good {
    const char *env[10];
    ls__launch_info is; /* launcher, rank, size, local rank, local size, node, fd, restarts */
} good;

static const good goods[] = {
    { { "HOME=/" }, { LS__LAUNCHER_NONE, 0, 1, 0, 1, 0, -1, 0, 0 } },
    { { "LOCAL_RANK=0" }, { LS__LAUNCHER_NONE, 0, 1, 0, 1, 0, -1, 0, 0 } },
    { { "RANK=0", "WORLD_SIZE=1" }, { LS__LAUNCHER_TORCHRUN, 0, 1, 0, 1, 0, -1, 0, 0 } },
    { { "RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=1", "TORCHELASTIC_RUN_ID=x",
        "TORCHELASTIC_RESTART_COUNT=2", "SLURM_PROCID=1", "SLURM_NTASKS=2" },
      { LS__LAUNCHER_TORCHRUN, 3, 4, 1, 2, 1, -1, 2, 0 } },
    { { "RANK=1", "WORLD_SIZE=2", "LOCKSTEP_JOB_FD=7" }, { LS__LAUNCHER_LOCKSTEP, 1, 2, 1, 2, 0, 7, 0, 0 } },
    { { "RANK=1", "WORLD_SIZE=2", "LOCKSTEP_JOB_FD=7", "SLURM_PROCID=0", "SLURM_NTASKS=9", "SLURM_STEP_ID=0" },
      { LS__LAUNCHER_LOCKSTEP, 1, 2, 1, 2, 0, 7, 0, 0 } },
    { { "RANK=0", "WORLD_SIZE=1", "LOCKSTEP_JOB_FD=0" }, { LS__LAUNCHER_LOCKSTEP, 0, 1, 0, 1, 0, 0, 0, 0 } },
    { { "OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=0",
        "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_RANK=2" },
      { LS__LAUNCHER_OPENMPI, 2, 4, 0, 2, -1, -1, 0, 0 } },
    /* mpirun inside a batch job: the ranks inherit Slurm's numbers of the helper that started them. */
    { { "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_ID=0",
        "SLURM_JOB_ID=5" },
      { LS__LAUNCHER_OPENMPI, 3, 4, -1, -1, -1, -1, 0, 0 } },
    { { "RANK=3", "WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4" },
      { LS__LAUNCHER_OPENMPI, 3, 4, -1, -1, -1, -1, 0, 0 } },
    /* A script that exports WORLD_SIZE and leaves the rank to the launcher. */
    { { "WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4" },
      { LS__LAUNCHER_OPENMPI, 3, 4, -1, -1, -1, -1, 0, 0 } },
    { { "PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2" },
      { LS__LAUNCHER_MPICH, 1, 2, 1, 2, -1, -1, 0, 0 } },
    { { "PMIX_RANK=5" }, { LS__LAUNCHER_PMIX, 5, -1, -1, -1, -1, -1, 0, 0 } },
    { { "PMIX_RANK=1", "PMIX_NAMESPACE=slurm.pmix.7.0", "SLURM_PROCID=1", "SLURM_NTASKS=4", "SLURM_STEP_ID=0" },
      { LS__LAUNCHER_PMIX, 1, 4, -1, -1, -1, -1, 0, 0 } },
    { { "PMIX_RANK=3", "PMIX_NAMESPACE=prterun-1", "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_ID=0" },
      { LS__LAUNCHER_PMIX, 3, -1, -1, -1, -1, -1, 0, 0 } },
    { { "SLURM_PROCID=2", "SLURM_NTASKS=4", "SLURM_LOCALID=0", "SLURM_NODEID=1", "SLURM_JOB_ID=7", "SLURM_STEP_ID=0" },
      { LS__LAUNCHER_SLURM, 2, 4, 0, -1, 1, -1, 0, 0 } },
    { { "SLURM_PROCID=1", "SLURM_NTASKS=2" }, { LS__LAUNCHER_SLURM, 1, 2, -1, -1, -1, -1, 0, 0 } },
    /* A batch script is not one of its own tasks. */
    { { "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=7" }, { LS__LAUNCHER_NONE, 0, 1, 0, 1, 0, -1, 0, 0 } },
};

static void every_launcher_is_understood(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof goods / sizeof *goods; i++) {
        const ls__launch_info *want = &goods[i].is;
        ls__launch_info is;
        ls_status status = ls__launch_info_read(&is, look_up, (void *)goods[i].env);
        if (status) fail_msg("%s...: %s", goods[i].env[0], ls_error());
        if (memcmp(&is, want, sizeof is))
            fail_msg("case %zu, %s %s...: got {%s, %d/%d, local %d/%d, node %d, fd %d, restarts %d}, "
                     "expected {%s, %d/%d, local %d/%d, node %d, fd %d, restarts %d}",
                     i, goods[i].env[0], goods[i].env[1], ls__launcher_name(is.launcher), is.rank, is.size,
                     is.local_rank, is.local_size, is.node, is.job_fd, is.restarts, ls__launcher_name(want->launcher),
                     want->rank, want->size, want->local_rank, want->local_size, want->node, want->job_fd,
                     want->restarts);
    }
}

typedef struct bad {
    const char *env[8];
    const char *quotes[2]; /* must both be in the message */
} bad;

static const bad bads[] = {
    { { "RANK=2", "WORLD_SIZE=2" }, { "RANK=2", "WORLD_SIZE=2" } },
    { { "RANK=0" }, { "RANK=0", "WORLD_SIZE" } },
    { { "WORLD_SIZE=2" }, { "WORLD_SIZE=2", "RANK is not" } },
    { { "RANK=-1", "WORLD_SIZE=2" }, { "RANK='-1'", "not a number" } },
    { { "RANK=one", "WORLD_SIZE=2" }, { "RANK='one'", "not a number" } },
    { { "RANK=", "WORLD_SIZE=2" }, { "RANK=''", "not a number" } },
    { { "RANK=1x", "WORLD_SIZE=2" }, { "RANK='1x'", "not a number" } },
    { { "RANK=0", "WORLD_SIZE=99999999999999999999" }, { "WORLD_SIZE='99999999999999999999'", "not a number" } },
    { { "RANK=0", "WORLD_SIZE=0" }, { "WORLD_SIZE=0", "at least one" } },
    { { "RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2" }, { "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2" } },
    { { "RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=2" }, { "LOCAL_RANK=2", "WORLD_SIZE=2" } },
    { { "RANK=0", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=3" }, { "LOCAL_WORLD_SIZE=3", "WORLD_SIZE=2" } },
    { { "RANK=0", "WORLD_SIZE=2", "GROUP_RANK=2" }, { "GROUP_RANK=2", "WORLD_SIZE=2" } },
    { { "RANK=1", "WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2" },
      { "RANK=1", "OMPI_COMM_WORLD_RANK=0" } },
    { { "RANK=0", "WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2" },
      { "WORLD_SIZE=4", "OMPI_COMM_WORLD_SIZE=2" } },
    { { "WORLD_SIZE=4", "PMI_RANK=0", "PMI_SIZE=2" }, { "WORLD_SIZE=4", "PMI_SIZE=2" } },
    { { "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "PMI_RANK=1", "PMI_SIZE=2" },
      { "OMPI_COMM_WORLD_RANK=0", "PMI_RANK=1" } },
    { { "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "PMIX_RANK=1" },
      { "OMPI_COMM_WORLD_RANK=0", "PMIX_RANK=1" } },
    { { "OMPI_COMM_WORLD_RANK=0" }, { "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE is not" } },
    { { "RANK=1", "WORLD_SIZE=2", "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_STEP_ID=0" },
      { "RANK=1", "SLURM_PROCID=0" } },
    { { "SLURM_PROCID=4", "SLURM_NTASKS=4" }, { "SLURM_PROCID=4", "SLURM_NTASKS=4" } },
    { { "LOCKSTEP_JOB_FD=5" }, { "LOCKSTEP_JOB_FD=5", "RANK and WORLD_SIZE are not" } },
    { { "LOCKSTEP_JOB_FD=five", "RANK=0", "WORLD_SIZE=1" }, { "LOCKSTEP_JOB_FD='five'", "not a number" } },
    { { "LOCKSTEP_JOB_FD=5", "RANK=0", "WORLD_SIZE=2", "PMI_RANK=0", "PMI_SIZE=2" },
      { "LOCKSTEP_JOB_FD=5", "mpirun" } },
    { { "RANK=0", "WORLD_SIZE=1", "TORCHELASTIC_RESTART_COUNT=x" }, { "TORCHELASTIC_RESTART_COUNT='x'", "number" } },
};

static void what_cannot_be_is_refused_and_quoted(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        ls__launch_info is;
        ls_status status = ls__launch_info_read(&is, look_up, (void *)bads[i].env);
        if (status != LS_EINVAL)
            fail_msg("case %zu, %s %s...: %s, expected LS_EINVAL", i, bads[i].env[0], bads[i].env[1],
                     ls_status_name(status));
        for (int k = 0; k < 2; k++)
            if (!strstr(ls_error(), bads[i].quotes[k]))
                fail_msg("case %zu: '%s' lacks '%s'", i, ls_error(), bads[i].quotes[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_launcher_is_understood),
        cmocka_unit_test(what_cannot_be_is_refused_and_quoted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
