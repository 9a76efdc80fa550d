/* Who made whom wait, and where that rank lost its time.
 *
 * At a meeting the last rank to arrive is known. Why it was late is found by going back to the meeting before: the newest one that
 * everybody had left before anybody came to this one, where all ranks were level. From there to its arrival each rank's time is
 * split into phases; the phase in which the last one spent most time beyond the others (their median) is where it was lost. Time
 * in which a thread could run but had no core is taken out of the phases and judged by itself: a rank whose core is shared is slow
 * in all phases and guilty of none. */
#include <stdlib.h>
#include <string.h>
#include "record/event_file.h"
#include "base/status.h"
#include "measure/model.h"

enum { LOOK_BACK = 512, CORE = LS_PHASES, STOLEN = LS_PHASES + 1, CAUSES = LS_PHASES + 2, RECENT = 16 };

/* Index of the piece that rank r was in at `time`. */
static size_t piece_at(const ls_run_rank *r, int64_t time)
{
    size_t low = 0, high = r->n_pieces;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (r->pieces[middle].begin <= time)
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
    if (r->n_pieces < 2) return;
    for (size_t i = piece_at(r, from); i + 1 < r->n_pieces && r->pieces[i].begin < to; i++) {
        const ls_piece *p = &r->pieces[i];
        int64_t begin = ls__max(p->begin, from), end = ls__min(p[1].begin, to);
        double length = (double)(p[1].begin - p->begin), part = length > 0 ? (double)(end - begin) / length : 0;
        if (end <= begin) continue;
        double delay = (double)p->delay, stolen = 0;
        if (p->cpu >= 0 && !p->slept && length > (double)p->cpu + delay) stolen = length - (double)p->cpu - delay;
        out[p->shared ? LS_PHASE_COMM : p->phase] += (length - delay - stolen) * part;
        out[CORE] += delay * part;
        out[STOLEN] += stolen * part;
    }
}

/* The newest meeting that every member of `m` had left before it came to `m`. */
static const ls_meeting *level_before(const ls_run *run, size_t index)
{
    const ls_meeting *m = &run->meetings[index];
    for (size_t k = 1; k <= index && k <= LOOK_BACK; k++) {
        const ls_meeting *c = &run->meetings[index - k];
        bool level = true;
        for (int r = 0; r < run->ranks && level; r++) {
            if (!m->arrival[r]) continue;
            int64_t out = ls__max(c->left[r], c->done[r]);
            level = c->arrival[r] && out && out <= m->arrival[r];
        }
        if (level) return c;
    }
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void ls__sort(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_value);
}

double ls__median(double *values, size_t n)
{
    if (!n) return 0;
    ls__sort(values, n);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* The cause in which the last rank lost most, and how much. `all` is [ranks][CAUSES], `room` [ranks]. */
static int find_cause(const ls_run *run, size_t index, double (*all)[CAUSES], double *room, double *excess)
{
    const ls_meeting *m = &run->meetings[index], *before = level_before(run, index);
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

static ls_delay *delay_of(ls_run *run, size_t *room, const ls_delay *key)
{
    for (size_t k = 1; k <= run->n_delays && k <= RECENT; k++) {
        ls_delay *d = &run->delays[run->n_delays - k];
        if (d->step == key->step && d->rank == key->rank && d->phase == key->phase && d->core == key->core) return d;
    }
    if (run->n_delays == *room) {
        *room = *room ? 2 * *room : 64;
        ls_delay *more = realloc(run->delays, *room * sizeof *more);
        if (!more) return NULL;
        run->delays = more;
    }
    run->delays[run->n_delays] = *key;
    return &run->delays[run->n_delays++];
}

static void add_to_matrix(ls_run *run, const ls_meeting *m)
{
    if (!run->n_steps || m->step < run->steps[run->n_warm].number || m->step > run->steps[run->n_steps - 1].number)
        return;
    for (int r = 0; r < run->ranks; r++) {
        if (!m->left[r] || r == m->last_rank) continue;
        int64_t waited = ls__min(m->last_arrival, m->left[r]) - (m->left[r] - m->blocked[r]);
        if (waited > 0) run->wait_matrix[(size_t)r * (size_t)run->ranks + (size_t)m->last_rank] += waited;
    }
}

ls_status ls__run_blame(ls_run *run)
{
    size_t p = (size_t)run->ranks, room = 0;
    double(*all)[CAUSES] = calloc(p, sizeof *all), *values = malloc(p * sizeof *values);
    run->wait_matrix = calloc(p * p, sizeof *run->wait_matrix);
    ls_status status = all && values && run->wait_matrix ? LS_OK : ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    for (size_t i = 0; i < run->n_meetings && !status; i++) {
        ls_meeting *m = &run->meetings[i];
        double excess = 0;
        if (!m->waited || m->step < 0) continue;
        add_to_matrix(run, m);
        if (!m->arrival[m->last_rank]) continue; /* its events are missing */
        int cause = find_cause(run, i, all, values, &excess);
        if (cause < 0) continue;
        ls_delay key = { .step = m->step,
                         .rank = m->last_rank,
                         .phase = cause < LS_PHASES ? (ls_phase)cause : LS_PHASE_OTHER,
                         .core = cause >= LS_PHASES,
                         .span = -1 };
        ls_delay *d = delay_of(run, &room, &key);
        if (!d) {
            status = ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
            break;
        }
        d->excess = ls__max(d->excess, (int64_t)excess);
        d->waited += m->waited;
        d->longest += m->longest;
        m->blame = (int)(d - run->delays);
    }
    free(all);
    free(values);
    return status;
}
