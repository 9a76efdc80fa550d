/* Rank and size from the environment.
 *
 * Each launcher has a family of variables, a row of the table below. Every family that is there makes a claim, and all
 * claims must agree; what one does not say another may. RANK and WORLD_SIZE are only numbers (torchrun's names, which
 * many scripts set by hand), so when mpirun or srun speak too, those are the launcher: they can carry data.
 *
 * Slurm is peculiar twice. mpirun under Slurm starts one helper a node through srun, and the ranks inherit the
 * *helper's* SLURM_PROCID; so does whatever torchrun or lockstep start in a task of srun. Slurm therefore speaks only
 * when no other launcher does. And a batch script has SLURM_PROCID=0 and SLURM_NTASKS=N without being one of N tasks;
 * what tells the two apart is SLURM_STEP_ID, which only srun sets. */
#include "comm/launcher.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "comm/job.h"

typedef const char *(*getter)(void *user, const char *name);

enum { RANK, SIZE, LOCAL_RANK, LOCAL_SIZE, NODE, FIELDS };

typedef struct family {
    ls__launcher launcher;
    const char *name[FIELDS]; /* NULL: this launcher does not say */
} family;

static const family families[] = {
    { LS__LAUNCHER_TORCHRUN, { "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK" } },
    { LS__LAUNCHER_OPENMPI,
      { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE" } },
    { LS__LAUNCHER_PMIX, { "PMIX_RANK" } },
    { LS__LAUNCHER_MPICH, { "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS" } },
    { LS__LAUNCHER_SLURM, { "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, "SLURM_NODEID" } },
};
enum { FAMILIES = sizeof families / sizeof *families };

/* What one family says. */
typedef struct claim {
    int value[FIELDS];        /* -1: not said */
    const char *text[FIELDS]; /* as it stands in the environment */
} claim;

const char *ls__launcher_name(ls__launcher launcher)
{
    switch (launcher) {
    case LS__LAUNCHER_NONE: return "no launcher";
    case LS__LAUNCHER_LOCKSTEP: return "lockstep run";
    case LS__LAUNCHER_OPENMPI: return "mpirun (Open MPI)";
    case LS__LAUNCHER_PMIX: return "a PMIx launcher";
    case LS__LAUNCHER_MPICH: return "mpirun (MPICH)";
    case LS__LAUNCHER_SLURM: return "srun";
    case LS__LAUNCHER_TORCHRUN: return "torchrun's variables";
    }
    return "an unknown launcher";
}

/* Reads one variable: -1 when it is not set. */
static ls_status read_number(getter get, void *user, const char *name, int *out, const char **text)
{
    *out = -1;
    *text = name ? get(user, name) : NULL;
    if (!*text) return LS_OK;
    char *end;
    errno = 0;
    long v = strtol(*text, &end, 10);
    if (end == *text || *end || errno || v < 0 || v > INT_MAX)
        return ls__fail(LS_EINVAL,
                        "environment: %s='%s' is not a number from 0 to %d; "
                        "unset it, or let the launcher set it",
                        name, *text, INT_MAX);
    *out = (int)v;
    return LS_OK;
}

/* `field` must be below `limit`; a machine's size may also be equal to the world's. */
static ls_status check_below(const family *f, const claim *c, int field, int limit)
{
    if (c->value[field] < 0 || c->value[limit] < 0) return LS_OK;
    int most = field == LOCAL_SIZE ? c->value[limit] : c->value[limit] - 1;
    if (c->value[field] <= most) return LS_OK;
    return ls__fail(LS_EINVAL, "environment: %s=%s does not fit %s=%s (%s); unset both, or let the launcher set them",
                    f->name[field], c->text[field], f->name[limit], c->text[limit],
                    field == LOCAL_SIZE ? "no machine has more ranks than the world" : "counted from 0");
}

static ls_status read_claim(getter get, void *user, const family *f, claim *c)
{
    for (int i = 0; i < FIELDS; i++) {
        ls_status status = read_number(get, user, f->name[i], &c->value[i], &c->text[i]);
        if (status) return status;
    }
    for (int i = SIZE; i <= LOCAL_SIZE; i += LOCAL_SIZE - SIZE)
        if (c->value[i] == 0)
            return ls__fail(LS_EINVAL, "environment: %s=%s: a world has at least one rank; unset it", f->name[i],
                            c->text[i]);
    ls_status status = check_below(f, c, RANK, SIZE);
    if (!status) status = check_below(f, c, LOCAL_RANK, LOCAL_SIZE);
    if (!status) status = check_below(f, c, LOCAL_SIZE, SIZE);
    if (!status) status = check_below(f, c, LOCAL_RANK, SIZE);
    if (!status) status = check_below(f, c, NODE, SIZE);
    return status;
}

/* Which families speak for this process. For Slurm see the note above; PMIx of srun itself is told by its namespace. */
static void find_speakers(getter get, void *user, const claim *claims, int *speaks)
{
    int others = get(user, LS__JOB_FD_VARIABLE) || get(user, "TORCHELASTIC_RUN_ID");
    const char *space = get(user, "PMIX_NAMESPACE");
    int pmix_of_srun = space && !strncmp(space, "slurm.", 6);
    for (int i = 0; i < FAMILIES; i++) {
        const claim *c = &claims[i];
        speaks[i] = c->value[RANK] >= 0;
        if (families[i].launcher == LS__LAUNCHER_TORCHRUN) {
            speaks[i] = c->value[RANK] >= 0 || c->value[SIZE] >= 0;
        } else if (families[i].launcher == LS__LAUNCHER_SLURM) {
            int batch_script = get(user, "SLURM_JOB_ID") && !get(user, "SLURM_STEP_ID") && c->value[RANK] == 0;
            if (others || batch_script) speaks[i] = 0;
        } else if (speaks[i]) {
            others |= families[i].launcher != LS__LAUNCHER_PMIX || !pmix_of_srun;
        }
    }
}

/* Two families say `field`, and not the same. */
static ls_status check_agree(int a, int b, const claim *claims, int field)
{
    int x = claims[a].value[field], y = claims[b].value[field];
    if (x < 0 || y < 0 || x == y) return LS_OK;
    return ls__fail(LS_EINVAL,
                    "environment: %s=%s contradicts %s=%s: two launchers claim this process; "
                    "start it with one of them, or unset the other's variables",
                    families[a].name[field], claims[a].text[field], families[b].name[field], claims[b].text[field]);
}

/* A rank without a size, or a size without a rank, and nobody else says it. */
static ls_status check_pair(int i, const claim *claims, int there, int missing, int known)
{
    const family *f = &families[i];
    if (!f->name[there] || !f->name[missing] || claims[i].value[there] < 0 || known >= 0) return LS_OK;
    return ls__fail(LS_EINVAL,
                    "environment: %s=%s is set and %s is not; set both, or unset both for a world of one rank",
                    f->name[there], claims[i].text[there], f->name[missing]);
}

/* Joins the claims of those who speak. */
static ls_status join_claims(const claim *claims, const int *speaks, ls__launch_info *me)
{
    int *const field[FIELDS] = { &me->rank, &me->size, &me->local_rank, &me->local_size, &me->node };
    for (int i = 0; i < FAMILIES; i++) {
        if (!speaks[i]) continue;
        for (int k = 0; k < FIELDS; k++) {
            for (int j = 0; j < i; j++) {
                ls_status status = speaks[j] ? check_agree(j, i, claims, k) : LS_OK;
                if (status) return status;
            }
            if (*field[k] < 0) *field[k] = claims[i].value[k];
        }
        if (me->launcher == LS__LAUNCHER_NONE || me->launcher == LS__LAUNCHER_TORCHRUN)
            me->launcher = families[i].launcher;
    }
    for (int i = 0; i < FAMILIES; i++) {
        if (!speaks[i]) continue;
        ls_status status = check_pair(i, claims, RANK, SIZE, me->size);
        if (!status) status = check_pair(i, claims, SIZE, RANK, me->rank);
        if (status) return status;
    }
    return LS_OK;
}

/* The job's memory makes it a rank of lockstep run. */
static ls_status find_job(getter get, void *user, ls__launch_info *me)
{
    const char *text;
    ls_status status = read_number(get, user, LS__JOB_FD_VARIABLE, &me->job_fd, &text);
    if (status || !text) return status;
    if (me->launcher != LS__LAUNCHER_TORCHRUN)
        return ls__fail(LS_EINVAL,
                        "environment: " LS__JOB_FD_VARIABLE "=%s is set, %s; "
                        "pass all variables of lockstep run on, or unset them all",
                        text,
                        me->launcher == LS__LAUNCHER_NONE ? "and RANK and WORLD_SIZE are not"
                                                          : "and so are those of mpirun or srun");
    me->launcher = LS__LAUNCHER_LOCKSTEP;
    if (me->local_rank < 0) me->local_rank = me->rank;
    if (me->local_size < 0) me->local_size = me->size;
    if (me->node < 0) me->node = 0;
    return LS_OK;
}

ls_status ls__launch_info_read(ls__launch_info *out, getter get, void *user)
{
    claim claims[FAMILIES];
    int speaks[FAMILIES];
    ls__launch_info me = { LS__LAUNCHER_NONE, -1, -1, -1, -1, -1, -1, 0 };
    const char *text;
    *out = me;

    for (int i = 0; i < FAMILIES; i++) {
        ls_status status = read_claim(get, user, &families[i], &claims[i]);
        if (status) return status;
    }
    find_speakers(get, user, claims, speaks);
    ls_status status = join_claims(claims, speaks, &me);
    if (!status) status = find_job(get, user, &me);
    if (!status) status = read_number(get, user, "TORCHELASTIC_RESTART_COUNT", &me.restarts, &text);
    if (status) return status;
    if (me.restarts < 0) me.restarts = 0;

    if (me.launcher == LS__LAUNCHER_NONE || me.size == 1) {
        me.rank = me.local_rank = me.node = 0;
        me.size = me.local_size = 1;
    }
    *out = me;
    return LS_OK;
}
