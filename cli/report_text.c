/* The report for a terminal: a page that is read in a minute. Findings come first behind the picture of a step; tables follow for
 * who wants to know. */
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include "base/ring.h"
#include "cli/report.h"

enum { MAX_SHOWN = 16, TEXTS = 8 };

/* Order in the bar, a letter each, and a colour of the terminal. */
static const struct look {
    ls_phase phase;
    char letter;
    const char *color;
} looks[] = {
    { LS_PHASE_DATA, 'd', "33" },   { LS_PHASE_FORWARD, 'f', "32" },    { LS_PHASE_BACKWARD, 'b', "34" },
    { LS_PHASE_UPDATE, 'u', "35" }, { LS_PHASE_COMM, 'c', "36" },       { LS_PHASE_WAIT, 'w', "31" },
    { LS_PHASE_EVAL, 'e', "37" },   { LS_PHASE_CHECKPOINT, 'k', "37" }, { LS_PHASE_OTHER, '.', "90" },
};
enum { LOOKS = sizeof looks / sizeof *looks };

static char *next_text(void)
{
    static _Thread_local char texts[TEXTS][32];
    static _Thread_local int at;
    return texts[at++ % TEXTS];
}

const char *report_time(double ns)
{
    char *out = next_text();
    double ms = ns / 1e6;
    if (fabs(ms) >= 10000)
        snprintf(out, 32, "%.1f s", ms / 1e3);
    else if (fabs(ms) >= 100)
        snprintf(out, 32, "%.0f ms", ms);
    else if (fabs(ms) >= 1)
        snprintf(out, 32, "%.1f ms", ms);
    else
        snprintf(out, 32, "%.0f us", ns / 1e3);
    return out;
}

const char *report_bytes(double bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    char *out = next_text();
    int unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++) bytes /= 1024;
    snprintf(out, 32, unit && bytes < 100 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return out;
}

static void head(const report_form *f, const char *text)
{
    fprintf(f->to, f->color ? "\n\033[1m%s\033[0m\n" : "\n%s\n", text);
}

static bool is_counted(const ls_run *run)
{
    return run->n_steps > run->n_warm;
}

static double total(const ls_run *run, int rank)
{
    double sum = 0;
    for (int p = 0; p < LS_PHASES; p++) sum += ls_run_mean(run, rank, (ls_phase)p);
    return sum;
}

/* ---- The step as a bar. */

static void bar(const ls_run *run, int rank, int width, double longest, const report_form *f)
{
    double until = 0;
    int at = 0;
    for (int i = 0; i < LOOKS; i++) {
        until += ls_run_mean(run, rank, looks[i].phase);
        int end = (int)(until / longest * width + 0.5);
        if (end <= at) continue;
        if (f->color) fprintf(f->to, "\033[%sm", looks[i].color);
        for (; at < end && at < width; at++) fputc(looks[i].letter, f->to);
        if (f->color) fputs("\033[0m", f->to);
    }
    for (; at < width; at++) fputc(' ', f->to);
}

static void show_steps(const ls_run *run, const report_form *f)
{
    double longest = 1;
    int shown = 0;
    for (int r = 0; r < run->ranks; r++) longest = fmax(longest, total(run, r));
    head(f, "A step, on average");
    for (int r = 0; r < run->ranks && shown < MAX_SHOWN; r++) {
        if (!run->rank[r].present) continue;
        shown++;
        fprintf(f->to, "  rank %-3d ", r);
        bar(run, r, f->width - 24, longest, f);
        fprintf(f->to, " %s\n", report_time(total(run, r)));
    }
    if (run->ranks > shown) fprintf(f->to, "  (%d more ranks; --json has all)\n", run->ranks - shown);
    fprintf(f->to, "  %-9s", "ms");
    for (int i = 0; i < LOOKS; i++)
        if (ls_run_mean(run, -1, looks[i].phase) > 0)
            fprintf(f->to, " %9.9s", looks[i].phase == LS_PHASE_COMM ? "c exposed" : ls_phase_name(looks[i].phase));
    fprintf(f->to, " %9s\n", "overlap");
    shown = 0;
    for (int r = 0; r < run->ranks && shown < MAX_SHOWN; r++) {
        double overlapped = 0;
        if (!run->rank[r].present) continue;
        shown++;
        fprintf(f->to, "  rank %-4d", r);
        for (int i = 0; i < LOOKS; i++)
            if (ls_run_mean(run, -1, looks[i].phase) > 0)
                fprintf(f->to, " %9.2f", ls_run_mean(run, r, looks[i].phase) / 1e6);
        for (size_t s = run->n_warm; s < run->n_steps; s++) overlapped += (double)run->steps[s].rank[r].overlapped;
        fprintf(f->to, " %9.2f\n", overlapped / (double)(run->n_steps - run->n_warm) / 1e6);
    }
}

/* ---- Findings. */

/* Words of a paragraph, broken at the width. */
static void wrap(const report_form *f, const char *indent, const char *label, const char *text)
{
    int at = fprintf(f->to, "%s%s", indent, label);
    while (*text) {
        size_t n = strcspn(text, " ");
        if (at + (int)n + 1 > f->width) at = fprintf(f->to, "\n%s", indent) - 1;
        at += fprintf(f->to, "%.*s", (int)n, text);
        text += n;
        if (*text == ' ') {
            at += fprintf(f->to, " ");
            text++;
        }
    }
    fputc('\n', f->to);
}

static void show_findings(const ls_run *run, const report_form *f)
{
    double step = ls_run_step_mean(run);
    head(f, run->n_findings ? "What to change, dearest first" : "Nothing stands out");
    if (!run->n_findings) fprintf(f->to, "  no rank makes others wait, and no phase costs more than it must\n");
    for (size_t i = 0; i < run->n_findings; i++) {
        const ls_finding *x = &run->findings[i];
        char gain[96];
        fprintf(f->to, "%2zu. ", i + 1);
        wrap(f, "", "", x->what);
        wrap(f, "    ", "seen:   ", x->evidence);
        wrap(f, "    ", "change: ", x->change);
        if ((double)x->expected < 0.995 * step) { /* less would be two equal numbers */
            snprintf(gain, sizeof gain, "step %s -> %s", report_time(step), report_time((double)x->expected));
            wrap(f, "    ", "expect: ", gain);
        }
    }
}

/* ---- Tables. */

static void show_waits(const ls_run *run, const report_form *f)
{
    double n = (double)(run->n_steps - run->n_warm);
    size_t p = (size_t)run->ranks;
    int lines = 0;
    for (int last = 0; last < run->ranks && lines < MAX_SHOWN; last++) {
        double sum = 0, by[LS_PHASES + 1] = { 0 }, best = 0;
        int who = -1, why = 0;
        for (int r = 0; r < run->ranks; r++) {
            double w = (double)run->wait_matrix[(size_t)r * p + (size_t)last];
            sum += w;
            if (w > best) best = w, who = r;
        }
        if (who < 0 || sum / n < 1000) continue;
        for (size_t i = 0; i < run->n_delays; i++)
            if (run->delays[i].rank == last && run->delays[i].step >= run->steps[run->n_warm].number)
                by[run->delays[i].core ? LS_PHASES : run->delays[i].phase] += (double)run->delays[i].waited;
        for (int c = 1; c <= LS_PHASES; c++)
            if (by[c] > by[why]) why = c;
        if (!lines++) head(f, "Who waited for whom");
        fprintf(f->to, "  for rank %-3d %9s a step, of all others together; most by rank %d (%s); mostly for its %s\n",
                last, report_time(sum / n), who, report_time(best / n),
                why == LS_PHASES ? "core, which was taken" : ls_phase_name((ls_phase)why));
    }
}

static void show_devices(const ls_run *run, const report_form *f)
{
    int shown = 0;
    head(f, "Ranks");
    fprintf(f->to, "  %-5s %-12s %-8s %6s %9s %8s %9s %9s %8s %8s %9s\n", "rank", "host", "cores", "CPU", "of peak",
            "no core", "switches", "forced", "faults", "disk f.", "memory");
    for (int r = 0; r < run->ranks && shown < MAX_SHOWN; r++) {
        const ls_run_rank *x = &run->rank[r];
        double cpu = 0, wall = 0, delay = 0, voluntary = 0, forced = 0, minor = 0, major = 0, resident = 0;
        double n = (double)(run->n_steps - run->n_warm);
        if (!x->present) continue;
        shown++;
        for (size_t i = run->n_warm; i < run->n_steps; i++) {
            const ls_step_rank *s = &run->steps[i].rank[r];
            wall += (double)(s->end - s->begin);
            if (s->cpu > 0) cpu += (double)s->cpu;
            for (int p = 0; p < LS_PHASES; p++) delay += (double)s->delay[p];
            voluntary += (double)s->voluntary;
            forced += (double)s->involuntary;
            minor += (double)s->minor;
            major += (double)s->major;
            if (s->resident) resident = (double)s->resident;
        }
        double peak = x->facts[LS_FACT_PEAK], flops = x->facts[LS_FACT_FLOPS];
        fprintf(f->to, "  %-5d %-12.12s %-8.8s %5.0f%%", r, x->host, x->cores, wall > 0 ? 100 * cpu / wall : 0);
        if (peak > 0 && flops > 0)
            fprintf(f->to, " %8.0f%%", 100 * flops * n / wall / peak);
        else
            fprintf(f->to, " %9s", "-");
        fprintf(f->to, " %7.1f%% %9.1f %9.1f %8.1f %8.1f %9s\n", wall > 0 ? 100 * delay / wall : 0, voluntary / n,
                forced / n, minor / n, major / n, resident > 0 ? report_bytes(resident) : "-");
    }
    fprintf(f->to,
            "  of peak: matrix products of the step, beside SGEMM's rate on the rank's threads; counts are a step's\n");
}

static void show_comm(const ls_run *run, const report_form *f)
{
    double n = (double)(run->n_steps - run->n_warm);
    if (run->ranks < 2 || !run->n_comm) return;
    head(f, "Communication, of a step");
    fprintf(f->to, "  %-22s %7s %10s %10s %10s %10s %9s\n", "call", "count", "volume", "time", "exposed", "waited",
            "GB/s");
    for (size_t i = 0; i < run->n_comm; i++) {
        const ls_comm_row *c = &run->comm[i];
        char name[40];
        snprintf(name, sizeof name, "%s%s", ls_call_name(c->kind), c->bucket ? " (buckets)" : "");
        fprintf(f->to, "  %-22s %7.1f %10s %10s %10s %10s", name, (double)c->count / n,
                report_bytes((double)c->bytes / n), report_time((double)c->busy / n),
                report_time((double)c->exposed / n), report_time((double)c->waited / n / run->ranks));
        if (c->bytes > 0 && c->busy > 0)
            fprintf(f->to, " %9.2f\n", (double)c->bytes / (double)c->busy);
        else
            fprintf(f->to, " %9s\n", "-");
    }
}

static void show_data(const ls_run *run, const report_form *f)
{
    int shown = 0;
    for (int r = 0; r < run->ranks && shown < MAX_SHOWN; r++) {
        double batches = 0, load = 0, ready = 0, queue = 0, data = 0, wall = 0,
               n = (double)(run->n_steps - run->n_warm);
        for (size_t i = run->n_warm; i < run->n_steps; i++) {
            const ls_step_rank *s = &run->steps[i].rank[r];
            batches += s->batches;
            load += (double)s->batch_ns;
            ready += s->batches - s->batches_missed;
            queue += s->batches_ready;
            data += (double)s->ns[LS_PHASE_DATA];
            wall += (double)(s->end - s->begin);
        }
        if (!run->rank[r].present || batches <= 0) continue;
        if (!shown++) {
            head(f, "Data");
            fprintf(f->to, "  %-5s %8s %12s %12s %10s %8s %8s %12s\n", "rank", "batches", "to build", "waited", "ready",
                    "queue", "workers", "workers' use");
        }
        double workers = run->rank[r].facts[LS_FACT_WORKERS];
        fprintf(f->to, "  %-5d %8.1f %12s %12s %9.0f%% %8.1f %8.0f", r, batches / n, report_time(load / batches),
                report_time(data / n), 100 * ready / batches, queue / batches, workers >= 0 ? workers : 0);
        if (workers > 0)
            fprintf(f->to, " %11.0f%%\n", 100 * fmin(1, load / wall / workers));
        else
            fprintf(f->to, " %12s\n", "-");
    }
}

static void show_title(const ls_run *run, const report_form *f)
{
    int present = 0, nodes = 0;
    double tokens = 0, step = ls_run_step_mean(run);
    const char *transport = "";
    bool closed = true;
    for (int r = 0; r < run->ranks; r++) {
        const ls_run_rank *x = &run->rank[r];
        if (!x->present) continue;
        present++;
        if (x->node >= nodes) nodes = x->node + 1;
        if (x->facts[LS_FACT_TOKENS] > 0) tokens = x->facts[LS_FACT_TOKENS];
        transport = x->transport;
        closed = closed && x->closed;
    }
    fprintf(f->to, "%s: %d rank%s", run->path, run->ranks, run->ranks == 1 ? "" : "s");
    if (run->ranks > 1) fprintf(f->to, " on %d machine%s (%s)", nodes, nodes == 1 ? "" : "s", transport);
    if (run->n_steps)
        fprintf(f->to, ", steps %lld to %lld", (long long)run->steps[run->n_warm].number,
                (long long)run->steps[run->n_steps - 1].number);
    if (is_counted(run)) fprintf(f->to, ", %s a step", report_time(step));
    if (is_counted(run) && tokens > 0 && step > 0) fprintf(f->to, ", %.0f tokens/s", tokens / step * 1e9);
    fprintf(f->to, "%s\n", closed ? "" : ", not ended in order, or still running");
    for (size_t i = 0; i < run->n_notes; i++) fprintf(f->to, "note: %s\n", run->notes[i]);
}

void report_text(const ls_run *run, const report_form *form)
{
    show_title(run, form);
    if (!is_counted(run)) return;
    show_steps(run, form);
    show_findings(run, form);
    show_waits(run, form);
    show_devices(run, form);
    show_comm(run, form);
    show_data(run, form);
}

/* ---- Two runs. */

void report_compare(const ls_run *before, const ls_run *after, const report_form *f)
{
    double a = ls_run_step_mean(before), b = ls_run_step_mean(after);
    show_title(before, f);
    show_title(after, f);
    if (!is_counted(before) || !is_counted(after)) return;
    head(f, "A step, mean of all ranks");
    fprintf(f->to, "  %-16s %12s %12s %12s\n", "", "before", "after", "change");
    for (int i = 0; i < LOOKS; i++) {
        double x = ls_run_mean(before, -1, looks[i].phase), y = ls_run_mean(after, -1, looks[i].phase);
        if (x > 0 || y > 0)
            fprintf(f->to, "  %-16s %12s %12s %+11.1f%%\n", ls_phase_name(looks[i].phase), report_time(x),
                    report_time(y), 100 * (y - x) / a);
    }
    fprintf(f->to, "  %-16s %12s %12s %+11.1f%%\n", "step", report_time(a), report_time(b), 100 * (b - a) / a);
    fprintf(f->to, "  (changes are shares of the step before)\n");
    head(f, "Findings");
    for (int second = 0; second < 2; second++) {
        const ls_run *run = second ? after : before;
        for (size_t i = 0; i < run->n_findings; i++)
            wrap(f, "  ", second ? "after:  " : "before: ", run->findings[i].what);
        if (!run->n_findings) wrap(f, "  ", second ? "after:  " : "before: ", "nothing stands out");
    }
}
