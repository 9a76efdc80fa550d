/* One step as it happened: what each rank did, and its buckets below, so that overlap is what is below backward. Hatched:
 * unscheduled. */
#include "cli/html.h"

#include <math.h>
#include <stdlib.h>
#include "cli/amount.h"
#include "cli/chart.h"
#include "cli/report.h"

enum { MOST_RANKS = 8, MOST_LANES = 6, LANE = 9, ROW = 24 };

static int by_length(const void *a, const void *b)
{
    const ls_run_step *x = *(const ls_run_step *const *)a, *y = *(const ls_run_step *const *)b;
    int64_t p = x->end - x->begin, q = y->end - y->begin;
    return (p > q) - (p < q);
}

/* The step of median length: neither the best nor the worst. NULL: there is none, or out of memory. */
static const ls_run_step *typical_step(const page *p)
{
    size_t n;
    const ls_run_step *steps = counted(p, &n), *out;
    const ls_run_step **order = calloc(n + 1, sizeof *order);
    if (!order || !n) {
        free(order);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) order[i] = &steps[i];
    qsort(order, n, sizeof *order, by_length);
    out = order[(n - 1) / 2];
    free(order);
    return out;
}

/* Places of the step's bucket slices of one rank, so that they do not overlap. */
typedef struct placed {
    const ls_run_collective *collective;
    int lane;
} placed;

static int64_t bar_begin(const ls_run_collective *m, int rank)
{
    return m->ready[rank] && m->ready[rank] < m->arrival[rank] ? m->ready[rank] : m->arrival[rank];
}

/* Returns the number of lanes; *count slices in *out, which the caller frees. */
static int place(const ls_run *run, const ls_run_step *s, int rank, placed **out, size_t *count)
{
    int64_t ends[MOST_LANES];
    int lanes = 0;
    *count = 0;
    *out = calloc(run->n_collectives + 1, sizeof **out);
    for (size_t i = 0; *out && i < run->n_collectives; i++) {
        const ls_run_collective *m = &run->collectives[i];
        if (m->step != s->number || m->bucket < 0 || !m->arrival[rank] || m->done[rank] < m->arrival[rank]) continue;
        int lane = 0;
        while (lane < lanes && ends[lane] > bar_begin(m, rank)) lane++;
        if (lane == MOST_LANES) continue;
        if (lane == lanes) lanes++;
        ends[lane] = m->done[rank];
        (*out)[(*count)++] = (placed){ m, lane };
    }
    return lanes;
}

static void draw_intervals(const page *p, const chart *c, const ls_run_step *s, int rank, double y, double unit)
{
    const ls_run_rank *r = &p->run->rank[rank];
    const ls_step_rank *mine = &s->rank[rank];
    size_t low = 0, high = r->n_intervals;
    while (low < high) { /* the first interval that begins after the start of the step */
        size_t middle = (low + high) / 2;
        if (r->intervals[middle].begin <= mine->begin)
            low = middle + 1;
        else
            high = middle;
    }
    double drawn = -1;
    for (size_t i = low ? low - 1 : 0; i + 1 < r->n_intervals && r->intervals[i].begin < mine->end;) {
        size_t next = i + 1;
        /* Short intervals between two of the same phase would be specks: they are drawn with it. */
        while (next + 1 < r->n_intervals && r->intervals[next].phase == r->intervals[i].phase) next++;
        int64_t from = r->intervals[i].begin > mine->begin ? r->intervals[i].begin : mine->begin;
        int64_t to = r->intervals[next].begin < mine->end ? r->intervals[next].begin : mine->end;
        const char *name = ls_phase_name(r->intervals[i].phase);
        double x = chart_x(c, (double)(from - s->begin) / unit), end = chart_x(c, (double)(to - s->begin) / unit),
               lost = 0;
        for (size_t k = i; k < next; k++) lost += (double)(r->intervals[k].sched_delay + r->intervals[k].steal);
        lost = fmin(lost, (double)(to - from));
        char tip[200], letter[2] = { report_letter(r->intervals[i].phase), 0 };
        int n = snprintf(tip, sizeof tip, "rank %d: %s\n%s, from %s on", rank, name,
                         amount_ns((double)(to - from)).text, amount_ns((double)(from - s->begin)).text);
        if (lost >= 0.01 * (double)(to - from))
            snprintf(tip + n, sizeof tip - (size_t)n, "\nof it unscheduled: %s", amount_ns(lost).text);
        if (end - x >= 0.3 &&
            report_has_phase(p->run, r->intervals[i].phase)) { /* what is narrower is drawn with the next one */
            if (drawn >= 0 && x - drawn < 1) x = drawn;
            double part = (end - x) * lost / (double)(to - from);
            chart_rect(c, x, y, end - x, ROW, name, tip);
            chart_hatch(c, end - part, y, part, ROW);
            chart_label(c, x, y, end - x, ROW, name, (const char *const[]){ name, letter, NULL });
            drawn = end;
        }
        i = next;
    }
}

static void draw_bucket(const chart *c, const ls_run_step *s, int rank, const ls_run_collective *m, double y,
                        double unit)
{
    int64_t begin = bar_begin(m, rank), arrival = m->arrival[rank], done = m->done[rank];
    int64_t all_arrived = m->last_arrival < arrival ? arrival : m->last_arrival > done ? done : m->last_arrival;
    const struct {
        const char *name;
        int64_t from, to;
    } parts[] = { { "queue", begin, arrival },
                  { "waiting", arrival, all_arrived },
                  { "communication", all_arrived, done } };
    char tip[320];
    snprintf(tip, sizeof tip,
             "rank %d: bucket %d, %s\nfull at %s, started at %s\nall ranks arrived at %s (last: rank %d)\nsummed at %s",
             rank, m->bucket, amount_bytes((double)m->bytes).text, amount_ns((double)(begin - s->begin)).text,
             amount_ns((double)(arrival - s->begin)).text, amount_ns((double)(all_arrived - s->begin)).text,
             m->last_rank, amount_ns((double)(done - s->begin)).text);
    for (int i = 0; i < 3; i++) {
        double x = chart_x(c, (double)(parts[i].from - s->begin) / unit),
               w = chart_x(c, (double)(parts[i].to - s->begin) / unit) - x;
        if (i == 2 && w < 1.5) w = 1.5; /* keep every sum visible */
        if (w > 0.1) chart_rect(c, x, y, w, LANE - 2, parts[i].name, tip);
    }
}

static void draw_timeline(const page *p, double width)
{
    const ls_run *run = p->run;
    const ls_run_step *s = typical_step(p);
    placed *slices[MOST_RANKS] = { 0 };
    size_t counts[MOST_RANKS];
    int lanes[MOST_RANKS], ranks[MOST_RANKS], n = 0;
    double height = 4;
    char title[48];
    if (!s) return;
    for (int r = 0; r < run->ranks && n < MOST_RANKS; r++) {
        if (!s->rank[r].present) continue;
        ranks[n] = r;
        lanes[n] = place(run, s, r, &slices[n], &counts[n]);
        if (run->ranks < 2) lanes[n] = 0, counts[n] = 0; /* one rank does not communicate */
        height += ROW + 4 + LANE * lanes[n] + 12;
        n++;
    }
    chart c = { .to = p->to, .width = width, .height = height + 40, .left = 54, .right = 12, .top = 4, .bottom = 40 };
    time_unit unit = time_unit_of((double)(s->end - s->begin));
    c.x1 = (double)(s->end - s->begin) / unit.ns;
    chart_open(&c, run->ranks > 1 ? "One step: phases of each rank, and its buckets below" : "One step: its phases");
    double y = 4;
    for (int i = 0; i < n; i++) {
        char text[32];
        snprintf(text, sizeof text, "rank %d", ranks[i]);
        chart_text(&c, c.left - 8, y + 16, "end", "ink", text);
        draw_intervals(p, &c, s, ranks[i], y, unit.ns);
        y += ROW + 4;
        for (size_t k = 0; k < counts[i]; k++)
            draw_bucket(&c, s, ranks[i], slices[i][k].collective, y + LANE * slices[i][k].lane, unit.ns);
        if (lanes[i]) chart_text(&c, c.left - 8, y + 7.5, "end", "unit", "buckets");
        y += LANE * lanes[i] + 12;
        free(slices[i]);
    }
    snprintf(title, sizeof title, "time since the step began (%s)", unit.name);
    chart_axis_x(&c, title, tick_plain);
    chart_close(&c);
}

void html_timeline(const page *p)
{
    const char *more[5] = { NULL };
    char words[480];
    int n = 0;
    bool alone = p->run->ranks < 2, hatched = html_has_unscheduled(p->run);
    const ls_run_step *s = typical_step(p);
    if (!s) return;
    if (hatched) more[n++] = "hatch", more[n++] = html_unscheduled_words;
    if (!alone) more[n++] = "queue", more[n++] = "bucket full, not yet started";
    snprintf(words, sizeof words, "Step %lld, which has the median length.%s%s%s", (long long)s->number,
             alone ? ""
                   : " Below each rank are its gradient buckets: what is below backward is overlapped, what is below "
                     "waiting or communication is exposed.",
             hatched ? " Hatching shows how much of an interval was unscheduled, not when." : "",
             report_recorded(p->run) > MOST_RANKS ? " The first eight ranks are shown; lockstep trace has all." : "");
    html_card(p, "timeline", "", alone ? "One step as it happened" : "One step, bucket by bucket", words);
    html_legend(p, NULL, more);
    html_chart(p, false, draw_timeline);
    html_card_end(p);
}
