/* One step as it happened: what each rank did, and its buckets below, so that overlap is what lies below backward. */
#include "cli/html.h"

#include <math.h>
#include <stdlib.h>
#include "cli/amount.h"
#include "cli/chart.h"

enum { MOST_RANKS = 8, MOST_LANES = 6, LANE = 9, ROW = 24 };

static int by_length(const void *a, const void *b)
{
    const ls_run_step *x = *(const ls_run_step *const *)a, *y = *(const ls_run_step *const *)b;
    int64_t p = x->end - x->begin, q = y->end - y->begin;
    return (p > q) - (p < q);
}

/* The step of median length: neither the best nor the worst. NULL: there is none, or memory ended. */
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
    out = order[n / 2];
    free(order);
    return out;
}

/* Places of the step's bucket slices of one rank, so that none lies over another. */
typedef struct placed {
    const ls_meeting *meeting;
    int lane;
} placed;

static int64_t bar_begin(const ls_meeting *m, int rank)
{
    return m->ready[rank] && m->ready[rank] < m->arrival[rank] ? m->ready[rank] : m->arrival[rank];
}

/* Returns the number of lanes; *count slices in *out, which the caller frees. */
static int place(const ls_run *run, const ls_run_step *s, int rank, placed **out, size_t *count)
{
    int64_t ends[MOST_LANES];
    int lanes = 0;
    *count = 0;
    *out = calloc(run->n_meetings + 1, sizeof **out);
    for (size_t i = 0; *out && i < run->n_meetings; i++) {
        const ls_meeting *m = &run->meetings[i];
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

static void draw_pieces(const page *p, const chart *c, const ls_run_step *s, int rank, double y)
{
    const ls_run_rank *r = &p->run->rank[rank];
    const ls_step_rank *mine = &s->rank[rank];
    size_t low = 0, high = r->n_pieces;
    while (low < high) { /* the first piece that begins behind the step's begin */
        size_t middle = (low + high) / 2;
        if (r->pieces[middle].begin <= mine->begin)
            low = middle + 1;
        else
            high = middle;
    }
    double drawn = -1;
    for (size_t i = low ? low - 1 : 0; i + 1 < r->n_pieces && r->pieces[i].begin < mine->end;) {
        size_t next = i + 1;
        /* Short pieces between two of the same phase would be specks: they are drawn with it. */
        while (next + 1 < r->n_pieces && r->pieces[next].phase == r->pieces[i].phase) next++;
        int64_t from = r->pieces[i].begin > mine->begin ? r->pieces[i].begin : mine->begin;
        int64_t to = r->pieces[next].begin < mine->end ? r->pieces[next].begin : mine->end;
        const char *name = ls_phase_name(r->pieces[i].phase);
        double x = chart_x(c, (double)(from - s->begin) / 1e6), end = chart_x(c, (double)(to - s->begin) / 1e6);
        char tip[160];
        snprintf(tip, sizeof tip, "rank %d: %s\n%s, from %s on", rank, name, amount_ns((double)(to - from)).text,
                 amount_ns((double)(from - s->begin)).text);
        if (end - x >= 0.3) { /* what is narrower goes to the next one */
            if (drawn >= 0 && x - drawn < 1) x = drawn;
            chart_rect(c, x, y, end - x, ROW, name, tip);
            drawn = end;
        }
        i = next;
    }
}

static void draw_bucket(const chart *c, const ls_run_step *s, int rank, const ls_meeting *m, double y)
{
    int64_t begin = bar_begin(m, rank), arrival = m->arrival[rank], done = m->done[rank];
    int64_t met = m->last_arrival < arrival ? arrival : m->last_arrival > done ? done : m->last_arrival;
    const struct {
        const char *name;
        int64_t from, to;
    } parts[] = { { "queue", begin, arrival }, { "waiting", arrival, met }, { "communication", met, done } };
    char tip[320];
    snprintf(tip, sizeof tip,
             "rank %d: bucket %d, %s\nfull at %s, started at %s\nall ranks there at %s (last: rank %d)\nsummed at %s",
             rank, m->bucket, amount_bytes((double)m->bytes).text, amount_ns((double)(begin - s->begin)).text,
             amount_ns((double)(arrival - s->begin)).text, amount_ns((double)(met - s->begin)).text, m->last_rank,
             amount_ns((double)(done - s->begin)).text);
    for (int i = 0; i < 3; i++) {
        double x = chart_x(c, (double)(parts[i].from - s->begin) / 1e6),
               w = chart_x(c, (double)(parts[i].to - s->begin) / 1e6) - x;
        if (i == 2 && w < 1.5) w = 1.5; /* a sum is always to be seen */
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
    if (!s) return;
    for (int r = 0; r < run->ranks && n < MOST_RANKS; r++) {
        if (!s->rank[r].present) continue;
        ranks[n] = r;
        lanes[n] = place(run, s, r, &slices[n], &counts[n]);
        height += ROW + 4 + LANE * lanes[n] + 12;
        n++;
    }
    chart c = { .to = p->to, .width = width, .height = height + 40, .left = 54, .right = 12, .top = 4, .bottom = 40 };
    c.x1 = (double)(s->end - s->begin) / 1e6;
    chart_open(&c, "One step: phases of each rank, and its buckets below");
    double y = 4;
    for (int i = 0; i < n; i++) {
        char text[32];
        snprintf(text, sizeof text, "rank %d", ranks[i]);
        chart_text(&c, c.left - 8, y + 16, "end", "ink", text);
        draw_pieces(p, &c, s, ranks[i], y);
        y += ROW + 4;
        for (size_t k = 0; k < counts[i]; k++)
            draw_bucket(&c, s, ranks[i], slices[i][k].meeting, y + LANE * slices[i][k].lane);
        if (lanes[i]) chart_text(&c, c.left - 8, y + 7.5, "end", "unit", "buckets");
        y += LANE * lanes[i] + 12;
        free(slices[i]);
    }
    chart_axis_x(&c, "milliseconds since the step began", tick_plain);
    chart_close(&c);
}

void html_timeline(const page *p)
{
    static const char *const more[] = { "queue", "bucket full, not yet started", NULL, NULL };
    char words[400];
    const ls_run_step *s = typical_step(p);
    if (!s) return;
    snprintf(words, sizeof words,
             "Step %lld, the one of median length. Below each rank are its buckets of gradients: what lies below "
             "backward is hidden, "
             "what lies below waiting or communication is not.%s",
             (long long)s->number,
             p->run->ranks > MOST_RANKS ? " The first eight ranks are shown; lockstep trace has all." : "");
    html_card(p, "timeline", "", "One step, bucket by bucket", words);
    html_legend(p, more);
    html_chart(p, false, draw_timeline);
    html_card_end(p);
}
