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

/* Collective: every rank's sums, and its number of workers. */
static ls_status gather(const ls_train *t, ls__data_load *sums, int *workers)
{
    const ls__loading *l = &t->loading;
    ls_group *group = ls_world_group(t->parallel.world);
    ls_loader_stats now = ls_loader_get_stats(t->loader);
    ls__data_load own = { .wall = l->total_ms,
                          .waited = l->wait_ms,
                          .batches = (double)(now.batches - l->before.batches),
                          .missed = -1,
                          .build = (double)(now.load_ns - l->before.load_ns) * 1e-6 };
    ls_status status = ls_allgather(group, &own, sums, sizeof own, LS_U8);
    return status ? status : ls_allgather(group, &now.workers, workers, 1, LS_I32);
}

static double build_ms(const ls__data_load *l)
{
    return l->batches > 0 ? l->build / l->batches : 0;
}

static double waited_percent(const ls__data_load *l)
{
    return 100 * l->waited / l->wall;
}

ls__data_stall ls__loading_describe(const ls__data_load *all, const int *workers, int ranks, char *text, size_t bytes)
{
    int slow, fast;
    ls__data_stall stall = ls__data_stall_find(all, ranks, &slow, &fast);
    const ls__data_load *s = &all[slow], *f = &all[fast];
    if (stall == LS__DATA_STALLS_RANK)
        snprintf(text, bytes,
                 "rank %d's data arrive late and stall all ranks: it waited %.0f %% of the time for batches, rank %d "
                 "%.0f %%; "
                 "a batch takes %.1f ms to load (rank %d: %.1f ms) with %d worker%s",
                 slow, waited_percent(s), fast, waited_percent(f), build_ms(s), fast, build_ms(f), workers[slow],
                 ls__s(workers[slow]));
    if (stall == LS__DATA_STALLS_ALL)
        snprintf(text, bytes,
                 "%.0f %% of the time was spent waiting for batches; one takes %.1f ms to load with %d worker%s",
                 waited_percent(s), build_ms(s), workers[slow], ls__s(workers[slow]));
    return stall;
}

static void log_loading(ls_train *t, const ls__data_load *all, const int *workers, bool last)
{
    static const char advice[] = "staging the files, more workers or a faster disk would help";
    char text[400];
    ls__data_stall stall = ls__loading_describe(all, workers, t->parallel.size, text, sizeof text);
    bool one = stall == LS__DATA_STALLS_RANK && !t->loading.reported, any = stall == LS__DATA_STALLS_ALL && last;
    t->loading.reported = t->loading.reported || one; /* the same on all ranks, which have the same numbers */
    if (ls__train_is_first(t) && one) ls__log(LS_LOG_WARNING, "step %lld: %s; %s", (long long)t->step, text, advice);
    if (ls__train_is_first(t) && any) ls__log(LS_LOG_INFO, "data: %s; %s", text, advice);
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
    size_t ranks = (size_t)t->parallel.size;
    ls__data_load *all = malloc(ranks * sizeof *all);
    int *workers = malloc(ranks * sizeof *workers);
    ls_status status =
        all && workers ? gather(t, all, workers) : ls__fail(LS_ENOMEM, "step %lld: out of memory", (long long)t->step);
    if (!status) log_loading(t, all, workers, last);
    free(all);
    free(workers);
    return status;
}
