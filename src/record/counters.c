/* See counters.h. Reading allocates nothing. */
#include "record/counters.h"

#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { SHARE = 330, SAVED = 64, APART = 8, PROCESS_NS = 5000000, SLOW_NS = 1000000000 };

static int64_t clock_of(clockid_t id)
{
    struct timespec t;
    return clock_gettime(id, &t) ? 0 : (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Reads a small file and appends a 0 byte; returns its length. */
static size_t read_small(const char *path, char *out, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, out, bytes - 1);
    if (fd >= 0) close(fd);
    out[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

/* Run-queue delay of the thread in ns, as counted by the kernel; 0: not available. */
static uint64_t read_delay(const ls__counters *s)
{
    char text[96], *end;
    ssize_t n = s->schedstat < 0 ? 0 : pread(s->schedstat, text, sizeof text - 1, 0);
    if (n <= 0) return 0;
    text[n] = 0;
    strtoull(text, &end, 10);
    return strtoull(end, NULL, 10);
}

/* Reads as little as possible, because each call costs microseconds if caches are cold. A thread that was on its core since the last
 * sample was neither off-CPU nor delayed. If it did not sleep, lost time is run-queue delay if it was preempted, and steal otherwise. Only
 * if it slept as well, the kernel's count of run-queue delay must be read. */
static void count_thread(const ls__counters *s, ls__thread_counts *c)
{
    enum { NOTHING = 2000 };
    struct rusage usage;
    int64_t time = c->time;
    const ls__thread_counts *before = &s->before;
    *c = *before;
    c->time = time;
    c->cpu = (uint64_t)clock_of(CLOCK_THREAD_CPUTIME_ID);
    int64_t lost = time - before->time - (int64_t)(c->cpu - before->cpu);
    if (before->taken && lost < NOTHING) return;
    getrusage(RUSAGE_THREAD, &usage);
    c->voluntary = (uint64_t)usage.ru_nvcsw;
    c->involuntary = (uint64_t)usage.ru_nivcsw;
    if (before->taken && c->voluntary == before->voluntary) {
        if (c->involuntary == before->involuntary) return;
        c->delay += (uint64_t)lost;
        c->inferred += (uint64_t)lost;
        return;
    }
    c->counted = read_delay(s);
    uint64_t known = before->counted + before->inferred, more = c->counted > known ? c->counted - known : 0;
    c->inferred = 0;
    if (before->taken) c->delay += more < (uint64_t)(lost > 0 ? lost : 0) ? more : (uint64_t)(lost > 0 ? lost : 0);
}

void ls__counters_open(ls__counters *s, const char *powercap)
{
    enum { TRIES = 5 };
    *s = (ls__counters){ .schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC), .cost = INT64_MAX };
    for (int i = 0; i < TRIES; i++) {
        ls__thread_counts c = { .time = ls_now() };
        count_thread(s, &c);
        int64_t cost = ls_now() - c.time;
        if (cost < s->cost) s->cost = cost;
    }
    ls__energy_open(&s->energy, powercap);
    ls__thread_times_open(&s->threads);
    s->last = s->marked = ls_now();
    s->saved = SAVED * s->cost;
}

void ls__counters_close(ls__counters *s)
{
    if (s->schedstat >= 0) close(s->schedstat);
    s->schedstat = -1;
    ls__energy_close(&s->energy);
}

ls__thread_counts ls__counters_sample(ls__counters *s, int64_t now)
{
    enum { TRIES = 3 };
    ls__thread_counts c = { .time = now };
    s->saved += (now - s->last) / SHARE;
    s->last = s->marked = now;
    if (s->saved > SAVED * s->cost) s->saved = SAVED * s->cost;
    if (s->saved < s->cost || now - s->taken < APART * s->cost) return c;
    /* The kernel often preempts a thread at the end of a system call. Then time and counters do not match, and a delay of many
     * milliseconds would be attributed to the wrong side of the mark. After that the thread is seldom preempted again soon. */
    int64_t most = 16 * s->cost;
    for (int i = 0; i < TRIES; i++) {
        count_thread(s, &c);
        int64_t end = ls_now(), took = end - c.time;
        /* The average cost counts, not the best; but not time in which the thread was preempted. */
        s->saved -= took < most ? took : s->cost;
        if (took < most) break;
        c.time = end;
    }
    c.taken = true;
    s->taken = s->marked = c.time;
    s->before = c;
    return c;
}

bool ls__counters_is_due(ls__counters *s, int64_t now, size_t place)
{
    enum { LEAST = 20000 };
    float *usual = &s->usual[place % LS__COUNTERS_PLACES], took = (float)(now - s->marked);
    bool late = *usual > 0 && took > 1.25f * *usual + LEAST;
    s->marked = now;
    /* Falls fast and rises slowly, so that one late step changes little. */
    *usual = *usual > 0 ? (took < *usual ? (took + *usual) / 2 : fminf(took, 1.06f * *usual)) : took;
    return (late && s->saved > 4 * s->cost) || (s->saved > SAVED / 2 * s->cost && now - s->taken > 4 * APART * s->cost);
}

void ls__thread_counts_add(ls__ring *ring, const ls__thread_counts *c)
{
    if (!c->taken) return;
    ls__ring_add_at(ring, c->time, LS_EVENT_SAMPLE, LS_SAMPLE_MAIN_CPU, c->cpu);
    ls__ring_add_at(ring, c->time, LS_EVENT_SAMPLE, LS_SAMPLE_DELAY, c->delay);
    ls__ring_add_at(ring, c->time, LS_EVENT_SAMPLE, LS_SAMPLE_VOLUNTARY, c->voluntary);
}

/* CPU time of each thread. */
static void sample_threads(ls__thread_times *t, ls__ring *ring, int64_t now)
{
    ls__thread_times_read(t);
    for (int i = 0; i < t->count; i++)
        ls__ring_add_at(ring, now, LS_EVENT_SAMPLE, (uint64_t)i << 8 | LS_SAMPLE_THREAD, ls__thread_times_of(t, i));
}

/* Of the machine. */
static void sample_cores(ls__ring *ring, int64_t now)
{
    char text[256];
    unsigned long long user, nice, system, irq, softirq, steal,
        tick = 1000000000u / (unsigned long)sysconf(_SC_CLK_TCK);
    if (!read_small("/proc/stat", text, sizeof text)) return;
    if (sscanf(text, "cpu %llu %llu %llu %*u %*u %llu %llu %llu", &user, &nice, &system, &irq, &softirq, &steal) != 6)
        return;
    ls__ring_add_at(ring, now, LS_EVENT_SAMPLE, LS_SAMPLE_STEAL, steal * tick);
    ls__ring_add_at(ring, now, LS_EVENT_SAMPLE, LS_SAMPLE_BUSY, (user + nice + system + irq + softirq) * tick);
}

static void sample_io(ls__ring *ring, int64_t now)
{
    char text[256];
    unsigned long long bytes;
    if (!read_small("/proc/self/io", text, sizeof text)) return;
    const char *at = strstr(text, "read_bytes: ");
    if (at && sscanf(at, "read_bytes: %llu", &bytes) == 1)
        ls__ring_add_at(ring, now, LS_EVENT_SAMPLE, LS_SAMPLE_READ, bytes);
}

static void sample_resident(ls__ring *ring, int64_t now)
{
    char text[128];
    unsigned long long pages;
    if (read_small("/proc/self/statm", text, sizeof text) && sscanf(text, "%*u %llu", &pages) == 1)
        ls__ring_add_at(ring, now, LS_EVENT_SAMPLE, LS_SAMPLE_RESIDENT, pages * (uint64_t)sysconf(_SC_PAGESIZE));
}

void ls__counters_sample_process(ls__counters *s, ls__ring *ring, int64_t now, bool all)
{
    struct rusage usage;
    if ((now - s->last_process < PROCESS_NS && !all) || getrusage(RUSAGE_SELF, &usage)) return;
    s->last_process = now;
    uint64_t cpu = ((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) * 1000000000u +
                   ((uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec) * 1000u;
    ls__ring_add_at(ring, now, LS_EVENT_SAMPLE, LS_SAMPLE_CPU, cpu);
    ls__ring_add_at(ring, now, LS_EVENT_SAMPLE, LS_SAMPLE_INVOLUNTARY, (uint64_t)usage.ru_nivcsw);
    ls__ring_add_at(ring, now, LS_EVENT_SAMPLE, LS_SAMPLE_MINOR, (uint64_t)usage.ru_minflt);
    ls__ring_add_at(ring, now, LS_EVENT_SAMPLE, LS_SAMPLE_MAJOR, (uint64_t)usage.ru_majflt);
    if (now - s->last_slow < SLOW_NS && !all) return;
    s->last_slow = now;
    ls__ring_add_at(ring, now, LS_EVENT_SAMPLE, LS_SAMPLE_CORE, (uint64_t)sched_getcpu());
    sample_resident(ring, now);
    sample_threads(&s->threads, ring, now);
    sample_cores(ring, now);
    if (ls__energy_read(&s->energy)) ls__ring_add_at(ring, now, LS_EVENT_SAMPLE, LS_SAMPLE_ENERGY, s->energy.total);
    sample_io(ring, now);
}
