/* The results of `lockstep bench ddp` as plots, one per part and model; see ddp_report.c for the tables. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "base/text.h"
#include "cli/bench/ddp.h"
#include "cli/bench/plot.h"

enum { MAX_POINTS = 4096 };

static const char *const titles[DDP_PARTS] = {
    [DDP_ALLREDUCE] = "All-reduce by parameters per call",
    [DDP_READY] = "When gradients are ready in backward",
    [DDP_BREAKDOWN] = "Phases of a step",
    [DDP_BUCKETS] = "Step time by bucket size",
    [DDP_SCALING] = "Step time by number of ranks",
    [DDP_SKIP] = "Synchronized every N micro-batches",
    [DDP_ACCURACY] = "Loss with skipped synchronization",
    [DDP_GROUPS] = "Several groups in turn",
    [DDP_ACCUMULATE] = "4 micro-batches per step",
};

/* "NAME-hosts-bert-buckets.svg" */
static void plot_name(const ddp_bench *b, bool hosts, const char *model, const char *part, char *out, size_t room)
{
    size_t n = strlen(b->plot);
    bool png = n > 4 && !strcmp(b->plot + n - 4, ".png"), svg = n > 4 && !strcmp(b->plot + n - 4, ".svg");
    snprintf(out, room, "%.*s%s%s%s-%s.%s", (int)(png || svg ? n - 4 : n), b->plot, hosts ? "-hosts" : "",
             *model ? "-" : "", model, part, png ? "png" : "svg");
}

/* ---- Bars: parts that time whole steps. */

static void add_bar(plot_bars *p, const json_t *row, bool peer, char *label, size_t room)
{
    static const char *const ours[] = { "forward_ms", "backward_ms", "communication_ms", "update_ms" };
    static const char *const theirs[] = { "peer_forward_ms", "peer_backward_ms", "peer_communication_ms",
                                          "peer_update_ms" };
    const char *part = ddp_text(row, "part");
    double n = !strcmp(part, "skip") || !strcmp(part, "accumulate") ? ddp_number(row, "micro_batches") : 1;
    if (isnan(ddp_number(row, peer ? "peer_step_ms" : "step_ms")) || p->bar_count == PLOT_MAX_BARS) return;
    plot_bar *bar = &p->bars[p->bar_count++];
    bar->name = label;
    bar->spread = ddp_number(row, peer ? "peer_step_sd_ms" : "step_sd_ms") / n;
    for (int i = 0; i < 4; i++) bar->parts[i] = ddp_number(row, peer ? theirs[i] : ours[i]) / n;
    if (!peer) {
        ddp_label(row, label, room);
    } else if (isnan(ddp_number(row, "step_ms"))) { /* no bar of ours stands before it */
        ddp_label(row, label, room);
        char *space = strrchr(label, ' ');
        size_t length = strlen(label);
        if (space) *space = '\n';
        snprintf(label + length, room - length, ", torch");
    } else {
        snprintf(label, room, "torch");
    }
}

static ls_status plot_steps(const json_t *rows, ddp_part part, const char *model, bool hosts, const char *text,
                            const char *path)
{
    char labels[PLOT_MAX_BARS + 2][32];
    plot_bars p = { .title = text,
                    .y_label = part == DDP_SKIP || part == DDP_ACCUMULATE ? "ms per micro-batch" : "ms per step",
                    .parts = { "forward", "backward", "exposed communication", "update" },
                    .part_count = 4 };
    size_t i;
    const json_t *row;
    json_t *mine = ddp_select(rows, part, model, hosts);
    json_array_foreach(mine, i, row)
    {
        add_bar(&p, row, false, labels[p.bar_count], sizeof *labels);
        if (json_object_get(row, "peer")) add_bar(&p, row, true, labels[p.bar_count], sizeof *labels);
    }
    json_decref(mine);
    return plot_bars_write(&p, path);
}

/* ---- Curves. */

typedef struct curve {
    double x[MAX_POINTS], y[MAX_POINTS], low[MAX_POINTS], high[MAX_POINTS];
    int count;
} curve;

static void add_point(curve *c, double x, double y, double low, double high)
{
    if (c->count == MAX_POINTS || isnan(x) || isnan(y)) return;
    c->x[c->count] = x;
    c->y[c->count] = y;
    c->low[c->count] = isnan(low) ? y : low;
    c->high[c->count++] = isnan(high) ? y : high;
}

static void add_curve(plot *p, const char *name, const curve *c)
{
    if (c->count && p->series_count < PLOT_MAX_SERIES)
        p->series[p->series_count++] =
            (plot_series){ .name = name, .x = c->x, .y = c->y, .count = c->count, .low = c->low, .high = c->high };
}

static double item(const json_t *row, const char *key, size_t i)
{
    return json_number_value(json_array_get(json_object_get(row, key), i));
}

static ls_status plot_allreduce(const json_t *rows, bool hosts, const char *text, const char *path, curve *c)
{
    plot p = { .title = text, .x_label = "parameters per call", .y_label = "time", .y_in_seconds = true };
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row)
    {
        if (!ddp_is(row, DDP_ALLREDUCE, "", hosts)) continue;
        double x = ddp_number(row, "elements_per_call");
        add_point(&c[0], x, ddp_number(row, "ms") / 1e3, ddp_number(row, "p25_ms") / 1e3,
                  ddp_number(row, "p75_ms") / 1e3);
        add_point(&c[1], x, ddp_number(row, "peer_ms") / 1e3, ddp_number(row, "peer_p25_ms") / 1e3,
                  ddp_number(row, "peer_p75_ms") / 1e3);
    }
    add_curve(&p, "lockstep", &c[0]);
    add_curve(&p, "torch (Gloo)", &c[1]);
    return plot_write(&p, path);
}

static ls_status plot_ready(const json_t *rows, const char *model, bool hosts, const char *text, const char *path,
                            curve *c)
{
    plot p = { .title = text,
               .x_label = "parameters that are ready",
               .y_label = "time since backward began",
               .y_in_seconds = true,
               .linear = true };
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row)
    {
        if (!ddp_is(row, DDP_READY, model, hosts)) continue;
        for (size_t k = 0; k < json_array_size(json_object_get(row, "elements")); k++)
            add_point(&c[0], item(row, "elements", k), item(row, "ms", k) / 1e3, item(row, "low_ms", k) / 1e3,
                      item(row, "high_ms", k) / 1e3);
        for (size_t k = 0; k < json_array_size(json_object_get(row, "peer_elements")); k++)
            add_point(&c[1], item(row, "peer_elements", k), item(row, "peer_ms", k) / 1e3, NAN, NAN);
    }
    add_curve(&p, "lockstep", &c[0]);
    add_curve(&p, "torch", &c[1]);
    return plot_write(&p, path);
}

/* One plot per batch size. */
static ls_status plot_accuracy(const ddp_bench *b, const json_t *rows, bool hosts, curve *c)
{
    char names[4][32], path[4096], text[160], part[32];
    ls_status status = LS_OK;
    for (int batch = 8; batch <= 32 && !status; batch *= 4) {
        plot p = { .title = text, .x_label = "iterations", .y_label = "loss", .linear = true };
        size_t i;
        int n = 0;
        const json_t *row;
        json_array_foreach(rows, i, row)
        {
            if (!ddp_is(row, DDP_ACCURACY, "", hosts) || ddp_number(row, "batch_size") != batch || n == 4) continue;
            size_t windows = json_array_size(json_object_get(row, "loss"));
            c[n].count = 0;
            for (size_t k = 0; k < windows; k++)
                add_point(&c[n], ((double)k + 0.5) * ddp_number(row, "iterations") / (double)windows,
                          item(row, "loss", k), NAN, NAN);
            ddp_label(row, names[n], sizeof names[n]);
            add_curve(&p, names[n], &c[n]);
            n++;
        }
        snprintf(text, sizeof text, "%s, %d images per rank", titles[DDP_ACCURACY], batch);
        snprintf(part, sizeof part, "accuracy-%d", batch);
        plot_name(b, hosts, "", part, path, sizeof path);
        if (n) status = plot_write(&p, path);
    }
    return status;
}

static bool has(const json_t *rows, ddp_part part, const char *model, bool hosts)
{
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row) if (ddp_is(row, part, model, hosts)) return true;
    return false;
}

ls_status ddp_plots(const ddp_bench *b, const json_t *rows)
{
    char path[4096], text[160];
    const json_t *any = json_array_get(rows, 0);
    bool hosts = ddp_number(any, "hosts") > 1;
    ls_status status = LS_OK;
    curve *c = calloc(4, sizeof *c);
    if (!c) return ls__fail(LS_ENOMEM, "no memory for plots");
    for (int part = 0; part < DDP_PARTS && !status; part++)
        for (int k = -1; k < DDP_MODELS && !status; k++) {
            const char *model = k < 0 ? "" : ddp_model_names[k];
            if (!has(rows, (ddp_part)part, model, hosts)) continue;
            plot_name(b, hosts, model, ddp_part_names[part], path, sizeof path);
            snprintf(text, sizeof text, "%s%s%s%s%s", model, *model ? ": " : "", titles[part],
                     hosts ? ", 2 hosts, link of " : "", hosts ? b->link : "");
            c[0].count = c[1].count = 0;
            status = part == DDP_ALLREDUCE  ? plot_allreduce(rows, hosts, text, path, c)
                     : part == DDP_READY    ? plot_ready(rows, model, hosts, text, path, c)
                     : part == DDP_ACCURACY ? plot_accuracy(b, rows, hosts, c)
                                            : plot_steps(rows, (ddp_part)part, model, hosts, text, path);
        }
    free(c);
    return status;
}
