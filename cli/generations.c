/* See generations.h. The file may come from anywhere: lines that are not objects are left out, and texts are made printable. */
#include "cli/generations.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "cli/escape.h"

enum { SHOWN = 8, LINE = 2048 };

json_t *generations_read(const char *run)
{
    char *path, line[LINE];
    if (asprintf(&path, "%s/generations.jsonl", run) < 0) return NULL;
    FILE *f = fopen(path, "re");
    free(path);
    json_t *all = f ? json_array() : NULL;
    while (all && fgets(line, sizeof line, f)) {
        json_t *o = json_loads(line, 0, NULL);
        if (json_is_object(o))
            json_array_append_new(all, o);
        else
            json_decref(o);
    }
    if (f) fclose(f);
    return all;
}

static long long integer(const json_t *o, const char *key)
{
    return (long long)json_integer_value(json_object_get(o, key));
}

static void describe(const json_t *o, char *out, size_t bytes)
{
    const char *why = json_string_value(json_object_get(o, "why"));
    long long ranks = integer(o, "ranks");
    snprintf(out, bytes, "%lld rank%s since step %lld: %s", ranks, ls__s(ranks), integer(o, "step"),
             printable(why ? why : "?"));
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Times from the end of a generation to the next finished step. */
static void put_times(const json_t *all, const report_form *f)
{
    size_t n = json_array_size(all), count = 0;
    double *ms = malloc((n + 1) * sizeof *ms);
    char text[160];
    for (size_t i = 0; ms && i < n; i++) {
        double x = json_number_value(json_object_get(json_array_get(all, i), "recovery_ms"));
        if (isfinite(x) && x > 0) ms[count++] = x;
    }
    if (count) {
        qsort(ms, count, sizeof *ms, compare);
        snprintf(text, sizeof text, "%zu change%s of ranks; to the next finished step p50 %.0f ms, p99 %.0f ms", count,
                 ls__s((int64_t)count), ms[count / 2], ms[count * 99 / 100]);
        report_wrap(f, 0, 9, "elastic: ", text);
    }
    free(ms);
}

void generations_report(const ls_run *run, const report_form *f)
{
    json_t *all = generations_read(run->path);
    size_t n = json_array_size(all);
    if (n > 1) put_times(all, f);
    for (size_t i = n > SHOWN ? n - SHOWN : 0; n > 1 && i < n; i++) {
        const json_t *o = json_array_get(all, i);
        char text[400], more[450];
        describe(o, text, sizeof text);
        double ms = json_number_value(json_object_get(o, "recovery_ms"));
        snprintf(more, sizeof more, ms > 0 ? "%s (%.0f ms)" : "%s", text, ms);
        report_wrap(f, 0, 9, "         ", more);
    }
    if (n > 1) report_wrap(f, 0, 6, "note: ", "the times below are those of the newest ranks");
    json_decref(all);
}

void generations_newest(const char *run, char *out, size_t bytes)
{
    json_t *all = generations_read(run);
    size_t n = json_array_size(all);
    *out = 0;
    if (n > 1) describe(json_array_get(all, n - 1), out, bytes);
    json_decref(all);
}
