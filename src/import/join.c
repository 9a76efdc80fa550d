/* Which collective of one rank is which of another.
 *
 * Where a group's collectives have sequence numbers, these are used. Otherwise the n-th of the one is the n-th of the other, as
 * long as kinds and sizes agree; if they do not, the lists may begin at different places, and one shift that makes all of them
 * agree is used. Where none does, nothing is joined from the first difference on: a collective that is joined wrongly would name
 * the wrong rank. */
#include "import/join.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "base/text.h"

enum { REMARKS = 40, MAX_SHIFT = 256, LEAST = 4, UNNAMED = 2 /* key of the group of calls that name none */ };

void ls__remark(ls__remarks *r, const char *format, ...)
{
    va_list args;
    char *text = NULL;
    if (r->count >= REMARKS) {
        r->left_out++;
        return;
    }
    char **more = reallocarray(r->text, r->count + 1, sizeof *more);
    if (!more) return;
    r->text = more;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0) return;
    for (size_t i = 0; i < r->count; i++)
        if (!strcmp(r->text[i], text)) { /* said already */
            free(text);
            return;
        }
    r->text[r->count] = ls__printable_copy(text, (size_t)n);
    free(text);
    if (r->text[r->count]) r->count++;
}

void ls__remarks_free(ls__remarks *r)
{
    for (size_t i = 0; i < r->count; i++) free(r->text[i]);
    free(r->text);
    *r = (ls__remarks){ 0 };
}

/* ---- Groups. */

/* Calls that name no group are one list: their order is all that there is. They are of all ranks, unless there are other groups.
 * The list is the same on all ranks, whether a rank's trace has a distributedInfo or not. */
static ls_status name_groups(ls__trace *t, int ranks)
{
    uint32_t several = 0, members = 0;
    bool needed = false;
    for (size_t i = 0; i < t->calls.count; i++) needed = needed || t->calls.at[i].group == UINT32_MAX;
    if (!needed) return LS_OK;
    for (uint32_t i = 0; i < t->groups.count; i++) {
        several += t->groups.at[i].count > 1;
        if (t->groups.at[i].count == (uint32_t)ranks) members = (uint32_t)ranks;
    }
    ls__trace_group g = { .name = strdup(several > 1 ? "unknown" : "0"), .count = members, .key = UNNAMED };
    if (!g.name || !LS__ADD(&t->groups, g)) {
        free(g.name);
        return ls__fail(LS_ENOMEM, "%s: out of memory", t->path);
    }
    for (size_t i = 0; i < t->calls.count; i++)
        if (t->calls.at[i].group == UINT32_MAX) t->calls.at[i].group = (uint32_t)t->groups.count - 1;
    return LS_OK;
}

/* ---- A group's collectives on one rank. */

typedef struct list {
    ls__trace *trace;
    uint32_t *calls; /* indices */
    size_t count;
    bool numbered; /* each has a sequence number */
} list;

static int by_number(const void *a, const void *b, void *user)
{
    const ls__call *calls = user, *x = &calls[*(const uint32_t *)a], *y = &calls[*(const uint32_t *)b];
    if (x->sequence != y->sequence) return x->sequence > y->sequence ? 1 : -1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static ls_status make_list(list *l, ls__trace *t, uint64_t key)
{
    *l = (list){ .trace = t, .numbered = true };
    size_t group = 0;
    while (group < t->groups.count && t->groups.at[group].key != key) group++;
    if (group == t->groups.count) return LS_OK; /* a job of many ranks has many groups, and each rank is in few */
    for (size_t i = 0; i < t->calls.count; i++) l->count += !t->calls.at[i].sends && t->calls.at[i].group == group;
    l->calls = malloc((l->count + 1) * sizeof *l->calls);
    if (!l->calls) return ls__fail(LS_ENOMEM, "%s: out of memory", t->path);
    l->count = 0;
    for (size_t i = 0; i < t->calls.count; i++) {
        const ls__call *c = &t->calls.at[i];
        if (c->sends || c->group != group) continue;
        l->calls[l->count++] = (uint32_t)i;
        l->numbered = l->numbered && c->sequence >= 0;
    }
    if (l->numbered && l->count) qsort_r(l->calls, l->count, sizeof *l->calls, by_number, t->calls.at);
    return LS_OK;
}

static ls__call *call_of(const list *l, size_t i)
{
    return &l->trace->calls.at[l->calls[i]];
}

static bool agree(const ls__call *a, const ls__call *b)
{
    if (a->kind != b->kind) return false;
    bool same_size =
        a->kind == LS_COLLECTIVE_ALLREDUCE || a->kind == LS_COLLECTIVE_BROADCAST || a->kind == LS_COLLECTIVE_REDUCE;
    return !same_size || !a->bytes || !b->bytes || a->bytes == b->bytes;
}

static void describe(const ls__call *c, char out[64])
{
    snprintf(out, 64, "%s of %lld bytes", ls_collective_name(c->kind), (long long)c->bytes);
}

/* How many agree from the start of the overlap on if b[i + shift] is a[i]. */
static size_t agreeing(const list *a, const list *b, ptrdiff_t shift, size_t *overlap)
{
    size_t first = shift < 0 ? (size_t)-shift : 0, n = 0;
    bool all = true;
    *overlap = 0;
    for (size_t i = first; i < a->count && i + (size_t)shift < b->count; i++, ++*overlap) {
        all = all && agree(call_of(a, i), call_of(b, (size_t)((ptrdiff_t)i + shift)));
        n += all;
    }
    return n;
}

/* The calls of a list that begin in a step. Both are in order, and *at, where to look on, is moved. */
static size_t calls_of_step(const list *l, const ls__trace_interval *step, size_t *at)
{
    size_t n = 0;
    while (*at < l->count && call_of(l, *at)->begin < step->begin) ++*at;
    while (*at + n < l->count && call_of(l, *at + n)->begin < step->end) n++;
    return n;
}

/* By order within each step. Where events of a rank are lost, collectives of its trace may be, too: from there on each would be joined with
 * the one before. A step in which they are as many on both ranks, of the same kinds and sizes, has lost none. */
static void join_by_step(const list *a, list *b, const char *group, ls__remarks *remarks)
{
    const ls__trace *s = a->trace, *t = b->trace;
    size_t at = 0, bt = 0, joined = 0, least = a->count < b->count ? a->count : b->count;
    bool numbered = !s->own_steps && !s->one_step && !t->own_steps && !t->one_step;
    for (size_t i = 0, k = 0; i < s->steps.count && numbered; i++) {
        while (k < t->steps.count && t->step_numbers.at[k] < s->step_numbers.at[i]) k++;
        if (k == t->steps.count || t->step_numbers.at[k] != s->step_numbers.at[i]) continue;
        size_t n = calls_of_step(a, &s->steps.at[i], &at);
        bool same = n == calls_of_step(b, &t->steps.at[k], &bt);
        for (size_t c = 0; c < n && same; c++) same = agree(call_of(a, at + c), call_of(b, bt + c));
        for (size_t c = 0; c < n && same; c++, joined++) {
            ls__call *x = call_of(a, at + c), *y = call_of(b, bt + c);
            x->joined = y->joined = true;
            x->number = y->number = at + c;
        }
    }
    if (joined < least)
        ls__remark(
            remarks,
            "group %s: events are missing in the trace of rank %d, and collectives have no sequence numbers: %zu "
            "of %zu are not joined, since %s",
            group, t->skipped ? t->rank : s->rank, least - joined, least,
            numbered ? "some of their steps' are missing, or they are in no step"
                     : "which step they are in is not known without ProfilerStep#N");
}

/* By order. The first list's collectives have their indices as numbers, or what they got. */
static void join_by_order(const list *a, list *b, const char *group, ls__remarks *remarks)
{
    size_t overlap, n = agreeing(a, b, 0, &overlap);
    ptrdiff_t shift = 0, found = 0;
    int fits = 0;
    if (n < overlap)
        for (ptrdiff_t s = -MAX_SHIFT; s <= MAX_SHIFT; s++) {
            size_t m = agreeing(a, b, s, &overlap);
            if (m < overlap || overlap < LEAST || 2 * overlap < (a->count < b->count ? a->count : b->count)) continue;
            fits++;
            found = s;
        }
    if (fits == 1) {
        shift = found;
        n = agreeing(a, b, shift, &overlap);
        ls__remark(remarks,
                   "rank %d begins %lld collectives %s rank %d in group %s, according to their kinds and sizes",
                   b->trace->rank, (long long)(shift < 0 ? -shift : shift), shift < 0 ? "after" : "before",
                   a->trace->rank, group);
    } else if (n < agreeing(a, b, 0, &overlap) || n < overlap) {
        char here[64], there[64];
        agreeing(a, b, 0, &overlap);
        if (n < overlap) {
            describe(call_of(a, n), here);
            describe(call_of(b, n), there);
            ls__remark(
                remarks,
                "group %s: collective %zu is %s on rank %d, but %s on rank %d; from there on they are not joined",
                group, n + 1, here, a->trace->rank, there, b->trace->rank);
        }
    }
    size_t first = shift < 0 ? (size_t)-shift : 0;
    for (size_t k = 0; k < n; k++) {
        size_t i = first + k;
        ls__call *x = call_of(a, i), *y = call_of(b, (size_t)((ptrdiff_t)i + shift));
        x->joined = y->joined = true;
        x->number = i;
        y->number = i;
    }
}

/* Sequence numbers; several collectives may share one. */
static void join_by_number(list *l)
{
    int64_t last = -1;
    uint64_t same = 0;
    for (size_t i = 0; i < l->count; i++) {
        ls__call *c = call_of(l, i);
        same = c->sequence == last ? same + 1 : 0;
        last = c->sequence;
        c->number = ((uint64_t)c->sequence << 8 | (same & 255)) & (UINT64_MAX >> 16);
        c->joined = true;
    }
}

static void compare_numbered(const list *a, const list *b, const char *group, ls__remarks *remarks)
{
    size_t k = 0, wrong = 0, first = 0, both = 0;
    for (size_t i = 0; i < a->count; i++) {
        const ls__call *x = call_of(a, i);
        while (k < b->count && call_of(b, k)->number < x->number) k++;
        if (k == b->count) break;
        ls__call *y = call_of(b, k);
        if (y->number != x->number) continue;
        both++;
        if (agree(x, y)) continue;
        if (!wrong++) first = i;
        y->joined = false;
    }
    if (wrong) {
        char here[64];
        describe(call_of(a, first), here);
        ls__remark(
            remarks,
            "group %s: %zu of %zu collectives differ in kind or size between rank %d and rank %d, the first with "
            "sequence number %lld, which is %s on rank %d; they are not joined",
            group, wrong, both, a->trace->rank, b->trace->rank, (long long)call_of(a, first)->sequence, here,
            a->trace->rank);
    }
}

/* All collectives of one group. */
static ls_status join_group(ls__trace **traces, size_t count, uint64_t key, const char *name, ls__remarks *remarks)
{
    list *lists = calloc(count, sizeof *lists);
    ls_status status = lists ? LS_OK : ls__fail(LS_ENOMEM, "out of memory");
    bool numbered = true;
    size_t first = count;
    for (size_t i = 0; i < count && !status; i++) {
        status = make_list(&lists[i], traces[i], key);
        if (status || !lists[i].count) continue;
        if (first == count) first = i;
        numbered = numbered && lists[i].numbered;
    }
    for (size_t i = first; i < count && !status && numbered; i++) join_by_number(&lists[i]);
    for (size_t i = first + 1; i < count && !status; i++) {
        if (!lists[i].count) continue;
        if (numbered)
            compare_numbered(&lists[first], &lists[i], name, remarks);
        else if (lists[first].trace->skipped || lists[i].trace->skipped)
            join_by_step(&lists[first], &lists[i], name, remarks);
        else
            join_by_order(&lists[first], &lists[i], name, remarks);
    }
    if (!numbered && !status && first < count && count == 1)
        for (size_t i = 0; i < lists[first].count; i++) call_of(&lists[first], i)->number = i;
    for (size_t i = 0; lists && i < count; i++) free(lists[i].calls);
    free(lists);
    return status;
}

/* Whether there are several groups, some of them of some ranks, and calls do not name theirs. Gloo's do not, and where two groups make the
 * same calls, their order does not tell them apart. */
static bool is_ambiguous(ls__trace **traces, size_t count, int ranks)
{
    bool some = false, several = false, unnamed = false;
    uint64_t first = 0;
    for (size_t i = 0; i < count; i++) {
        const ls__trace *t = traces[i];
        for (size_t g = 0; g < t->groups.count; g++) {
            if (t->groups.at[g].count < 2) continue;
            if (!first) first = t->groups.at[g].key;
            several = several || t->groups.at[g].key != first;
            some = some || t->groups.at[g].count < (uint32_t)ranks;
        }
        for (size_t k = 0; k < t->calls.count; k++)
            unnamed = unnamed || (t->calls.at[k].group == UINT32_MAX && !t->calls.at[k].sends);
    }
    return some && several && unnamed && count > 1;
}

ls_status ls__join(ls__trace **traces, size_t count, int ranks, ls__remarks *remarks)
{
    ls_status status = LS_OK;
    uint64_t sends = 0;
    bool ambiguous = is_ambiguous(traces, count, ranks);
    if (ambiguous)
        ls__remark(remarks,
                   "the job has groups of some of its ranks, and its traces do not show which group a collective is "
                   "of (Gloo's do not): these collectives are not joined, so who waited for whom is not known");
    for (size_t i = 0; i < count && !status; i++) status = name_groups(traces[i], ranks);
    for (size_t i = 0; i < count && !status; i++) {
        const ls__trace *t = traces[i];
        for (size_t g = 0; g < t->groups.count && !status; g++) {
            bool seen = ambiguous && t->groups.at[g].key == UNNAMED;
            for (size_t k = 0; k < i && !seen; k++)
                for (size_t h = 0; h < traces[k]->groups.count && !seen; h++)
                    seen = traces[k]->groups.at[h].key == t->groups.at[g].key;
            if (!seen) status = join_group(traces, count, t->groups.at[g].key, t->groups.at[g].name, remarks);
        }
        for (size_t k = 0; k < t->calls.count; k++) sends += t->calls.at[k].sends;
    }
    if (sends)
        ls__remark(remarks, "%llu sends and receives between two ranks are not part of the waits below",
                   (unsigned long long)sends);
    return status;
}
