/* The verdict: how long a step takes, the first finding, its remedy and what that gains; smaller, the other figures. Then the other
 * findings. */
#include "cli/html.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "cli/amount.h"
#include "cli/escape.h"
#include "cli/findings_text.h"
#include "cli/job_figures.h"
#include "cli/profile.h"
#include "cli/report.h"
#include "cli/report_import.h"

/* ---- Findings */

/* Names of options are not broken at their hyphens. */
static void put_words(FILE *to, const char *text)
{
    char *copy = strdup(text), *rest = copy;
    for (const char *word; rest && (word = strsep(&rest, " "));) {
        bool option = !strncmp(word, "--", 2);
        if (option) fputs("<span class=\"o\">", to);
        put_html(to, word);
        fputs(option && rest ? "</span> " : option ? "</span>" : rest ? " " : "", to);
    }
    free(copy);
}

static void put_times(const page *p, double before, double after)
{
    double times = before / after;
    if (times >= 1.995)
        fprintf(p->to, "%.1f\u00d7 as fast", times);
    else
        fprintf(p->to, "%.0f%% less", fmax(1, 100 * (1 - after / before)));
}

static void put_finding(const page *p, const ls_finding *f)
{
    double step = p->run->step_mean;
    finding_text words = finding_describe(p->run, f);
    fputs("<li><b>", p->to);
    put_words(p->to, words.what);
    fputs("</b><span class=\"why\">", p->to);
    put_words(p->to, words.evidence);
    fputs("</span><span class=\"do\"><b>Change:</b> ", p->to);
    put_words(p->to, words.remedy);
    fputs("</span>", p->to);
    if (report_gains(p->run, f)) {
        fprintf(p->to, "<span class=\"then\">Expect: step %s \u2192 %s, ", amount_ns(step).text,
                amount_ns((double)f->expected).text);
        put_times(p, step, (double)f->expected);
        fputs("</span>", p->to);
    }
    fputs("</li>", p->to);
}

static void put_note(const page *p, const char *text)
{
    fputs("<li>", p->to);
    put_words(p->to, text);
    fputs("</li>", p->to);
}

/* What the verdict does not have: the first few, and the rest folded away; and notes. */
void html_findings(const page *p)
{
    enum { OPEN = 5, MOST = 24 };
    const ls_run *run = p->run;
    size_t first = run->n_steps > run->first_counted, n = run->n_findings < MOST ? run->n_findings : MOST;
    if (n > first) {
        html_card(p, "findings", "", "Other findings", "Most expensive first.");
        fputs("<ol class=\"findings\">", p->to);
        for (size_t i = first; i < n && i < first + OPEN; i++) put_finding(p, &run->findings[i]);
        fputs("</ol>", p->to);
        if (n > first + OPEN) {
            fprintf(p->to, "<details><summary>%zu more that cost less</summary><ol class=\"findings\">",
                    n - first - OPEN);
            for (size_t i = first + OPEN; i < n; i++) put_finding(p, &run->findings[i]);
            fputs("</ol></details>", p->to);
        }
        html_card_end(p);
    }
    json_t *imported = report_import_read(run->path);
    const json_t *more = json_object_get(imported, "notes"), *note;
    if (run->n_notes || json_array_size(more)) {
        size_t k;
        html_card(p, "notes", "", "Notes on the record", NULL);
        fputs("<ul class=\"notes\">", p->to);
        for (size_t i = 0; i < run->n_notes && i < 40; i++) put_note(p, note_describe(run, &run->notes[i]).text);
        json_array_foreach(more, k, note)
        {
            if (json_is_string(note)) put_note(p, printable(json_string_value(note)));
        }
        fputs("</ul>", p->to);
        html_card_end(p);
    }
    json_decref(imported);
}

/* ---- The verdict */

/* "45.2 ms": the unit smaller than the number. */
static void put_number(const page *p, const char *text)
{
    const char *unit = strchr(text, ' ');
    fprintf(p->to, "<b>%.*s", unit ? (int)(unit - text) : (int)strlen(text), text);
    if (unit) fprintf(p->to, "<small>%s</small>", unit + 1);
    fputs("</b>", p->to);
}

/* Two bars, to be compared at a glance. */
static void put_gain(const page *p, double step, double then)
{
    fprintf(p->to,
            "<div class=\"gain\"><span>now</span><div><i style=\"width:100%%\"></i><b>%s</b></div><span>expected</span>"
            "<div class=\"then\"><i style=\"width:%.1f%%\"></i><b>%s, ",
            amount_ns(step).text, 100 * then / step, amount_ns(then).text);
    put_times(p, step, then);
    fputs("</b></div></div>", p->to);
}

/* Without a finding: where the time is spent, and how to look closer. */
static void put_nothing(const page *p)
{
    const ls_run *run = p->run;
    ls_phase longest = LS_PHASE_FORWARD;
    double step = run->step_mean;
    for (int i = 0; i < LS_PHASE_COUNT; i++)
        if (ls_run_mean(run, -1, (ls_phase)i) > ls_run_mean(run, -1, longest)) longest = (ls_phase)i;
    double ns = ls_run_mean(run, -1, longest);
    fprintf(p->to, "<h2>Nothing stands out</h2><p>%s. Most of the step is %s: %s, %s of it.</p>", report_nothing(run),
            ls_phase_name(longest), amount_ns(ns).text, amount_share(step > 0 ? ns / step : 0).text);
    profile f;
    if (longest != LS_PHASE_FORWARD && longest != LS_PHASE_BACKWARD) return;
    if (!profile_read(&f, run->path, 0)) {
        profile_free(&f);
        fputs("<p class=\"do\"><b>To look closer:</b> the per-operator profile is under Operations, below.</p>", p->to);
    } else
        fputs("<p class=\"do\"><b>To look closer:</b> <span class=\"o\">lockstep train --profile</span> makes a "
              "per-operator profile.</p>",
              p->to);
}

static void put_verdict(const page *p)
{
    const ls_finding *f = p->run->n_findings ? &p->run->findings[0] : NULL;
    fputs("<div class=\"verdict\">", p->to);
    if (f) {
        finding_text words = finding_describe(p->run, f);
        fputs("<h2>", p->to);
        put_words(p->to, words.what);
        fputs("</h2><p>", p->to);
        put_words(p->to, words.evidence);
        fputs("</p><p class=\"do\"><b>Change:</b> ", p->to);
        put_words(p->to, words.remedy);
        fputs("</p>", p->to);
        if (report_gains(p->run, f)) put_gain(p, p->run->step_mean, (double)f->expected);
    } else {
        put_nothing(p);
    }
    fputs("</div>", p->to);
}

/* ---- The other figures */

__attribute__((format(printf, 4, 5))) static void put_figure(const page *p, const char *value, bool warn,
                                                             const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("<div><dt>", p->to);
    vfprintf(p->to, format, args);
    fprintf(p->to, "</dt><dd%s>%s</dd></div>", warn ? " class=\"warn\"" : "", value);
    va_end(args);
}

static void put_loss(const page *p)
{
    const metrics_line *first = NULL, *last = NULL;
    char value[32];
    for (size_t i = 0; i < p->lines.count; i++)
        if (isfinite(p->lines.lines[i].loss)) {
            if (!first) first = &p->lines.lines[i];
            last = &p->lines.lines[i];
        }
    if (!last) return;
    snprintf(value, sizeof value, "%.4g", last->loss);
    if (last == first)
        put_figure(p, value, false, "loss at step %.0f", last->step);
    else
        put_figure(p, value, false, "loss at step %.0f, from %.4g", last->step, first->loss);
}

static void put_figures(const page *p)
{
    const ls_run *run = p->run;
    fputs("<dl class=\"figures\">", p->to);
    for (int i = 0; i < n_job_figures; i++) {
        const job_figure *f = &job_figures[i];
        double x = f->page ? f->of(run) : (double)NAN;
        job_figure_text text = { .warn = false };
        if (!isfinite(x)) continue;
        f->page(run, x, &text);
        put_figure(p, text.value, text.warn, "%s", text.label);
    }
    put_loss(p);
    fputs("</dl>", p->to);
}

void html_verdict(const page *p)
{
    double step = p->run->step_mean, tokens = p->run->tokens;
    size_t n;
    const ls_run_step *steps = counted(p, &n);
    if (!(step > 0)) return;
    fputs("<section class=\"card hero\" id=\"verdict\"><div class=\"now\">", p->to);
    put_number(p, amount_ns(step).text);
    fprintf(p->to, "<span>a step</span><i>mean of steps %lld to %lld</i>", (long long)steps[0].number,
            (long long)steps[n - 1].number);
    if (tokens > 0) fprintf(p->to, "<i>%s tokens/s</i>", amount_count(tokens / step * 1e9).text);
    fputs("</div>", p->to);
    put_verdict(p);
    put_figures(p);
    fputs("</section>\n", p->to);
}
