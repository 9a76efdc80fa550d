/* The per-operator profile of a run that was made with --profile. */
#include "cli/html.h"

#include <math.h>
#include "cli/amount.h"
#include "cli/escape.h"
#include "cli/profile.h"

enum { MOST_OPERATIONS = 12, MOST_LAYERS = 64 };

/* A number, or a dash where there is none. */
static void put_rate(const page *p, double x)
{
    if (x > 0)
        fprintf(p->to, "<td>%s", amount_count(x).text);
    else
        fputs("<td>-", p->to);
}

/* A share of the step, with a bar in the background that is as long as its part of the largest. */
static void put_share(const page *p, double ms, double step_ms, double most_ms)
{
    double part = most_ms > 0 && ms > 0 ? fmin(1, ms / most_ms) : 0;
    fprintf(p->to, "<td class=\"share\" style=\"--w:%.0f%%\">%s", 100 * part,
            amount_share(step_ms > 0 ? ms / step_ms : 0).text);
}

/* Of the most expensive line. */
static double most_of(const profile_table *t)
{
    double most = 0;
    for (size_t i = 0; i < t->count; i++) most = fmax(most, t->lines[i].ms);
    return most;
}

static void put_operations(const page *p, const profile *f, const profile_table *t, const char *title)
{
    fprintf(p->to,
            "<h3>%s: %s per step, %s of it</h3><div class=\"scroll\"><table><tr><th>operation<th>per "
            "step<th>share<th>"
            "calls<th>GFLOP/s<th>GB/s<th>memory<th>output</tr>",
            title, amount_ns(t->ms / f->steps * 1e6).text, amount_share(f->step_ms > 0 ? t->ms / f->step_ms : 0).text);
    for (size_t i = 0; i < t->count && i < MOST_OPERATIONS; i++) {
        const profile_line *l = &t->lines[i];
        fputs("<tr><td>", p->to);
        put_html(p->to, l->name);
        fprintf(p->to, "<td>%s", amount_ns(l->ms / f->steps * 1e6).text);
        put_share(p, l->ms, f->step_ms, most_of(t));
        fprintf(p->to, "<td>%s", amount_count(l->calls / f->steps).text);
        put_rate(p, l->ms > 0 ? l->flops / l->ms / 1e6 : 0);
        put_rate(p, l->ms > 1e-3 * l->calls ? l->bytes / l->ms / 1e6 : 0);
        fprintf(p->to, "<td>%s<td>", l->memory > 0 ? amount_bytes(l->memory).text : "-");
        put_html(p->to, l->shape);
        fputs("</tr>", p->to);
    }
    fputs("</table></div>", p->to);
}

static void put_layers(const page *p, const profile *f)
{
    fputs("<h3>Layers</h3><div class=\"scroll\"><table><tr><th>layer<th>per "
          "step<th>share<th>forward<th>backward<th>"
          "GFLOP/s<th>memory</tr>",
          p->to);
    for (size_t i = 0; i < f->layers.count && i < MOST_LAYERS; i++) {
        const profile_line *l = &f->layers.lines[i];
        fputs("<tr><td>", p->to);
        put_html(p->to, l->name);
        fprintf(p->to, "<td>%s", amount_ns(l->ms / f->steps * 1e6).text);
        put_share(p, l->ms, f->step_ms, most_of(&f->layers));
        fprintf(p->to, "<td>%s<td>%s", amount_ns((l->ms - l->backward_ms) / f->steps * 1e6).text,
                amount_ns(l->backward_ms / f->steps * 1e6).text);
        put_rate(p, l->ms > 0 ? l->flops / l->ms / 1e6 : 0);
        fprintf(p->to, "<td>%s</tr>", l->memory > 0 ? amount_bytes(l->memory).text : "-");
    }
    fputs("</table></div>", p->to);
}

void html_profile(const page *p)
{
    profile f;
    char words[300];
    if (profile_read(&f, p->run->path, 0)) return; /* made without --profile */
    if (f.peak_gflops > 0)
        snprintf(words, sizeof words,
                 "Rank 0, by self time. SGEMM reaches %s GFLOP/s here; activations took %s at most. <i>GB/s</i>: the "
                 "least that must move, each "
                 "operand and each result once.",
                 amount_count(f.peak_gflops).text, amount_bytes(f.activation_bytes).text);
    else
        snprintf(words, sizeof words, "Rank 0, by self time, as the PyTorch profiler recorded it.");
    html_card(p, "operations", "", "Operations", words);
    put_operations(p, &f, &f.forward, "Forward");
    put_operations(p, &f, &f.backward, "Backward");
    put_layers(p, &f);
    html_card_end(p);
    profile_free(&f);
}
