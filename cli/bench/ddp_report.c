/* The results of `lockstep bench ddp`: tables, JSON lines, plots. */
#include <string.h>
#include "base/text.h"
#include "cli/bench/ddp.h"
#include "cli/bench/plot.h"

static void describe(const ddp_bench *b, FILE *to)
{
    fprintf(
        to,
        "%s%.1f M parameters (%d layer%s, width %d, vocabulary %d; %.0f MiB of gradients), %d rank%s of %d thread%s",
        b->hosts > 1 ? "\n" : "", b->parameters / 1e6, b->layers, ls__s(b->layers), b->width, b->vocab_size,
        b->parameters * 4 / (1 << 20), b->world_size, ls__s(b->world_size), b->threads, ls__s(b->threads));
    if (b->hosts > 1)
        fprintf(to, " on %d hosts, link of %s (%s)\n", b->hosts, b->link, b->transport);
    else
        fprintf(to, " on this machine (%s)\n", b->transport);
}

static const char *times_header = "%12s %9s %9s %9s %14s %9s %9s\n";

static void head(FILE *to, const char *first)
{
    fprintf(to, times_header, first, "step", "forward", "backward", "communication", "update", "ratio");
}

static void times(FILE *to, const char *label, const ddp_times *t, double divisor, double ratio)
{
    fprintf(to, "%12s %6.1f ms %6.1f ms %6.1f ms %11.1f ms %6.1f ms %8.2fx\n", label, t->total / divisor,
            t->forward / divisor, t->backward / divisor, t->exposed / divisor, t->update / divisor, ratio);
}

static const ddp_row *first_of(const ddp_bench *b, ddp_part part)
{
    for (int i = 0; i < b->n_rows; i++)
        if (b->table[i].part == part) return &b->table[i];
    return NULL;
}

static void title(const ddp_bench *b, ddp_part part, FILE *to)
{
    const ddp_row *r = first_of(b, part);
    const ddp_times *t = &r->result;
    switch (part) {
    case DDP_BREAKDOWN:
        fprintf(to,
                "\nPhases of a step: %d x %d tokens per rank; communication is the exposed part; in total it\ntakes "
                "%.2f times as long as backward\n",
                r->batch_size, b->seq_len, t->backward > 0 ? t->exposed / t->backward : 0);
        head(to, "overlap");
        break;
    case DDP_BUCKETS:
        fprintf(to, "\nStep time by bucket size: %d x %d tokens per rank, with overlap\n", r->batch_size, b->seq_len);
        head(to, "bucket");
        break;
    case DDP_SKIP:
        fprintf(to, "\nSynchronized every N micro-batches: times of one micro-batch of %d x %d tokens\n", r->batch_size,
                b->seq_len);
        head(to, "every");
        break;
    default:
        fprintf(
            to,
            "\n%d micro-batches of %d x %d tokens per step: times of one micro-batch. The baseline synchronizes each;"
            " its\ncommunication takes %.2f times as long as forward and backward\n",
            DDP_MICRO_BATCHES, r->batch_size, b->seq_len, t->exposed / (t->forward + t->backward));
        head(to, "");
    }
}

static void label_of(const ddp_row *r, char *out, size_t room)
{
    switch (r->part) {
    case DDP_BREAKDOWN: snprintf(out, room, "%s", r->no_overlap ? "no" : "yes"); break;
    case DDP_BUCKETS: snprintf(out, room, "%.4g MiB", (double)r->bucket_bytes / (1 << 20)); break;
    case DDP_SKIP: snprintf(out, room, "%d", r->micro_batches); break;
    default: snprintf(out, room, "%s", r->sync_each ? "baseline" : "no_sync");
    }
}

static void row_json(const ddp_bench *b, const ddp_row *r, FILE *to)
{
    const ddp_times *t = &r->result;
    int last = r->count - 1; /* the samples are in order */
    fprintf(to,
            "{\"part\": \"%s\", \"hosts\": %d, \"ranks\": %d, \"link\": %s%s%s, \"parameters\": %.0f, \"overlap\": %s, "
            "\"bucket_bytes\": %zu, \"micro_batches\": %d, \"sync_each\": %s, \"batch_size\": %d, \"seq_len\": %d, "
            "\"steps\": %d, \"step_ms\": %.4f, \"step_p25_ms\": %.4f, \"step_p75_ms\": %.4f, \"forward_ms\": %.4f, "
            "\"backward_ms\": %.4f, \"communication_ms\": "
            "%.4f, \"update_ms\": %.4f}\n",
            ddp_part_names[r->part], b->hosts, b->world_size, b->hosts > 1 ? "\"" : "", b->hosts > 1 ? b->link : "null",
            b->hosts > 1 ? "\"" : "", b->parameters, r->no_overlap ? "false" : "true", r->bucket_bytes,
            r->micro_batches, r->sync_each ? "true" : "false", r->batch_size, b->seq_len, r->count, t->total,
            r->samples[last / 4].total, r->samples[last - last / 4].total, t->forward, t->backward, t->exposed,
            t->update);
}

void ddp_report(const ddp_bench *b, FILE *to)
{
    char label[32];
    if (!b->json) describe(b, to);
    for (int i = 0; i < b->n_rows; i++) {
        const ddp_row *r = &b->table[i], *first = first_of(b, r->part);
        if (b->json) {
            row_json(b, r, to);
            continue;
        }
        if (r == first) title(b, r->part, to);
        label_of(r, label, sizeof label);
        double divisor = r->part == DDP_SKIP || r->part == DDP_ACCUMULATE ? r->micro_batches : 1;
        double divisor_first = r->part == DDP_SKIP || r->part == DDP_ACCUMULATE ? first->micro_batches : 1;
        times(to, label, &r->result, divisor, first->result.total / divisor_first / (r->result.total / divisor));
    }
    fflush(to);
}

/* ---- Plots. */

/* "NAME-hosts-buckets.svg" */
static void plot_name(const ddp_bench *b, ddp_part part, char *out, size_t room)
{
    size_t n = strlen(b->plot);
    bool png = n > 4 && !strcmp(b->plot + n - 4, ".png"), svg = n > 4 && !strcmp(b->plot + n - 4, ".svg");
    snprintf(out, room, "%.*s%s-%s.%s", (int)(png || svg ? n - 4 : n), b->plot, b->hosts > 1 ? "-hosts" : "",
             ddp_part_names[part], png ? "png" : "svg");
}

static ls_status plot_bars_of(const ddp_bench *b, ddp_part part, const char *text, const char *path)
{
    static char labels[DDP_MAX_ROWS][32];
    plot_bars p = { .title = text,
                    .y_label = part == DDP_BREAKDOWN ? "ms per step" : "ms per micro-batch",
                    .parts = { "forward", "backward", "communication not hidden", "update" },
                    .part_count = 4 };
    for (int i = 0; i < b->n_rows && p.bar_count < PLOT_MAX_BARS; i++) {
        const ddp_row *r = &b->table[i];
        if (r->part != part) continue;
        const ddp_times *t = &r->result;
        label_of(r, labels[i], sizeof labels[i]);
        if (part == DDP_BREAKDOWN)
            snprintf(labels[i], sizeof labels[i], r->no_overlap ? "without overlap" : "with overlap");
        if (part == DDP_SKIP) snprintf(labels[i], sizeof labels[i], "every %d", r->micro_batches);
        double n = r->micro_batches;
        p.bars[p.bar_count++] =
            (plot_bar){ labels[i], { t->forward / n, t->backward / n, t->exposed / n, t->update / n } };
    }
    return plot_bars_write(&p, path);
}

static ls_status plot_buckets(const ddp_bench *b, const char *text, const char *path)
{
    double x[DDP_MAX_ROWS], y[DDP_MAX_ROWS], exposed[DDP_MAX_ROWS];
    int n = 0;
    for (int i = 0; i < b->n_rows; i++) {
        const ddp_row *r = &b->table[i];
        if (r->part != DDP_BUCKETS) continue;
        x[n] = (double)r->bucket_bytes;
        y[n] = r->result.total / 1e3;
        exposed[n++] = r->result.exposed / 1e3;
    }
    plot p = { .title = text,
               .x_label = "size of buckets",
               .y_label = "time of a step",
               .x_in_bytes = true,
               .y_in_seconds = true,
               .series = { { "step", x, y, n, false }, { "communication not hidden", x, exposed, n, false } },
               .series_count = 2 };
    return plot_write(&p, path);
}

ls_status ddp_report_plots(const ddp_bench *b)
{
    static const char *const titles[] = { "Phases of a step", "Step time by bucket size",
                                          "Synchronized every N micro-batches", "4 micro-batches per step" };
    ls_status status = LS_OK;
    for (int part = 0; part < DDP_PARTS && !status; part++) {
        char path[4096], text[160];
        if (!b->parts[part]) continue;
        plot_name(b, (ddp_part)part, path, sizeof path);
        snprintf(text, sizeof text, b->hosts > 1 ? "%s, %d rank%s, %d hosts, %s" : "%s, %d rank%s", titles[part],
                 b->world_size, ls__s(b->world_size), b->hosts, b->link);
        status = part == DDP_BUCKETS ? plot_buckets(b, text, path) : plot_bars_of(b, (ddp_part)part, text, path);
    }
    return status;
}
