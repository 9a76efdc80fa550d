/* The report's tables for a terminal: who waited for whom, ranks and their devices, communication, data. Lines are no longer than 80
 * columns; names that would make them longer are cut. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cli/amount.h"
#include "cli/rank_use.h"
#include "cli/findings_text.h"
#include "cli/report.h"

static double counted(const ls_run *run)
{
    return (double)(run->n_steps - run->first_counted);
}

/* ---- Waiting. */

/* What `last` mostly lost its time in, when others waited for it; NULL: nothing. */
static const ls_wait_cause *main_cause(const ls_run *run, int last)
{
    const ls_wait_cause *most = NULL;
    for (size_t i = 0; i < run->n_wait_causes; i++) {
        const ls_wait_cause *c = &run->wait_causes[i];
        if (c->rank == last && (!most || c->waited > most->waited)) most = c;
    }
    return most;
}

typedef struct waited_for {
    double sum, longest; /* ns, of all ranks and of the one that waited longest */
    int who;             /* that one */
} waited_for;

/* [ranks]; NULL: no memory. By rows, because those of ranks without a record, of which there may be thousands, need not be read. */
static waited_for *sum_waits(const ls_run *run)
{
    waited_for *all = calloc((size_t)run->ranks, sizeof *all);
    for (int r = 0; r < run->ranks && all; r++) {
        if (!run->rank[r].present) continue;
        for (int last = 0; last < run->ranks; last++) {
            double w = (double)run->wait_matrix[(size_t)r * (size_t)run->ranks + (size_t)last];
            all[last].sum += w;
            if (w > all[last].longest) all[last].longest = w, all[last].who = r;
        }
    }
    return all;
}

static void show_waits(const ls_run *run, const report_form *f)
{
    enum { LEAST_NS = 1000 };
    double n = counted(run);
    int lines = 0;
    waited_for *all = sum_waits(run);
    for (int last = 0; last < run->ranks && lines < REPORT_ROWS && all; last++) {
        double sum = all[last].sum;
        if (sum / n < LEAST_NS) continue;
        if (!lines++) {
            report_head(f, "Who waited for whom, per step");
            fprintf(f->to, "  %-15s %10s   %-20s   %s\n", "waited for rank", "total", "longest wait", "main cause");
        }
        const ls_wait_cause *cause = main_cause(run, last);
        fprintf(f->to, "  %-15d %s   rank %-4d %s   %s\n", last, amount_field(amount_ns(sum / n), 10).text,
                all[last].who, amount_field(amount_ns(all[last].longest / n), 10).text,
                cause ? cause_name(cause) : "-");
    }
    free(all);
}

/* ---- Ranks. */

/* At most `width` characters of a text; one that is cut ends in "..". */
static void put_cut(const report_form *f, const char *text, int width)
{
    int n = (int)strlen(text);
    if (n <= width)
        fprintf(f->to, " %-*s", width, text);
    else
        fprintf(f->to, " %.*s..", width - 2, text);
}

static void put_share(const report_form *f, int width, double part, double whole)
{
    double share = whole > 0 ? 100 * part / whole : NAN;
    if (isfinite(share))
        fprintf(f->to, " %*.*f%%", width - 1, share < 9.95 && share >= 0.05 ? 1 : 0, share);
    else
        fprintf(f->to, " %*s", width, "-");
}

static void show_power(const ls_run *run, const report_form *f)
{
    int machines = 0, shown = 0;
    char text[160];
    for (int r = 0; (r = device_next_machine(run, r)) >= 0; r++) machines += device_power(run, r, text, sizeof text);
    for (int r = 0; (r = device_next_machine(run, r)) >= 0 && shown < REPORT_ROWS; r++) {
        char label[100] = "power: ";
        if (!device_power(run, r, text, sizeof text)) continue; /* an imported run */
        shown++;
        if (machines > 1) snprintf(label, sizeof label, "power of %s: ", run->rank[r].host);
        report_wrap(f, 2, 4, label, text);
    }
    if (machines > shown) fprintf(f->to, "  (%d more nodes; --json has all)\n", machines - shown);
}

static void show_use(const ls_run *run, const report_form *f)
{
    int shown = 0, host = 4, cores = 5, spare = f->width > 80 ? (f->width - 80) / 2 : 0;
    for (int r = 0; r < run->ranks; r++) {
        if (!report_has(run, r)) continue;
        host = (int)fmax(host, (double)strlen(run->rank[r].host));
        cores = (int)fmax(cores, (double)strlen(run->rank[r].cores));
    }
    host = (int)fmin(host, 9 + spare);
    cores = (int)fmin(cores, 9 + spare);
    report_head(f, "Ranks");
    fprintf(f->to, "  %4s %-*s %-*s %5s %5s %5s %11s %5s %7s %9s\n", "rank", host, "host", cores, "cores", "CPU",
            "busy", "MFU", "sched delay", "steal", "off-CPU", "memory");
    for (int r = 0; r < run->ranks && shown < REPORT_ROWS; r++) {
        const ls_run_rank *x = &run->rank[r];
        const ls_resource_use *u = &x->use;
        if (!report_has(run, r)) continue;
        shown++;
        fprintf(f->to, "  %4d", r);
        put_cut(f, x->host, host);
        put_cut(f, x->cores, cores);
        bool known = u->cpu > 0; /* an imported run has no samples of the kernel's counters */
        put_share(f, 5, u->cpu, known ? u->wall : 0);
        put_share(f, 5, u->busy, u->wall);
        put_share(f, 5, u->mfu, 1);
        put_share(f, 11, u->sched_delay, known ? u->wall : 0);
        put_share(f, 5, u->steal, known ? u->wall : 0);
        put_share(f, 7, u->off_cpu, known ? u->wall : 0);
        fprintf(f->to, " %9s\n", u->resident > 0 ? amount_bytes(u->resident).text : "-");
    }
    report_left_out(f, run, shown);
    report_wrap(
        f, 2, 2, "",
        "(CPU: all threads, a core is 100%; busy: on a core or runnable; MFU: % of measured SGEMM on the same threads; "
        "sched delay: run-queue delay, the part of busy that is runnable but not scheduled; steal: taken by the "
        "hypervisor; off-CPU: not runnable)");
    device_lines lines;
    device_verdicts(run, &lines);
    for (int i = 0; i < lines.count; i++) report_wrap(f, 2, 4, "", lines.line[i]);
    show_power(run, f);
}

static void show_threads(const ls_run *run, const report_form *f)
{
    int shown = 0;
    char text[DEVICE_TEXT], label[32];
    for (int r = 0; r < run->ranks && shown < REPORT_FEW; r++) {
        if (!report_has(run, r)) continue;
        device_threads(&run->rank[r], text);
        if (!*text) continue;
        if (!shown++) report_head(f, "Threads, each as a share of a core");
        snprintf(label, sizeof label, "rank %-4d", r);
        report_wrap(f, 2, 11, label, text);
    }
    if (shown) report_left_out(f, run, shown);
}

static void show_counts(const ls_run *run, const report_form *f)
{
    int shown = 0;
    bool known = false;
    for (int r = 0; r < run->ranks; r++) known = known || run->rank[r].use.cpu > 0;
    if (!known) return;
    report_head(f, "Kernel counters, per step");
    fprintf(f->to, "  %4s %23s\n", "", "context switches");
    fprintf(f->to, "  %4s %11s %11s %12s %12s %12s\n", "rank", "voluntary", "involuntary", "page faults", "from disk",
            "read");
    for (int r = 0; r < run->ranks && shown < REPORT_FEW; r++) {
        const ls_resource_use *u = &run->rank[r].use;
        if (!report_has(run, r)) continue;
        shown++;
        fprintf(f->to, "  %4d %11.1f %11.1f %12.1f %12.1f %12s\n", r, u->voluntary, u->involuntary, u->minor, u->major,
                amount_bytes(u->read_bytes).text);
    }
    report_left_out(f, run, shown);
}

/* ---- Communication and data. */

static void show_comm(const ls_run *run, const report_form *f)
{
    double step = run->step_mean;
    bool network = false, known = findings_waits_known(run);
    if (run->ranks < 2 || !run->n_comm) return;
    report_head(f, "Communication, per step");
    fprintf(f->to, "  %-20s %4s %8s %8s %8s %8s %11s %4s\n", "collective", "n", "volume", "time", "exposed", "waited",
            "bandwidth", "peak");
    for (size_t i = 0; i < run->n_comm; i++) {
        const ls_comm_row *c = &run->comm[i];
        ls_comm_mean m = ls_run_get_comm_mean(run, c);
        char name[40];
        if (m.count < 0.05 && m.busy + m.waited < 0.001 * step) continue; /* rare */
        network = network || c->network;
        snprintf(name, sizeof name, "%s%s", ls_collective_name(c->kind), c->bucket ? " buckets" : "");
        fprintf(f->to, "  %-20s %4.*f %8s %s %s %s %11s", name, m.count < 99.95 ? 1 : 0, m.count,
                amount_bytes(m.bytes > 0 ? m.bytes : NAN).text, amount_field(amount_ns(m.busy), 8).text,
                amount_field(amount_ns(m.exposed), 8).text, amount_field(amount_ns(known ? m.waited : NAN), 8).text,
                amount_rate(m.rate, c->network).text);
        put_share(f, 4, m.of_peak, 1);
        fputc('\n', f->to);
    }
    report_wrap(f, 2, 2, "",
                network ? "(waited: mean of a rank; bandwidth: of a node's link in each direction; peak: % of peak "
                          "bandwidth, the best rate that the link sustained in this run)"
                        : "(waited: mean of a rank; peak: % of peak bandwidth, that of copies in memory)");
}

static void show_data(const ls_run *run, const report_form *f)
{
    int shown = 0;
    for (int r = 0; r < run->ranks && shown < REPORT_FEW; r++) {
        ls_run_loading l = ls_run_get_loading(run, r);
        if (!(l.batches > 0)) continue;
        if (!shown++) {
            report_head(f, "Data, per step");
            fprintf(f->to, "  %4s %8s %12s %10s %7s %7s %8s %13s\n", "rank", "batches", "to build one", "waited",
                    "ready", "queue", "workers", "workers busy");
        }
        fprintf(f->to, "  %4d %8.1f %s %s %6.0f%% %7.1f %8.0f", r, l.batches, amount_field(amount_ns(l.build), 12).text,
                amount_field(amount_ns(l.waited), 10).text, 100 * l.ready, l.queue, l.workers >= 0 ? l.workers : 0);
        put_share(f, 13, l.busy, 1);
        fputc('\n', f->to);
    }
    if (shown) report_left_out(f, run, shown);
}

void report_tables(const ls_run *run, const report_form *f)
{
    show_waits(run, f);
    show_use(run, f);
    show_threads(run, f);
    show_counts(run, f);
    show_comm(run, f);
    show_data(run, f);
}
