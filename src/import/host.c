/* The host's steps and phases, and how long it was blocked in collectives.
 *
 * PyTorch marks some phases (the loader's next, DDP's forward, the optimizer's step), and the operators show the rest: backward
 * reaches from autograd's first operator to its last, with the wait for gradients after it; what a thread does between its data and
 * backward is forward. Python's own time between the marks stays "other". */
#include <stdlib.h>
#include <string.h>
#include "base/arith.h"
#include "base/status.h"
#include "import/trace.h"

static ls_status no_memory(const ls__trace *t)
{
    return ls__fail(LS_ENOMEM, "%s: no memory for its phases", t->path);
}

#define BY_BEGIN(type)                                             \
    const type *x = a, *y = b;                                     \
    if (x->begin != y->begin) return x->begin > y->begin ? 1 : -1; \
    return (x->end < y->end) - (x->end > y->end)

static int mark_order(const void *a, const void *b)
{
    BY_BEGIN(ls__mark);
}

static int busy_order(const void *a, const void *b)
{
    BY_BEGIN(ls__busy);
}

static int call_order(const void *a, const void *b)
{
    BY_BEGIN(ls__call);
}

static int interval_order(const void *a, const void *b)
{
    BY_BEGIN(ls__trace_interval);
}

#define SORT(list, order) ls__sort_nearly((list)->at, (list)->count, sizeof *(list)->at, order)

/* ---- The thread that makes the steps. */

static void find_main_thread(ls__trace *t)
{
    static const uint8_t kinds[] = { LS__MARK_STEP, LS__MARK_OPTIMIZER, LS__MARK_FORWARD, LS__MARK_DATA };
    for (size_t k = 0; k < sizeof kinds; k++)
        for (size_t i = 0; i < t->marks.count; i++)
            if (t->marks.at[i].kind == kinds[k]) {
                t->main_thread = t->marks.at[i].thread;
                return;
            }
    t->main_thread = t->busiest_thread; /* none is marked */
}

/* Those of one thread, or of all (UINT32_MAX). */
static ls_status unpack(ls__trace *t, ls__deltas *packed, uint32_t thread, ls__busy **out, size_t *count)
{
    ls__busy *at = reallocarray(NULL, packed->count + 1, sizeof *at); /* what is not used stays untouched */
    size_t n = 0;
    int64_t f[LS__DELTAS_FIELDS];
    if (!at) return no_memory(t);
    while (ls__deltas_take(packed, f))
        if (thread == UINT32_MAX || (uint32_t)f[2] == thread)
            at[n++] = (ls__busy){ f[0], f[0] + f[1], (uint32_t)f[2], f[3] != 0 };
    *out = at;
    *count = n;
    return LS_OK;
}

/* ---- Steps. */

static bool add_step(ls__trace *t, int64_t number, int64_t begin, int64_t end)
{
    return LS__ADD(&t->steps, (ls__trace_interval){ begin, end, 0 }) && LS__ADD(&t->step_numbers, number);
}

static int64_t first_on_main(const ls__trace *t)
{
    int64_t first = t->last;
    for (size_t i = 0; i < t->busy.count; i++)
        if (t->busy.at[i].thread == t->main_thread) first = ls__min(first, t->busy.at[i].begin);
    for (size_t i = 0; i < t->marks.count; i++)
        if (t->marks.at[i].thread == t->main_thread) first = ls__min(first, t->marks.at[i].begin);
    return first;
}

/* A file that was cut in the events of the main thread has the whole length of its last step, but not what is in it. */
static void drop_cut_steps(ls__trace *t)
{
    if (t->known_until == INT64_MAX || t->last_thread != t->main_thread) return;
    while (t->steps.count > 1 && t->steps.at[t->steps.count - 1].end > t->known_until) {
        t->steps.count--;
        t->step_numbers.count--;
    }
}

static ls_status find_steps(ls__trace *t)
{
    bool ok = true;
    for (size_t i = 0; i < t->marks.count && ok; i++) {
        const ls__mark *m = &t->marks.at[i];
        if (m->kind != LS__MARK_STEP || m->thread != t->main_thread) continue;
        size_t n = t->steps.count;
        if (n && m->number <= t->step_numbers.at[n - 1]) continue;
        ok = add_step(t, m->number, m->begin, m->end);
    }
    if (!ok) return no_memory(t);
    if (t->steps.count) {
        drop_cut_steps(t);
        return LS_OK;
    }
    /* The optimizer's: where there are several, the first one's. */
    int64_t begin = first_on_main(t), name = -1;
    for (size_t i = 0; i < t->marks.count && ok; i++) {
        const ls__mark *m = &t->marks.at[i];
        if (m->kind != LS__MARK_OPTIMIZER || m->thread != t->main_thread) continue;
        if (name < 0) name = m->number;
        if (m->number != name || m->end <= begin) continue;
        ok = add_step(t, (int64_t)t->steps.count + 1, begin, m->end);
        begin = m->end;
    }
    t->own_steps = t->steps.count > 0;
    if (ok && !t->steps.count) {
        t->one_step = true;
        ok = add_step(t, 1, t->first, ls__max(t->last, t->first + 1));
    }
    return ok ? LS_OK : no_memory(t);
}

/* ---- Phases. */

static bool is_phase(const ls__trace *t, const ls__mark *m)
{
    return m->thread == t->main_thread && m->kind >= LS__MARK_DATA && m->kind <= LS__MARK_ZERO_GRAD;
}

static ls_phase phase_of(const ls__mark *m)
{
    return m->kind == LS__MARK_DATA ? LS_PHASE_DATA : m->kind == LS__MARK_FORWARD ? LS_PHASE_FORWARD : LS_PHASE_UPDATE;
}

/* From autograd's first operator to its last before a marked phase begins, and to the end of the collectives called within. */
static ls_status find_backward(ls__trace *t)
{
    size_t mark = 0, call = 0, before = t->intervals.count;
    for (size_t i = 0; i < t->backward.count; i++) {
        const ls__busy *b = &t->backward.at[i];
        ls__trace_interval *p = t->intervals.count > before ? &t->intervals.at[t->intervals.count - 1] : NULL;
        while (mark < t->marks.count && t->marks.at[mark].begin < b->begin) {
            if (p && is_phase(t, &t->marks.at[mark]) && t->marks.at[mark].begin >= p->end) p = NULL;
            mark++;
        }
        if (p)
            p->end = ls__max(p->end, b->end);
        else if (!LS__ADD(&t->intervals, (ls__trace_interval){ b->begin, b->end, LS_PHASE_BACKWARD }))
            return no_memory(t);
    }
    mark = 0;
    for (size_t i = before; i < t->intervals.count; i++) {
        ls__trace_interval *p = &t->intervals.at[i];
        int64_t limit = i + 1 < t->intervals.count ? t->intervals.at[i + 1].begin : INT64_MAX, end = p->end;
        while (mark < t->marks.count && (t->marks.at[mark].begin < p->end || !is_phase(t, &t->marks.at[mark]))) mark++;
        if (mark < t->marks.count) limit = ls__min(limit, t->marks.at[mark].begin);
        while (call < t->calls.count && t->calls.at[call].arrived < p->begin) call++;
        for (; call < t->calls.count && t->calls.at[call].arrived < p->end; call++) {
            t->calls.at[call].in_backward = true;
            end = ls__max(end, ls__min(t->calls.at[call].done, limit));
        }
        p->end = end;
    }
    return LS_OK;
}

/* Forward ends where backward begins. It begins with its mark, or with the first operator after the phase before. */
static ls_status find_forward(ls__trace *t, size_t first, size_t last)
{
    size_t mark = 0, busy = 0;
    int64_t before = INT64_MIN;
    for (size_t i = first; i < last; i++) {
        int64_t until = t->intervals.at[i].begin, begin = INT64_MAX;
        bool marked = false;
        for (; mark < t->marks.count && t->marks.at[mark].begin < until; mark++) {
            const ls__mark *m = &t->marks.at[mark];
            if (!is_phase(t, m)) continue;
            if (m->kind != LS__MARK_FORWARD) {
                before = ls__max(before, m->end);
                marked = false;
            } else if (!marked) {
                marked = true;
                begin = m->begin;
            }
        }
        if (!marked) {
            while (busy < t->busy.count &&
                   (t->busy.at[busy].begin < before || t->busy.at[busy].thread != t->main_thread))
                busy++;
            if (busy < t->busy.count) begin = t->busy.at[busy].begin;
        }
        if (begin < until && begin >= before &&
            !LS__ADD(&t->intervals, (ls__trace_interval){ begin, until, LS_PHASE_FORWARD }))
            return no_memory(t);
        before = t->intervals.at[i].end;
    }
    return LS_OK;
}

/* Phases one after the other: marks count before what was concluded, and what begins first before what begins within it. */
static void flatten(ls__trace *t)
{
    size_t n = 0;
    int64_t until = INT64_MIN;
    for (size_t i = 0; i < t->intervals.count; i++) {
        ls__trace_interval p = t->intervals.at[i];
        p.begin = ls__max(p.begin, until);
        if (p.end <= p.begin) continue;
        until = p.end;
        t->intervals.at[n++] = p;
    }
    t->intervals.count = n;
}

static ls_status find_phases(ls__trace *t)
{
    ls_status status = find_backward(t);
    size_t backward = t->intervals.count;
    if (!status) status = find_forward(t, 0, backward);
    if (status) return status;
    size_t concluded = t->intervals.count;
    SORT(&t->intervals, interval_order);
    /* A marked forward without backward: evaluation, or a step that was cut. */
    size_t k = 0;
    for (size_t i = 0; i < t->marks.count; i++) {
        const ls__mark *m = &t->marks.at[i];
        if (!is_phase(t, m)) continue;
        while (k < concluded && t->intervals.at[k].end <= m->begin) k++;
        bool inside = k < concluded && t->intervals.at[k].begin <= m->begin && t->intervals.at[k].end >= m->end;
        if (inside && (phase_of(m) == LS_PHASE_FORWARD || t->intervals.at[k].phase == LS_PHASE_BACKWARD)) continue;
        if (!LS__ADD(&t->intervals, (ls__trace_interval){ m->begin, m->end, (uint8_t)phase_of(m) }))
            return no_memory(t);
    }
    SORT(&t->intervals, interval_order);
    flatten(t);
    return LS_OK;
}

/* How often backward follows forward in a step: gradients of several micro-batches may be added up. The first and the last step may be cut.
 * 0: steps differ, or data are not loaded as often: then it may be something else, such as several models. */
static int count_micro_batches(const ls__trace *t)
{
    size_t n = t->steps.count, first = n > 2, last = n > 2 ? n - 1 : n, k = 0;
    int found = -1;
    for (size_t i = first; i < last; i++) {
        int passes = 0, loads = 0;
        uint8_t before = LS_PHASE_BACKWARD;
        while (k < t->intervals.count && t->intervals.at[k].begin < t->steps.at[i].begin) k++;
        for (; k < t->intervals.count && t->intervals.at[k].begin < t->steps.at[i].end; k++) {
            uint8_t phase = t->intervals.at[k].phase;
            loads += phase == LS_PHASE_DATA;
            passes += phase == LS_PHASE_BACKWARD && before == LS_PHASE_FORWARD;
            if (phase == LS_PHASE_FORWARD || phase == LS_PHASE_BACKWARD) before = phase;
        }
        if ((found >= 0 && passes != found) || (passes > 1 && loads && loads != passes)) return 0;
        found = passes;
    }
    return found > 0 ? found : 0;
}

ls_phase ls__trace_phase_at(const ls__trace *t, int64_t time)
{
    size_t low = 0, high = t->intervals.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (t->intervals.at[middle].begin <= time)
            low = middle + 1;
        else
            high = middle;
    }
    return low && time < t->intervals.at[low - 1].end ? (ls_phase)t->intervals.at[low - 1].phase : LS_PHASE_OTHER;
}

/* ---- Collectives that the host carries out. */

/* Index after the last entry that begins before `time`. */
static size_t behind(const ls__busy *list, size_t count, int64_t time)
{
    size_t low = 0;
    while (low < count) {
        size_t middle = (low + count) / 2;
        if (list[middle].begin < time)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

/* The thread's last entry that begins before `time`. */
static const ls__busy *last_before(const ls__busy *list, size_t count, uint32_t thread, int64_t time)
{
    enum { FAR = 4096 }; /* entries of other threads in between */
    size_t at = behind(list, count, time);
    for (size_t k = at; k-- > 0 && at - k < FAR;)
        if (list[k].thread == thread) return &list[k];
    return NULL;
}

/* Whether the time from `gap` on, in which the calling thread runs no operator, is a wait for collectives: it follows a call; or it is
 * after autograd's last function, where DDP waits for its buckets. */
static bool waits(const ls__trace *t, const ls__busy *before, int64_t gap)
{
    if (before->calls) return true;
    if (ls__trace_phase_at(t, gap) != LS_PHASE_BACKWARD) return false;
    const ls__busy *b = last_before(t->backward.at, t->backward.count, before->thread, gap + 1);
    return b && b->end <= gap + 1000;
}

/* A worker's span may end after its caller went on: it was not scheduled in between, and then its end is not the collective's. If
 * the caller did nothing for most of the time from `from` until shortly before that end, the collective was done when it went on. */
static int64_t end_of_wait(const ls__trace *t, const ls__call *c, int64_t from)
{
    enum { FAR = 4096, CLEAR = 4 };
    size_t at = behind(t->busy.at, t->busy.count, c->done);
    int64_t next = 0, longest = 0, found = c->done;
    for (size_t k = at; k-- > 0 && at - k < FAR && next >= (next ? from : 0) && t->busy.at[k].begin >= c->begin;) {
        const ls__busy *b = &t->busy.at[k];
        if (b->thread != c->thread) continue;
        if (next) {
            /* It went on with the autograd function that the operator is in, and had ended the one before. */
            const ls__busy *f = last_before(t->backward.at, t->backward.count, c->thread, next);
            if (f && f->end > next && f->begin > b->end) {
                next = f->begin;
                f = last_before(t->backward.at, t->backward.count, c->thread, next);
            }
            int64_t idle = next - ls__max(ls__max(b->end, from), f ? ls__min(f->end, next) : b->end);
            if (idle > longest) longest = idle, found = next;
        }
        next = b->begin;
    }
    return longest > CLEAR * (c->done - found) ? found : c->done;
}

static ls_status find_waits(ls__trace *t)
{
    int64_t until = INT64_MIN;
    for (size_t i = 0; i < t->calls.count; i++) {
        ls__call *c = &t->calls.at[i];
        if (!c->done || c->thread != t->main_thread) continue;
        c->done = end_of_wait(t, c, until);
        const ls__busy *b = last_before(t->busy.at, t->busy.count, c->thread, c->done);
        if (!b || b->end >= c->done) continue;
        int64_t begin = ls__max(ls__max(b->end, c->arrived), until);
        /* An autograd function ends some microseconds after the last operator in it. */
        const ls__busy *f = last_before(t->backward.at, t->backward.count, c->thread, c->done);
        if (f && f->end < c->done && !b->calls) begin = ls__max(begin, f->end);
        if (begin >= c->done || !waits(t, b, begin)) continue;
        until = c->done;
        c->blocked = c->done - begin;
        if (!LS__ADD(&t->waits, (ls__trace_wait){ begin, c->done, (uint32_t)i })) return no_memory(t);
    }
    return LS_OK;
}

static int wait_order(const void *a, const void *b)
{
    BY_BEGIN(ls__trace_wait);
}

ls_status ls__trace_host(ls__trace *t)
{
    SORT(&t->marks, mark_order);
    find_main_thread(t);
    ls_status status = unpack(t, &t->packed_busy, t->main_thread, &t->busy.at, &t->busy.count);
    if (!status) status = unpack(t, &t->packed_backward, UINT32_MAX, &t->backward.at, &t->backward.count);
    SORT(&t->busy, busy_order);
    SORT(&t->backward, busy_order);
    if (!t->calls.count) { /* c10d's operators, where the trace has nothing better */
        free(t->calls.at);
        t->calls.at = t->c10d.at;
        t->calls.count = t->c10d.count;
        t->calls.room = t->c10d.room;
        t->c10d.at = NULL;
        t->c10d.count = t->c10d.room = 0;
    }
    SORT(&t->calls, call_order);
    for (size_t i = 0; i < t->calls.count; i++) t->calls.at[i].arrived = t->calls.at[i].begin;
    bool device = t->packed_kernels.count > 0;
    if (!status) status = find_steps(t);
    if (!status && !device) status = ls__trace_ends(t);
    if (!status) status = find_phases(t);
    if (!status) t->micro_batches = count_micro_batches(t);
    if (!status && !device) status = find_waits(t);
    SORT(&t->waits, wait_order);
    /* Steps and phases were found by these alone. */
    free(t->busy.at);
    free(t->backward.at);
    free(t->marks.at);
    t->busy.at = t->backward.at = NULL;
    t->marks.at = NULL;
    t->busy.count = t->backward.count = t->marks.count = t->marks.room = 0;
    return status;
}
