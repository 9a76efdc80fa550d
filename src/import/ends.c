/* When Gloo's collectives ended: which span of its threads carried out which call. Neither has a number of the other. */
#include <stdlib.h>
#include "base/status.h"
#include "import/trace.h"

/* Gloo makes a reduce-scatter of an all-reduce: the kind of the spans that carry one out. */
static int reduce_scatter_work(const ls__trace *t)
{
    for (size_t m = 0; m < t->marks.count; m++)
        if (t->marks.at[m].kind == LS__MARK_WORK && t->marks.at[m].number == LS_COLLECTIVE_REDUCE_SCATTER)
            return LS_COLLECTIVE_REDUCE_SCATTER;
    return LS_COLLECTIVE_ALLREDUCE;
}

/* Calls of one kind, and the workers' spans of that kind, in order of time. */
typedef struct pairing {
    int64_t *time;  /* [count] */
    uint32_t *call; /* [count]: index in `calls`; UINT32_MAX: a span */
    int64_t *end;   /* [count]: of a span */
    int32_t *queue; /* [count]: calls minus spans up to here */
    int32_t *least; /* [count]: the least that follows */
    size_t count;
} pairing;

static void free_pairing(pairing *p)
{
    free(p->time);
    free(p->call);
    free(p->end);
    free(p->queue);
    free(p->least);
}

static int kind_of(const ls__call *c, int instead)
{
    return c->kind == LS_COLLECTIVE_REDUCE_SCATTER ? instead : c->kind;
}

static bool list_pairing(pairing *p, const ls__trace *t, int kind, int instead, size_t most)
{
    *p = (pairing){ .time = malloc((most + 1) * sizeof *p->time),
                    .call = malloc((most + 1) * sizeof *p->call),
                    .end = malloc((most + 1) * sizeof *p->end),
                    .queue = malloc((most + 1) * sizeof *p->queue),
                    .least = malloc((most + 1) * sizeof *p->least) };
    if (!p->time || !p->call || !p->end || !p->queue || !p->least) return false;
    for (size_t i = 0, m = 0;;) {
        while (i < t->calls.count && kind_of(&t->calls.at[i], instead) != kind) i++;
        while (m < t->marks.count && (t->marks.at[m].kind != LS__MARK_WORK || t->marks.at[m].number != kind)) m++;
        bool call = i < t->calls.count && (m == t->marks.count || t->calls.at[i].begin <= t->marks.at[m].begin);
        if (!call && m == t->marks.count) break;
        int64_t time = call ? t->calls.at[i].begin : t->marks.at[m].begin;
        if (time > t->known_until) break;
        p->time[p->count] = time;
        p->end[p->count] = call ? 0 : t->marks.at[m].end;
        p->call[p->count++] = call ? (uint32_t)i : UINT32_MAX;
        if (call)
            i++;
        else
            m++;
    }
    int32_t queue = 0;
    for (size_t k = 0; k < p->count; k++) {
        if (p->call[k] != UINT32_MAX)
            queue++;
        else if (queue)
            queue--;
        p->queue[k] = queue;
    }
    for (size_t k = p->count; k-- > 0; queue = p->least[k]) p->least[k] = p->queue[k] < queue ? p->queue[k] : queue;
    return true;
}

/* Begin of the step that a time is in. */
static int64_t step_begin(const ls__trace *t, int64_t time)
{
    size_t low = 0, high = t->steps.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (t->steps.at[middle].begin <= time)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? t->steps.at[low - 1].begin : INT64_MIN;
}

/* Whether so many entries are of one step; where nothing was lost, also of two that follow each other. */
static bool is_short(const ls__trace *t, int64_t from, int64_t to)
{
    int64_t last = step_begin(t, to);
    return last <= from || (!t->damaged && step_begin(t, last - 1) <= from);
}

/* Gives the calls of entries [from, to) the ends of their spans, in order; or takes them back. */
static void pair(ls__trace *t, const pairing *p, size_t from, size_t to, bool take_back)
{
    size_t span = from;
    for (size_t k = from; k < to; k++) {
        if (p->call[k] == UINT32_MAX) continue;
        while (span < to && p->call[span] != UINT32_MAX) span++;
        if (span == to && !take_back) break;
        t->calls.at[p->call[k]].done = take_back ? 0 : p->end[span++];
    }
}

/* Where calls or spans may be missing: a file that is cut may lack those of one worker, since events are written thread by thread, and its
 * damaged parts may be anywhere. Workers take calls in order. So between two times at which none waits for a worker, calls and spans
 * belong together in order, if there are as many of each; otherwise it is not known which one is missing. A call whose span is missing
 * waits for ever: `least` shows how many of those there are. */
static bool attach_some(ls__trace *t, int kind, int instead, size_t most)
{
    pairing p;
    bool ok = list_pairing(&p, t, kind, instead, most);
    size_t from = 0, calls = 0, spans = 0, before = 0, certain = 0;
    for (size_t k = 0; k < p.count && ok; k++) {
        if (p.call[k] != UINT32_MAX) {
            calls++;
            continue;
        }
        spans++;
        if (!calls) { /* a span without a call: one before it is missing, and from there on they were paired wrongly */
            int64_t begin = step_begin(t, p.time[k]);
            while (before > certain && p.time[before - 1] >= begin) before--;
            pair(t, &p, before, k, true);
            from = before = certain = k + 1;
            spans = 0;
        } else if (p.queue[k] == p.least[k]) {
            if (calls == spans && is_short(t, p.time[from], p.time[k])) pair(t, &p, from, k + 1, false);
            before = from;
            from = k + 1;
            calls = spans = 0;
        }
    }
    if (ok && !t->damaged)
        pair(t, &p, from, p.count, false); /* the last ones were under way when the profiler stopped */
    free_pairing(&p);
    return ok;
}

/* Gives each call the worker's span that carried it out: the first of its kind that began after it, each once. */
static void attach_all(ls__trace *t, int kind, int instead)
{
    size_t m = 0;
    for (size_t i = 0; i < t->calls.count; i++) {
        ls__call *c = &t->calls.at[i];
        if (kind_of(c, instead) != kind) continue;
        while (m < t->marks.count && (t->marks.at[m].kind != LS__MARK_WORK || t->marks.at[m].number != kind ||
                                      t->marks.at[m].begin < c->begin))
            m++;
        if (m == t->marks.count) break;
        c->done = t->marks.at[m++].end;
    }
}

ls_status ls__trace_ends(ls__trace *t)
{
    int instead = reduce_scatter_work(t);
    bool ok = true;
    for (int kind = 0; kind < LS_COLLECTIVE_KINDS && ok; kind++) {
        size_t calls = 0, spans = 0, ends = 0;
        for (size_t i = 0; i < t->calls.count; i++) calls += kind_of(&t->calls.at[i], instead) == kind;
        for (size_t m = 0; m < t->marks.count; m++)
            spans += t->marks.at[m].kind == LS__MARK_WORK && t->marks.at[m].number == kind;
        if (!calls || !spans) continue;
        if (calls == spans && !t->damaged)
            attach_all(t, kind, instead);
        else
            ok = attach_some(t, kind, instead, calls + spans);
        for (size_t i = 0; i < t->calls.count; i++)
            ends += kind_of(&t->calls.at[i], instead) == kind && t->calls.at[i].done;
        t->without_end += calls - ends;
    }
    return ok ? LS_OK : ls__fail(LS_ENOMEM, "%s: no memory for its collectives", t->path);
}
