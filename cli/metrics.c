/* Reading metrics.jsonl. See metrics.h.
 *
 * The lines are those of src/train/run_dir.c: flat objects of numbers. A scan for keys reads a million of them in about a second; a
 * line with other content gives NaNs, and one without a step is skipped. */
#include "cli/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"

enum { MOST_LINES = 8 << 20 };

static double value_of(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    char *end;
    if (!at) return NAN;
    at += strlen(key);
    double x = strtod(at, &end);
    return end == at || !isfinite(x) ? NAN : x;
}

static metrics_line read_line(const char *line)
{
    return (metrics_line){ .step = value_of(line, "\"step\":"),
                           .time = value_of(line, "\"time\":"),
                           .loss = value_of(line, "\"loss\":"),
                           .eval_loss = value_of(line, "\"eval_loss\":"),
                           .lr = value_of(line, "\"lr\":"),
                           .grad_norm = value_of(line, "\"grad_norm\":"),
                           .tokens_per_s = value_of(line, "\"tokens_per_s\":"),
                           .step_ms = value_of(line, "\"step_ms\":"),
                           .memory_bytes = value_of(line, "\"memory_bytes\":") };
}

ls_status metrics_read(metrics *m, const char *run_dir)
{
    char path[4096], line[4096];
    size_t room = 0;
    *m = (metrics){ 0 };
    snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    size_t bytes;
    int fd;
    if (access(path, F_OK)) return LS_OK;
    ls_status status = ls__file_open(path, &fd, &bytes);
    if (status) return status;
    FILE *f = fdopen(fd, "r");
    if (!f) {
        close(fd);
        return ls__fail_errno("%s: cannot be read", path);
    }
    while (m->count < MOST_LINES && fgets(line, sizeof line, f)) {
        if (!strchr(line, '\n')) continue;
        metrics_line l = read_line(line);
        if (!(l.step >= 0 && l.step < 1e15)) continue;
        if (m->count == room) {
            room = room ? 2 * room : 1024;
            metrics_line *more = reallocarray(m->lines, room, sizeof *more);
            if (!more) {
                fclose(f);
                metrics_free(m);
                return ls__fail(LS_ENOMEM, "%s: out of memory", path);
            }
            m->lines = more;
        }
        m->lines[m->count++] = l;
    }
    fclose(f);
    return LS_OK;
}

void metrics_free(metrics *m)
{
    free(m->lines);
    *m = (metrics){ 0 };
}
