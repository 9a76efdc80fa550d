/* Whether some rank's data come late. A rank that waits for its batches comes late to the sum of the gradients, and all
 * others wait for it there: what it waited more than they did is what it cost everyone.
 *
 * The first steps do not count, because workers are still being found and files staged, unless there are few others. */
#include <stdio.h>
#include <stdlib.h>
#include "base/log.h"
#include "base/status.h"
#include "train/training.h"

enum { WARM_UP = 40, FIRST_LOOK = 100, LOOK_EVERY = 500 }; /* steps since the beginning of this process */
static const double worth_telling = 0.05;                  /* of the run's time */

ls_status ls_train_loading_get(ls_train *t, ls_train_loading *out)
{
    const ls__loading *l = &t->loading;
    ls_loader_stats now = ls_loader_get_stats(t->loader);
    double batches = now.batches > l->before.batches ? (double)(now.batches - l->before.batches) : 1;
    ls_train_loading own = { .wait_ms = l->wait_ms,
                             .total_ms = l->total_ms,
                             .load_ms = (double)(now.load_ns - l->before.load_ns) / batches * 1e-6,
                             .compute_ms = (l->total_ms - l->wait_ms) / batches,
                             .workers = now.workers,
                             .prefetch = now.prefetch };
    return ls_allgather(ls_world_group(t->parallel.world), &own, out, sizeof own, LS_U8);
}

int ls_train_late_rank(const ls_train_loading *all, int ranks, char *text, size_t bytes)
{
    int late = 0, first = -1;
    for (int r = 1; r < ranks; r++)
        if (all[r].wait_ms > all[late].wait_ms) late = r;
    for (int r = 0; r < ranks; r++)
        if (first < 0 || all[r].wait_ms < all[first].wait_ms) first = r;
    const ls_train_loading *l = &all[late];
    if (ranks < 2 || l->total_ms <= 0 || l->wait_ms - all[first].wait_ms <= worth_telling * l->total_ms) return -1;
    /* A batch is not waited for longer than it takes to build: then it was ready, and the rank lost its time otherwise, say its core. */
    double batches = l->compute_ms > 0 ? (l->total_ms - l->wait_ms) / l->compute_ms : 0;
    if (l->wait_ms > 1.5 * batches * l->load_ms && batches > 0) return -1;
    snprintf(text, bytes,
             "rank %d's data come late and hold the others up: it waited %.0f %% of the time for batches, rank %d %.0f "
             "%%; a "
             "batch takes it %.1f ms to load (rank %d: %.1f ms) with %d worker%s",
             late, 100 * l->wait_ms / l->total_ms, first, 100 * all[first].wait_ms / all[first].total_ms, l->load_ms,
             first, all[first].load_ms, l->workers, l->workers == 1 ? "" : "s");
    return late;
}

ls_status ls__train_note_loading(ls_train *t, const ls_train_metrics *m)
{
    ls__loading *l = &t->loading;
    l->wait_ms += m->data_ms;
    l->total_ms += m->step_ms;
    l->steps++;
    if (l->steps == WARM_UP && m->steps - m->step >= WARM_UP) {
        l->wait_ms = l->total_ms = 0;
        l->before = ls_loader_get_stats(t->loader);
    }
    bool look = l->steps == FIRST_LOOK || l->steps % LOOK_EVERY == 0;
    if (!look || l->told || t->parallel.size == 1) return LS_OK;
    char text[400];
    ls_train_loading *all = malloc((size_t)t->parallel.size * sizeof *all);
    ls_status status =
        all ? ls_train_loading_get(t, all) : ls__fail(LS_ENOMEM, "step %lld: out of memory", (long long)t->step);
    if (!status && ls_train_late_rank(all, t->parallel.size, text, sizeof text) >= 0) {
        l->told = true; /* all ranks see the same numbers and come to the same end */
        if (ls__train_is_first(t))
            ls__log(LS_LOG_WARNING, "step %lld: %s; staging its files, more workers or a faster disk would help",
                    (long long)t->step, text);
    }
    free(all);
    return status;
}
