/* Opening and leaving worlds. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/status.h"
#include "base/text.h"
#include "comm/cluster.h"
#include "comm/group.h"
#include "comm/kept.h"
#include "comm/multi.h"
#include "comm/tcp.h"
#include "kern/select.h"
#include "record/record.h"

enum { DEFAULT_TIMEOUT_MS = 30000, DEFAULT_STAGING = 1 << 20, MAX_STAGING = 1 << 30 };

static const char *from_environment(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

int ls__world_node_of(const ls_world *world, int rank)
{
    return world->cluster ? world->cluster->node_of[rank] : 0;
}

int ls__world_local_of(const ls_world *world, int rank)
{
    return world->cluster ? world->cluster->local_of[rank] : rank - (world->rank - world->local_rank);
}

int ls__world_kept_fd(const ls_world *world)
{
    return world->kept_fd;
}

/* ---- Opening. */

static ls_status open_record(ls_world *w)
{
    ls_record_options options = { .rank = w->rank,
                                  .ranks = w->size,
                                  .node = w->node,
                                  .local_rank = w->local_rank,
                                  .transport = w->group->transport->name };
    ls_status status = ls_record_open(&w->record, NULL, &options);
    if (status) return status;
    w->ring = ls__record_ring(w->record);
    const ls__cluster *c = w->cluster;
    if (c) ls_record_clock(w->record, -c->clock_ahead[c->node_of[0]], c->clock_error);
    return LS_OK;
}

ls_status ls__world_open_on(ls_world **out, const ls_world_options *options, const ls__world_base *base)
{
    ls_world_options o = options ? *options : (ls_world_options){ 0 };
    ls__job *job = base->job;
    *out = NULL;
    ls_world *w = calloc(1, sizeof *w);
    if (!w) return ls__fail(LS_ENOMEM, "world: out of memory");
    pthread_mutex_init(&w->lock, NULL);
    w->opener = pthread_self();
    w->rank = base->info.rank;
    w->size = base->info.size;
    w->local_rank = base->info.local_rank;
    w->local_size = base->info.local_size;
    w->cluster = base->cluster;
    w->node = w->cluster ? w->cluster->node : 0;
    w->nodes = w->cluster ? w->cluster->nodes : 1;
    w->job = job;
    w->job_fd = base->job_fd;
    w->kept_fd = base->info.kept_fd;
    w->next_group = LS__WORLD_GROUP + 1;
    w->staging_bytes = o.staging_bytes ? o.staging_bytes : DEFAULT_STAGING;
    w->timeout_ms = o.timeout_ms ? o.timeout_ms : job && job->timeout_ms ? job->timeout_ms : DEFAULT_TIMEOUT_MS;
    ls_status status = ls__transport_find(w, w->nodes)->join(w, &w->group);
    if (!status) {
        status = open_record(w);
        if (status) ls_group_free(&w->group);
    }
    if (status) {
        pthread_mutex_destroy(&w->lock);
        free(w);
        return status;
    }
    w->owns_job = base->owns_job;
    *out = w;
    return LS_OK;
}

static ls_status open_without_job(ls_world **out, const ls_world_options *options, const ls__launch_info *info)
{
    ls__world_base base = { .info = *info, .job_fd = -1 };
    base.info.local_rank = base.info.node = 0;
    base.info.local_size = 1;
    return ls__world_open_on(out, options, &base);
}

ls_status ls__world_open_alone(ls_world **out, const ls_world_options *options)
{
    return open_without_job(out, options, &(ls__launch_info){ .launcher = LS__LAUNCHER_NONE, .size = 1 });
}

/* ---- Processes that end without freeing their world. On their own node that is seen from outside (cluster.c); to other nodes the
 * process itself reports it when it exits. */

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static ls_world *open_worlds;
static pid_t opener; /* whose they are: a child of fork() exits, too, but does not leave */

/* Which ranks of this node have left in order, and wait at their end. Ranks of other nodes have sent notices. */
static void note_left(const ls_world *w)
{
    const ls_group *g = w->group;
    for (int i = 0; i < g->locals; i++)
        if (atomic_load_explicit(&g->members[i].left, memory_order_acquire))
            w->cluster->left[g->members[i].world_rank] = true;
}

static void leave_at_exit(void)
{
    /* A process that exits in a signal handler may have interrupted a call, and holds these locks. */
    if (opener != getpid() || pthread_mutex_trylock(&open_lock)) return;
    for (ls_world *w = open_worlds; w; w = w->next_open) {
        if (ls__net_is_busy(w->cluster->net)) continue;
        ls__notice_leave_all(w->cluster);
        note_left(w);
        ls__net_abandon(w->cluster->net, w->cluster->left);
    }
    pthread_mutex_unlock(&open_lock);
}

static void add_open(ls_world *w)
{
    static bool registered;
    pthread_mutex_lock(&open_lock);
    if (!registered) registered = !atexit(leave_at_exit); /* if that fails, other ranks find out by timeout */
    if (opener != getpid()) open_worlds = NULL;           /* those of a parent */
    opener = getpid();
    w->next_open = open_worlds;
    open_worlds = w;
    pthread_mutex_unlock(&open_lock);
}

static void remove_open(const ls_world *w)
{
    pthread_mutex_lock(&open_lock);
    for (ls_world **link = &open_worlds; *link; link = &(*link)->next_open)
        if (*link == w) {
            *link = w->next_open;
            break;
        }
    pthread_mutex_unlock(&open_lock);
}

/* ---- By launcher. */

/* The ranks of each node make their job memory. `net` belongs to the world from then on, also on failure. */
static ls_status open_net(ls_world **out, const ls_world_options *options, const ls__launch_info *info, ls__net *net)
{
    int timeout_ms = options && options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS;
    ls__world_base base = { .info = *info, .owns_job = true };
    ls__cluster *cluster;
    ls__peer_info mine;
    ls__peer_info_fill(&mine, NULL, options ? options->staging_bytes : 0);
    ls_status status = ls__cluster_open(&cluster, net, &mine, timeout_ms);
    if (status) return status;
    cluster->unwatched = info->launcher == LS__LAUNCHER_LOCKSTEP;
    status = ls__cluster_share(cluster, timeout_ms, &base.job, &base.job_fd);
    if (!status) {
        base.cluster = cluster;
        base.info.rank = cluster->rank;
        base.info.size = cluster->size;
        base.info.local_rank = cluster->local_rank;
        base.info.local_size = cluster->local_size;
        status = ls__world_open_on(out, options, &base);
        if (status) {
            ls__job_detach(&base.job);
            close(base.job_fd);
        } else {
            add_open(*out);
        }
    }
    if (status) {
        cluster->failed = true;
        ls__cluster_free(&cluster);
    }
    return status;
}

/* Under mpirun and srun: MPI connects the ranks. */
static ls_status open_mpi(ls_world **out, const ls_world_options *options, const ls__launch_info *info)
{
    ls__net *net;
    ls_status status = ls__net_open(&net, options ? options->mpi : NULL, info);
    return status ? status : open_net(out, options, info, net);
}

/* Under another launcher: a store of the caller's connects the ranks. */
static ls_status open_store(ls_world **out, const ls_world_options *o)
{
    ls__launch_info info = { .launcher = LS__LAUNCHER_NONE, .rank = o->rank, .size = o->size };
    const ls_carrier *carrier = o->carrier;
    ls__net *net;
    if (o->size < 1 || o->rank < 0 || o->rank >= o->size)
        return ls__fail(LS_EINVAL, "world: invalid rank %d of %d", o->rank, o->size);
    if (!o->store->set || !o->store->get) return ls__fail(LS_EINVAL, "world: a store with set and get is needed");
    if (o->size == 1) return open_without_job(out, o, &info);
    if (carrier && (!carrier->open || !carrier->send || !carrier->close))
        return ls__fail(LS_EINVAL, "world: a carrier with open, send and close is needed");
    ls_status status = ls__net_open_store(&net, o->store, carrier, o->rank, o->size);
    return status ? status : open_net(out, o, &info, net);
}

/* Under `lockstep run`: the job memory is inherited. */
static ls_status open_inherited(ls_world **out, const ls_world_options *options, const ls__launch_info *info)
{
    ls__job *job;
    ls_status status = ls__job_attach(info->job_fd, &job);
    if (status) return status;
    ls__job_rank *me = &job->rank[info->local_rank];
    if (job->ranks != info->local_size) {
        status = ls__fail(LS_EINVAL,
                          "LOCAL_WORLD_SIZE=%d, but the job memory is for %d rank%s; do not change the launcher's "
                          "variables",
                          info->local_size, job->ranks, ls__s(job->ranks));
    } else if (atomic_load(&me->state) == LS__RANK_RUNNING) {
        status = ls__fail(LS_ESTATE, "rank %d opened its world before (process %d); a rank opens it once", info->rank,
                          atomic_load(&me->pid));
    } else {
        fcntl(info->job_fd, F_SETFD, FD_CLOEXEC); /* programs that this one starts must not join the job */
        atomic_store(&me->pid, getpid());
        ls__job_set_state(job, info->local_rank, LS__RANK_RUNNING, 0);
        ls__world_base base = { .info = *info, .job = job, .job_fd = info->job_fd, .owns_job = true };
        status = ls__world_open_on(out, options, &base);
    }
    if (status) ls__job_detach(&job);
    return status;
}

/* A job of `lockstep` on several machines: see tcp.h. */
static ls_status open_hosts(ls_world **out, const ls_world_options *options, const ls__launch_info *info)
{
    ls_world_options o = options ? *options : (ls_world_options){ 0 };
    int timeout_ms = o.timeout_ms ? o.timeout_ms : DEFAULT_TIMEOUT_MS;
    ls__tcp_store *store;
    ls_carrier carrier;
    ls__net *net;
    if (info->size == 1) return open_without_job(out, options, info);
    ls_status status = ls__tcp_store_open(&store, from_environment, NULL, timeout_ms);
    if (status) return status;
    ls_store calls = ls__tcp_store_calls(store);
    status = ls__tcp_carrier_make(&carrier, store, info->rank, info->size, timeout_ms);
    if (!status) status = ls__net_open_store(&net, &calls, &carrier, info->rank, info->size);
    if (!status) status = open_net(out, &o, info, net);
    if (!status && (*out)->nodes == 1) ls__tcp_carrier_drop(&carrier);
    ls__tcp_store_free(&store);
    return status;
}

ls_status ls_world_open(ls_world **out, const ls_world_options *options)
{
    LS__NEED(out, "out");
    ls__launch_info info;
    *out = NULL;
    ls_status status = ls__kernels_check();
    if (status) return status;
    if (options && options->staging_bytes > MAX_STAGING)
        return ls__fail(LS_EINVAL, "world: staging_bytes is %zu; must be at most %d (1 GiB)", options->staging_bytes,
                        (int)MAX_STAGING);
    if (options && options->store) return open_store(out, options);
    if (options && (options->carrier || options->rank || options->size))
        return ls__fail(LS_EINVAL,
                        "world: rank, size and carrier are for ranks that meet through a store; set store, too");
    status = ls__launch_info_read(&info, from_environment, NULL);
    if (status) return status;
    switch (info.launcher) {
    case LS__LAUNCHER_LOCKSTEP:
        return getenv(LS__STORE_VARIABLE) ? open_hosts(out, options, &info) : open_inherited(out, options, &info);
    case LS__LAUNCHER_NONE: return open_without_job(out, options, &info);
    case LS__LAUNCHER_TORCHRUN:
        if (info.size == 1) return open_without_job(out, options, &info);
        return ls__fail(LS_EINVAL,
                        "RANK=%d and WORLD_SIZE=%d mean that there are other ranks, but there is no transport to reach "
                        "them; start the program with 'lockstep run' or 'mpirun'",
                        info.rank, info.size);
    case LS__LAUNCHER_OPENMPI:
    case LS__LAUNCHER_PMIX:
    case LS__LAUNCHER_MPICH:
    case LS__LAUNCHER_SLURM:
        return info.size == 1 ? open_without_job(out, options, &info) : open_mpi(out, options, &info);
    }
    return ls__fail(LS_EINVAL, "unknown launcher %d", (int)info.launcher);
}

/* ---- Leaving. */

void ls_world_free(ls_world **pw)
{
    ls_world *w = pw ? *pw : NULL;
    if (!w) return;
    ls__cluster *c = w->cluster;
    remove_open(w);
    if (c) {
        ls__cluster_watch(c, w->job);
        if (w->group->broken || w->group->transport->check_failed(w->group) || c->suspect) c->failed = true;
        note_left(w);
    }
    ls_group_free(&w->group);
    ls__world_free_memory(w);
    /* After a failure MPI may still write to job memory. */
    if (w->owns_job && !(c && ls__net_carries_data(c->net) && (c->failed || c->abandoned))) {
        ls__job_detach(&w->job);
        if (c) close(w->job_fd);
    }
    ls__cluster_free(&c);
    ls_record_free(&w->record);
    pthread_mutex_destroy(&w->lock);
    free(w);
    *pw = NULL;
}

/* ---- Getters. */

ls_record *ls_world_record(ls_world *world)
{
    return world->record;
}
int ls_world_rank(const ls_world *world)
{
    return world->rank;
}
int ls_world_size(const ls_world *world)
{
    return world->size;
}
ls_world_info ls_world_get_info(const ls_world *w)
{
    return (ls_world_info){ .local_rank = w->local_rank,
                            .local_size = w->local_size,
                            .node = w->node,
                            .nodes = w->nodes,
                            .transport = w->group->transport->name };
}
ls_group *ls_world_group(ls_world *world)
{
    return world->group;
}
