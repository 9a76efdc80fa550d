/* See prediction_log.h. The file is replaced as a whole, so that it is never cut. */
#include "cli/prediction_log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/status.h"

enum { LEAST = 10, NEWEST = 100, MAX_BYTES = 1 << 22 };

static char *path_of(const char *run)
{
    char *path;
    return asprintf(&path, "%s/predictions.jsonl", run) < 0 ? NULL : path;
}

ls_status prediction_log_add(const char *run, const char *other, const char *id, const ls_prediction *said,
                             double measured, double factor)
{
    char *path = path_of(run), *before = NULL, *all = NULL, *line = NULL;
    size_t bytes = 0;
    json_t *j = prediction_json(said);
    if (j) json_object_set_new(j, "other", json_string(other));
    if (j) json_object_set_new(j, "other_id", json_string(id));
    if (j) json_object_set_new(j, "measured", json_real(measured));
    if (j) json_object_set_new(j, "band_factor", json_real(factor));
    if (j) line = json_dumps(j, JSON_COMPACT);
    ls_status status = path && line ? LS_OK : ls__fail(LS_ENOMEM, "%s: out of memory", run);
    if (!status && ls__file_read(path, MAX_BYTES, &before, &bytes) == LS_EFORMAT)
        status = ls__fail(LS_EFORMAT, "%s: too large; remove it", path);
    int n = status ? -1 : asprintf(&all, "%s%s\n", before ? before : "", line);
    if (!status) status = n < 0 ? ls__fail(LS_ENOMEM, "%s: out of memory", path) : ls__file_write(path, all, (size_t)n);
    if (n >= 0) free(all);
    free(before);
    free(line);
    free(path);
    json_decref(j);
    return status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct comparison {
    char with[256];  /* which run */
    double distance; /* from the prediction, in halves of the band that it had before the factor */
} comparison;

static bool read_line(const char *line, size_t length, comparison *out)
{
    double step, low, high, measured, factor;
    const char *id = NULL, *other = "";
    json_t *j = json_loadb(line, length, 0, NULL);
    bool valid = j && !json_unpack(j, "{s:F, s:F, s:F, s:F, s:F, s?s, s?s}", "step", &step, "low", &low, "high", &high,
                                   "measured", &measured, "band_factor", &factor, "other_id", &id, "other", &other);
    if (valid && id)
        snprintf(out->with, sizeof out->with, "%s", id);
    else if (valid) /* a log of an earlier version */
        snprintf(out->with, sizeof out->with, "%.17g %.200s", measured, other);
    json_decref(j);
    if (!valid || !(high > low) || !(factor > 0) || !isfinite(measured)) return false;
    out->distance = fabs(measured - step) / ((high - low) / 2 / factor);
    return isfinite(out->distance);
}

/* Keeps the newest of each run, the oldest first. */
static void keep(comparison *kept, size_t *n, const comparison *c)
{
    size_t at = 0;
    while (at < *n && strcmp(kept[at].with, c->with) != 0) at++;
    if (at == *n && *n == NEWEST) at = 0;
    if (at < *n) memmove(&kept[at], &kept[at + 1], (--*n - at) * sizeof *kept);
    kept[(*n)++] = *c;
}

double prediction_log_band(const char *run)
{
    char *path = path_of(run), *text = NULL;
    comparison kept[NEWEST];
    double found[NEWEST], factor = 1;
    size_t bytes, n = 0;
    if (path && !ls__file_read(path, MAX_BYTES, &text, &bytes))
        for (const char *at = text; *at;) {
            size_t length = strcspn(at, "\n");
            comparison c;
            if (read_line(at, length, &c)) keep(kept, &n, &c);
            at += length + (at[length] == '\n');
        }
    for (size_t i = 0; i < n; i++) found[i] = kept[i].distance;
    if (n >= LEAST) {
        qsort(found, n, sizeof *found, by_value);
        factor = fmin(10, fmax(0.3, found[n * 9 / 10]));
    }
    free(text);
    free(path);
    return factor;
}
