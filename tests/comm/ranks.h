/* Ranks as threads of one process, on one shared job: ThreadSanitizer sees all of them. */
#ifndef LS_TESTS_COMM_RANKS_H
#define LS_TESTS_COMM_RANKS_H

#include "check.h"
#include "base/thread.h"
#include "comm/group.h"

enum { RANKS_WHY = 1024, RANKS_MAX = 64 };

/* Runs on every rank. Returns 0, or 1 with the reason in why[RANKS_WHY]. */
typedef int (*rank_fn)(ls_world *world, void *arg, char *why);

/* In a rank_fn: ends the test on all ranks unless the condition holds. */
#define NEED(condition)                                                                                     \
    do {                                                                                                    \
        if (!(condition)) {                                                                                 \
            snprintf(why, RANKS_WHY, "rank %d, line %d: not %s; error: %s", ls_world_rank(world), __LINE__, \
                     #condition, ls_error());                                                               \
            ls_group_abort(ls_world_group(world), why);                                                     \
            return 1;                                                                                       \
        }                                                                                                   \
    } while (0)

typedef struct rank_thread {
    rank_fn run;
    void *arg;
    const ls_world_options *options;
    ls__job *job;
    int fd, rank, size, bad;
    char why[RANKS_WHY];
} rank_thread;

static inline void *rank_thread_run(void *p)
{
    rank_thread *t = p;
    ls__world_base base = { .info = { .launcher = LS__LAUNCHER_LOCKSTEP,
                                      .rank = t->rank,
                                      .size = t->size,
                                      .local_rank = t->rank,
                                      .local_size = t->size },
                            .job = t->job,
                            .job_fd = t->fd };
    ls_world *world;
    ls__job_set_state(t->job, t->rank, LS__RANK_RUNNING, 0);
    if (ls__world_open_on(&world, t->options, &base)) {
        snprintf(t->why, RANKS_WHY, "rank %d: open: %s", t->rank, ls_error());
        t->bad = 1;
        return NULL;
    }
    t->bad = t->run(world, t->arg, t->why);
    ls__job_set_state(t->job, t->rank, LS__RANK_EXITED, t->bad);
    ls_world_free(&world);
    return NULL;
}

/* Runs `run` on p ranks; fails the test with the first rank's reason. */
static inline void on_ranks(int p, rank_fn run, void *arg, const ls_world_options *options)
{
    ls__job *job;
    int fd;
    pthread_t threads[RANKS_MAX];
    rank_thread *t = calloc((size_t)p, sizeof *t);
    check_ok(ls__job_create(p, 0, &job, &fd));
    for (int r = 0; r < p; r++) {
        t[r] = (rank_thread){ .run = run, .arg = arg, .options = options, .job = job, .fd = fd, .rank = r, .size = p };
        check_ok(ls__thread_start(&threads[r], "rank", rank_thread_run, &t[r]));
    }
    for (int r = 0; r < p; r++) pthread_join(threads[r], NULL);
    char why[RANKS_WHY] = "";
    for (int r = p - 1; r >= 0; r--)
        if (t[r].bad) memcpy(why, t[r].why, RANKS_WHY);
    free(t);
    ls__job_detach(&job);
    close(fd);
    if (why[0]) fail_msg("%d ranks: %s", p, why);
}

/* In a rank: fails with a reason unless the condition holds. */
#define need(condition, ...)                       \
    do {                                           \
        if (!(condition)) {                        \
            snprintf(why, RANKS_WHY, __VA_ARGS__); \
            return 1;                              \
        }                                          \
    } while (0)
/* In a rank: the call succeeds. */
#define need_ok(call)                                                                             \
    do {                                                                                          \
        if ((call) != LS_OK) {                                                                    \
            snprintf(why, RANKS_WHY, "rank %d: %s: %s", ls_world_rank(world), #call, ls_error()); \
            return 1;                                                                             \
        }                                                                                         \
    } while (0)

#endif
