/* Ranks as threads of one process, placed on emulated nodes: each node has its own job, and a network
 * among threads connects them. ThreadSanitizer sees all of them. */
#ifndef LS_TESTS_COMM_NODES_H
#define LS_TESTS_COMM_NODES_H

#include <unistd.h>
#include "fake_net.h"
#include "ranks.h"
#include "comm/cluster.h"

enum { MAX_NODES = 16 };

typedef struct node_thread {
    rank_fn run;
    void *arg;
    ls_world_options options;
    ls__job *job;
    int fd, rank, size, node, bad;
    char why[RANKS_WHY];
} node_thread;

/* What connects the nodes; NULL: the network among threads. */
static ls_status (*nodes_net)(ls__net **out, int rank, int size);

static inline ls_status open_world(node_thread *t, ls_world **world)
{
    char host[16];
    ls__net *net;
    ls__peer_info info;
    ls__cluster *c;
    snprintf(host, sizeof host, "node%d", t->node);
    ls_status status =
        nodes_net ? nodes_net(&net, t->rank, t->size) : ls__net_open_on(&net, &fake_plugin, t->rank, t->size);
    ls__peer_info_fill(&info, host, t->options.staging_bytes);
    if (!status) status = ls__cluster_open(&c, net, &info, 10000);
    if (status) return status;
    ls__world_base base = { .info = { .launcher = LS__LAUNCHER_OPENMPI,
                                      .rank = c->rank,
                                      .size = c->size,
                                      .local_rank = c->local_rank,
                                      .local_size = c->local_size,
                                      .node = c->node },
                            .job = t->job,
                            .job_fd = t->fd,
                            .cluster = c };
    ls__job_set_state(t->job, c->local_rank, LS__RANK_RUNNING, 0);
    return ls__world_open_on(world, &t->options, &base);
}

static inline void *node_thread_run(void *p)
{
    node_thread *t = p;
    ls_world *world;
    fake_rank = t->rank;
    fake_seed = (unsigned)t->rank * 7919u;
    if (open_world(t, &world)) {
        snprintf(t->why, RANKS_WHY, "rank %d: open: %s", t->rank, ls_error());
        t->bad = 1;
        return NULL;
    }
    t->bad = t->run(world, t->arg, t->why);
    ls__job_set_state(t->job, ls_world_get_info(world).local_rank, LS__RANK_EXITED, t->bad);
    ls_world_free(&world);
    return NULL;
}

/* Runs `run` on ranks placed by `places`: "0011" is two nodes of two ranks each. */
static inline void on_nodes(const char *places, rank_fn run, void *arg, ls_world_options options)
{
    int p = (int)strlen(places), sizes[MAX_NODES] = { 0 }, fds[MAX_NODES];
    ls__job *jobs[MAX_NODES] = { NULL };
    pthread_t threads[FAKE_RANKS];
    node_thread *t = calloc((size_t)p, sizeof *t);
    fake_reset(p);
    for (int r = 0; r < p; r++) sizes[places[r] - '0']++;
    for (int k = 0; k < MAX_NODES; k++)
        if (sizes[k]) check_ok(ls__job_create(sizes[k], 0, &jobs[k], &fds[k]));
    for (int r = 0; r < p; r++) {
        int node = places[r] - '0';
        t[r] = (node_thread){ .run = run,
                              .arg = arg,
                              .options = options,
                              .job = jobs[node],
                              .fd = fds[node],
                              .rank = r,
                              .size = p,
                              .node = node };
        check_ok(ls__thread_start(&threads[r], "rank", node_thread_run, &t[r]));
    }
    for (int r = 0; r < p; r++) pthread_join(threads[r], NULL);
    char why[RANKS_WHY] = "";
    for (int r = p - 1; r >= 0; r--)
        if (t[r].bad) memcpy(why, t[r].why, RANKS_WHY);
    free(t);
    for (int k = 0; k < MAX_NODES; k++)
        if (jobs[k]) {
            ls__job_detach(&jobs[k]);
            close(fds[k]);
        }
    fake_reset(0);
    if (why[0]) fail_msg("ranks on %s: %s", places, why);
}

#endif
