/* The results of `lockstep bench allreduce`: a table, JSON lines, plots. */
#include <string.h>
#include "base/text.h"
#include "cli/amount.h"
#include "cli/bench/allreduce.h"
#include "cli/bench/plot.h"

/* The least time that the memory allows, in microseconds: every byte read once and written once. */
static double bound_us(const bench_options *o, const bench_row *row)
{
    return o->copy_bandwidth > 0 ? 2.0 * o->world_size * (double)row->total / o->copy_bandwidth * 1e6 : 0;
}

/* The spread of the rounds, to distinguish differences from noise. */
static void spread_json(bench_times *t, const char *prefix, FILE *to)
{
    static const struct {
        const char *name;
        double share;
    } rows[] = { { "fastest", 0 }, { "p25", 0.25 }, { "p75", 0.75 }, { "slowest", 1 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        fprintf(to, ", \"%s%s_us\": %.3f", prefix, rows[i].name, bench_times_quantile(t, rows[i].share));
}

static void report_json(bench_options *o, bench_row *row, FILE *to)
{
    double ours = bench_times_median(&row->ours);
    fprintf(to, "{\"bytes\": %zu", row->total);
    if (o->figure) fprintf(to, ", \"elements_per_call\": %zu", row->chunk / 4);
    fprintf(to, ", \"ranks\": %d, \"rounds\": %zu, \"median_us\": %.3f", o->world_size, row->ours.count, ours);
    spread_json(&row->ours, "", to);
    fprintf(
        to,
        ", \"bandwidth\": %.6g, \"share_of_bound\": %.4f, \"copy_bandwidth\": %.6g, \"copy_bandwidth_median\": %.6g",
        (double)row->total / ours * 1e6, bound_us(o, row) / ours, o->copy_bandwidth, o->copy_median);
    if (o->against) {
        double peers = bench_times_median(&row->peers);
        fprintf(to, ", \"peer_us\": %.3f", peers);
        spread_json(&row->peers, "peer_", to);
        fprintf(to, ", \"ratio\": %.3f", peers / ours);
    }
    fprintf(to, "}\n");
}

static void report_row(bench_options *o, bench_row *row, FILE *to)
{
    char size[32];
    double ours = bench_times_median(&row->ours);
    if (o->figure)
        snprintf(size, sizeof size, "%zu", row->chunk / 4);
    else
        snprintf(size, sizeof size, "%s", amount_size((double)row->total).text);
    fprintf(to, "%12s  %s  %s  %8.2f GB/s  %8.2f", size, amount_field(amount_ns(1e3 * ours), 10).text,
            amount_field(amount_ns(1e3 * row->ours.us[0]), 10).text, (double)row->total / ours / 1e3,
            bound_us(o, row) / ours);
    if (o->against) {
        double peers = bench_times_median(&row->peers);
        fprintf(to, "  %s  %6.2fx", amount_field(amount_ns(1e3 * peers), 10).text, peers / ours);
    }
    fprintf(to, "\n");
}

void bench_report(bench_options *o, FILE *to)
{
    if (!o->json) {
        fprintf(to, "All-reduce of float32 among %d rank%s (%s), in place%s\n", o->world_size, ls__s(o->world_size),
                o->transport, o->user_owned ? ", user-owned buffers" : "");
        fprintf(to,
                "Peak bandwidth: %.1f GB/s when all ranks copy at once (median %.1f); lower bound of the time: 2 x "
                "ranks x size / peak\n",
                o->copy_bandwidth / 1e9, o->copy_median / 1e9);
        if (o->figure) fprintf(to, "60 million elements per round, by elements per call\n");
        if (o->against) fprintf(to, "Peer, alternating: %s\n", o->peer_name);
        fprintf(to, "\n%12s  %10s  %10s  %13s  %8s%s\n", o->figure ? "per call" : "size", "median", "fastest",
                "bandwidth", "of peak", o->against ? "        peer    ratio" : "");
    }
    for (int i = 0; i < o->row_count; i++) {
        if (o->json)
            report_json(o, &o->rows[i], to);
        else
            report_row(o, &o->rows[i], to);
    }
    fflush(to);
}

ls_status bench_report_plot(bench_options *o)
{
    double x[BENCH_MAX_ROWS], ours[BENCH_MAX_ROWS], peers[BENCH_MAX_ROWS], bound[BENCH_MAX_ROWS];
    for (int i = 0; i < o->row_count; i++) {
        bench_row *row = &o->rows[i];
        x[i] = o->figure ? (double)(row->chunk / 4) : (double)row->total;
        ours[i] = bench_times_median(&row->ours) / 1e6;
        peers[i] = bench_times_median(&row->peers) / 1e6;
        bound[i] = bound_us(o, row) / 1e6;
    }
    char title[160];
    snprintf(title, sizeof title,
             o->figure ? "All-reduce of 60 million float32, %d rank%s" : "All-reduce of float32, %d rank%s",
             o->world_size, ls__s(o->world_size));
    plot p = {
        .title = title,
        .x_label = o->figure ? "elements a call" : "bytes",
        .y_label = o->figure ? "time for all" : "time",
        .x_in_bytes = !o->figure,
        .y_in_seconds = true,
        .series = { { .name = "lockstep", .x = x, .y = ours, .count = o->row_count } },
        .series_count = 1,
    };
    if (o->against)
        p.series[p.series_count++] = (plot_series){ .name = o->peer_name, .x = x, .y = peers, .count = o->row_count };
    p.series[p.series_count++] =
        (plot_series){ .name = "bound of the memory", .x = x, .y = bound, .count = o->row_count, .dashed = true };
    return plot_write(&p, o->plot);
}
