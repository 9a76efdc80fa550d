/* Looking at a run that is under way: the newest events of each rank, the last line of metrics.jsonl, and, for ranks on this machine, what
 * the kernel knows of their processes. The ranks themselves are not disturbed. */
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "cli/findings_text.h"
#include "cli/top_view.h"

enum { NEWEST_BYTES = 192 << 10, WINDOW_STEPS = 200 };
#define WINDOW_NS   INT64_C(5000000000)
#define WAITS_SHARE 0.005 /* of a step: a rank that waits for less is not shown as waiting */

void top_view_free(top_view *v)
{
    free(v->rank);
    *v = (top_view){ 0 };
}

/* ---- Processes of this machine */

static bool read_small(const char *path, char *text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, bytes - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* State, CPU ticks and start of a process. The name in the brackets may hold anything, so the last one counts. */
static bool read_stat(int pid, char *state, uint64_t *ticks, double *start)
{
    char path[64], text[1024];
    unsigned long user, system;
    unsigned long long begin;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (!read_small(path, text, sizeof text)) return false;
    const char *at = strrchr(text, ')');
    if (!at || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %*d %*d %llu", state,
                      &user, &system, &begin) != 4)
        return false;
    struct timespec now, up;
    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_BOOTTIME, &up);
    *ticks = (uint64_t)user + (uint64_t)system;
    *start = (double)(now.tv_sec - up.tv_sec) + (double)begin / (double)sysconf(_SC_CLK_TCK);
    return true;
}

static double resident(int pid)
{
    char path[64], text[128];
    unsigned long long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    if (!read_small(path, text, sizeof text) || sscanf(text, "%*u %llu", &pages) != 1) return 0;
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* Its process, if it is here: the same host name, and a process of that number that began before the record did. */
static void look_at_process(top_rank *r, const ls_run_rank *from, const top_rank *before)
{
    char host[65] = "", state = 0;
    double start;
    gethostname(host, sizeof host - 1);
    if (strcmp(host, from->host) != 0 || from->pid <= 0) return;
    if (!read_stat(from->pid, &state, &r->ticks, &start) || start > from->start_time + 2 || state == 'Z') return;
    r->local = true;
    r->state = state;
    r->ticks_at = ls_now();
    double bytes = resident(from->pid);
    if (bytes > 0) r->memory = bytes;
    if (before && before->local && before->pid == from->pid && r->ticks_at > before->ticks_at)
        r->cpu = (double)(r->ticks - before->ticks) / (double)sysconf(_SC_CLK_TCK) * 1e9 /
                 (double)(r->ticks_at - before->ticks_at);
}

/* ---- Events */

/* What the window shows of a rank. */
static void look_at_rank(top_view *v, const ls_run *run, int rank, const top_view *before)
{
    top_rank *r = &v->rank[rank];
    const ls_run_rank *from = &run->rank[rank];
    size_t n = (size_t)run->ranks;
    *r = (top_rank){ .present = from->present, .closed = from->closed, .pid = from->pid, .cpu = -1, .waits_for = -1 };
    if (!from->present) return;
    snprintf(r->host, sizeof r->host, "%s", from->host);
    for (int p = 0; p < LS_PHASE_COUNT && v->window; p++) r->ns[p] = ls_run_mean(run, rank, (ls_phase)p);
    r->step_ns = from->use.wall;
    r->sched_delay_ns = from->use.sched_delay;
    if (from->use.cpu > 0 && from->use.wall > 0) r->cpu = from->use.cpu / from->use.wall;
    for (size_t i = run->first_counted; i < run->n_steps; i++)
        if (run->steps[i].rank[rank].resident > 0) r->memory = (double)run->steps[i].rank[rank].resident;
    double most = WAITS_SHARE * r->step_ns * (double)v->window;
    for (size_t q = 0; q < n && run->wait_matrix; q++) {
        double waited = (double)run->wait_matrix[(size_t)rank * n + q];
        if (waited > most) most = waited, r->waits_for = (int)q;
    }
    look_at_process(r, from, before && rank < before->ranks ? &before->rank[rank] : NULL);
}

/* ---- metrics.jsonl and run.json */

static void look_at_metrics(top_view *v, const char *path)
{
    char name[4096], text[4097], *end;
    v->loss = NAN;
    snprintf(name, sizeof name, "%s/metrics.jsonl", path);
    int fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a FIFO is not waited for */
    struct stat info;
    if (fd >= 0 && !fstat(fd, &info) && S_ISREG(info.st_mode)) {
        off_t from = info.st_size > 4096 ? info.st_size - 4096 : 0;
        ssize_t n = pread(fd, text, 4096, from);
        text[n > 0 ? n : 0] = 0;
        char *last = strrchr(text, '\n'); /* after it is at most a part of a line */
        if (last) *last = 0;
        char *line = strrchr(text, '\n'), *loss = strstr(line ? line : text, "\"loss\":");
        if (loss) v->loss = strtod(loss + 7, &end);
        char *step = strstr(line ? line : text, "\"step\":");
        if (step && strtoll(step + 7, NULL, 10) > v->step) v->step = strtoll(step + 7, NULL, 10);
    }
    if (fd >= 0) close(fd);
    char *json = NULL;
    size_t bytes;
    snprintf(name, sizeof name, "%s/run.json", path);
    if (ls__file_read(name, 1 << 20, &json, &bytes)) return;
    json_t *root = json_loads(json, 0, NULL);
    v->steps = json_integer_value(json_object_get(json_object_get(root, "settings"), "steps"));
    json_decref(root);
    free(json);
}

/* ---- All of it */

/* Seconds since a rank's events were written last, by the file server's clock. */
static double silence(const char *path, int ranks)
{
    double newest = 0;
    for (int r = 0; r < ranks; r++) {
        char name[4096];
        struct stat s;
        snprintf(name, sizeof name, "%s/events/rank-%d.bin", path, r);
        if (stat(name, &s)) snprintf(name, sizeof name, "%s/rank-%d.bin", path, r); /* of another program */
        if (!stat(name, &s)) newest = fmax(newest, (double)s.st_mtim.tv_sec + (double)s.st_mtim.tv_nsec / 1e9);
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return newest > 0 ? fmax(0, (double)now.tv_sec + (double)now.tv_nsec / 1e9 - newest) : 0;
}

static void find_state(top_view *v, const ls_run *run, const char *path)
{
    int present = 0, closed = 0, gone = 0, here = 0;
    char host[65] = "";
    gethostname(host, sizeof host - 1);
    int64_t newest = INT64_MIN;
    for (int r = 0; r < v->ranks; r++) {
        const ls_run_rank *k = &run->rank[r];
        if (!k->present) continue;
        present++;
        closed += k->closed;
        here += v->rank[r].local;
        gone += !k->closed && !v->rank[r].local && !strcmp(host, k->host);
        if (k->n_events && k->events[k->n_events - 1].time > newest) newest = k->events[k->n_events - 1].time;
    }
    v->ended = present && closed == present;
    v->killed = !v->ended && gone > 0 && !here;
    /* Times are on rank 0's clock, which is ours if that one is here. */
    if (present && newest > INT64_MIN && !strcmp(run->rank[0].host, host))
        v->idle_s = (double)(ls_now() - newest) / 1e9;
    else
        v->idle_s = silence(path, v->ranks);
}

ls_status top_look(top_view *v, const char *path, const top_view *before)
{
    ls_run *run;
    *v = (top_view){ .loss = NAN };
    ls_run_options window = { .newest_bytes = NEWEST_BYTES, .window_ns = WINDOW_NS, .window_steps = WINDOW_STEPS };
    ls_status status = ls_run_open(&run, path, &window);
    if (status) return status;
    v->ranks = run->ranks;
    v->rank = calloc((size_t)run->ranks + 1, sizeof *v->rank);
    if (!v->rank) {
        ls_run_free(&run);
        return ls__fail(LS_ENOMEM, "%s: out of memory", path);
    }
    v->window = run->n_steps - run->first_counted;
    if (v->window) v->step = run->steps[run->n_steps - 1].number;
    for (int r = 0; r < run->ranks; r++) look_at_rank(v, run, r, before);
    v->step_ns = run->step_mean;
    if (v->step_ns > 0) v->tokens_per_s = run->tokens / v->step_ns * 1e9;
    for (size_t i = 0; i < run->n_findings && v->findings < TOP_FINDINGS; i++)
        memcpy(v->finding[v->findings++], finding_describe(run, &run->findings[i]).what, sizeof v->finding[0]);
    look_at_metrics(v, path);
    find_state(v, run, path);
    ls_run_free(&run);
    return LS_OK;
}
