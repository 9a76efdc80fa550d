/* See thread_times.h. /proc/self/task has only living threads. Of threads that have ended, ls__thread_start() keeps the CPU time of its
 * own, by name, and of others the last reading is kept here. */
#include "record/thread_times.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { YOUNG_NS = 1000000 };

static bool read_file(int tid, const char *file, char *out, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/%s", tid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, out, bytes - 1);
    if (fd >= 0) close(fd);
    out[n > 0 ? n : 0] = 0;
    return n > 0;
}

void ls__thread_times_open(ls__thread_times *t)
{
    *t = (ls__thread_times){ .main = (int)gettid() };
    prctl(PR_GET_NAME, t->main_name);
}

/* Whether ls__thread_start() keeps the CPU time of ended threads of this name. */
static const ls__thread_ended *ended_of(const ls__thread_times *t, const char *name)
{
    for (int i = 0; i < t->n_ended; i++)
        if (strcmp(t->ended[i].name, name) == 0) return &t->ended[i];
    return NULL;
}

/* The first row of a name contains the CPU time of its ended threads. */
static int first_of(const ls__thread_times *t, const char *name)
{
    int i = 0;
    while (i < t->count && strcmp(t->row[i].name, name) != 0) i++;
    return i;
}

static ls__thread_row *add_row(ls__thread_times *t, const char *name)
{
    if (t->count == LS__MAX_ROWS) return NULL;
    ls__thread_row *row = &t->row[t->count++];
    *row = (ls__thread_row){ 0 };
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

/* The row of a living thread: its own, that of an ended thread of the same name, or a new one. NULL: there are too many, or it has just
 * started and still has the name of its parent. */
static ls__thread_row *row_of(ls__thread_times *t, int tid, uint64_t cpu)
{
    char name[32] = "main";
    for (int i = 0; i < t->count; i++)
        if (t->row[i].tid == tid) return &t->row[i];
    if (tid != t->main && !read_file(tid, "comm", name, sizeof name)) return NULL;
    name[strcspn(name, "\n")] = 0;
    if (tid != t->main && cpu < YOUNG_NS && strcmp(name, t->main_name) == 0) return NULL;
    for (int i = 0; i < t->count; i++)
        if (!t->row[i].tid && strcmp(t->row[i].name, name) == 0) {
            t->row[i].tid = tid;
            return &t->row[i];
        }
    ls__thread_row *row = add_row(t, name);
    if (row) row->tid = tid;
    return row;
}

/* Rows whose threads ended since the last reading. */
static void close_ended_rows(ls__thread_times *t)
{
    for (int i = 0; i < t->count; i++) {
        ls__thread_row *row = &t->row[i];
        if (row->tid && !row->seen) {
            if (!ended_of(t, row->name)) row->gone += row->live;
            row->tid = 0;
            row->live = 0;
        }
        row->seen = false;
    }
}

void ls__thread_times_read(ls__thread_times *t)
{
    DIR *d = opendir("/proc/self/task");
    for (const struct dirent *e; d && (e = readdir(d));) {
        char text[96];
        unsigned long long cpu;
        int tid = atoi(e->d_name);
        if (tid <= 0 || !read_file(tid, "schedstat", text, sizeof text) || sscanf(text, "%llu", &cpu) != 1) continue;
        ls__thread_row *row = row_of(t, tid, cpu);
        if (!row) continue;
        if (cpu < row->live) row->gone += row->live; /* its thread id was reused */
        row->live = cpu;
        row->seen = true;
    }
    if (d) closedir(d);
    t->n_ended = ls__threads_ended(t->ended, LS__MAX_ENDED);
    close_ended_rows(t);
    for (int i = 0; i < t->n_ended; i++)
        if (first_of(t, t->ended[i].name) == t->count) add_row(t, t->ended[i].name);
}

uint64_t ls__thread_times_of(const ls__thread_times *t, int row)
{
    const ls__thread_row *r = &t->row[row];
    const ls__thread_ended *ended = first_of(t, r->name) == row ? ended_of(t, r->name) : NULL;
    return r->live + r->gone + (ended ? ended->cpu : 0);
}
