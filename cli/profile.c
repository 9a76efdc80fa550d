/* lockstep profile: the time of each operation of a training run, from RUN/profile/rank-R.json.
 *
 * Three tables: operations of forward, operations of backward, layers; each sorted by self time. The file is not trusted: missing
 * values count as 0, and names are printed without control characters. */
#include "cli/profile.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/last_run.h"
#include "cli/options.h"

static const char intro[] =
    "usage: lockstep profile [RUN] [OPTIONS]\n"
    "\n"
    "Shows the time of each operation of a run made with 'lockstep train --profile':\n"
    "self time, calls, GFLOP/s of matrix products, minimum memory traffic, output shape; for forward and\n"
    "backward separately, and per layer. Times are per step. RUN is the run folder (runs/last).\n\n";

static double real(const json_t *o, const char *key)
{
    double x = json_number_value(json_object_get(o, key));
    return isfinite(x) && x > 0 ? x : 0;
}

/* Text of a file, for a terminal. */
static void copy_text(char *to, size_t bytes, const char *from)
{
    ls__printable(to, bytes, from ? from : "");
}

static void shape_text(char *to, size_t bytes, const json_t *shape)
{
    size_t at = 0, i;
    json_t *value;
    *to = 0;
    json_array_foreach(shape, i, value)
    {
        if (i > 7 || at + 24 > bytes) break;
        at += (size_t)snprintf(to + at, bytes - at, "%s%lld", i ? ", " : "(", (long long)json_integer_value(value));
    }
    if (at) snprintf(to + at, bytes - at, ")");
}

/* "attention", "linear attn.c_attn": the operation and its place within a layer. */
static void operation_name(char *to, size_t bytes, const json_t *row)
{
    char op[PROFILE_NAME - 40], module[64], layer[64];
    copy_text(op, sizeof op, json_string_value(json_object_get(row, "op")));
    copy_text(module, sizeof module, json_string_value(json_object_get(row, "module")));
    copy_text(layer, sizeof layer, json_string_value(json_object_get(row, "layer")));
    size_t n = strlen(layer);
    bool inside = n && !strncmp(module, layer, n) && module[n] == '.';
    snprintf(to, bytes, "%s%s%.36s", op, *module ? " " : "", inside ? module + n + 1 : module);
}

static bool is_backward(const json_t *row)
{
    const char *pass = json_string_value(json_object_get(row, "pass"));
    return pass && !strcmp(pass, "backward");
}

static void add_row(profile_table *t, const char *name, const char *shape, const json_t *row)
{
    size_t i = 0;
    while (i < t->count && strcmp(t->lines[i].name, name)) i++;
    profile_line *l = &t->lines[i];
    if (i == t->count) {
        *l = (profile_line){ 0 };
        snprintf(l->name, sizeof l->name, "%s", name);
        snprintf(l->shape, sizeof l->shape, "%s", shape);
        t->count++;
    } else if (strcmp(l->shape, shape)) {
        strcpy(l->shape, "several");
    }
    double ms = real(row, "ms"), memory = real(row, "memory_bytes");
    l->ms += ms;
    t->ms += ms;
    if (is_backward(row)) {
        l->backward_ms += ms;
        t->backward_ms += ms;
    }
    l->flops += real(row, "flops");
    l->bytes += real(row, "bytes");
    l->calls += real(row, "calls");
    l->memory += memory;
}

static int by_time(const void *a, const void *b)
{
    double x = ((const profile_line *)a)->ms, y = ((const profile_line *)b)->ms;
    return (x < y) - (x > y);
}

static void print_number(FILE *to, int width, int digits, double x)
{
    if (x > 0)
        fprintf(to, " %*.*f", width, digits, x);
    else
        fprintf(to, " %*s", width, "-");
}

/* A name that is too long for its column without its middle: PyTorch's have their difference at the end. */
static const char *short_name(const char *name, char out[33])
{
    enum { WIDTH = 32, BEGIN = 12 };
    size_t n = strlen(name);
    if (n <= WIDTH) return name;
    snprintf(out, WIDTH + 1, "%.*s..%s", BEGIN, name, name + n - (WIDTH - BEGIN - 2));
    return out;
}

static void print_operations(FILE *to, const profile_table *t, const char *title, double steps, double step_ms)
{
    fprintf(to, "\n%-34s %9s %6s %7s %8s %7s %8s  %s\n", title, "ms/step", "share", "calls", "GFLOP/s", "GB/s", "MiB",
            "output");
    for (size_t i = 0; i < t->count; i++) {
        const profile_line *l = &t->lines[i];
        char name[33];
        fprintf(to, "  %-32s %9.3f %5.1f%% %7.4g", short_name(l->name, name), l->ms / steps,
                step_ms > 0 ? 100 * l->ms / step_ms : 0, l->calls / steps);
        print_number(to, 8, 1, l->ms > 0 ? l->flops / l->ms / 1e6 : 0);
        /* An operation whose backward was done on the way forward takes no time and moves nothing. */
        print_number(to, 7, 1, l->ms > 1e-3 * l->calls ? l->bytes / l->ms / 1e6 : 0);
        print_number(to, 8, 2, l->memory / (1 << 20));
        fprintf(to, "  %s\n", l->shape);
    }
    fprintf(to, "  %-32s %9.3f %5.1f%%\n", "all", t->ms / steps, step_ms > 0 ? 100 * t->ms / step_ms : 0);
}

static void print_layers(FILE *to, const profile_table *t, double steps, double step_ms)
{
    fprintf(to, "\n%-34s %9s %6s %9s %9s %8s %8s\n", "layer", "ms/step", "share", "forward", "backward", "GFLOP/s",
            "MiB");
    for (size_t i = 0; i < t->count; i++) {
        const profile_line *l = &t->lines[i];
        char name[33];
        fprintf(to, "  %-32s %9.3f %5.1f%% %9.3f %9.3f", short_name(l->name, name), l->ms / steps,
                step_ms > 0 ? 100 * l->ms / step_ms : 0, (l->ms - l->backward_ms) / steps, l->backward_ms / steps);
        print_number(to, 8, 1, l->ms > 0 ? l->flops / l->ms / 1e6 : 0);
        print_number(to, 8, 2, l->memory / (1 << 20));
        fputc('\n', to);
    }
}

static void print_head(FILE *to, const profile *p)
{
    double ops = p->forward.ms + p->backward.ms, rest = p->forward_ms + p->backward_ms - ops, n = p->steps;
    fprintf(to, "rank %g of %g, steps %.0f to %.0f, %g thread%s: %.3f ms per step\n", p->rank, p->ranks, p->first_step,
            p->first_step + n - 1, p->threads, p->threads == 1 ? "" : "s", p->step_ms / n);
    fprintf(to,
            "  operations %.3f ms (%.1f%%); between them (reducing gradients, waiting) %.3f ms; data %.3f ms; update "
            "%.3f ms; other %.3f ms\n",
            ops / n, p->step_ms > 0 ? 100 * ops / p->step_ms : 0, (rest > 0 ? rest : 0) / n, p->data_ms / n,
            p->update_ms / n, p->other_ms / n);
    if (!(p->peak_gflops > 0) && !(p->resident_bytes > 0)) return; /* an imported run: not known */
    fprintf(to, "  measured SGEMM: %.1f GFLOP/s; peak memory: activations %.1f MiB, process %.1f MiB\n", p->peak_gflops,
            p->activation_bytes / (1 << 20), p->resident_bytes / (1 << 20));
}

/* ---- Reading */

static ls_status fill_tables(profile *p, const json_t *root, const char *path)
{
    const json_t *rows = json_object_get(root, "operations"), *phases = json_object_get(root, "phase_ms");
    size_t n = json_array_size(rows), i;
    if (!json_is_array(rows)) return ls__fail(LS_EFORMAT, "%s: not a profile", path);
    *p = (profile){ .rank = real(root, "rank"),
                    .ranks = real(root, "ranks"),
                    .threads = real(root, "threads"),
                    .first_step = real(root, "first_step"),
                    .steps = real(root, "steps"),
                    .step_ms = real(root, "step_ms"),
                    .data_ms = real(phases, "data"),
                    .forward_ms = real(phases, "forward"),
                    .backward_ms = real(phases, "backward"),
                    .update_ms = real(phases, "update"),
                    .other_ms = real(phases, "other"),
                    .peak_gflops = real(root, "peak_gflops"),
                    .activation_bytes = real(root, "activation_peak_bytes"),
                    .resident_bytes = real(root, "resident_peak_bytes"),
                    .memory = calloc(3 * n + 1, sizeof *p->memory) };
    if (!p->memory) return ls__fail(LS_ENOMEM, "%s: out of memory", path);
    if (p->steps < 1)
        return ls__fail(LS_EFORMAT, "%s: no step was measured; the run ended before its second step", path);
    p->forward.lines = p->memory;
    p->backward.lines = p->memory + n;
    p->layers.lines = p->memory + 2 * n;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        char name[PROFILE_NAME], shape[48], layer[64];
        operation_name(name, sizeof name, row);
        shape_text(shape, sizeof shape, json_object_get(row, "shape"));
        copy_text(layer, sizeof layer, json_string_value(json_object_get(row, "layer")));
        add_row(is_backward(row) ? &p->backward : &p->forward, name, shape, row);
        add_row(&p->layers, *layer ? layer : "(none)", "", row);
    }
    qsort(p->forward.lines, p->forward.count, sizeof *p->memory, by_time);
    qsort(p->backward.lines, p->backward.count, sizeof *p->memory, by_time);
    qsort(p->layers.lines, p->layers.count, sizeof *p->memory, by_time);
    return LS_OK;
}

/* The file's text; the caller frees it. */
static ls_status read_text(const char *run_dir, int rank, char *path, size_t path_bytes, char **text)
{
    size_t bytes;
    snprintf(path, path_bytes, "%s/profile/rank-%d.json", run_dir, rank);
    ls_status status = ls__file_read(path, (size_t)256 << 20, text, &bytes);
    if (status == LS_ENOENT)
        return ls__fail(LS_ENOENT, "%s: does not exist; 'lockstep train --profile' writes it when it ends", path);
    return status;
}

ls_status profile_read(profile *out, const char *run_dir, int rank)
{
    char path[4096], *text = NULL;
    json_error_t error;
    *out = (profile){ 0 };
    ls_status status = read_text(run_dir, rank, path, sizeof path, &text);
    if (status) return status;
    json_t *root = json_loads(text, 0, &error);
    status =
        root ? fill_tables(out, root, path) : ls__fail(LS_EFORMAT, "%s: line %d: %s", path, error.line, error.text);
    if (status) profile_free(out);
    json_decref(root);
    free(text);
    return status;
}

void profile_free(profile *p)
{
    free(p->memory);
    *p = (profile){ 0 };
}

ls_status profile_print(const char *run_dir, int rank, FILE *to)
{
    profile p;
    ls_status status = profile_read(&p, run_dir, rank);
    if (status) return status;
    print_head(to, &p);
    print_operations(to, &p.forward, "forward", p.steps, p.step_ms);
    print_operations(to, &p.backward, "backward", p.steps, p.step_ms);
    print_layers(to, &p.layers, p.steps, p.step_ms);
    profile_free(&p);
    return LS_OK;
}

/* The first rank that has one; 0: none has. Not all ranks of an imported run need be there. */
static int first_rank(const char *run_dir)
{
    char path[4096];
    int first = -1, rank, end;
    snprintf(path, sizeof path, "%s/profile", run_dir);
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d));) {
        end = 0;
        if (sscanf(e->d_name, "rank-%9d.json%n", &rank, &end) != 1 || !end || e->d_name[end] || rank < 0) continue;
        if (first < 0 || rank < first) first = rank;
    }
    if (d) closedir(d);
    return first < 0 ? 0 : first;
}

int profile_command(int argc, char **argv)
{
    const char *run = NULL;
    int rank = -1;
    bool json = false;
    const option_row rows[] = {
        { OPTION_INT, "--rank", &rank, "R", "rank (the first that has a profile)", 0, 1e9, NULL },
        { OPTION_FLAG, "--json", &json, NULL, "print the file: every operation of every layer", 0, 0, NULL },
        { OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, NULL },
    };
    int code = options_read("profile", intro, rows, &run, argc, argv);
    if (code >= 0) return code;
    if (!(run = last_run_or(run, "profile"))) return EXIT_USAGE;
    if (rank < 0) rank = first_rank(run);
    char path[4096], *text = NULL;
    ls_status status = json ? read_text(run, rank, path, sizeof path, &text) : profile_print(run, rank, stdout);
    if (text) puts(text);
    free(text);
    return status ? exit_failure("profile", status) : EXIT_DONE;
}
