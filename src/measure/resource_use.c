/* How each rank uses its cores: means of a step, threads, power, and which rank is used more or less than the others.
 *
 * Threads, energy and memory are sampled once per second (record/counters.c), all at one time. Their shares are taken between two
 * such times that cover the counted steps as well as they can. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "record/event_file.h"
#include "base/status.h"
#include "measure/limits.h"
#include "measure/model.h"
#include "measure/stats.h"

typedef struct window {
    int64_t begin, end;
} window;

/* The kind of a sample of something that there may be several of. */
static bool is_sample(const ls_event *e, ls_sample_kind kind)
{
    return e->kind == LS_EVENT_SAMPLE && (kind == LS_SAMPLE_THREAD ? (e->a & 0xff) == kind : e->a == kind);
}

/* Two times at which `kind` was sampled, with most of the counted steps between them. */
static bool find_window(const ls_run *run, const ls_run_rank *r, ls_sample_kind kind, window *w)
{
    const ls_step_rank *first = &run->steps[run->first_counted].rank[r->rank],
                       *last = &run->steps[run->n_steps - 1].rank[r->rank];
    int64_t before = INT64_MIN, after = INT64_MIN, end = INT64_MIN;
    for (size_t i = 0; i < r->n_events; i++) {
        const ls_event *e = &r->events[i];
        if (!is_sample(e, kind)) continue;
        if (e->time <= first->begin || before == INT64_MIN) before = e->time;
        if (e->time >= first->begin && after == INT64_MIN) after = e->time;
        end = e->time;
    }
    if (end == INT64_MIN || end <= before) return false;
    bool enough = after != INT64_MIN && (double)(end - after) >= 0.8 * (double)(last->end - first->begin);
    *w = (window){ .begin = enough && end > after ? after : before, .end = end };
    return true;
}

/* What a counter rose by from the window's begin to its end; < 0: not known. */
static double rise_of(const ls_run_rank *r, ls_sample_kind kind, window w)
{
    double begin = NAN, end = NAN;
    for (size_t i = 0; i < r->n_events; i++) {
        const ls_event *e = &r->events[i];
        if (!is_sample(e, kind)) continue;
        if (e->time == w.begin) begin = (double)e->b;
        if (e->time == w.end) end = (double)e->b;
    }
    return end >= begin ? end - begin : -1;
}

/* ---- Threads. */

static void name_thread(const ls_run_rank *r, size_t row, ls_run_thread *t)
{
    const char *name = row < r->n_thread_names ? r->thread_names[row] : NULL;
    if (name && *name)
        snprintf(t->name, sizeof t->name, "%s", name);
    else
        snprintf(t->name, sizeof t->name, "thread %zu", row);
    for (char *c = t->name; *c; c++)
        if ((unsigned char)*c > 126) *c = '?'; /* a cut character is not text */
}

/* A row that was not there yet at the window's begin had used nothing until then. */
static ls_status list_threads(const ls_run *run, ls_run_rank *r)
{
    window w;
    if (!find_window(run, r, LS_SAMPLE_THREAD, &w)) return LS_OK;
    size_t rows = 0;
    for (size_t i = 0; i < r->n_events; i++)
        if (is_sample(&r->events[i], LS_SAMPLE_THREAD) && r->events[i].time == w.end &&
            r->events[i].a >> 8 < LS__MOST_THREADS && r->events[i].a >> 8 >= rows)
            rows = (size_t)(r->events[i].a >> 8) + 1;
    if (!rows) return LS_OK; /* nothing but what no recorder writes */
    r->thread = calloc(rows + 1, sizeof *r->thread);
    if (!r->thread) return ls__fail(LS_ENOMEM, "%s: no memory for %zu threads", run->path, rows);
    double sum = 0, over = (double)(w.end - w.begin), all = rise_of(r, LS_SAMPLE_CPU, w);
    for (size_t i = 0; i < r->n_events; i++) {
        const ls_event *e = &r->events[i];
        if (!is_sample(e, LS_SAMPLE_THREAD) || e->a >> 8 >= rows) continue;
        if (e->time == w.end) r->thread[e->a >> 8].cpu += (double)e->b;
        if (e->time == w.begin) r->thread[e->a >> 8].cpu -= (double)e->b;
    }
    for (size_t i = 0; i < rows; i++) {
        r->thread[i].cpu = fmax(0, r->thread[i].cpu);
        r->thread[i].share = r->thread[i].cpu / over;
        sum += r->thread[i].cpu;
        name_thread(r, i, &r->thread[i]);
    }
    r->n_thread = rows;
    if (all - sum > 0.005 * over)
        r->thread[r->n_thread++] = (ls_run_thread){ .cpu = all - sum, .share = (all - sum) / over };
    return LS_OK;
}

/* ---- Means of a step. */

static double busy_of(const ls_run *run, const ls_step_rank *s)
{
    double sum = (double)ls__sched_delay_in_calls(run, s);
    for (int p = 0; p < LS_PHASE_COUNT; p++)
        if (p != LS_PHASE_WAIT && p != LS_PHASE_COMM) sum += (double)(s->ns[p] - s->off_cpu[p]);
    return sum;
}

static void add_step(const ls_run *run, ls_resource_use *u, const ls_step_rank *s)
{
    u->wall += (double)(s->end - s->begin);
    u->busy += busy_of(run, s);
    u->wait += (double)s->ns[LS_PHASE_WAIT];
    if (s->cpu > 0) u->cpu += (double)s->cpu;
    for (int p = 0; p < LS_PHASE_COUNT; p++) {
        u->steal += (double)s->steal[p];
        if (p == LS_PHASE_WAIT || p == LS_PHASE_COMM) continue;
        u->off_cpu += (double)s->off_cpu[p];
    }
    u->sched_delay += (double)ls__sched_delay(run, s);
    u->voluntary += (double)s->voluntary;
    u->involuntary += (double)s->involuntary;
    u->minor += (double)s->minor;
    u->major += (double)s->major;
    u->read_bytes += (double)s->read_bytes;
}

static void sum_steps(const ls_run *run, ls_run_rank *r)
{
    ls_resource_use u = { .mfu = NAN, .watts = NAN };
    double n = 0;
    for (size_t i = run->first_counted; i < run->n_steps; i++)
        if (run->steps[i].rank[r->rank].present) add_step(run, &u, &run->steps[i].rank[r->rank]), n++;
    double *const means[] = { &u.wall,  &u.cpu,       &u.busy,        &u.wait,  &u.off_cpu, &u.sched_delay,
                              &u.steal, &u.voluntary, &u.involuntary, &u.minor, &u.major,   &u.read_bytes };
    for (size_t i = 0; i < sizeof means / sizeof *means && n > 0; i++) *means[i] /= n;
    for (size_t i = 0; i < r->n_events; i++)
        if (is_sample(&r->events[i], LS_SAMPLE_RESIDENT)) u.resident = fmax(u.resident, (double)r->events[i].b);
    r->use = u;
}

/* SGEMM was measured on each rank. Where ranks share cores they slowed each other down, so the best of those on the same cores counts. */
static double sgemm_rate(const ls_run *run, const ls_run_rank *r)
{
    double best = NAN;
    for (int k = 0; k < run->ranks; k++) {
        const ls_run_rank *x = &run->rank[k];
        if (!x->present || x->node != r->node || strcmp(x->cores, r->cores) != 0) continue;
        double threads = x->metadata[LS_METADATA_THREADS], own = r->metadata[LS_METADATA_THREADS];
        if (threads != own && !(isnan(threads) && isnan(own))) continue;
        best = fmax(best, x->metadata[LS_METADATA_PEAK]);
    }
    return best;
}

static void find_power(const ls_run *run, ls_run_rank *r)
{
    window w;
    if (!find_window(run, r, LS_SAMPLE_ENERGY, &w)) return;
    double microjoules = rise_of(r, LS_SAMPLE_ENERGY, w);
    if (microjoules >= 0) r->use.watts = microjoules * 1e3 / (double)(w.end - w.begin);
}

/* ---- Ranks compared. */

static void judge(const ls_run *run, ls_run_rank *r, const double *medians, double step)
{
    double n = 0, sum = 0, squares = 0;
    for (size_t i = run->first_counted; i < run->n_steps; i++) {
        const ls_step_rank *s = &run->steps[i].rank[r->rank];
        if (!s->present) continue;
        double d = busy_of(run, s) - medians[i - run->first_counted];
        n++;
        sum += d;
        squares += d * d;
        r->use.median_busy += medians[i - run->first_counted];
    }
    if (n > 0) r->use.median_busy /= n;
    if (n < 4) return;
    double d = sum / n, error = sqrt(fmax(0, squares / n - d * d) / (n - 1));
    if (fabs(d) < LS__UNEVEN_SHARE * step || fabs(d) < LS__UNEVEN_ERRORS * error) return;
    r->use.level = d > 0 ? LS_USE_OVER : LS_USE_UNDER;
}

/* With the median of each step, which one outlier does not move. */
static ls_status compare(ls_run *run)
{
    size_t steps = run->n_steps - run->first_counted;
    double *medians = calloc(steps, sizeof *medians), *all = calloc((size_t)run->ranks, sizeof *all);
    ls_status status = medians && all ? LS_OK : ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    for (size_t i = 0; i < steps && !status; i++) {
        size_t n = 0;
        for (int r = 0; r < run->ranks; r++) {
            const ls_step_rank *s = &run->steps[run->first_counted + i].rank[r];
            if (s->present) all[n++] = busy_of(run, s);
        }
        if (n) medians[i] = ls__median(all, n);
    }
    double step = run->step_mean;
    for (int r = 0; r < run->ranks && !status; r++)
        if (run->rank[r].present) judge(run, &run->rank[r], medians, step);
    free(medians);
    free(all);
    return status;
}

ls_status ls__run_use(ls_run *run)
{
    ls_status status = LS_OK;
    if (run->n_steps <= run->first_counted) return LS_OK;
    for (int k = 0; k < run->ranks && !status; k++) {
        ls_run_rank *r = &run->rank[k];
        if (!r->present) continue;
        sum_steps(run, r);
        r->use.mfu = r->metadata[LS_METADATA_FLOPS] / r->use.wall / sgemm_rate(run, r);
        if (!isfinite(r->use.mfu) || r->use.mfu <= 0) r->use.mfu = NAN;
        find_power(run, r);
        status = list_threads(run, r);
    }
    return status ? status : compare(run);
}
