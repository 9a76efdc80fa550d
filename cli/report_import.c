/* See report_import.h. The file may come from anywhere: what is missing in it is left out, and texts are made printable. */
#include "cli/report_import.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/amount.h"
#include "cli/escape.h"

json_t *report_import_read(const char *run)
{
    char *path;
    json_error_t error;
    if (asprintf(&path, "%s/import.json", run) < 0) return NULL;
    json_t *root = json_load_file(path, 0, &error);
    free(path);
    return root;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static double number_of(const json_t *o, const char *key)
{
    double x = json_number_value(json_object_get(o, key));
    return isfinite(x) && x > 0 ? x : 0;
}

static void put_notes(const json_t *root, const report_form *f)
{
    size_t i;
    const json_t *note;
    json_array_foreach(json_object_get(root, "notes"), i, note)
    {
        if (json_is_string(note)) report_wrap(f, 0, 6, "note: ", printable(json_string_value(note)));
    }
}

/* How sure the clocks are, if more than one rank has one of its own. */
static void put_clocks(const json_t *root, const report_form *f)
{
    size_t i;
    const json_t *rank;
    double worst = 0, drift = 0, ahead = 0;
    json_array_foreach(json_object_get(root, "ranks"), i, rank)
    {
        worst = fmax(worst, number_of(rank, "clock_uncertainty_ms"));
        drift = fmax(drift, fabs(json_number_value(json_object_get(rank, "clock_drift_ppm"))));
        ahead = fmax(ahead, fabs(json_number_value(json_object_get(rank, "clock_ahead_ms"))));
    }
    if (!(ahead > 0) || !isfinite(ahead) || !isfinite(drift)) return;
    char text[240];
    snprintf(text, sizeof text,
             "clocks were aligned by the collectives: offsets of up to %s, drift of up to %.1f ppm, uncertainty %s",
             amount_ns(ahead * 1e6).text, drift, amount_ns(worst * 1e6).text);
    report_wrap(f, 0, 6, "note: ", text);
}

void report_import_notes(const ls_run *run, const report_form *f)
{
    json_t *root = report_import_read(run->path);
    if (!root) return;
    put_clocks(root, f);
    put_notes(root, f);
    json_decref(root);
}

/* ---- Devices. */

static void put_share(const report_form *f, int width, double part, double whole)
{
    if (whole > 0)
        fprintf(f->to, " %*.1f%%", width - 1, 100 * part / whole);
    else
        fprintf(f->to, " %*s", width, "-");
}

bool report_import_idle(const json_t *ranks, bool data, char *out, size_t bytes)
{
    static const double LEAST = 0.05;
    size_t i;
    const json_t *rank, *worst = NULL;
    double most = 0, most_ms = 0;
    json_array_foreach(ranks, i, rank)
    {
        const json_t *d = json_object_get(rank, "device");
        double span = number_of(d, "span_ms"), loading = number_of(d, "idle_data_ms"),
               ms = data ? loading : number_of(d, "idle_host_ms") - loading;
        if (!(span > 0) || !(ms / span > most)) continue;
        most = ms / span;
        most_ms = ms;
        worst = rank;
    }
    double steps = number_of(worst, "steps");
    if (most < LEAST || !(steps > 0)) return false;
    snprintf(
        out, bytes,
        "rank %lld's device waits %.0f%% of the time for %s, %s per step, which a step can gain at most; %s",
        (long long)json_integer_value(json_object_get(worst, "rank")), 100 * most,
        data ? "its host to load data" : "its host to launch kernels", amount_ns(most_ms / steps * 1e6).text,
        data ? "a DataLoader with more num_workers, pin_memory=True and a larger prefetch_factor hides it"
             : "larger micro-batches, torch.compile(mode=\"reduce-overhead\") or CUDA graphs need fewer launches, and "
               "without .item(), .cpu() and printed losses the host runs ahead of the device");
    return true;
}

static void show_devices(const json_t *ranks, const report_form *f)
{
    size_t i;
    int shown = 0;
    const json_t *rank;
    json_array_foreach(ranks, i, rank)
    {
        const json_t *d = json_object_get(rank, "device");
        double span = number_of(d, "span_ms");
        if (!(span > 0) || shown >= REPORT_ROWS) continue;
        if (!shown++) {
            report_head(f, "Devices, from the first kernel to the last");
            fprintf(f->to, "  %4s %8s %8s %8s %7s %7s   %9s %6s %7s\n", "rank", "compute", "overlap", "exposed",
                    "copies", "idle", "host-bound", "data", "blocked");
        }
        fprintf(f->to, "  %4lld", (long long)json_integer_value(json_object_get(rank, "rank")));
        put_share(f, 8, number_of(d, "compute_ms"), span);
        put_share(f, 8, number_of(d, "overlap_ms"), number_of(d, "comm_ms"));
        put_share(f, 8, number_of(d, "exposed_ms"), span);
        put_share(f, 7, number_of(d, "copies_ms"), span);
        put_share(f, 7, number_of(d, "idle_ms"), span);
        fputs("  ", f->to);
        put_share(f, 10, number_of(d, "idle_host_ms") - number_of(d, "idle_data_ms"), span);
        put_share(f, 6, number_of(d, "idle_data_ms"), span);
        put_share(f, 7, number_of(d, "idle_gap_ms") + number_of(d, "idle_other_ms"), span);
        fputc('\n', f->to);
    }
    if (!shown) return;
    report_wrap(f, 2, 2, "",
                "(overlap: share of communication while a kernel computes; idle: no kernel runs because none was "
                "launched yet (host-bound), the host loads data, or a launched one has to wait (blocked))");
    char advice[400];
    for (int data = 0; data < 2; data++)
        if (report_import_idle(ranks, data, advice, sizeof advice)) report_wrap(f, 2, 4, "", advice);
}

static void show_classes(const json_t *ranks, const report_form *f)
{
    size_t i;
    const json_t *rank, *value;
    const char *key;
    double all = 0;
    json_t *sums = json_object();
    json_array_foreach(ranks, i, rank)
    {
        json_object_foreach((json_t *)json_object_get(json_object_get(rank, "device"), "classes_ms"), key, value)
        {
            double ms = json_number_value(value);
            if (!(ms > 0)) continue;
            all += ms;
            json_object_set_new(sums, key, json_real(ms + json_number_value(json_object_get(sums, key))));
        }
    }
    if (all > 0) report_head(f, "Kernels by class, all ranks");
    while (all > 0 && json_object_size(sums)) {
        const char *best = NULL;
        json_object_foreach(sums, key, value)
        {
            if (!best || json_number_value(value) > json_number_value(json_object_get(sums, best))) best = key;
        }
        double ms = json_number_value(json_object_get(sums, best));
        fprintf(f->to, "  %-24s %10s %5.1f%%\n", printable(best), amount_ns(ms * 1e6).text, 100 * ms / all);
        char name[64];
        snprintf(name, sizeof name, "%s", best);
        if (json_object_del(sums, name)) break;
    }
    json_decref(sums);
}

static void show_kernels(const json_t *ranks, const report_form *f)
{
    enum { TOP = 8 };
    const json_t *rank = json_array_get(ranks, 0), *kernel;
    size_t i;
    bool some = false;
    json_array_foreach(json_object_get(json_object_get(rank, "device"), "kernels"), i, kernel)
    {
        if (i >= TOP) break;
        if (!some) report_head(f, "Longest kernels, first rank");
        some = true;
        fprintf(f->to, "  %10s %8lld calls  %.56s\n", amount_ns(number_of(kernel, "ms") * 1e6).text,
                (long long)json_integer_value(json_object_get(kernel, "calls")), printable(text_of(kernel, "name")));
    }
}

static void show_sizes(const json_t *rows, const report_form *f)
{
    size_t i;
    const json_t *row;
    bool some = false;
    json_array_foreach(rows, i, row)
    {
        if (i >= REPORT_ROWS || !(number_of(row, "mean_ms") > 0)) continue;
        if (!some) {
            report_head(f, "Collectives by size");
            fprintf(f->to, "  %-15s %8s %11s %9s %12s %12s\n", "collective", "n", "size", "transfer", "bandwidth",
                    "bus");
        }
        some = true;
        fprintf(f->to, "  %-15.15s %8lld %11s %s %12s %12s\n", printable(text_of(row, "kind")),
                (long long)json_integer_value(json_object_get(row, "count")),
                amount_bytes(number_of(row, "mean_bytes")).text,
                amount_field(amount_ns(number_of(row, "mean_ms") * 1e6), 9).text,
                amount_rate(number_of(row, "gbit_per_s") / 8, true).text,
                amount_rate(number_of(row, "bus_gbit_per_s") / 8, true).text);
    }
    if (some)
        report_wrap(
            f, 2, 2, "",
            "(means; transfer: the least of the ranks, since the last to arrive does not wait; bandwidth: size / "
            "transfer; bus: what each rank's link carries of it, as nccl-tests count it)");
}

void report_import_devices(const ls_run *run, const report_form *f)
{
    json_t *root = report_import_read(run->path);
    const json_t *ranks = json_object_get(root, "ranks");
    if (json_is_array(ranks)) {
        show_devices(ranks, f);
        show_classes(ranks, f);
        show_kernels(ranks, f);
    }
    show_sizes(json_object_get(root, "communication"), f);
    json_decref(root);
}

/* ---- A job that hangs. */

static void show_flight_ranks(const json_t *flight, const report_form *f)
{
    size_t i;
    const json_t *rank;
    int64_t newest = 0;
    json_array_foreach(json_object_get(flight, "ranks"), i, rank)
    {
        int64_t created = json_integer_value(json_object_get(rank, "created_ns"));
        if (created > newest) newest = created;
    }
    report_head(f, "Each rank's last call");
    fprintf(f->to, "  %4s %9s %8s %9s  %s\n", "rank", "under way", "number", "before", "call");
    json_array_foreach(json_object_get(flight, "ranks"), i, rank)
    {
        int64_t created = json_integer_value(json_object_get(rank, "created_ns"));
        if (i >= REPORT_ROWS) break;
        fprintf(f->to, "  %4lld %9lld %8lld %s  %.48s\n", (long long)json_integer_value(json_object_get(rank, "rank")),
                (long long)json_integer_value(json_object_get(rank, "under_way")),
                (long long)json_integer_value(json_object_get(rank, "number")),
                amount_field(amount_ns(created > 0 ? (double)(newest - created) : 0), 9).text,
                printable(text_of(rank, "last")));
    }
    size_t all = json_array_size(json_object_get(flight, "ranks"));
    if (all > REPORT_ROWS) fprintf(f->to, "  (%zu more; --json has all)\n", all - REPORT_ROWS);
    report_wrap(f, 2, 2, "", "(before: time before the newest call of any rank; clocks are not aligned)");
}

bool report_flight(const char *run, const report_form *f, bool json)
{
    json_t *root = report_import_read(run);
    const json_t *flight = json_object_get(root, "flight_recorder"), *line;
    bool is = json_is_object(flight);
    size_t i;
    if (is && json) {
        json_dumpf(root, f->to, JSON_COMPACT | JSON_ENSURE_ASCII);
        fputc('\n', f->to);
    } else if (is) {
        fprintf(f->to, "%s: Flight Recorder, dumps of %zu of %lld ranks\n", printable(run),
                json_array_size(json_object_get(flight, "ranks")),
                (long long)json_integer_value(json_object_get(flight, "ranks_of_job")));
        put_notes(root, f);
        report_head(f, "What hangs");
        json_array_foreach(json_object_get(flight, "verdict"), i, line)
        {
            if (i >= 2 * REPORT_ROWS) break;
            if (json_is_string(line)) report_wrap(f, 2, 4, "", printable(json_string_value(line)));
        }
        show_flight_ranks(flight, f);
    }
    json_decref(root);
    return is;
}
