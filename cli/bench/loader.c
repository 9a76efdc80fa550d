/* lockstep bench loader: batches per second by number of workers and prefetch, optionally with slow reads, expensive samples and a
 * trainer that computes in between. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/random.h"
#include "base/status.h"
#include "data/datasets.h"
#include "cli/bench/allreduce.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/bench/plot.h"
#include "lockstep/data.h"

static const char intro[] =
    "usage: lockstep bench loader [OPTIONS]\n\n"
    "Loads batches of token shards with each number of workers and each prefetch. Reports batches per second, the\n"
    "time to load one, and the part of its time that a trainer waits for them.\n\n";

enum { MAX_LIST = 16, MAX_ROWS = MAX_LIST * MAX_LIST, TEMPORARY_TOKENS = 20 << 20 };

typedef struct options {
    option_list data;
    int batch_size, seq_len, latency_us, cost_us, step_us;
    int64_t batches, warmup;
    double seconds;
    const char *workers_text, *prefetch_text, *plot;
    bool json, verbose;
    int workers[MAX_LIST], n_workers; /* -1: auto */
    int prefetch[MAX_LIST], n_prefetch;
} options;

typedef struct result {
    int workers, prefetch;         /* asked for */
    int workers_end, prefetch_end; /* in the end */
    uint64_t batches;
    double seconds, load_seconds, waited; /* of a batch; of the time */
    long grown_kib;                       /* memory, from the end of the warm-up on */
} result;

/* ---- A dataset around another, whose samples cost time to make. */

typedef struct costly {
    ls_dataset dataset;
    ls_dataset *inner;
    int cost_us;
} costly;

static void compute_for(int64_t us)
{
    int64_t end = ls_now() + us * 1000;
    while (ls_now() < end) continue;
}

static ls_status costly_get(void *self, void *worker, uint64_t sample, ls_row *row)
{
    const costly *c = self;
    if (c->cost_us) compute_for(c->cost_us);
    return c->inner->get(c->inner->self, worker, sample, row);
}

/* ---- Options. */

/* "0,1,2,auto" */
static bool parse_list(const char *option, const char *text, int most, bool with_auto, int *out, int *count)
{
    *count = 0;
    for (const char *p = text; *count < MAX_LIST; p++) {
        char *end;
        long n = strtol(p, &end, 10);
        if (with_auto && !strncmp(p, "auto", 4)) n = LS_WORKERS_AUTO, end = (char *)(uintptr_t)p + 4;
        if (end == p || n > most || n < (with_auto ? LS_WORKERS_AUTO : 1) || (*end && *end != ',')) break;
        out[(*count)++] = (int)n;
        if (!*end) return true;
        p = end;
    }
    fprintf(stderr, "lockstep bench loader: %s %s: must be integers up to %d%s, separated by commas\n", option, text,
            most, with_auto ? " or auto" : "");
    return false;
}

/* -1 to continue, or an exit code. */
static int parse(int argc, char **argv, options *o)
{
    const option_row rows[] = {
        { OPTION_LIST, "--data", &o->data, "FILE...", "token shards; default: 20 M random tokens in a temporary file",
          0, 0, NULL },
        { OPTION_INT, "--batch-size", &o->batch_size, "B", "batch size (8)", 1, 1e6, NULL },
        { OPTION_INT, "--seq-len", &o->seq_len, "T", "sequence length in tokens (1024)", 1, 1e6, NULL },
        { OPTION_TEXT, "--workers", &o->workers_text, "LIST", "numbers of workers, 0 for none, or auto (0,1,2,4)", 0, 0,
          NULL },
        { OPTION_TEXT, "--prefetch", &o->prefetch_text, "LIST", "batches ahead per worker (2)", 0, 0, NULL },
        { OPTION_INT, "--latency-us", &o->latency_us, "US", "added time of each read of a file (0)", 0, 1e9, NULL },
        { OPTION_INT, "--cost-us", &o->cost_us, "US", "CPU time added to each sample (0)", 0, 1e9, NULL },
        { OPTION_INT, "--step-us", &o->step_us, "US", "time that the trainer computes on each batch (0)", 0, 1e9,
          NULL },
        { OPTION_DOUBLE, "--seconds", &o->seconds, "S", "measuring time per row (1)", 0, 1e6, NULL },
        { OPTION_LONG, "--batches", &o->batches, "N", "batches to measure per row, instead of --seconds", 1, 1e15,
          NULL },
        { OPTION_LONG, "--warm-up", &o->warmup, "N", "batches before measuring (5, auto: 50)", 0, 1e9, NULL },
        { OPTION_TEXT, "--plot", &o->plot, "FILE", "plot batches per second by workers: FILE.svg or FILE.png", 0, 0,
          NULL },
        { OPTION_FLAG, "--json", &o->json, NULL, "print one JSON object per line instead of a table", 0, 0, NULL },
        { OPTION_FLAG, "--verbose", &o->verbose, NULL, "print the decisions of auto, and the reasons", 0, 0, NULL },
        { 0 },
    };
    int code = options_read("bench loader", intro, rows, NULL, argc, argv);
    if (code >= 0) return code;
    if (!parse_list("--workers", o->workers_text, 256, true, o->workers, &o->n_workers) ||
        !parse_list("--prefetch", o->prefetch_text, 256, false, o->prefetch, &o->n_prefetch))
        return EXIT_USAGE;
    return -1;
}

/* ---- Measuring. */

/* Resident memory in KiB; 0 if unknown. */
static long resident_kib(void)
{
    long size, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &size, &pages) != 2) pages = 0;
    if (f) fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static ls_status take(ls_loader *l, const options *o)
{
    ls_batch *batch;
    ls_status status = ls_loader_next(l, &batch);
    if (!status && o->step_us) compute_for(o->step_us);
    return status;
}

static ls_status measure(const options *o, const ls_dataset *d, result *r)
{
    ls_loader *l;
    ls_loader_options lo = { .workers = r->workers,
                             .prefetch = r->workers < 0 ? 0 : r->prefetch,
                             .batch_size = (size_t)o->batch_size };
    ls_status status = ls_loader_open(&l, d, &lo);
    int64_t warmup = o->warmup >= 0 ? o->warmup : r->workers < 0 ? 50 : 5;
    for (int64_t i = 0; !status && i < warmup; i++) status = take(l, o);
    if (status) return status;
    ls_loader_stats before = ls_loader_get_stats(l);
    long memory = resident_kib();
    int64_t begin = ls_now(), now = begin;
    uint64_t n = 0;
    while (!status && (o->batches ? n < (uint64_t)o->batches : (double)(now - begin) < o->seconds * 1e9 || n < 3)) {
        status = take(l, o);
        now = ls_now();
        n++;
    }
    ls_loader_stats after = ls_loader_get_stats(l);
    r->batches = n;
    r->seconds = (double)(now - begin) * 1e-9;
    r->waited = (double)(after.wait_ns - before.wait_ns) * 1e-9 / r->seconds;
    r->load_seconds = (double)(after.load_ns - before.load_ns) * 1e-9 / (double)n;
    r->workers_end = after.workers;
    r->prefetch_end = after.prefetch;
    r->grown_kib = resident_kib() - memory;
    ls_loader_free(&l);
    return status;
}

static void report(const options *o, const result *r, bool first)
{
    double rate = (double)r->batches / r->seconds;
    if (o->json) {
        printf("{\"workers\": %d, \"auto\": %s, \"prefetch\": %d, \"batch_size\": %d, \"seq_len\": %d, \"batches\": "
               "%" PRIu64 ", \"batches_per_s\": %.6g, \"load_ms\": %.6g, \"waited\": %.5f, \"grown_kib\": %ld}\n",
               r->workers_end, r->workers < 0 ? "true" : "false", r->prefetch_end, o->batch_size, o->seq_len,
               r->batches, rate, r->load_seconds * 1e3, r->waited, r->grown_kib);
    } else {
        char workers[32], prefetch[16];
        snprintf(workers, sizeof workers, r->workers < 0 ? "auto: %d" : "%d", r->workers_end);
        snprintf(prefetch, sizeof prefetch, r->workers_end ? "%d" : "-", r->prefetch_end);
        if (first)
            printf("%10s %9s %12s %12s %10s %9s %10s\n", "workers", "prefetch", "batches/s", "tokens/s", "load",
                   "waited", "memory");
        printf("%10s %9s %12.1f %10.1f M %7.3f ms %7.1f %% %+6ld KiB\n", workers, prefetch, rate,
               rate * o->batch_size * o->seq_len * 1e-6, r->load_seconds * 1e3, 100 * r->waited, r->grown_kib);
    }
    fflush(stdout);
}

static ls_status draw(const options *o, const result *results, int count)
{
    static char names[PLOT_MAX_SERIES][32];
    static double x[PLOT_MAX_SERIES][MAX_LIST], y[PLOT_MAX_SERIES][MAX_LIST];
    plot p = { .title = "Batches by number of workers", .x_label = "workers", .y_label = "batches/s" };
    for (int k = 0; k < o->n_prefetch && k < PLOT_MAX_SERIES; k++) {
        int n = 0;
        for (int i = 0; i < count; i++) {
            if (results[i].prefetch != o->prefetch[k] || results[i].workers < 1) continue;
            x[k][n] = results[i].workers;
            y[k][n++] = (double)results[i].batches / results[i].seconds;
        }
        snprintf(names[k], sizeof names[k], "prefetch %d", o->prefetch[k]);
        p.series[p.series_count++] = (plot_series){ .name = names[k], .x = x[k], .y = y[k], .count = n };
    }
    return plot_write(&p, o->plot);
}

/* Shards of random tokens, if no files were given. Its name is gone at once; the dataset keeps it open. */
static ls_status open_temporary(ls_dataset **out, ls_tokens_options *to)
{
    const char *folder = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/lockstep-bench-XXXXXX", folder && *folder ? folder : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0) return ls__fail_errno("%s: cannot be created", path);
    static uint32_t block[1 << 16];
    ls_status status = LS_OK;
    for (uint64_t at = 0; !status && at < TEMPORARY_TOKENS; at += 2 << 16) {
        ls__random_fill_u32(block, 1 << 16, 1, 1, at);
        if (write(fd, block, sizeof block) != (ssize_t)sizeof block) status = ls__fail_errno("%s: writing", path);
    }
    close(fd);
    const char *paths[] = { path };
    to->paths = paths;
    to->n_paths = 1;
    to->format = LS_FORMAT_U16;
    if (!status) status = ls_tokens_open(out, to);
    unlink(path);
    return status;
}

static void show_log(void *user, ls_log_level level, const char *text)
{
    (void)user;
    (void)level;
    fprintf(stderr, "%s\n", text);
}

int bench_loader(int argc, char **argv)
{
    options o = {
        .batch_size = 8, .seq_len = 1024, .seconds = 1, .warmup = -1, .workers_text = "0,1,2,4", .prefetch_text = "2"
    };
    int code = parse(argc, argv, &o);
    if (code >= 0) return code;
    if (o.verbose) ls_log_set(show_log, NULL);
    costly c = { .cost_us = o.cost_us };
    ls_tokens_options to = { .paths = (const char *const *)o.data.items,
                             .n_paths = o.data.count,
                             .seq_len = (size_t)o.seq_len };
    ls_status status = o.data.count ? ls_tokens_open(&c.inner, &to) : open_temporary(&c.inner, &to);
    static result results[MAX_ROWS];
    int count = 0;
    if (!status) {
        ls__tokens_set_read_delay(c.inner, o.latency_us);
        c.dataset = *c.inner;
        c.dataset.self = &c;
        c.dataset.get = costly_get;
        c.dataset.redirect = NULL;
        c.dataset.free = NULL;
    }
    for (int k = 0; !status && k < o.n_prefetch; k++) {
        for (int w = 0; !status && w < o.n_workers; w++) {
            /* Without workers there is no prefetch, and auto adjusts it: one row is enough. */
            if (k && o.workers[w] < 1) continue;
            result *r = &results[count++];
            *r = (result){ .workers = o.workers[w], .prefetch = o.prefetch[k] };
            status = measure(&o, &c.dataset, r);
            if (!status) report(&o, r, count == 1);
        }
    }
    if (!status && o.plot) status = draw(&o, results, count);
    ls_dataset_free(&c.inner);
    if (!status) return EXIT_DONE;
    return exit_failure("bench loader", status);
}
