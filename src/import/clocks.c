/* Clocks, from the collectives themselves: no rank leaves one before the last rank has arrived. With the times of rank i, whose
 * clock is d ahead of that of rank j,
 *
 *     arrived(i) - done(j)  <=  d  <=  done(i) - arrived(j)
 *
 * for every collective that needs all its ranks. d may change evenly with time: d = a + b t. For a given b the two sides leave an
 * interval for a. Within it, a and b are such that the ends agree best, since a collective ends on all ranks at nearly the same
 * time: the less time the last rank spent in it, the nearer. Ends that are far off count little, for a rank that is not scheduled
 * learns late of an end; and a drift is believed as far as it stands out from that, since clocks drift little. A rank that shares
 * no collective with the reference is compared with one that does.
 *
 * Ranks of one machine have one clock, unless that is impossible, and are one here: they came to a collective when the last of them
 * did, and left it when the first did, who learned of its end soonest. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "import/join.h"
#include "record/collectives.h"

enum { ROUNDS = 20 };
static const double MAX_DRIFT = 5e-4;     /* no clock is worse */
static const double USUAL_DRIFT = 5e-5;   /* of a computer's clock: standard deviation */
static const double LEAST_ERROR_NS = 500; /* of an end */

typedef struct point {
    double t;              /* ns on j's clock, from the first point */
    double low, high, mid; /* of d */
    double last;           /* ns that the last rank to arrive was in it: the shorter of both times */
    double weight;
} point;

typedef struct entry { /* a collective of one rank, for joining two lists */
    uint64_t group, number;
    int64_t arrived, done;
} entry;

static int by_key(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->group != y->group) return x->group > y->group ? 1 : -1;
    return (x->number > y->number) - (x->number < y->number);
}

typedef struct entries {
    entry *at;
    size_t count;
} entries;

static ls_status list_entries(const ls__trace *t, entries *out)
{
    out->count = 0;
    out->at = malloc((t->calls.count + 1) * sizeof *out->at);
    if (!out->at) return ls__fail(LS_ENOMEM, "%s: out of memory", t->path);
    for (size_t i = 0; i < t->calls.count; i++) {
        const ls__call *c = &t->calls.at[i];
        if (!c->joined || !c->done || c->done < c->arrived || !ls__is_symmetric((ls_collective_kind)c->kind)) continue;
        out->at[out->count++] =
            (entry){ t->groups.at[c->group].key, c->number, t->base + c->arrived, t->base + c->done };
    }
    if (out->count) qsort(out->at, out->count, sizeof *out->at, by_key);
    return LS_OK;
}

/* Adds the collectives of another rank of the machine. Both are in order. */
static ls_status add_entries(entries *to, const entries *more)
{
    entry *all = malloc((to->count + more->count + 1) * sizeof *all);
    size_t n = 0, i = 0, k = 0;
    if (!all) return ls__fail(LS_ENOMEM, "out of memory");
    while (i < to->count || k < more->count) {
        int order = i == to->count ? 1 : k == more->count ? -1 : by_key(&to->at[i], &more->at[k]);
        entry e = order <= 0 ? to->at[i++] : more->at[k++];
        if (!order) {
            const entry *x = &more->at[k++];
            if (x->arrived > e.arrived) e.arrived = x->arrived;
            if (x->done < e.done) e.done = x->done;
        }
        all[n++] = e;
    }
    free(to->at);
    *to = (entries){ all, n };
    return LS_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    if (!n) return 0;
    qsort(values, n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* The points of i relative to j; *zero is the time (on j's clock) and *offset the difference that they count from. */
static size_t find_points(const entries *i, const entries *j, point *out, int64_t *zero, int64_t *offset)
{
    size_t n = 0, k = 0;
    for (size_t x = 0; x < i->count; x++) {
        const entry *a = &i->at[x];
        while (k < j->count && by_key(&j->at[k], a) < 0) k++;
        if (k == j->count) break;
        const entry *b = &j->at[k];
        if (by_key(b, a)) continue;
        if (!n) {
            *zero = b->done;
            *offset = a->done - b->done;
        }
        out[n++] = (point){ .t = (double)(b->done - *zero),
                            .low = (double)(a->arrived - b->done - *offset),
                            .high = (double)(a->done - b->arrived - *offset),
                            .mid = (double)(a->done - b->done - *offset),
                            .last = fmin((double)(a->done - a->arrived), (double)(b->done - b->arrived)) };
    }
    return n;
}

/* The interval of a for drift b; its width. */
static double interval(const point *p, size_t n, double b, double *low, double *high)
{
    *low = -INFINITY;
    *high = INFINITY;
    for (size_t i = 0; i < n; i++) {
        *low = fmax(*low, p[i].low - b * p[i].t);
        *high = fmin(*high, p[i].high - b * p[i].t);
    }
    return *high - *low;
}

static double off(const point *p, double a, double b)
{
    return p->mid - a - b * p->t;
}

/* The line through the ends' differences; `a` at t = 0. Errors are taken to be in proportion to what the last rank spent in the collective,
 * and larger where they show to be. */
static void fit(point *p, size_t n, double *a, double *b, double *room)
{
    for (size_t i = 0; i < n; i++) room[i] = p[i].mid;
    *a = median(room, n);
    *b = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double w = 0, wt = 0, wy = 0, tt = 0, ty = 0;
        for (size_t i = 0; i < n; i++) room[i] = fabs(off(&p[i], *a, *b)) / fmax(p[i].last, LEAST_ERROR_NS);
        double scale = fmax(0.01, 1.4826 * median(room, n));
        for (size_t i = 0; i < n; i++) {
            double error = fmax(LEAST_ERROR_NS, scale * fmax(p[i].last, LEAST_ERROR_NS)), r = off(&p[i], *a, *b);
            p[i].weight = 1 / (error * error + r * r);
            w += p[i].weight;
            wt += p[i].weight * p[i].t;
            wy += p[i].weight * p[i].mid;
        }
        for (size_t i = 0; i < n; i++) {
            double t = p[i].t - wt / w;
            tt += p[i].weight * t * t;
            ty += p[i].weight * t * (p[i].mid - wy / w);
        }
        *b = fmax(-MAX_DRIFT, fmin(MAX_DRIFT, ty / (tt + 1 / (USUAL_DRIFT * USUAL_DRIFT))));
        *a = wy / w - *b * wt / w;
    }
}

/* Where the ends agree best if the drift is b. */
static double level(const point *p, size_t n, double b)
{
    double w = 0, sum = 0;
    for (size_t i = 0; i < n; i++) w += p[i].weight, sum += p[i].weight * (p[i].mid - b * p[i].t);
    return sum / w;
}

/* The drift near `start` that leaves an interval, or the widest one (which falls off to both sides). */
static double feasible(const point *p, size_t n, double start)
{
    double low, high, a = -MAX_DRIFT, b = MAX_DRIFT;
    if (interval(p, n, start, &low, &high) >= 0) return start;
    for (int i = 0; i < 100; i++) {
        double x = a + (b - a) / 3, y = b - (b - a) / 3;
        if (interval(p, n, x, &low, &high) < interval(p, n, y, &low, &high))
            a = x;
        else
            b = y;
    }
    double best = (a + b) / 2;
    if (interval(p, n, best, &low, &high) < 0) return best;
    /* from the best towards where the ends point, as far as there is an interval */
    double inside = best, outside = start;
    for (int i = 0; i < 60; i++) {
        double middle = (inside + outside) / 2;
        if (interval(p, n, middle, &low, &high) >= 0)
            inside = middle;
        else
            outside = middle;
    }
    return inside;
}

typedef struct relation { /* of clock i to clock j: d = a + b (t - zero) + offset */
    double a, b, low, high, spread;
    int64_t zero, offset;
    double last; /* t of the last point */
    size_t points;
} relation;

/* Two workers of Gloo may begin in another order than they were called, and then ends are exchanged. A few collectives that
 * contradict most of them are ignored; if there are more, that is not the reason. */
static bool drop_odd(point *p, size_t *points, const relation *r)
{
    size_t kept = 0, odd = 0;
    for (size_t k = 0; k < *points; k++) {
        double d = r->a + r->b * p[k].t;
        odd += p[k].low > d || p[k].high < d;
    }
    if (10 * odd > *points) return false;
    for (size_t k = 0; k < *points; k++) {
        double d = r->a + r->b * p[k].t;
        if (p[k].low <= d && p[k].high >= d) p[kept++] = p[k];
    }
    *points = kept;
    return true;
}

static relation relate(const entries *i, const entries *j, point *p, double *room)
{
    relation r = { 0 };
    r.points = find_points(i, j, p, &r.zero, &r.offset);
    if (!r.points) return r;
    for (size_t k = 0; k < r.points; k++) r.last = fmax(r.last, p[k].t);
    fit(p, r.points, &r.a, &r.b, room);
    r.b = feasible(p, r.points, r.b);
    interval(p, r.points, r.b, &r.low, &r.high);
    r.a = level(p, r.points, r.b);
    if (r.low > r.high && drop_odd(p, &r.points, &r)) {
        interval(p, r.points, r.b, &r.low, &r.high);
        r.a = level(p, r.points, r.b);
    }
    for (size_t k = 0; k < r.points; k++) room[k] = fabs(off(&p[k], r.a, r.b));
    r.spread = 1.4826 * median(room, r.points);
    if (r.low <= r.high) r.a = fmax(r.low, fmin(r.high, r.a));
    return r;
}

/* Clock i from what is known of clock j, which is aligned. */
static void apply_relation(ls__trace *i, const ls__trace *j, const relation *r, ls__remarks *remarks)
{
    double begin = -1e9, end = r->last + 1e9; /* a second more on both sides */
    double at[2] = { begin, end };
    for (int k = 0; k < 2; k++) {
        int64_t there = r->zero + (int64_t)at[k]; /* on j's clock */
        int64_t ahead = r->offset + (int64_t)(r->a + r->b * at[k]);
        i->ahead_at[k] = there + ahead;
        i->ahead[k] = ahead + (there - ls__clock_time(j, there));
    }
    bool contradiction = r->low > r->high;
    double bound = contradiction ? r->low - r->high : fmax(r->high - r->a, r->a - r->low);
    double unsure = contradiction ? bound : fmin(bound, fmax(1000, r->spread));
    i->uncertainty = (int64_t)unsure + j->uncertainty;
    i->drift_ppm = r->b * 1e6 + j->drift_ppm;
    i->aligned = true;
    if (contradiction)
        ls__remark(remarks,
                   "rank %d: its clock cannot be aligned by its collectives (contradiction of %.3f ms): the clock was "
                   "set during the run, or the trace is not from the same job as rank %d's",
                   i->rank, bound / 1e6, j->rank);
}

/* Collectives that were joined by their order alone, and that no steady clock agrees with, are not the same ones: true. */
static bool refuse(ls__trace *i, const ls__trace *j, const relation *r, ls__remarks *remarks)
{
    enum { CLEAR_NS = 1000000 };
    bool ordered = false;
    if (r->low - r->high < CLEAR_NS) return false;
    for (size_t k = 0; k < i->calls.count; k++)
        ordered = ordered || (i->calls.at[k].joined && i->calls.at[k].sequence < 0);
    if (!ordered) return false;
    i->aligned = true; /* as it is */
    ls__remark(remarks,
               "rank %d: its collectives do not match those of rank %d in order (clocks would contradict by %.3f ms), "
               "so they are not joined: the traces have no sequence numbers, and are incomplete or of different jobs",
               i->rank, j->rank, (r->low - r->high) / 1e6);
    return true;
}

int64_t ls__clock_time(const ls__trace *t, int64_t time)
{
    int64_t length = t->ahead_at[1] - t->ahead_at[0];
    if (!t->aligned || length <= 0) return time - t->ahead[0];
    double part = (double)(time - t->ahead_at[0]) / (double)length;
    return time - t->ahead[0] - (int64_t)(part * (double)(t->ahead[1] - t->ahead[0]));
}

static bool same_machine(const ls__trace *a, const ls__trace *b)
{
    return *a->host && !strcmp(a->host, b->host);
}

/* ---- Ends that cannot be. */

typedef struct end { /* of a collective, on one rank */
    uint64_t group, number;
    int64_t arrived; /* on the reference's clock */
    ls__trace *trace;
    ls__call *call;
} end;

static int by_collective(const void *a, const void *b)
{
    const end *x = a, *y = b;
    if (x->group != y->group) return x->group > y->group ? 1 : -1;
    return (x->number > y->number) - (x->number < y->number);
}

/* With the clocks known, an end before the last rank's arrival is not the end of that collective: two workers of Gloo began in
 * another order than they were called. It is taken out, since whoever reads the record would take the clock to be wrong. */
static ls_status drop_ends(ls__trace **traces, size_t count, ls__remarks *remarks)
{
    enum { SLACK_NS = 10000 };
    size_t all = 0, n = 0;
    for (size_t i = 0; i < count; i++) all += traces[i]->calls.count;
    end *ends = malloc((all + 1) * sizeof *ends);
    if (!ends) return ls__fail(LS_ENOMEM, "out of memory");
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < traces[i]->calls.count && traces[i]->aligned; k++) {
            ls__call *c = &traces[i]->calls.at[k];
            if (c->joined && ls__is_symmetric(c->kind))
                ends[n++] = (end){ traces[i]->groups.at[c->group].key, c->number,
                                   ls__clock_time(traces[i], traces[i]->base + c->arrived), traces[i], c };
        }
    if (n) qsort(ends, n, sizeof *ends, by_collective);
    uint64_t dropped = 0;
    for (size_t i = 0, to; i < n; i = to) {
        int64_t last = INT64_MIN;
        for (to = i; to < n && !by_collective(&ends[i], &ends[to]); to++)
            if (ends[to].arrived > last) last = ends[to].arrived;
        for (size_t k = i; k < to; k++) {
            const end *e = &ends[k];
            if (!e->call->done || ls__clock_time(e->trace, e->trace->base + e->call->done) + SLACK_NS >= last) continue;
            e->call->done = 0;
            dropped++;
        }
    }
    free(ends);
    if (dropped)
        ls__remark(
            remarks,
            "%llu ends of collectives are before the last rank's arrival and are left out: the threads that carry them "
            "out began in another order than they were called",
            (unsigned long long)dropped);
    return LS_OK;
}

/* ---- Machines. */

typedef struct machine {
    ls__trace *first; /* of its ranks */
    entries list;     /* of all of them */
    entries own;      /* of the first */
    bool refused;     /* its collectives are not those that they were joined with */
} machine;

typedef struct machines {
    machine *at;
    size_t count;
    size_t *of; /* the machine of each trace */
    point *points;
    double *room; /* as many as the longest list */
} machines;

/* Whether a rank has the clock of the first rank of a machine: its host has the same name, and one clock is possible but for a
 * few collectives whose ends are exchanged. */
static bool same_clock(machines *m, const machine *on, const ls__trace *t, const entries *list)
{
    int64_t zero, offset;
    size_t n, odd = 0;
    if (!same_machine(on->first, t)) return false;
    n = find_points(list, &on->own, m->points, &zero, &offset);
    for (size_t k = 0; k < n; k++) {
        double d = -(double)offset;
        odd += m->points[k].low > d || m->points[k].high < d;
    }
    return 10 * odd <= n;
}

static ls_status make_room(machines *m, size_t most)
{
    free(m->points);
    free(m->room);
    m->points = malloc((most + 1) * sizeof *m->points);
    m->room = malloc((most + 1) * sizeof *m->room);
    return m->points && m->room ? LS_OK : ls__fail(LS_ENOMEM, "out of memory");
}

static ls_status find_machines(machines *m, ls__trace **traces, size_t count)
{
    entries *lists = calloc(count + 1, sizeof *lists);
    m->at = calloc(count + 1, sizeof *m->at);
    m->of = calloc(count + 1, sizeof *m->of);
    ls_status status = lists && m->at && m->of ? LS_OK : ls__fail(LS_ENOMEM, "out of memory");
    size_t most = 0;
    for (size_t i = 0; i < count && !status; i++) {
        status = list_entries(traces[i], &lists[i]);
        if (lists[i].count > most) most = lists[i].count;
    }
    if (!status) status = make_room(m, most);
    for (size_t i = 0; i < count && !status; i++) {
        size_t k = 0;
        while (k < m->count && !same_clock(m, &m->at[k], traces[i], &lists[i])) k++;
        m->of[i] = k;
        if (k == m->count) {
            m->at[m->count++] = (machine){ .first = traces[i], .own = lists[i] };
            lists[i] = (entries){ 0 };
            status = add_entries(&m->at[k].list, &m->at[k].own);
        } else {
            status = add_entries(&m->at[k].list, &lists[i]);
        }
    }
    for (size_t k = 0; k < m->count; k++)
        if (m->at[k].list.count > most) most = m->at[k].list.count;
    if (!status) status = make_room(m, most);
    for (size_t i = 0; lists && i < count; i++) free(lists[i].at);
    free(lists);
    return status;
}

/* From the reference outwards: each machine by the aligned one that it shares most collectives with. */
static void align_machines(machines *m, ls__remarks *remarks)
{
    for (bool some = true; some;) {
        some = false;
        for (size_t i = 1; i < m->count; i++) {
            machine *x = &m->at[i];
            relation best = { 0 };
            const ls__trace *by = NULL;
            if (x->first->aligned) continue;
            for (size_t j = 0; j < m->count && (!by || 2 * best.points < x->list.count); j++) {
                if (!m->at[j].first->aligned) continue;
                relation r = relate(&x->list, &m->at[j].list, m->points, m->room);
                if (r.points && (!by || r.points > 2 * best.points)) best = r, by = m->at[j].first;
            }
            if (!by) continue;
            x->refused = refuse(x->first, by, &best, remarks);
            if (!x->refused) apply_relation(x->first, by, &best, remarks);
            some = true;
        }
    }
}

static void copy_clock(ls__trace *to, const ls__trace *from)
{
    memcpy(to->ahead, from->ahead, sizeof to->ahead);
    memcpy(to->ahead_at, from->ahead_at, sizeof to->ahead_at);
    to->uncertainty = from->uncertainty;
    to->drift_ppm = from->drift_ppm;
    to->aligned = from->aligned;
}

ls_status ls__clocks_find(ls__trace **traces, size_t count, ls__remarks *remarks)
{
    machines m = { 0 };
    ls_status status = find_machines(&m, traces, count);
    if (!status && count) {
        traces[0]->aligned = true;
        align_machines(&m, remarks);
    }
    for (size_t i = 1; i < count && !status; i++) {
        copy_clock(traces[i], m.at[m.of[i]].first);
        for (size_t k = 0; k < traces[i]->calls.count && m.at[m.of[i]].refused; k++)
            traces[i]->calls.at[k].joined = false;
        if (!traces[i]->aligned)
            ls__remark(
                remarks,
                "rank %d: its clock cannot be aligned: its trace has no collective of all ranks, with its end, in "
                "common with rank %d's; who waited for whom is unknown there",
                traces[i]->rank, traces[0]->rank);
    }
    for (size_t k = 0; k < m.count; k++) {
        free(m.at[k].list.at);
        free(m.at[k].own.at);
    }
    free(m.at);
    free(m.of);
    free(m.points);
    free(m.room);
    return status ? status : drop_ends(traces, count, remarks);
}
