/* Whether some rank's data come late. A rank that waits for its batches comes late to the sum of the gradients, and all
 * others wait for it there: what it waited more than they did is what it cost everyone. */
#include <stdio.h>
#include <stdlib.h>
#include "base/log.h"
#include "base/status.h"
#include "train/training.h"

enum { FIRST_LOOK = 50, LOOK_EVERY = 200 }; /* steps */
static const double worth_telling = 0.05;   /* of the run's time */

ls_status ls_train_loading_get(ls_train *t, ls_train_loading *out)
{
    ls_loader_stats stats = ls_loader_stats_get(t->loader);
    double batches = stats.batches ? (double)stats.batches : 1;
    ls_train_loading own = t->loading;
    own.load_ms = (double)stats.load_ns / batches * 1e-6;
    own.compute_ms = (own.total_ms - own.wait_ms) / batches;
    own.workers = stats.workers;
    own.prefetch = stats.prefetch;
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
    t->loading.wait_ms += m->data_ms;
    t->loading.total_ms += m->step_ms;
    bool look = t->step == FIRST_LOOK || t->step % LOOK_EVERY == 0;
    if (!look || t->named_late || t->parallel.size == 1) return LS_OK;
    char text[400];
    ls_train_loading *all = malloc((size_t)t->parallel.size * sizeof *all);
    ls_status status =
        all ? ls_train_loading_get(t, all) : ls__fail(LS_ENOMEM, "step %lld: out of memory", (long long)t->step);
    if (!status && ls_train_late_rank(all, t->parallel.size, text, sizeof text) >= 0) {
        t->named_late = true; /* all ranks see the same numbers and come to the same end */
        if (ls__train_is_first(t))
            ls__log(LS_LOG_WARNING, "step %lld: %s; staging its files, more workers or a faster disk would help",
                    (long long)t->step, text);
    }
    free(all);
    return status;
}
