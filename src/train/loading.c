/* Whether data loading slows the run down. A rank that waits for its batches comes late to the sum of the gradients, where all
 * other ranks wait for it: what it waited more than they did is the cost to the job.
 *
 * The first steps do not count, because workers are still being found and files staged, unless the run is short. */
#include "train/loading.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "train/training.h"

enum { WARM_UP = 40, FIRST_CHECK = 100, CHECK_EVERY = 500 }; /* steps since the beginning of this process */
static const double worth_reporting = 0.05;                  /* of the run's time */

/* Collective: every rank's loading. */
static ls_status gather(const ls_train *t, ls__rank_loading *out)
{
    const ls__loading *l = &t->loading;
    ls_loader_stats now = ls_loader_get_stats(t->loader);
    double batches = now.batches > l->before.batches ? (double)(now.batches - l->before.batches) : 1;
    ls__rank_loading own = { .wait_ms = l->wait_ms,
                             .total_ms = l->total_ms,
                             .load_ms = (double)(now.load_ns - l->before.load_ns) / batches * 1e-6,
                             .compute_ms = (l->total_ms - l->wait_ms) / batches,
                             .workers = now.workers,
                             .prefetch = now.prefetch };
    return ls_allgather(ls_world_group(t->parallel.world), &own, out, sizeof own, LS_U8);
}

int ls__late_rank(const ls__rank_loading *all, int ranks, char *text, size_t bytes)
{
    int late = 0, first = 0;
    for (int r = 1; r < ranks; r++) {
        if (all[r].wait_ms > all[late].wait_ms) late = r;
        if (all[r].wait_ms < all[first].wait_ms) first = r;
    }
    const ls__rank_loading *l = &all[late];
    if (ranks < 2 || l->total_ms <= 0 || l->wait_ms - all[first].wait_ms <= worth_reporting * l->total_ms) return -1;
    /* A rank does not wait for a batch longer than it takes to build it. If it did, it lost the time otherwise, say its core. */
    double batches = l->compute_ms > 0 ? (l->total_ms - l->wait_ms) / l->compute_ms : 0;
    if (l->wait_ms > 1.5 * batches * l->load_ms && batches > 0) return -1;
    snprintf(
        text, bytes,
        "rank %d's data come late and stall all ranks: it waited %.0f %% of the time for batches, rank %d %.0f %%; a "
        "batch takes %.1f ms to load (rank %d: %.1f ms) with %d worker%s",
        late, 100 * l->wait_ms / l->total_ms, first, 100 * all[first].wait_ms / all[first].total_ms, l->load_ms, first,
        all[first].load_ms, l->workers, ls__s(l->workers));
    return late;
}

/* At the end of the run, if data loading took a noticeable part of it. */
static void log_summary(const ls__rank_loading *all, int ranks)
{
    double wait = 0, total = 0;
    for (int r = 0; r < ranks; r++) wait += all[r].wait_ms, total += all[r].total_ms;
    if (wait > worth_reporting * total && all[0].load_ms > 0.5 * all[0].compute_ms) /* otherwise it waited for a core */
        ls__log(LS_LOG_INFO,
                "data: %.0f %% of the time was spent waiting for batches; one takes %.1f ms to load with %d worker%s",
                100 * wait / total, all[0].load_ms, all[0].workers, ls__s(all[0].workers));
}

static void log_loading(ls_train *t, const ls__rank_loading *all, bool last)
{
    char text[400];
    bool late = ls__late_rank(all, t->parallel.size, text, sizeof text) >= 0;
    if (late && !t->loading.reported && ls__train_is_first(t))
        ls__log(LS_LOG_WARNING, "step %lld: %s; staging its files, more workers or a faster disk would help",
                (long long)t->step, text);
    if (late) t->loading.reported = true; /* the same on all ranks, which have the same numbers */
    if (last && !late && ls__train_is_first(t)) log_summary(all, t->parallel.size);
}

ls_status ls__train_note_loading(ls_train *t, const ls_train_metrics *m)
{
    ls__loading *l = &t->loading;
    bool last = m->step == m->steps;
    l->wait_ms += m->data_ms;
    l->total_ms += m->step_ms;
    l->steps++;
    if (l->steps == WARM_UP && m->steps - m->step >= WARM_UP) {
        l->wait_ms = l->total_ms = 0;
        l->before = ls_loader_get_stats(t->loader);
    }
    bool check = t->parallel.size > 1 && !l->reported && (l->steps == FIRST_CHECK || l->steps % CHECK_EVERY == 0);
    if (!check && !last) return LS_OK;
    ls__rank_loading *all = malloc((size_t)t->parallel.size * sizeof *all);
    ls_status status = all ? gather(t, all) : ls__fail(LS_ENOMEM, "step %lld: out of memory", (long long)t->step);
    if (!status) log_loading(t, all, last);
    free(all);
    return status;
}
