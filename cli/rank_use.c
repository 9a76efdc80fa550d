/* See rank_use.h. The numbers are lockstep/measure.h's. */
#include "cli/rank_use.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/text.h"
#include "record/energy.h"
#include "record/ring.h"
#include "cli/amount.h"
#include "measure/limits.h"

enum { MOST_NAMED = 6, MOST_APART = 4 };

/* ---- Verdicts. */

typedef struct group { /* of ranks with the same verdict */
    int count, first;
    double low, high; /* of the share that it is based on */
    char ranks[80];
} group;

static void join(group *g, int rank, double share)
{
    if (!g->count) g->first = rank, g->low = g->high = share;
    g->low = fmin(g->low, share);
    g->high = fmax(g->high, share);
    if (g->count++ < MOST_NAMED) ls__append(g->ranks, sizeof g->ranks, "%s%d", g->count > 1 ? ", " : "", rank);
}

/* "rank 3 is", "ranks 0, 1, 2 are" or "all ranks are". */
static void put_ranks(char *out, const group *g, int of, const char *one, const char *many)
{
    if (g->count > 2 && g->count == of) {
        ls__append(out, DEVICE_TEXT, "all ranks %s", many);
        return;
    }
    ls__append(out, DEVICE_TEXT, "rank%s %s", g->count > 1 ? "s" : "", g->ranks);
    if (g->count > MOST_NAMED) ls__append(out, DEVICE_TEXT, " and %d more", g->count - MOST_NAMED);
    ls__append(out, DEVICE_TEXT, " %s", g->count > 1 ? many : one);
}

/* "60% to 66%", or "63%" */
static void put_range(char *out, const group *g)
{
    amount low = amount_share(g->low), high = amount_share(g->high);
    ls__append(out, DEVICE_TEXT, "%s", low.text);
    if (strcmp(low.text, high.text) != 0) ls__append(out, DEVICE_TEXT, " to %s", high.text);
}

static char *new_line(device_lines *out)
{
    char *line = out->line[out->count < DEVICE_LINES ? out->count++ : DEVICE_LINES - 1];
    *line = 0;
    return line;
}

const char *device_verdict(ls_use_level level)
{
    return level == LS_USE_OVER ? "busier" : level == LS_USE_UNDER ? "less busy" : "";
}

static void say_uneven(device_lines *out, const group *g, int of, ls_use_level level, double median)
{
    if (!g->count) return;
    char *line = new_line(out);
    put_ranks(line, g, of, "is", "are");
    ls__append(line, DEVICE_TEXT, " %s than the median: ", device_verdict(level));
    put_range(line, g);
    ls__append(line, DEVICE_TEXT, " of a step, the median %s", amount_share(median).text);
}

static void say_queued(device_lines *out, const ls_run *run, const group *g, int of)
{
    if (!g->count) return;
    const ls_run_rank *r = &run->rank[g->first];
    double threads = r->metadata[LS_METADATA_THREADS];
    char *line = new_line(out);
    put_ranks(line, g, of, "was runnable but not scheduled for ", "were runnable but not scheduled for ");
    put_range(line, g);
    ls__append(line, DEVICE_TEXT, " of a step");
    if (threads > r->threads && r->threads > 0)
        ls__append(line, DEVICE_TEXT, ": %.0f threads compute on %d core%s", threads, r->threads,
                   r->threads == 1 ? "" : "s");
    else
        ls__append(line, DEVICE_TEXT, ": other programs or other ranks use %s cores", g->count > 1 ? "their" : "its");
}

void device_verdicts(const ls_run *run, device_lines *out)
{
    group all = { 0 }, under = { 0 }, over = { 0 }, queued = { 0 };
    double median = 0, wall = 0; /* shares of one step: of ranks that do not wait for each other, the longest */
    out->count = 0;
    for (int k = 0; k < run->ranks; k++)
        if (run->rank[k].present) wall = fmax(wall, run->rank[k].use.wall);
    for (int k = 0; k < run->ranks; k++) {
        const ls_resource_use *u = &run->rank[k].use;
        if (!run->rank[k].present || !(u->wall > 0)) continue;
        join(&all, k, u->busy / wall);
        median += u->median_busy / wall;
        if (u->level == LS_USE_OVER) join(&over, k, u->busy / wall);
        if (u->level == LS_USE_UNDER) join(&under, k, u->busy / wall);
        if (u->sched_delay > LS__CONTENTION_SHARE * u->wall) join(&queued, k, u->sched_delay / u->wall);
    }
    if (!all.count) return;
    median /= all.count;
    say_uneven(out, &over, all.count, LS_USE_OVER, median);
    say_uneven(out, &under, all.count, LS_USE_UNDER, median);
    if (!over.count && !under.count) {
        char *line = new_line(out);
        bool apart = all.high - all.low > 0.1;
        /* Ranks that are not scheduled are equally busy, but it would be wrong to call that even. */
        ls__append(line, DEVICE_TEXT, "%s",
                   all.count < 2  ? "its main thread is busy for "
                   : queued.count ? "ranks are busy for "
                   : apart        ? "no rank is always busier or less busy than the median: they are busy for "
                                  : "no rank is busier or less busy than the median: they are busy for ");
        put_range(line, &all);
        ls__append(line, DEVICE_TEXT, " of a step");
    }
    say_queued(out, run, &queued, all.count);
}

/* ---- Threads. */

static const struct role {
    const char *prefix, *one, *many;
} roles[DEVICE_ROLES] = {
    { "main", "main", "main" },           { "ls-compute-", "computing thread", "computing threads" },
    { "ls-load-", "loader", "loaders" },  { "ls-checkpoint", "checkpoint writer", "checkpoint writers" },
    { "ls-stage", "staging", "staging" }, { "ls-text", "text reader", "text readers" },
};
int device_role(const char *name)
{
    for (int i = 0; i < DEVICE_ROLES; i++)
        if (strncmp(name, roles[i].prefix, strlen(roles[i].prefix)) == 0 && (i || !name[4])) return i;
    return DEVICE_ROLES;
}

const char *device_thread_role(const char *name)
{
    int role = device_role(name);
    return role < DEVICE_ROLES ? roles[role].one : *name ? name : "others";
}

static bool is_like(const ls_run_thread *a, const ls_run_thread *b)
{
    int role = device_role(a->name);
    return role == device_role(b->name) && (role < DEVICE_ROLES || strcmp(a->name, b->name) == 0);
}

/* Threads that are like the one at `first`: how many there are, and their shares: "88% 90%", "85% to 91%", "0% each". */
static int put_shares(const ls_run_rank *r, size_t first, char *out)
{
    int count = 0;
    double low = INFINITY, high = 0;
    for (size_t i = first; i < r->n_thread; i++)
        if (is_like(&r->thread[i], &r->thread[first])) {
            count++;
            low = fmin(low, r->thread[i].share);
            high = fmax(high, r->thread[i].share);
        }
    amount least = amount_share(low), most = amount_share(high);
    *out = 0;
    if (count > 1 && strcmp(least.text, most.text) == 0) {
        ls__append(out, DEVICE_TEXT, "%s each", most.text);
    } else if (count > MOST_APART) {
        ls__append(out, DEVICE_TEXT, "%s to %s", least.text, most.text);
    } else {
        for (size_t i = first; i < r->n_thread; i++)
            if (is_like(&r->thread[i], &r->thread[first]))
                ls__append(out, DEVICE_TEXT, "%s%s", *out ? " " : "", amount_share(r->thread[i].share).text);
    }
    return count;
}

void device_role_text(const ls_run_rank *r, int role, bool named, char out[DEVICE_TEXT])
{
    char shares[DEVICE_TEXT];
    *out = 0;
    for (size_t i = 0; i < r->n_thread; i++) {
        const char *name = r->thread[i].name;
        size_t first = 0;
        if (device_role(name) != role) continue;
        while (!is_like(&r->thread[first], &r->thread[i])) first++;
        if (first < i) continue;
        int count = put_shares(r, i, shares);
        if (*out) ls__append(out, DEVICE_TEXT, ", ");
        if (count > 1) ls__append(out, DEVICE_TEXT, named || role == DEVICE_ROLES ? "%d " : "%d: ", count);
        if (role == DEVICE_ROLES)
            ls__append(out, DEVICE_TEXT, "%s ", device_thread_role(name));
        else if (named)
            ls__append(out, DEVICE_TEXT, "%s ", count > 1 ? roles[role].many : roles[role].one);
        ls__append(out, DEVICE_TEXT, "%s", shares);
    }
}

const char *device_role_name(int role)
{
    return role < DEVICE_ROLES ? roles[role].one : "others";
}

void device_threads(const ls_run_rank *r, char out[DEVICE_TEXT])
{
    char text[DEVICE_TEXT];
    *out = 0;
    for (int role = 0; role <= DEVICE_ROLES; role++) {
        device_role_text(r, role, true, text);
        if (*text) ls__append(out, DEVICE_TEXT, "%s%s", *out ? ", " : "", text);
    }
}

/* ---- Power. */

int device_next_machine(const ls_run *run, int r)
{
    for (; r < run->ranks; r++) {
        int k = 0;
        if (!run->rank[r].present) continue;
        while (k < r && (!run->rank[k].present || run->rank[k].node != run->rank[r].node)) k++;
        if (k == r) return r;
    }
    return -1;
}

bool device_power(const ls_run *run, int r, char *out, size_t bytes)
{
    double access = run->rank[r].metadata[LS_METADATA_ENERGY], watts = run->rank[r].use.watts;
    if (isfinite(watts) && run->rank[r].use.wall > 0) {
        double joules = watts * run->step_mean / 1e9, tokens = run->rank[r].metadata[LS_METADATA_TOKENS];
        snprintf(out, bytes, "%.1f W, %.3g J per step", watts, joules);
        if (tokens > 0 && joules > 0 && device_next_machine(run, r + 1) < 0 && run->rank[r].node == 0)
            ls__append(out, bytes, ", %.3g tokens per joule", tokens / joules);
    } else if (access == LS__ENERGY_NONE) {
        snprintf(out, bytes, "not exposed by this kernel");
    } else if (access == LS__ENERGY_FORBIDDEN) {
        snprintf(out, bytes, "exposed by the kernel, but this user may not read it (/sys/class/powercap/*/energy_uj)");
    } else {
        snprintf(out, bytes, "not recorded");
        return false;
    }
    return true;
}
