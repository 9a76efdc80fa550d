/* Worlds: who am I, what carries the data, and the memory that ranks of a machine share. */
#include "comm/group.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/status.h"
#include "base/text.h"
#include "comm/cluster.h"
#include "comm/heap.h"
#include "comm/multi.h"
#include "comm/shm.h"
#include "kern/select.h"

enum { DEFAULT_TIMEOUT_MS = 30000, DEFAULT_STAGING = 1 << 20 };

static const char *from_environment(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

/* What carries the data of the group of all ranks. */
static ls_status join(ls_world *w)
{
    if (!w->job) return ls__self_join(w, &w->group);
    if (w->nodes > 1) return ls__multi_join(w, &w->group);
    return ls__shm_join(w, &w->group);
}

static ls_status open_record(ls_world *w)
{
    ls_record_options options = { .rank = w->identity.rank,
                                  .ranks = w->identity.size,
                                  .node = w->node,
                                  .local_rank = w->identity.local_rank,
                                  .transport = w->group->transport->name };
    ls_status status = ls_record_open(&w->record, NULL, &options);
    const ls__cluster *c = w->cluster;
    if (!status && c) ls_record_clock(w->record, -c->clock_ahead[c->node_of[0]], c->clock_error);
    return status;
}

ls_status ls__world_open_in(ls_world **out, const ls_world_options *options, const ls__launch_info *identity,
                            ls__job *job, int job_fd, bool owns_job, ls__cluster *cluster)
{
    ls_world_options o = options ? *options : (ls_world_options){ 0 };
    *out = NULL;
    ls_world *w = calloc(1, sizeof *w);
    if (!w) return ls__fail(LS_ENOMEM, "world: out of memory");
    w->identity = *identity;
    w->cluster = cluster;
    w->node = cluster ? cluster->node : 0;
    w->nodes = cluster ? cluster->nodes : 1;
    w->job = job;
    w->job_fd = job_fd;
    w->staging_bytes = o.staging_bytes ? o.staging_bytes : DEFAULT_STAGING;
    w->timeout_ms = o.timeout_ms ? o.timeout_ms : job && job->timeout_ms ? job->timeout_ms : DEFAULT_TIMEOUT_MS;
    ls_status status = join(w);
    if (!status) {
        status = open_record(w);
        if (status) ls_group_free(&w->group);
    }
    if (status) {
        free(w);
        return status;
    }
    w->owns_job = owns_job;
    w->transport = w->group->transport->name;
    *out = w;
    return LS_OK;
}

ls_status ls__world_open_on(ls_world **out, const ls_world_options *options, const ls__launch_info *identity,
                            ls__job *job, int job_fd, bool owns_job)
{
    return ls__world_open_in(out, options, identity, job, job_fd, owns_job, NULL);
}

/* ---- Processes that end without freeing their world. On one machine that is seen from outside (cluster.c); to other
 * machines the process itself says so when it exits. */

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static ls_world *open_worlds;

/* Who has left in order, and waits at its end. Between machines notices have told. */
static void note_left(const ls_world *w)
{
    if (w->group->transport == &ls__shm_transport) ls__shm_note_left(w->group, w->cluster->left);
}

static void leave_at_exit(void)
{
    /* Who exits in a signal handler may have interrupted a call, and holds these locks. */
    if (pthread_mutex_trylock(&open_lock)) return;
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
    if (!registered) registered = !atexit(leave_at_exit); /* without it the others find out by timeout */
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

/* Under mpirun: the plug-in says who is there, and the ranks of each machine make their memory. */
static ls_status open_mpi(ls_world **out, const ls_world_options *options, ls__launch_info *id)
{
    int timeout_ms = options && options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS;
    ls__net *net;
    ls__cluster *cluster;
    ls__peer_info info;
    ls__job *job;
    int fd;
    ls_status status = ls__net_open(&net, options ? options->mpi : NULL, id);
    if (status) return status;
    ls__peer_info_fill(&info, NULL, options ? options->staging_bytes : 0);
    status = ls__cluster_open(&cluster, net, &info, timeout_ms);
    if (status) return status;
    status = ls__cluster_share(cluster, timeout_ms, &job, &fd);
    if (!status) {
        id->rank = cluster->rank;
        id->size = cluster->size;
        id->local_rank = cluster->local_rank;
        id->local_size = cluster->local_size;
        id->node = cluster->node;
        status = ls__world_open_in(out, options, id, job, fd, true, cluster);
        if (status) {
            ls__job_detach(&job);
            close(fd);
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

/* Under `lockstep run`: the job's memory is inherited. */
static ls_status open_inherited(ls_world **out, const ls_world_options *options, const ls__launch_info *id)
{
    ls__job *job;
    ls_status status = ls__job_attach(id->job_fd, &job);
    if (status) return status;
    ls__job_rank *me = &job->rank[id->local_rank];
    if (job->ranks != id->local_size) {
        status = ls__fail(LS_EINVAL,
                          "LOCAL_WORLD_SIZE=%d, but the job's memory is for %d rank%s; leave the launcher's "
                          "variables as they are",
                          id->local_size, job->ranks, ls__s(job->ranks));
    } else if (atomic_load(&me->state) == LS__RANK_RUNNING) {
        status = ls__fail(LS_ESTATE, "rank %d opened its world before (process %d); a rank opens it once", id->rank,
                          atomic_load(&me->pid));
    } else {
        /* Programs that this one starts have no business with the job. */
        fcntl(id->job_fd, F_SETFD, FD_CLOEXEC);
        atomic_store(&me->pid, getpid());
        ls__job_set_state(job, id->local_rank, LS__RANK_RUNNING, 0);
        status = ls__world_open_on(out, options, id, job, id->job_fd, true);
    }
    if (status) ls__job_detach(&job);
    return status;
}

ls_status ls_world_open(ls_world **out, const ls_world_options *options)
{
    ls__launch_info id;
    *out = NULL;
    ls_status status = ls__kernels_check();
    if (!status) status = ls__launch_info_read(&id, from_environment, NULL);
    if (status) return status;
    switch (id.launcher) {
    case LS__LAUNCHER_LOCKSTEP: return open_inherited(out, options, &id);
    case LS__LAUNCHER_ALONE: return ls__world_open_on(out, options, &id, NULL, -1, false);
    case LS__LAUNCHER_TORCHRUN:
        if (id.size == 1) return ls__world_open_on(out, options, &id, NULL, -1, false);
        return ls__fail(
            LS_EINVAL,
            "RANK=%d and WORLD_SIZE=%d say that there are other ranks, but there is no transport to reach them; start "
            "the program with 'lockstep run' or 'mpirun'",
            id.rank, id.size);
    case LS__LAUNCHER_OPENMPI:
    case LS__LAUNCHER_PMIX:
    case LS__LAUNCHER_MPICH:
    case LS__LAUNCHER_SLURM:
        if (id.size == 1) {
            id.local_rank = id.node = 0;
            id.local_size = 1;
            return ls__world_open_on(out, options, &id, NULL, -1, false);
        }
        return open_mpi(out, options, &id);
    }
    return ls__fail(LS_EINVAL, "launcher %d is unknown", (int)id.launcher);
}

/* Alone there is no job and nothing to share: plain memory, kept in a list so that free finds it. */
typedef struct allocation {
    struct allocation *next;
    void *memory;
    size_t bytes;
} allocation;

static void free_allocations(ls_world *w)
{
    for (allocation *a = w->allocations; a;) {
        allocation *next = a->next;
        munmap(a->memory, a->bytes);
        free(a);
        a = next;
    }
}

void ls_world_free(ls_world **pw)
{
    ls_world *w = *pw;
    if (!w) return;
    ls__cluster *c = w->cluster;
    remove_open(w);
    if (c) {
        ls__cluster_watch(c, w->job);
        if (w->group->broken || w->group->transport->look(w->group) || c->suspect) c->failed = true;
        note_left(w);
    }
    ls_group_free(&w->group);
    free_allocations(w);
    /* After a failure MPI may still hold memory of the job. */
    if (w->owns_job && !(c && (c->failed || c->abandoned))) {
        ls__job_detach(&w->job);
        if (c) close(w->job_fd);
    }
    ls__cluster_free(&c);
    ls_record_free(&w->record);
    free(w);
    *pw = NULL;
}

static ls_status alloc_alone(ls_world *w, size_t bytes, void **memory)
{
    allocation *a = malloc(sizeof *a);
    void *p = a ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    if (p == MAP_FAILED) {
        free(a);
        return ls__fail(LS_ENOMEM, "no memory for %zu bytes", bytes);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    *a = (allocation){ .next = w->allocations, .memory = p, .bytes = bytes };
    w->allocations = a;
    *memory = p;
    return LS_OK;
}

ls_status ls_world_alloc(ls_world *world, size_t bytes, void **memory)
{
    *memory = NULL;
    if (bytes > PTRDIFF_MAX) return ls__fail(LS_EINVAL, "alloc: %zu bytes are no possible size", bytes);
    if (!bytes) bytes = 1;
    if (!world->job) return alloc_alone(world, bytes, memory);
    uint64_t at;
    ls_status status = ls__heap_take(world->job, world->job_fd, bytes, true, &at);
    if (!status) *memory = ls__heap_at(world->job, at);
    return status;
}

ls_status ls_group_share(ls_group *group, size_t bytes, void **memory)
{
    ls_world *world = group->world;
    *memory = NULL;
    if (group->transport == &ls__self_transport) return ls_world_alloc(world, bytes, memory);
    if (group->transport != &ls__shm_transport)
        return ls__fail(LS_EUNSUPPORTED, "share: the group's ranks are on several machines; split it by machine");
    int64_t at = 0;
    ls_status status = LS_OK, found = LS_OK;
    if (group->rank == 0) {
        found = ls_world_alloc(world, bytes, memory);
        if (!found) at = (int64_t)ls__heap_offset(world->job, *memory, 1);
    }
    status = ls_broadcast(group, &at, 1, LS_I64, 0);
    if (status) return status;
    if (found) return found;
    if (!at) return ls__fail(LS_ENOMEM, "share: the first rank found no memory for %zu bytes", bytes);
    *memory = ls__heap_at(world->job, (uint64_t)at);
    return LS_OK;
}

void ls_world_dealloc(ls_world *world, void **memory)
{
    void *p = *memory;
    *memory = NULL;
    if (!p) return;
    if (world->job) {
        uint64_t at = ls__heap_offset(world->job, p, 1);
        if (at) ls__heap_give(world->job, world->job_fd, at);
        return;
    }
    for (allocation **link = (allocation **)&world->allocations; *link; link = &(*link)->next) {
        allocation *a = *link;
        if (a->memory != p) continue;
        *link = a->next;
        munmap(p, a->bytes);
        free(a);
        return;
    }
}

ls_record *ls_world_record(ls_world *world)
{
    return world->record;
}
int ls_world_rank(const ls_world *world)
{
    return world->identity.rank;
}
int ls_world_size(const ls_world *world)
{
    return world->identity.size;
}
int ls_world_local_rank(const ls_world *world)
{
    return world->identity.local_rank;
}
int ls_world_local_size(const ls_world *world)
{
    return world->identity.local_size;
}
int ls_world_node(const ls_world *world)
{
    return world->node;
}
int ls_world_node_count(const ls_world *world)
{
    return world->nodes;
}
const char *ls_world_transport(const ls_world *world)
{
    return world->transport;
}
ls_group *ls_world_group(ls_world *world)
{
    return world->group;
}
