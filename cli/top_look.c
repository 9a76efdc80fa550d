/* Looking at a run that goes on: the newest events of each rank, the last line of metrics.jsonl, and, for ranks on this machine, what
 * the kernel knows of their processes. Nothing is asked of the ranks themselves. */
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "record/ring.h"
#include "base/status.h"
#include "cli/top_view.h"

enum { NEWEST_BYTES = 192 << 10, MOST_STEPS = 200 };
static const int64_t window_ns = 5000000000;

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

static void look_at_rank(top_view *v, const ls_run *run, int rank, size_t first, const top_view *before)
{
    top_rank *r = &v->rank[rank];
    const ls_run_rank *from = &run->rank[rank];
    *r = (top_rank){ .present = from->present, .closed = from->closed, .pid = from->pid, .cpu = -1, .waits_for = -1 };
    if (!from->present) return;
    snprintf(r->host, sizeof r->host, "%s", from->host);
    double cpu = 0, wall = 0;
    for (size_t i = first; i < run->n_steps; i++) {
        const ls_step_rank *s = &run->steps[i].rank[rank];
        if (!s->present) continue;
        for (int p = 0; p < LS_PHASES; p++) {
            r->ns[p] += (double)s->ns[p] / (double)v->window;
            r->delay_ns += (double)s->sched_delay[p] / (double)v->window;
        }
        wall += (double)(s->end - s->begin);
        if (s->cpu > 0) cpu += (double)s->cpu;
        if (s->resident > 0) r->memory = (double)s->resident;
    }
    r->step_ns = v->window ? wall / (double)v->window : 0;
    if (cpu > 0 && wall > 0) r->cpu = cpu / wall;
    look_at_process(r, from, before && rank < before->ranks ? &before->rank[rank] : NULL);
}

/* The rank that holds the others up, and where it loses most. Ranks that come last by turns are no news. `lost`: [ranks][LS_PHASES][2],
 * what it cost the others, without and with want of a core. */
static void find_late(top_view *v, const double *lost)
{
    enum { CAUSES = LS_PHASES * 2 };
    double most = 0, next = 0;
    int late = -1, cause = 0;
    for (int r = 0; r < v->ranks; r++) {
        double sum = 0;
        for (int c = 0; c < CAUSES; c++) sum += lost[r * CAUSES + c];
        if (sum > most)
            next = most, most = sum, late = r;
        else if (sum > next)
            next = sum;
    }
    if (late < 0 || most < 0.03 * v->step_ns * (double)v->window || most < 2 * next) return;
    for (int c = 0; c < CAUSES; c++)
        if (lost[late * CAUSES + c] > lost[late * CAUSES + cause]) cause = c;
    v->late = late;
    v->late_phase = (ls_phase)(cause / 2);
    v->late_core = cause % 2;
    v->late_ns = most / (double)v->window;
}

/* Who waited for whom in the window, and why. */
static void look_at_waits(top_view *v, const ls_run *run, int64_t first_step)
{
    size_t n = (size_t)run->ranks;
    double *waited = calloc(n * n + 1, sizeof *waited), *lost = calloc(n * LS_PHASES * 2 + 1, sizeof *lost);
    for (size_t i = 0; waited && i < run->n_collectives; i++) {
        const ls_run_collective *m = &run->collectives[i];
        if (m->step < first_step || m->last_rank < 0 || m->last_rank >= run->ranks) continue;
        for (size_t r = 0; r < n; r++) {
            int64_t begin = m->left[r] - m->blocked[r],
                    end = m->left[r] < m->last_arrival ? m->left[r] : m->last_arrival;
            if (m->blocked[r] > 0 && end > begin) waited[r * n + (size_t)m->last_rank] += (double)(end - begin);
        }
    }
    for (size_t r = 0; waited && r < n; r++) {
        double most = 0.005 * v->step_ns * (double)v->window;
        for (size_t q = 0; q < n; q++)
            if (waited[r * n + q] > most) most = waited[r * n + q], v->rank[r].waits_for = (int)q;
    }
    for (size_t i = 0; lost && i < run->n_attributions; i++) {
        const ls_attribution *d = &run->attributions[i];
        if (d->step < first_step || d->rank < 0 || d->rank >= run->ranks || (unsigned)d->phase >= LS_PHASES) continue;
        lost[((size_t)d->rank * LS_PHASES + (size_t)d->phase) * 2 + d->unscheduled] += (double)d->longest;
    }
    if (lost) find_late(v, lost);
    free(waited);
    free(lost);
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
        char *last = strrchr(text, '\n'); /* behind it is at most a part of a line */
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

/* Seconds since a rank's events were written last, by the clock of whoever keeps the file. */
static double silence(const char *path, int ranks)
{
    double newest = 0;
    for (int r = 0; r < ranks; r++) {
        char name[4096];
        struct stat s;
        snprintf(name, sizeof name, "%s/events/rank-%d.bin", path, r);
        if (stat(name, &s)) snprintf(name, sizeof name, "%s/rank-%d.bin", path, r); /* of a loop of one's own */
        if (!stat(name, &s)) newest = fmax(newest, (double)s.st_mtim.tv_sec + (double)s.st_mtim.tv_nsec / 1e9);
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return newest > 0 ? fmax(0, (double)now.tv_sec + (double)now.tv_nsec / 1e9 - newest) : 0;
}

static void settle_state(top_view *v, const ls_run *run, const char *path)
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
    *v = (top_view){ .late = -1, .loss = NAN };
    ls_status status = ls_run_open(&run, path, &(ls_run_options){ .newest_bytes = NEWEST_BYTES });
    if (status) return status;
    v->ranks = run->ranks;
    v->rank = calloc((size_t)run->ranks + 1, sizeof *v->rank);
    if (!v->rank) {
        ls_run_free(&run);
        return ls__fail(LS_ENOMEM, "%s: out of memory", path);
    }
    size_t first = run->n_steps;
    while (first > 0 && run->n_steps - first < MOST_STEPS &&
           (first == run->n_steps || run->steps[run->n_steps - 1].end - run->steps[first - 1].begin < window_ns))
        first--;
    if (first < run->n_warmup && run->n_warmup < run->n_steps) first = run->n_warmup;
    v->window = run->n_steps - first;
    if (v->window) v->step = run->steps[run->n_steps - 1].number;
    double tokens = 0;
    int counted = 0;
    for (int r = 0; r < run->ranks; r++) {
        look_at_rank(v, run, r, first, before);
        if (!run->rank[r].present) continue;
        if (run->rank[r].metadata[LS_METADATA_TOKENS] > 0) tokens = run->rank[r].metadata[LS_METADATA_TOKENS];
        if (v->rank[r].step_ns > 0) counted++, v->step_ns += v->rank[r].step_ns;
    }
    if (counted) v->step_ns /= counted;
    if (v->step_ns > 0) v->tokens_per_s = tokens / v->step_ns * 1e9;
    if (v->window) look_at_waits(v, run, run->steps[first].number);
    look_at_metrics(v, path);
    settle_state(v, run, path);
    ls_run_free(&run);
    return LS_OK;
}
