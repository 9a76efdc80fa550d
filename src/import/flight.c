/* See flight.h.
 *
 * Within a group all ranks call the same collectives in the same order, and number them equally. So the first number that a rank
 * has not completed is where the job hangs, or its ranks part: ranks that have not called it are missing, and ranks that called
 * something else under that number are in another collective. */
#include "import/flight.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/status.h"
#include "base/text.h"

enum { LIST = 200, MOST_LINES = 8 };

/* ---- Entries. */

static int64_t integer_of(const json_t *o, const char *key, int64_t otherwise)
{
    const json_t *v = json_object_get(o, key);
    if (json_is_integer(v)) return json_integer_value(v);
    if (!json_is_string(v)) return otherwise;
    char *rest;
    long long x = strtoll(json_string_value(v), &rest, 10);
    return *rest ? otherwise : x;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static int64_t sequence_of(const json_t *entry)
{
    int64_t n = integer_of(entry, "collective_seq_id", -1);
    return n >= 0 && n < INT64_C(1) << 60 ? n : -1;
}

static const char *group_of(const json_t *entry)
{
    const json_t *g = json_object_get(entry, "process_group");
    const char *text = json_string_value(json_is_array(g) ? json_array_get(g, 0) : g);
    return text ? text : "0";
}

static const char *description_of(const json_t *entry)
{
    const json_t *g = json_object_get(entry, "process_group");
    const char *text = json_string_value(json_array_get(g, 1));
    return text ? text : "";
}

static bool is_collective(const json_t *entry)
{
    return !json_is_true(json_object_get(entry, "is_p2p"));
}

static bool is_complete(const json_t *entry)
{
    return json_is_true(json_object_get(entry, "retired")) || !strcmp(text_of(entry, "state"), "completed");
}

/* Lists of lists of numbers as text, cut to `bytes` - 1. Returns how much of it is used. */
static size_t put_sizes(const json_t *v, int depth, char *out, size_t bytes)
{
    size_t n = 0, i;
    const json_t *x;
    if (!json_is_array(v) || depth > 3)
        return (size_t)snprintf(out, bytes, json_is_integer(v) ? "%lld" : "?", (long long)json_integer_value(v));
    if (bytes > 1) out[n++] = '[';
    json_array_foreach(v, i, x)
    {
        if (n + 24 >= bytes) break;
        if (i) out[n++] = ',';
        n += put_sizes(x, depth + 1, out + n, bytes - n);
    }
    if (n + 1 < bytes) out[n++] = ']';
    if (bytes) out[n < bytes ? n : bytes - 1] = 0;
    return n;
}

/* "nccl:all_reduce [[1000]] Float" */
static void describe(const json_t *entry, char *out, size_t bytes)
{
    char sizes[200] = "";
    const json_t *list = json_object_get(entry, "input_sizes");
    if (list) put_sizes(list, 0, sizes, sizeof sizes);
    const char *type = json_string_value(json_array_get(json_object_get(entry, "input_dtypes"), 0));
    char plain[400];
    snprintf(plain, sizeof plain, "%.80s %.120s%s%.40s", text_of(entry, "profiling_name"), sizes, type ? " " : "",
             type ? type : "");
    ls__printable(out, bytes, plain);
}

/* Whether the type of what is sent is in both, and differs. Roots and others may have different lists, so the first counts. */
static bool types_differ(const json_t *a, const json_t *b)
{
    const char *x = json_string_value(json_array_get(json_object_get(a, "input_dtypes"), 0));
    const char *y = json_string_value(json_array_get(json_object_get(b, "input_dtypes"), 0));
    return x && y && strcmp(x, y);
}

static bool same_call(const json_t *a, const json_t *b)
{
    /* Collectives whose arrays have one size on all ranks. */
    static const char *const sized[] = { "all_reduce", "broadcast", "_all_gather_base", "_reduce_scatter_base" };
    const char *name = text_of(a, "profiling_name");
    char here[2000] = "", there[2000] = "";
    if (strcmp(name, text_of(b, "profiling_name")) || types_differ(a, b)) return false;
    for (size_t i = 0; i < sizeof sized / sizeof *sized; i++) {
        if (!strstr(name, sized[i])) continue;
        put_sizes(json_object_get(a, "input_sizes"), 0, here, sizeof here);
        put_sizes(json_object_get(b, "input_sizes"), 0, there, sizeof there);
        break;
    }
    return !strcmp(here, there);
}

/* The user's line that made the call. */
static void place_of(const json_t *entry, char *out, size_t bytes)
{
    size_t i;
    const json_t *frame;
    char plain[400] = "";
    json_array_foreach(json_object_get(entry, "frames"), i, frame)
    {
        const char *file = text_of(frame, "filename");
        if (!*file || strstr(file, "/torch/") || strstr(file, "torch/distributed")) continue;
        snprintf(plain, sizeof plain, "%.60s (%.200s:%lld)", text_of(frame, "name"), file,
                 (long long)integer_of(frame, "line", 0));
        break;
    }
    ls__printable(out, bytes, plain);
}

/* ---- What was called, looked up once: a job of thousands of ranks has millions of entries. */

typedef struct called {
    const json_t *entry;
    int64_t sequence; /* -1: none */
    uint32_t group;   /* index of its name; UINT32_MAX: it is not a collective */
    bool complete;
} called;

typedef struct calls { /* of a dump, in its order */
    called *at;
    size_t count;
} calls;

static bool list_calls(const json_t *dump, json_t *groups, calls *out)
{
    size_t i;
    const json_t *e, *entries = json_object_get(dump, "entries");
    out->at = calloc(json_array_size(entries) + 1, sizeof *out->at);
    if (!out->at) return false;
    json_array_foreach(entries, i, e)
    {
        called *c = &out->at[out->count];
        if (!json_is_object(e)) continue;
        *c = (called){ e, sequence_of(e), UINT32_MAX, is_complete(e) };
        if (is_collective(e)) {
            const json_t *known = json_object_get(groups, group_of(e));
            c->group = known ? (uint32_t)json_integer_value(known) : (uint32_t)json_object_size(groups);
            if (!known && json_object_set_new(groups, group_of(e), json_integer((json_int_t)c->group))) return false;
        }
        out->count++;
    }
    return true;
}

/* ---- One group. */

typedef struct member { /* what a rank has of the group */
    bool dumped, belongs;
    int64_t first, last,
        completed; /* sequence numbers; -1: none. Older ones than `first` are not in the dump any more */
} member;

static const json_t *entry_at(const calls *list, uint32_t group, int64_t sequence)
{
    for (size_t i = list->count; i-- > 0;)
        if (list->at[i].group == group && list->at[i].sequence == sequence) return list->at[i].entry;
    return NULL;
}

/* Who belongs to the group, by the first list of its ranks that a dump has; without one, the group "0" has all. Returns whether
 * that is known: dumps of Gloo have no lists. */
static bool find_members(const ls__flight *dumps, size_t count, int ranks, const char *group, member *out)
{
    const char *list = "";
    for (size_t i = 0; i < count && strlen(list) < 3; i++)
        list = text_of(json_object_get(json_object_get(dumps[i].dump, "pg_config"), group), "ranks");
    bool listed = strlen(list) >= 3, all = !listed && !strcmp(group, "0");
    for (int r = 0; r < ranks; r++) out[r] = (member){ .first = -1, .last = -1, .completed = -1, .belongs = all };
    for (const char *p = listed ? list : ""; *p;) {
        size_t digits = strspn(p, "0123456789");
        if (digits && digits < 7 && atoi(p) < ranks) out[atoi(p)].belongs = true;
        p += digits ? digits : 1;
    }
    return listed || all;
}

/* Returns whether all members are known. */
static bool look(const ls__flight *dumps, const calls *lists, size_t count, int ranks, const char *name, uint32_t group,
                 member *out)
{
    bool known = find_members(dumps, count, ranks, name, out);
    for (size_t k = 0; k < count; k++) {
        member *m = &out[dumps[k].rank];
        m->dumped = true;
        for (size_t i = 0; i < lists[k].count; i++) {
            const called *c = &lists[k].at[i];
            if (c->group != group || c->sequence < 0) continue;
            m->belongs = true;
            if (c->sequence > m->last) m->last = c->sequence;
            if (m->first < 0 || c->sequence < m->first) m->first = c->sequence;
            if (c->complete && c->sequence > m->completed) m->completed = c->sequence;
        }
        const json_t *status = json_object_get(json_object_get(dumps[k].dump, "pg_status"), name);
        int64_t done = integer_of(status, "last_completed_collective", -1);
        if (m->last >= 0 && done > m->completed && done <= m->last) m->completed = done;
        if (m->completed < m->first - 1) m->completed = m->first - 1; /* it went on to what the dump begins with */
    }
    return known;
}

static void add_rank(char *list, int rank)
{
    size_t at = strlen(list);
    if (at + 24 < LIST)
        snprintf(list + at, LIST - at, "%s%d", at ? ", " : "", rank);
    else if (strcmp(list + at - 3, "..."))
        snprintf(list + at, LIST - at, ", ...");
}

static void say(json_t *lines, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(json_t *lines, const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0) return;
    size_t i;
    const json_t *line;
    bool said = false; /* a rank may be missing from several groups */
    json_array_foreach(lines, i, line) said = said || !strcmp(json_string_value(line), text);
    if (!said) json_array_append_new(lines, json_string(text));
    free(text);
}

/* Where a rank is that others wait for. */
static void say_where(json_t *lines, const ls__flight *dumps, size_t count, int rank, const char *group)
{
    for (size_t k = 0; k < count; k++) {
        if (dumps[k].rank != rank) continue;
        const json_t *entries = json_object_get(dumps[k].dump, "entries"), *e, *last = NULL, *open = NULL;
        size_t i;
        char what[500], place[400];
        json_array_foreach(entries, i, e)
        {
            if (!last || integer_of(e, "time_created_ns", 0) >= integer_of(last, "time_created_ns", 0)) last = e;
            if (!is_complete(e)) open = e;
        }
        if (!last) {
            say(lines, "rank %d: called no collective", rank);
            return;
        }
        describe(open ? open : last, what, sizeof what);
        place_of(open ? open : last, place, sizeof place);
        if (open && !is_collective(open))
            say(lines, "rank %d: is in %s of group %s%s%s", rank, what, group_of(open), *place ? ", called from " : "",
                place);
        else if (open)
            say(lines, "rank %d: is in %s, number %lld of group %s%s%s%s", rank, what, (long long)sequence_of(open),
                group_of(open), *place ? ", called from " : "", place,
                strcmp(group_of(open), group) ? ": another group" : "");
        else
            say(lines,
                "rank %d: completed all collectives that it called; the last was %s, number %lld of group %s%s%s", rank,
                what, (long long)sequence_of(last), group_of(last), *place ? ", called from " : "", place);
        return;
    }
}

/* The first number, of the newest up to `until`, at which members differ in what they call; -1: none. What they called long before did not
 * make them hang. Each is compared with the first rank that called something under that number. */
static int64_t first_difference(const calls *lists, size_t count, uint32_t group, int64_t until)
{
    enum { NEWEST = 200 };
    const json_t *first[NEWEST] = { NULL };
    int64_t found = -1;
    for (size_t k = 0; k < count; k++)
        for (size_t i = 0; i < lists[k].count; i++) {
            const called *c = &lists[k].at[i];
            int64_t n = c->sequence;
            if (c->group != group || n < 0 || n > until || n <= until - NEWEST) continue;
            const json_t **other = &first[n % NEWEST];
            if (!*other)
                *other = c->entry;
            else if ((found < 0 || n < found) && !same_call(*other, c->entry))
                found = n;
        }
    return found;
}

/* Who called what under number n. */
static void say_difference(json_t *lines, const ls__flight *dumps, const calls *lists, size_t count, const char *name,
                           uint32_t group, int64_t n)
{
    const json_t **entry = calloc(count + 1, sizeof *entry);
    for (size_t k = 0; entry && k < count; k++) entry[k] = entry_at(&lists[k], group, n);
    for (size_t k = 0, said = 0; entry && k < count; k++) {
        const json_t *a = entry[k];
        char list[LIST] = "", what[500], place[400];
        if (!a) continue;
        if (said++ == MOST_LINES) {
            say(lines, "and more of them");
            break;
        }
        for (size_t i = k; i < count; i++) {
            if (!entry[i] || !same_call(a, entry[i])) continue;
            entry[i] = NULL;
            add_rank(list, dumps[i].rank);
        }
        describe(a, what, sizeof what);
        place_of(a, place, sizeof place);
        say(lines, "number %lld of group %s is %s on rank%s %s%s%s", (long long)n, name, what,
            strchr(list, ',') ? "s" : "", list, *place ? ", called from " : "", place);
    }
    free(entry);
}

static json_t *explain_group(const ls__flight *dumps, const calls *lists, size_t count, int ranks, const json_t *entry,
                             uint32_t group, json_t *verdict)
{
    const char *name = group_of(entry);
    member *m = calloc((size_t)ranks, sizeof *m);
    if (!m) return NULL;
    bool known = look(dumps, lists, count, ranks, name, group, m);
    int64_t hung = INT64_MAX, most = -1, done = -1, least = 0;
    for (int r = 0; r < ranks; r++) {
        if (!m[r].dumped || m[r].last < 0) continue;
        if (most < 0 || m[r].first < least) least = m[r].first;
        if (m[r].completed < m[r].last && m[r].completed + 1 < hung) hung = m[r].completed + 1;
        if (m[r].last > most) most = m[r].last;
        if (m[r].completed > done) done = m[r].completed;
    }
    for (int r = 0; r < ranks; r++) /* one that has not even called what others completed, or are in */
        if (m[r].dumped && m[r].belongs && m[r].last < most && (m[r].last < 0 ? least : m[r].last + 1) < hung)
            hung = m[r].last < 0 ? least : m[r].last + 1;
    bool hangs = hung != INT64_MAX;
    int64_t differs = first_difference(lists, count, group, hangs ? hung : most);
    char in[LIST] = "", missing[LIST] = "", through[LIST] = "";
    char shown[120];
    ls__printable(shown, sizeof shown, name);
    for (int r = 0; r < ranks && hangs; r++) {
        if (!m[r].dumped || !m[r].belongs) continue;
        add_rank(m[r].completed >= hung ? through : m[r].last >= hung ? in : missing, r);
    }
    if (differs >= 0) {
        say(verdict, "ranks of group %s (%s) called different collectives with the same number:", shown,
            description_of(entry));
        say_difference(verdict, dumps, lists, count, shown, group, differs);
    } else if (hangs) {
        const json_t *some = NULL;
        char what[500] = "a collective";
        for (size_t k = 0; k < count && !some; k++) some = entry_at(&lists[k], group, hung);
        if (some) describe(some, what, sizeof what);
        say(verdict, "group %s (%s) hangs in number %lld, %s: %s%s %s in it%s%s", shown, description_of(entry),
            (long long)hung, what,
            !*in              ? "no rank"
            : strchr(in, ',') ? "ranks "
                              : "rank ",
            in, strchr(in, ',') ? "are" : "is",
            strchr(missing, ',') ? "; missing: ranks "
            : *missing           ? "; missing: rank "
            : known              ? "; no rank that has a dump is missing"
                                 : "; the dumps do not list which other ranks belong to it",
            missing);
        if (*through) say(verdict, "rank%s %s: already completed it", strchr(through, ',') ? "s" : "", through);
    }
    int said = 0, late = 0;
    for (int r = 0; r < ranks && hangs; r++) {
        if (!m[r].dumped || !m[r].belongs || m[r].last >= hung) continue;
        if (late++ < MOST_LINES && ++said) say_where(verdict, dumps, count, r, name);
    }
    if (late > said)
        say(verdict, "and %d more are missing there: 'missing_ranks' of report --json has all", late - said);
    json_t *absent = json_array();
    for (int r = 0; r < ranks && hangs; r++)
        if (m[r].dumped && m[r].belongs && m[r].last < hung) json_array_append_new(absent, json_integer(r));
    json_t *o = json_pack("{s:s, s:s, s:I, s:I, s:s, s:s, s:o}", "group", shown, "description", description_of(entry),
                          "last_completed", (json_int_t)done, "hangs_in", (json_int_t)(hangs ? hung : -1), "in_it", in,
                          "missing", missing, "missing_ranks", absent);
    free(m);
    return o;
}

/* ---- All. */

static json_t *describe_rank(const ls__flight *f)
{
    const json_t *entries = json_object_get(f->dump, "entries"), *e, *last = NULL;
    size_t i, open = 0;
    char what[500] = "", place[400] = "";
    json_array_foreach(entries, i, e)
    {
        open += !is_complete(e);
        if (!last || integer_of(e, "time_created_ns", 0) >= integer_of(last, "time_created_ns", 0)) last = e;
    }
    if (last) {
        describe(last, what, sizeof what);
        place_of(last, place, sizeof place);
    }
    return json_pack("{s:i, s:I, s:I, s:s, s:s, s:I, s:s, s:I}", "rank", f->rank, "entries",
                     (json_int_t)json_array_size(entries), "under_way", (json_int_t)open, "last", what, "group",
                     last ? group_of(last) : "", "number", (json_int_t)sequence_of(last), "from", place, "created_ns",
                     (json_int_t)integer_of(last, "time_created_ns", 0));
}

/* Sends and receives that are under way: they have no number in common that could be compared. */
static void say_sends(json_t *lines, const ls__flight *dumps, const calls *lists, size_t count)
{
    int said = 0;
    for (size_t k = 0; k < count; k++)
        for (size_t i = 0; i < lists[k].count; i++) {
            const called *c = &lists[k].at[i];
            char what[500], place[400];
            if (c->group != UINT32_MAX || c->complete) continue;
            if (said++ == MOST_LINES) {
                say(lines, "and more sends and receives");
                return;
            }
            describe(c->entry, what, sizeof what);
            place_of(c->entry, place, sizeof place);
            say(lines, "rank %d: is in %s of group %.80s%s%s", dumps[k].rank, what, group_of(c->entry),
                *place ? ", called from " : "", place);
            break;
        }
}

json_t *ls__flight_explain(const ls__flight *dumps, size_t count, int ranks)
{
    json_t *verdict = json_array(), *groups = json_array(), *rows = json_array(), *names = json_object();
    calls *lists = calloc(count + 1, sizeof *lists);
    char absent[LIST] = "";
    bool ok = lists != NULL;
    size_t explained = 0;
    for (size_t k = 0; ok && k < count; k++) ok = list_calls(dumps[k].dump, names, &lists[k]);
    for (int r = 0, k = 0; r < ranks; r++) { /* dumps are in the order of ranks */
        while ((size_t)k < count && dumps[k].rank < r) k++;
        if ((size_t)k == count || dumps[k].rank != r) add_rank(absent, r);
    }
    for (size_t k = 0; ok && k < count; k++) {
        for (size_t i = 0; i < lists[k].count; i++) {
            const called *c = &lists[k].at[i];
            if (c->group != explained) continue; /* they were numbered in this order */
            json_array_append_new(groups, explain_group(dumps, lists, count, ranks, c->entry, c->group, verdict));
            explained++;
        }
        json_array_append_new(rows, describe_rank(&dumps[k]));
    }
    if (ok) say_sends(verdict, dumps, lists, count);
    size_t entries = 0;
    for (size_t k = 0; ok && k < count; k++) entries += lists[k].count;
    if (!entries)
        say(verdict, "the dumps have no entries, so nothing is known: the Flight Recorder was off "
                     "(TORCH_FR_BUFFER_SIZE, or TORCH_NCCL_TRACE_BUFFER_SIZE, is 0), or no collective was called");
    else if (!json_array_size(verdict))
        say(verdict, *absent
                         ? "no collective is in progress on the ranks that have a dump, and none of them is late"
                         : "no collective is in progress and no rank is late: the job does not hang in a collective");
    if (*absent)
        say(verdict,
            "no readable dump of rank%s %s: killed before it could be written, on another machine, or skipped (see the "
            "notes)",
            strchr(absent, ',') ? "s" : "", absent);
    for (size_t k = 0; lists && k < count; k++) free(lists[k].at);
    free(lists);
    json_decref(names);
    json_t *all =
        json_pack("{s:i, s:o, s:o, s:o}", "ranks_of_job", ranks, "verdict", verdict, "groups", groups, "ranks", rows);
    if (ok) return all;
    json_decref(all);
    return NULL;
}
