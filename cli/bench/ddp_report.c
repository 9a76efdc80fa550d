/* The results of `lockstep bench ddp` as tables or JSON lines. ddp_plots.c draws them. */
#include <math.h>
#include <string.h>
#include "base/text.h"
#include "cli/bench/ddp.h"

double ddp_number(const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

const char *ddp_text(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

bool ddp_is(const json_t *row, ddp_part part, const char *model, bool hosts)
{
    return !strcmp(ddp_text(row, "part"), ddp_part_names[part]) && !strcmp(ddp_text(row, "model"), model) &&
           (ddp_number(row, "hosts") > 1) == hosts;
}

json_t *ddp_select(const json_t *rows, ddp_part part, const char *model, bool hosts)
{
    json_t *found = json_array(), *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        size_t at = json_array_size(found);
        if (!ddp_is(row, part, model, hosts)) continue;
        while (at && ddp_number(json_array_get(found, at - 1), "ranks") > ddp_number(row, "ranks")) at--;
        json_array_insert(found, at, row);
    }
    return found;
}

static const json_t *first_of(const json_t *rows, ddp_part part, const char *model)
{
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row) if (ddp_is(row, part, model, ddp_number(row, "hosts") > 1)) return row;
    return NULL;
}

void ddp_label(const json_t *row, char *out, size_t room)
{
    const char *part = ddp_text(row, "part");
    double bucket = ddp_number(row, "bucket_bytes");
    if (!strcmp(part, "breakdown"))
        snprintf(out, room, "%s", json_is_true(json_object_get(row, "overlap")) ? "overlap" : "no overlap");
    else if (!strcmp(part, "buckets"))
        bucket < 2 ? snprintf(out, room, "0") : snprintf(out, room, "%.4g MiB", bucket / (1 << 20));
    else if (!strcmp(part, "scaling"))
        snprintf(out, room, "%.0f rank%s", ddp_number(row, "ranks"), ddp_number(row, "ranks") > 1 ? "s" : "");
    else if (!strcmp(part, "skip") || !strcmp(part, "accuracy"))
        snprintf(out, room, "every %.0f", ddp_number(row, "micro_batches"));
    else if (!strcmp(part, "groups"))
        snprintf(out, room, "%.0f group%s", ddp_number(row, "groups"), ddp_number(row, "groups") > 1 ? "s" : "");
    else
        snprintf(out, room, "%s", ddp_text(row, "way"));
}

/* "12.3 ±0.4" */
static void put_time(FILE *to, double ms, double sd, double divisor)
{
    if (isnan(ms))
        fprintf(to, " %16s", "-");
    else
        fprintf(to, " %9.1f \u00b1%5.1f", ms / divisor, isnan(sd) ? 0 : sd / divisor);
}

/* ---- Parts that time whole steps. */

static void title(const ddp_bench *b, ddp_part part, const json_t *row, FILE *to)
{
    static const char *const texts[DDP_PARTS] = {
        [DDP_BREAKDOWN] = "Phases of a step, without and with overlap (the paper's figure 6)",
        [DDP_BUCKETS] = "A step by bucket size; 0: each parameter by itself (figures 7 and 8)",
        [DDP_SCALING] = "A step by number of ranks, each with the same batch (figure 9)",
        [DDP_SKIP] = "Synchronized every N micro-batches: times of one micro-batch (figure 10)",
        [DDP_GROUPS] = "Buckets of 1 MiB that use several groups in turn (figure 12)",
        [DDP_ACCUMULATE] = "4 micro-batches per step: times of one micro-batch (Accelerate's table)",
    };
    (void)b;
    fprintf(to, "\n%s: %s", ddp_text(row, "model"), texts[part]);
    if (part == DDP_SCALING)
        fputs("; ms\n", to);
    else if (ddp_number(row, "hosts") > 1)
        fprintf(to, ";\n  %.0f hosts, link of %s; ms\n", ddp_number(row, "hosts"), ddp_text(row, "link"));
    else
        fprintf(to, "; %.0f rank%s; ms\n", ddp_number(row, "ranks"), ddp_number(row, "ranks") > 1 ? "s" : "");
}

static void head(const json_t *row, FILE *to)
{
    const char *peer = ddp_text(row, "peer");
    fprintf(to, "%20s %16s %9s %9s %9s %9s %7s", "", "step", "forward", "backward", "exposed", "update", "ratio");
    if (*peer) fprintf(to, " %16s %9s", "torch", "torch/our");
    fputc('\n', to);
}

static double divisor_of(const json_t *row)
{
    const char *part = ddp_text(row, "part");
    return !strcmp(part, "skip") || !strcmp(part, "accumulate") ? ddp_number(row, "micro_batches") : 1;
}

static void put_row(const json_t *row, const json_t *first, FILE *to)
{
    static const char *const phases[] = { "forward_ms", "backward_ms", "communication_ms", "update_ms" };
    char label[32];
    double n = divisor_of(row), ours = ddp_number(row, "step_ms") / n, theirs = ddp_number(row, "peer_step_ms") / n;
    ddp_label(row, label, sizeof label);
    fprintf(to, "%20s", label);
    put_time(to, ours, ddp_number(row, "step_sd_ms") / n, 1);
    for (int i = 0; i < 4 && !isnan(ours); i++) fprintf(to, " %9.1f", ddp_number(row, phases[i]) / n);
    if (isnan(ours))
        fprintf(to, " %47s", "not possible: begin decides before forward");
    else
        fprintf(to, " %6.2fx", ddp_number(first, "step_ms") / divisor_of(first) / ours);
    if (json_object_get(row, "peer")) {
        put_time(to, theirs, ddp_number(row, "peer_step_sd_ms") / n, 1);
        if (!isnan(ours)) fprintf(to, " %8.2fx", theirs / ours);
    }
    fputc('\n', to);
}

static void report_steps(const ddp_bench *b, const json_t *rows, ddp_part part, const char *model, FILE *to)
{
    size_t i;
    const json_t *row, *any = first_of(rows, part, model);
    json_t *mine = any ? ddp_select(rows, part, model, ddp_number(any, "hosts") > 1) : NULL;
    const json_t *first = json_array_get(mine, 0);
    if (first) {
        title(b, part, first, to);
        head(first, to);
    }
    json_array_foreach(mine, i, row) put_row(row, first, to);
    json_decref(mine);
}

/* ---- The other parts. */

static void report_allreduce(const json_t *rows, FILE *to)
{
    size_t i;
    const json_t *row, *first = first_of(rows, DDP_ALLREDUCE, "");
    if (!first) return;
    fprintf(to, "\nAll-reduce of %.0f M parameters, by parameters per call (the paper's figure 2); %s%.0f ranks; ms\n",
            ddp_number(first, "elements") / 1e6, ddp_number(first, "hosts") > 1 ? "2 hosts, " : "",
            ddp_number(first, "ranks"));
    fprintf(to, "%20s %9s %20s", "per call", "median", "quartiles");
    if (*ddp_text(first, "peer")) fprintf(to, " %9s %9s", "torch", "torch/our");
    fputc('\n', to);
    json_array_foreach(rows, i, row)
    {
        if (strcmp(ddp_text(row, "part"), ddp_part_names[DDP_ALLREDUCE]) != 0) continue;
        fprintf(to, "%18.0f K %9.2f %9.2f to %7.2f", ddp_number(row, "elements_per_call") / 1e3, ddp_number(row, "ms"),
                ddp_number(row, "p25_ms"), ddp_number(row, "p75_ms"));
        if (*ddp_text(row, "peer"))
            fprintf(to, " %9.2f %8.2fx", ddp_number(row, "peer_ms"),
                    ddp_number(row, "peer_ms") / ddp_number(row, "ms"));
        fputc('\n', to);
    }
}

/* Element i of a list of numbers. */
static double item(const json_t *row, const char *key, size_t i)
{
    return json_number_value(json_array_get(json_object_get(row, key), i));
}

/* When so many elements are ready: the time of the first parameter with which they are. */
static double when(const json_t *row, const char *elements, const char *times, double share)
{
    size_t n = json_array_size(json_object_get(row, elements)), i = 0;
    double all = n ? item(row, elements, n - 1) : 0;
    while (i + 1 < n && item(row, elements, i) < share * all) i++;
    return n ? item(row, times, i) : NAN;
}

static void report_ready(const json_t *rows, const char *model, FILE *to)
{
    const json_t *row = first_of(rows, DDP_READY, model);
    if (!row) return;
    size_t n = json_array_size(json_object_get(row, "elements"));
    fprintf(to,
            "\n%s: When in backward gradients are ready, without communication (figure 2);\n "
            " %.2f M parameters; ms\n",
            model, item(row, "elements", n - 1) / 1e6);
    fprintf(to, "%20s %9s %20s", "ready", "median", "range");
    if (*ddp_text(row, "peer")) fprintf(to, " %9s", "torch");
    fputc('\n', to);
    for (int part = 1; part <= 10; part++) {
        double share = part / 10.0;
        fprintf(to, "%18d %% %9.1f %9.1f to %7.1f", part * 10, when(row, "elements", "ms", share),
                when(row, "elements", "low_ms", share), when(row, "elements", "high_ms", share));
        if (*ddp_text(row, "peer")) fprintf(to, " %9.1f", when(row, "peer_elements", "peer_ms", share));
        fputc('\n', to);
    }
}

static void report_accuracy(const json_t *rows, FILE *to)
{
    size_t i;
    const json_t *row;
    double batch = 0;
    json_array_foreach(rows, i, row)
    {
        if (strcmp(ddp_text(row, "part"), ddp_part_names[DDP_ACCURACY]) != 0) continue;
        if (ddp_number(row, "batch_size") != batch) {
            batch = ddp_number(row, "batch_size");
            fprintf(to,
                    "\nLearning with skipped synchronization (figure 11): a small ResNet on built-in pictures, %.0f "
                    "per rank,\n  "
                    "%.0f iterations, %.0f ranks; mean loss of a sixteenth of them\n%20s",
                    batch, ddp_number(row, "iterations"), ddp_number(row, "ranks"), "synchronized");
            for (int part = 1; part <= 4; part++) fprintf(to, " %7d %%", part * 25);
            fprintf(to, " %12s\n", "accuracy");
        }
        char label[32];
        ddp_label(row, label, sizeof label);
        fprintf(to, "%20s", label);
        size_t n = json_array_size(json_object_get(row, "loss"));
        for (size_t part = 1; part <= 4; part++) fprintf(to, " %9.4f", item(row, "loss", part * n / 4 - 1));
        fprintf(to, " %10.1f %%\n", 100 * ddp_number(row, "accuracy"));
    }
}

/* What was measured. */
static void describe(const ddp_bench *b, const json_t *rows, FILE *to)
{
    const json_t *row = json_array_get(rows, 0);
    char text[200];
    size_t i;
    if (ddp_number(row, "hosts") > 1)
        fprintf(to, "\n%.0f hosts with a link of %s\n", ddp_number(row, "hosts"), b->link);
    else
        fprintf(to, "%.0f rank%s of %d thread%s on this machine\n", ddp_number(row, "ranks"),
                ddp_number(row, "ranks") > 1 ? "s" : "", b->threads, ls__s(b->threads));
    for (int k = 0; k < DDP_MODELS; k++)
        json_array_foreach(rows, i, row) if (!strcmp(ddp_text(row, "model"), ddp_model_names[k]) &&
                                             ddp_number(row, "parameters") > 0)
        {
            double parameters = ddp_number(row, "parameters");
            ddp_model_describe(b, (ddp_kind)k, text, sizeof text);
            fprintf(to, "%s: %s, %.2f M parameters (%.1f MiB)\n", ddp_model_names[k], text, parameters / 1e6,
                    parameters * 4 / (1 << 20));
            break;
        }
    json_array_foreach(rows, i, row) if (*ddp_text(row, "peer"))
    {
        fprintf(to, "torch: %s, DistributedDataParallel over Gloo, measured after lockstep\n", ddp_text(row, "peer"));
        break;
    }
}

void ddp_report(const ddp_bench *b, const json_t *rows, FILE *to)
{
    size_t i;
    const json_t *row;
    if (!json_array_size(rows)) return;
    if (b->json) {
        json_array_foreach(rows, i, row)
        {
            json_dumpf(row, to, JSON_REAL_PRECISION(7));
            fputc('\n', to);
        }
        fflush(to);
        return;
    }
    describe(b, rows, to);
    report_allreduce(rows, to);
    for (int k = 0; k < DDP_MODELS; k++) report_ready(rows, ddp_model_names[k], to);
    for (int part = 0; part < DDP_PARTS; part++) {
        for (int k = 0; k < DDP_MODELS && part != DDP_READY; k++)
            report_steps(b, rows, (ddp_part)part, ddp_model_names[k], to);
        if (part == DDP_ACCURACY) report_accuracy(rows, to);
    }
    fflush(to);
}
