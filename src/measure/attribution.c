/* Who made whom wait, and where that rank lost its time.
 *
 * At a collective the last rank to arrive is known. Why it was late is found by going back to the newest collective that all
 * ranks had left before any of them arrived at this one, and in which none was ahead; it is a synchronization point of all
 * ranks. From there to its arrival each rank's time is split into phases; the phase in which the last one spent most time
 * beyond the median of the others is where it was lost. Time in which a thread was runnable but not scheduled is not part of
 * the phases and is judged by itself: a rank whose core is shared is slow in all phases and the cause of none. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "record/event_file.h"
#include "base/status.h"
#include "measure/limits.h"
#include "measure/model.h"
#include "measure/stats.h"

enum { SCHED_DELAY = LS_PHASE_COUNT, STEAL = LS_PHASE_COUNT + 1, CAUSES = LS_PHASE_COUNT + 2 };

/* Index of the interval that rank r was in at `time`. */
static size_t interval_at(const ls_run_rank *r, int64_t time)
{
    size_t low = 0, high = r->n_intervals;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (r->intervals[middle].begin <= time)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? low - 1 : 0;
}

/* What rank r did from `from` to `to`, by cause. */
static void split_time(const ls_run_rank *r, int64_t from, int64_t to, double out[CAUSES])
{
    memset(out, 0, CAUSES * sizeof *out);
    if (r->n_intervals < 2) return;
    for (size_t i = interval_at(r, from); i + 1 < r->n_intervals && r->intervals[i].begin < to; i++) {
        const ls_interval *p = &r->intervals[i];
        int64_t begin = ls__max(p->begin, from), end = ls__min(p[1].begin, to);
        double length = (double)(p[1].begin - p->begin), part = length > 0 ? (double)(end - begin) / length : 0;
        if (end <= begin) continue;
        double delay = (double)p->sched_delay, steal = (double)p->steal;
        out[p->shared ? LS_PHASE_COMM : p->phase] += (length - delay - steal) * part;
        out[SCHED_DELAY] += delay * part;
        out[STEAL] += steal * part;
    }
}

/* Whether rank r was not ahead when the last rank arrived at c: it is that rank, or was blocked there, and had done nothing else since it
 * arrived itself. While a collective overlaps with computing, as those of gradients do, ranks that are early go on with what a late one has
 * still to do. */
static bool is_synced(const ls_run *run, const ls_run_collective *c, int r)
{
    double did[CAUSES], ahead = 0;
    if (r == c->last_rank) return true;
    if (!c->left[r] || c->entered[r] > c->last_arrival || c->left[r] < c->last_arrival) return false;
    split_time(&run->rank[r], c->arrival[r], c->entered[r], did);
    for (int k = 0; k < LS_PHASE_COUNT; k++)
        if (k != LS_PHASE_WAIT && k != LS_PHASE_COMM) ahead += did[k];
    return ahead <= LS__SYNC_AHEAD * run->step_mean;
}

/* The newest collective that no member of `m` was ahead in, and that each had left before it came to `m`. */
static const ls_run_collective *sync_point_before(const ls_run *run, size_t index)
{
    const ls_run_collective *m = &run->collectives[index];
    for (size_t k = 1; k <= index && k <= LS__SYNC_LOOK_BACK; k++) {
        const ls_run_collective *c = &run->collectives[index - k];
        bool synced = true;
        for (int r = 0; r < run->ranks && synced; r++) {
            if (!m->arrival[r]) continue;
            int64_t out = ls__max(c->left[r], c->done[r]);
            synced = c->arrival[r] && out && out <= m->arrival[r] && is_synced(run, c, r);
        }
        if (synced) return c;
    }
    return NULL;
}

/* The cause in which the last rank lost most, and how much. `all` is [ranks][CAUSES], `room` [ranks]. */
static int find_cause(const ls_run *run, size_t index, double (*all)[CAUSES], double *room, double *excess)
{
    const ls_run_collective *m = &run->collectives[index], *before = sync_point_before(run, index);
    int last = m->last_rank, best = -1;
    ptrdiff_t step = ls__run_step_at(run, last, m->last_arrival);
    int64_t from = before ? before->last_arrival : step >= 0 ? run->steps[step].begin : 0;
    for (int r = 0; r < run->ranks; r++)
        if (m->arrival[r]) split_time(&run->rank[r], from, m->arrival[r], all[r]);
    for (int c = 0; c < CAUSES; c++) {
        size_t n = 0;
        for (int r = 0; r < run->ranks; r++)
            if (r != last && m->arrival[r]) room[n++] = all[r][c];
        double more = all[last][c] - ls__median(room, n);
        if (c == LS_PHASE_WAIT || !n || (best >= 0 && more <= *excess)) continue;
        best = c;
        *excess = more;
    }
    return best;
}

static ls_attribution *attribution_of(ls_run *run, size_t *room, const ls_attribution *key)
{
    for (size_t k = 1; k <= run->n_attributions && k <= LS__ATTRIBUTION_OPEN; k++) {
        ls_attribution *d = &run->attributions[run->n_attributions - k];
        if (d->step == key->step && d->rank == key->rank && d->phase == key->phase &&
            d->unscheduled == key->unscheduled)
            return d;
    }
    if (run->n_attributions == *room) {
        *room = *room ? 2 * *room : 64;
        ls_attribution *more = realloc(run->attributions, *room * sizeof *more);
        if (!more) return NULL;
        run->attributions = more;
    }
    run->attributions[run->n_attributions] = *key;
    return &run->attributions[run->n_attributions++];
}

/* Of thousands of ranks that a trace declares few may be there: memory for the rows of others is not even reserved. */
static int64_t *new_matrix(size_t ranks)
{
    void *at = mmap(NULL, ranks * ranks * sizeof(int64_t), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

void ls__wait_matrix_free(ls_run *run)
{
    size_t ranks = (size_t)run->ranks;
    if (run->wait_matrix) munmap(run->wait_matrix, ranks * ranks * sizeof *run->wait_matrix);
}

static void add_to_matrix(ls_run *run, const ls_run_collective *m)
{
    if (!run->n_steps || m->step < run->steps[run->first_counted].number ||
        m->step > run->steps[run->n_steps - 1].number)
        return;
    for (int r = 0; r < run->ranks; r++) /* pages of ranks that never wait stay untouched */
        if (m->wait[r]) run->wait_matrix[(size_t)r * (size_t)run->ranks + (size_t)m->last_rank] += m->wait[r];
}

static int by_cost(const void *a, const void *b)
{
    int64_t x = ((const ls_wait_cause *)a)->cost, y = ((const ls_wait_cause *)b)->cost;
    return (x < y) - (x > y);
}

/* Sums the attributions of the counted steps by rank and cause. */
static ls_status sum_causes(ls_run *run)
{
    enum { EACH = LS_PHASE_COUNT + 1 };
    size_t n = 0, all = (size_t)run->ranks * EACH;
    ls_wait_cause *sums = calloc(all, sizeof *sums);
    if (!sums) return ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    for (size_t i = 0; i < run->n_attributions && run->n_steps; i++) {
        const ls_attribution *d = &run->attributions[i];
        if (d->step < run->steps[run->first_counted].number || d->step > run->steps[run->n_steps - 1].number) continue;
        ls_wait_cause *c = &sums[(size_t)d->rank * EACH + (d->unscheduled ? LS_PHASE_COUNT : (size_t)d->phase)];
        c->rank = d->rank;
        c->phase = d->phase;
        c->unscheduled = d->unscheduled;
        c->count++;
        c->waited += d->waited;
        c->cost += d->longest;
        c->longest = ls__max(c->longest, d->longest);
    }
    for (size_t i = 0; i < all; i++)
        if (sums[i].count) sums[n++] = sums[i];
    if (n) qsort(sums, n, sizeof *sums, by_cost);
    run->wait_causes = sums;
    run->n_wait_causes = n;
    return LS_OK;
}

ls_status ls__run_attribute(ls_run *run)
{
    size_t p = (size_t)run->ranks, room = 0;
    double(*all)[CAUSES] = calloc(p, sizeof *all), *values = malloc(p * sizeof *values);
    run->wait_matrix = new_matrix(p);
    ls_status status = all && values && run->wait_matrix ? LS_OK : ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    for (size_t i = 0; i < run->n_collectives && !status; i++) {
        ls_run_collective *m = &run->collectives[i];
        double excess = 0;
        if (!m->waited || m->step < 0) continue;
        add_to_matrix(run, m);
        if (!m->arrival[m->last_rank]) continue; /* its events are missing */
        int cause = find_cause(run, i, all, values, &excess);
        if (cause < 0) continue;
        ls_attribution key = { .step = m->step,
                               .rank = m->last_rank,
                               .phase = cause < LS_PHASE_COUNT ? (ls_phase)cause : LS_PHASE_OTHER,
                               .unscheduled = cause >= LS_PHASE_COUNT,
                               .span = -1 };
        ls_attribution *d = attribution_of(run, &room, &key);
        if (!d) {
            status = ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
            break;
        }
        d->excess = ls__max(d->excess, (int64_t)excess);
        d->waited += m->waited;
        d->longest += m->longest;
        m->attribution = (int)(d - run->attributions);
    }
    free(all);
    free(values);
    return status ? status : sum_causes(run);
}
