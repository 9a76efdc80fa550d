/* Rank and size from the environment.
 *
 * Each launcher has its own variables, a row of the table below. All rows whose variables are set must agree; what one does not define
 * another may. RANK and WORLD_SIZE are only numbers (torchrun's names, which many scripts set by hand), so when mpirun's or srun's
 * variables are set too, that is the launcher: it can carry data.
 *
 * Slurm has two exceptions. mpirun under Slurm starts one helper per node through srun, and the ranks inherit the *helper's*
 * SLURM_PROCID; so do processes that torchrun or lockstep start in a task of srun. Slurm's variables therefore count only when no other
 * launcher's are set. And a batch script has SLURM_PROCID=0 and SLURM_NTASKS=N without being one of N tasks; the difference is
 * SLURM_STEP_ID, which only srun sets. */
#include "comm/launcher.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "comm/job.h"
#include "comm/kept.h"

typedef const char *(*getter)(void *user, const char *name);

enum { RANK, SIZE, LOCAL_RANK, LOCAL_SIZE, NODE, FIELDS };

typedef struct variables {
    ls__launcher launcher;
    const char *name[FIELDS]; /* NULL: this launcher has none */
} variables;

static const variables launchers[] = {
    { LS__LAUNCHER_TORCHRUN, { "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK" } },
    { LS__LAUNCHER_OPENMPI,
      { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE" } },
    { LS__LAUNCHER_PMIX, { "PMIX_RANK" } },
    { LS__LAUNCHER_MPICH, { "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS" } },
    { LS__LAUNCHER_SLURM, { "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, "SLURM_NODEID" } },
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

/* The values of one launcher's variables. */
typedef struct values {
    int value[FIELDS];        /* -1: not set */
    const char *text[FIELDS]; /* as in the environment */
} values;

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

/* `field` must be below `limit`; a node's size may also be equal to the world's. */
static ls_status check_below(const variables *f, const values *c, int field, int limit)
{
    if (c->value[field] < 0 || c->value[limit] < 0) return LS_OK;
    int most = field == LOCAL_SIZE ? c->value[limit] : c->value[limit] - 1;
    if (c->value[field] <= most) return LS_OK;
    return ls__fail(LS_EINVAL, "environment: %s=%s does not fit %s=%s (%s); unset both, or let the launcher set them",
                    f->name[field], c->text[field], f->name[limit], c->text[limit],
                    field == LOCAL_SIZE ? "a node cannot have more ranks than the world" : "counted from 0");
}

static ls_status read_values(getter get, void *user, const variables *f, values *c)
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

/* Which variables count for this process. For Slurm see the top; PMIx of srun itself is known by its namespace. */
static void find_active(getter get, void *user, const values *all, int *active)
{
    int others = get(user, LS__JOB_FD_VARIABLE) || get(user, "TORCHELASTIC_RUN_ID");
    const char *space = get(user, "PMIX_NAMESPACE");
    int pmix_of_srun = space && !strncmp(space, "slurm.", 6);
    for (int i = 0; i < LAUNCHERS; i++) {
        const values *c = &all[i];
        active[i] = c->value[RANK] >= 0;
        if (launchers[i].launcher == LS__LAUNCHER_TORCHRUN) {
            active[i] = c->value[RANK] >= 0 || c->value[SIZE] >= 0;
        } else if (launchers[i].launcher == LS__LAUNCHER_SLURM) {
            int batch_script = get(user, "SLURM_JOB_ID") && !get(user, "SLURM_STEP_ID") && c->value[RANK] == 0;
            if (others || batch_script) active[i] = 0;
        } else if (active[i]) {
            others |= launchers[i].launcher != LS__LAUNCHER_PMIX || !pmix_of_srun;
        }
    }
}

/* Two launchers define `field` differently. */
static ls_status check_agree(int a, int b, const values *all, int field)
{
    int x = all[a].value[field], y = all[b].value[field];
    if (x < 0 || y < 0 || x == y) return LS_OK;
    return ls__fail(LS_EINVAL,
                    "environment: %s=%s contradicts %s=%s: two launchers claim this process; "
                    "start it with one of them, or unset the other's variables",
                    launchers[a].name[field], all[a].text[field], launchers[b].name[field], all[b].text[field]);
}

/* A rank without a size, or a size without a rank, that no other launcher defines. */
static ls_status check_pair(int i, const values *all, int there, int missing, int known)
{
    const variables *f = &launchers[i];
    if (!f->name[there] || !f->name[missing] || all[i].value[there] < 0 || known >= 0) return LS_OK;
    return ls__fail(LS_EINVAL,
                    "environment: %s=%s is set and %s is not; set both, or unset both for a world of one rank",
                    f->name[there], all[i].text[there], f->name[missing]);
}

/* Joins the values of the active launchers. */
static ls_status join_values(const values *all, const int *active, ls__launch_info *me)
{
    int *const field[FIELDS] = { &me->rank, &me->size, &me->local_rank, &me->local_size, &me->node };
    for (int i = 0; i < LAUNCHERS; i++) {
        if (!active[i]) continue;
        for (int k = 0; k < FIELDS; k++) {
            for (int j = 0; j < i; j++) {
                ls_status status = active[j] ? check_agree(j, i, all, k) : LS_OK;
                if (status) return status;
            }
            if (*field[k] < 0) *field[k] = all[i].value[k];
        }
        if (me->launcher == LS__LAUNCHER_NONE || me->launcher == LS__LAUNCHER_TORCHRUN)
            me->launcher = launchers[i].launcher;
    }
    for (int i = 0; i < LAUNCHERS; i++) {
        if (!active[i]) continue;
        ls_status status = check_pair(i, all, RANK, SIZE, me->size);
        if (!status) status = check_pair(i, all, SIZE, RANK, me->rank);
        if (status) return status;
    }
    return LS_OK;
}

/* Job memory means that lockstep run started this process. */
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
    values all[LAUNCHERS];
    int active[LAUNCHERS];
    ls__launch_info me = { LS__LAUNCHER_NONE, -1, -1, -1, -1, -1, -1, 0, 0 };
    const char *text;
    *out = me;

    for (int i = 0; i < LAUNCHERS; i++) {
        ls_status status = read_values(get, user, &launchers[i], &all[i]);
        if (status) return status;
    }
    find_active(get, user, all, active);
    ls_status status = join_values(all, active, &me);
    if (!status) status = find_job(get, user, &me);
    if (!status) status = read_number(get, user, "TORCHELASTIC_RESTART_COUNT", &me.restarts, &text);
    if (status) return status;
    if (me.restarts < 0) me.restarts = 0;
    if (me.launcher == LS__LAUNCHER_LOCKSTEP) {
        status = read_number(get, user, LS__KEPT_FD_VARIABLE, &me.kept_fd, &text);
        if (status) return status;
        if (me.kept_fd < 0) me.kept_fd = 0;
    }

    if (me.launcher == LS__LAUNCHER_NONE || me.size == 1) {
        me.rank = me.local_rank = me.node = 0;
        me.size = me.local_size = 1;
    }
    *out = me;
    return LS_OK;
}
