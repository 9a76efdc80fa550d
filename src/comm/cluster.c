/* Which rank is on which node, and the memory that the ranks of a node share. See cluster.h. */
#include "comm/cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/status.h"

/* ---- Peer info. */

void ls__peer_info_fill(ls__peer_info *info, const char *host, size_t staging_bytes)
{
    memset(info, 0, sizeof *info); /* it is compared and sent as bytes */
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f) {
        if (!fgets(info->boot_id, sizeof info->boot_id, f)) info->boot_id[0] = 0;
        fclose(f);
    }
    struct stat st;
    if (!stat("/proc/self/ns/pid", &st)) info->pid_namespace = st.st_ino;
    if (host)
        snprintf(info->host, sizeof info->host, "%s", host);
    else if (gethostname(info->host, sizeof info->host - 1))
        info->host[0] = 0;
    info->pid = getpid();
    info->job_fd = -1;
    info->staging_bytes = staging_bytes;
    info->nonce = (uint64_t)ls_now() << 20 ^ (uint64_t)info->pid;
}

static bool same_node(const ls__peer_info *a, const ls__peer_info *b)
{
    return !strcmp(a->boot_id, b->boot_id) && a->pid_namespace == b->pid_namespace && !strcmp(a->host, b->host);
}

int ls__cluster_place(const ls__peer_info *peers, int n, int *node_of, int *local_of)
{
    int nodes = 0;
    for (int r = 0; r < n; r++) {
        node_of[r] = -1;
        local_of[r] = 0;
        for (int q = r - 1; q >= 0 && node_of[r] < 0; q--) {
            if (!same_node(&peers[q], &peers[r])) continue;
            node_of[r] = node_of[q];
            local_of[r] = local_of[q] + 1;
        }
        if (node_of[r] < 0) node_of[r] = nodes++;
    }
    return nodes;
}

/* ---- Clocks. */

/* Another node's clock: how far it is ahead of rank 0's, and how far off that may be: half the round trip. */
typedef struct clock_offset {
    int64_t ahead, error;
} clock_offset;

/* Sends or receives one time stamp, and waits until that is done. */
static ls_status pass_time(ls__cluster *c, int64_t *time, int other, bool sends, int timeout_ms)
{
    ls__net_request request = { 0 }, *requests[] = { &request };
    int64_t begin = ls_now();
    ls_status status = sends ? ls__net_send(c->net, time, sizeof *time, other, LS__TAG_CLOCK, false, &request)
                             : ls__net_recv(c->net, time, sizeof *time, other, LS__TAG_CLOCK, &request);
    for (int polls = 0; !status && request.active; ls__net_pause(&polls)) {
        status = ls__net_test(c->net, requests, 1);
        if (!status && request.active && timeout_ms >= 0 && ls_now() - begin > (int64_t)timeout_ms * 1000000)
            status = ls__fail(LS_ETIMEOUT, "rank %d: no answer from rank %d on host %s within %.1f s", c->rank, other,
                              c->hosts[c->node_of[other]], timeout_ms / 1e3);
    }
    if (status && !sends && request.active) ls__net_cancel(c->net, &request); /* `time` is the caller's */
    return status;
}

/* Asks the local root of another node for the time, or answers. The fastest answer counts: it has the smallest error. */
static ls_status compare_clocks(ls__cluster *c, int other, bool asks, clock_offset *out, int timeout_ms)
{
    enum { TIMES = 8 };
    int64_t best = INT64_MAX;
    ls_status status = LS_OK;
    for (int i = 0; i < TIMES && !status; i++) {
        int64_t begin = ls_now(), their = begin;
        status = pass_time(c, &their, other, asks, timeout_ms);
        if (!asks) their = ls_now();
        if (!status) status = pass_time(c, &their, other, !asks, timeout_ms);
        int64_t end = ls_now();
        if (end - begin >= best) continue;
        best = end - begin;
        *out = (clock_offset){ .ahead = their - (begin + end) / 2, .error = best / 2 };
    }
    return status;
}

/* Rank 0 compares its clock with those of the other local roots, one after the other; then all ranks learn the offsets. */
static ls_status align_clocks(ls__cluster *c, const int *first, int timeout_ms)
{
    size_t bytes = (size_t)c->nodes * sizeof(clock_offset);
    clock_offset *mine = calloc(1, bytes), *all = malloc((size_t)c->size * bytes);
    ls_status status = mine && all ? LS_OK : ls__fail(LS_ENOMEM, "cluster: out of memory");
    for (int k = 1; k < c->nodes && !status; k++) {
        if (c->rank == first[0]) status = compare_clocks(c, first[k], true, &mine[k], timeout_ms);
        if (c->rank == first[k]) status = compare_clocks(c, first[0], false, &mine[k], timeout_ms);
    }
    if (!status) status = ls__net_allgather(c->net, mine, all, bytes, timeout_ms);
    for (int k = 0; k < c->nodes && !status; k++) c->clock_ahead[k] = all[k].ahead - all[c->node].ahead;
    if (!status) c->clock_error = all[c->node].error;
    free(mine);
    free(all);
    return status;
}

/* ---- Joining. */

/* A peer may send anything: its texts are made to end within their fields. */
static ls_status exchange(ls__cluster *c, const ls__peer_info *mine, ls__peer_info *all, int timeout_ms)
{
    ls_status status = ls__net_allgather(c->net, mine, all, sizeof *mine, timeout_ms);
    for (int r = 0; r < c->size && !status; r++) {
        all[r].boot_id[sizeof all[r].boot_id - 1] = 0;
        all[r].host[sizeof all[r].host - 1] = 0;
        all[r].error[sizeof all[r].error - 1] = 0;
    }
    return status;
}

static ls_status use_peer_info(ls__cluster *c, const ls__peer_info *peers, int timeout_ms)
{
    size_t n = (size_t)c->size;
    c->node_of = malloc(n * sizeof *c->node_of);
    c->local_of = malloc(n * sizeof *c->local_of);
    c->left = calloc(n, sizeof *c->left);
    if (!c->node_of || !c->local_of || !c->left) return ls__fail(LS_ENOMEM, "cluster: out of memory");
    c->nodes = ls__cluster_place(peers, c->size, c->node_of, c->local_of);
    c->node = c->node_of[c->rank];
    c->local_rank = c->local_of[c->rank];
    c->hosts = calloc((size_t)c->nodes, sizeof *c->hosts);
    c->clock_ahead = calloc((size_t)c->nodes, sizeof *c->clock_ahead);
    int *first = malloc((size_t)c->nodes * sizeof *first);
    if (!c->hosts || !c->clock_ahead || !first) {
        free(first);
        return ls__fail(LS_ENOMEM, "cluster: out of memory");
    }
    for (int r = 0; r < c->size; r++) {
        if (c->node_of[r] == c->node) c->local_size++;
        if (!c->local_of[r]) first[c->node_of[r]] = r;
        uint64_t asked = peers[r].staging_bytes;
        if (asked && (!c->staging_bytes || asked < c->staging_bytes)) c->staging_bytes = asked;
        c->nonce = peers[0].nonce;
        snprintf(c->hosts[c->node_of[r]], LS__HOST_BYTES, "%s", peers[r].host);
    }
    ls_status status = c->nodes > 1 ? ls__net_connect(c->net) : LS_OK;
    if (!status && c->nodes > 1 && !ls__net_carries_data(c->net))
        status = ls__fail(
            LS_EUNSUPPORTED,
            "the ranks are on %d nodes (%s, %s%s), but a store carries no data between them; pass a carrier, or "
            "start the program with mpirun or srun",
            c->nodes, c->hosts[0], c->hosts[1], c->nodes > 2 ? "..." : "");
    else if (!status && c->nodes > 1)
        status = align_clocks(c, first, timeout_ms);
    free(first);
    return status;
}

ls_status ls__cluster_open(ls__cluster **out, ls__net *net, const ls__peer_info *info, int timeout_ms)
{
    *out = NULL;
    ls__cluster *c = calloc(1, sizeof *c);
    ls__peer_info *peers = malloc((size_t)ls__net_size(net) * sizeof *peers);
    ls_status status;
    if (!c || !peers) {
        free(c);
        free(peers);
        ls__net_close(&net, false, NULL);
        return ls__fail(LS_ENOMEM, "cluster: out of memory");
    }
    c->net = net;
    c->rank = ls__net_rank(net);
    c->size = ls__net_size(net);
    status = exchange(c, info, peers, timeout_ms);
    if (!status) status = use_peer_info(c, peers, timeout_ms);
    free(peers);
    if (status) {
        c->failed = true;
        ls__cluster_free(&c);
        return status;
    }
    *out = c;
    return LS_OK;
}

void ls__cluster_free(ls__cluster **pc)
{
    ls__cluster *c = *pc;
    if (!c) return;
    if (c->inbox_request.active) ls__net_cancel(c->net, &c->inbox_request);
    for (int i = 0; c->watched && i < c->local_size; i++)
        if (c->watched[i] >= 0) close(c->watched[i]);
    ls__net_close(&c->net, !c->failed, c->left);
    free(c->left);
    free(c->node_of);
    free(c->local_of);
    free(c->hosts);
    free(c->clock_ahead);
    free(c->watched);
    for (ls__early *e; (e = c->early); free(e)) c->early = e->next;
    if (!c->failed || !c->inbox_awaited) free(c); /* otherwise MPI may still write to the inbox */
    *pc = NULL;
}

/* ---- Job memory. */

static ls_status open_memory(const ls__peer_info *first, ls__job **job, int *fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", first->pid, first->job_fd);
    *fd = open(path, O_RDWR | O_CLOEXEC);
    if (*fd < 0)
        return ls__fail_errno(
            "cannot open the job memory of process %d on host %s, %s; all ranks of a node must run as the same user "
            "and in the same PID namespace",
            first->pid, first->host, path);
    ls_status status = ls__job_attach(*fd, job);
    if (!status) return LS_OK;
    close(*fd);
    *fd = -1;
    return status;
}

static ls_status watch_all(ls__cluster *c, const ls__peer_info *peers)
{
    c->watched = malloc((size_t)c->local_size * sizeof *c->watched);
    if (!c->watched) return ls__fail(LS_ENOMEM, "cluster: out of memory");
    for (int r = 0; r < c->size; r++)
        if (c->node_of[r] == c->node) {
            /* Without pidfds (an old kernel) a death is found by timeout. */
            long pidfd = c->unwatched || peers[r].pid == getpid() ? -1 : syscall(SYS_pidfd_open, peers[r].pid, 0);
            c->watched[c->local_of[r]] = (int)pidfd;
        }
    return LS_OK;
}

/* All ranks exchange their errors; if one has failed, all fail. */
static ls_status agree(ls__cluster *c, ls_status status, ls__peer_info *mine, ls__peer_info *all, int timeout_ms)
{
    char why[LS__FAILURE_BYTES] = ""; /* the exchange may leave another message */
    mine->error[0] = 0;
    if (status) {
        snprintf(why, sizeof why, "%s", ls_error());
        snprintf(mine->error, sizeof mine->error, "%s: %.*s", ls_status_name(status), 180, why);
    }
    ls_status sent = exchange(c, mine, all, timeout_ms);
    if (sent || status) return status ? ls__fail(status, "%s", why) : sent;
    for (int r = 0; r < c->size; r++)
        if (all[r].error[0]) return ls__fail(LS_EPEER, "rank %d could not join: %s", r, all[r].error);
    return LS_OK;
}

/* The local root makes the memory; then the others open it. */
static ls_status make_and_open(ls__cluster *c, ls__peer_info *all, int timeout_ms, ls__job **job, int *fd)
{
    ls__peer_info mine;
    ls__peer_info_fill(&mine, NULL, 0);
    ls_status status = c->local_rank == 0 ? ls__job_create(c->local_size, 0, job, fd) : LS_OK;
    mine.job_fd = *fd;
    status = agree(c, status, &mine, all, timeout_ms);
    if (status) return status;
    for (int r = 0; r < c->size && c->local_rank != 0; r++)
        if (c->node_of[r] == c->node && !c->local_of[r]) status = open_memory(&all[r], job, fd);
    if (!status) {
        atomic_store(&(*job)->rank[c->local_rank].pid, getpid());
        ls__job_set_state(*job, c->local_rank, LS__RANK_RUNNING, 0);
        status = watch_all(c, all);
    }
    return agree(c, status, &mine, all, timeout_ms);
}

ls_status ls__cluster_share(ls__cluster *c, int timeout_ms, ls__job **job, int *fd)
{
    *job = NULL;
    *fd = -1;
    ls__peer_info *all = malloc((size_t)c->size * sizeof *all);
    if (!all) return ls__fail(LS_ENOMEM, "cluster: out of memory");
    ls_status status = make_and_open(c, all, timeout_ms, job, fd);
    free(all);
    if (status && *job) {
        ls__job_detach(job);
        close(*fd);
        *fd = -1;
    }
    return status;
}

/* Whether a process is stopped: the letter after its name in /proc/PID/stat is T. */
static bool is_stopped(int pid)
{
    char path[32], text[256];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *end = strrchr(text, ')'); /* the name may contain anything */
    return end && !strncmp(end, ") T", 3);
}

void ls__cluster_watch(ls__cluster *c, ls__job *job)
{
    for (int i = 0; c->watched && i < c->local_size; i++) {
        struct pollfd p = { .fd = c->watched[i], .events = POLLIN };
        if (p.fd < 0) continue;
        uint32_t state = atomic_load(&job->rank[i].state);
        bool stopped = is_stopped(atomic_load(&job->rank[i].pid));
        if (poll(&p, 1, 0) > 0) {
            close(p.fd);
            c->watched[i] = -1;
            ls__job_set_state(job, i, LS__RANK_GONE, 0);
            c->failed = true; /* a process that ends in order waits for all others, this one included */
        } else if (stopped != (state == LS__RANK_STOPPED)) {
            ls__job_set_state(job, i, stopped ? LS__RANK_STOPPED : LS__RANK_RUNNING, stopped ? SIGSTOP : 0);
        }
    }
}
