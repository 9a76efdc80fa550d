/* See node_rates.h.
 *
 * Each thread has a core of its own, also where the launcher has bound the rank to fewer: the cores are those of all ranks of the
 * node. Threads do the same work at the same time, and the slowest one counts. */
#include "train/node_rates.h"

#include <jansson.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/status.h"
#include "base/thread.h"
#include "kern/copy.h"
#include "kern/gemm.h"
#include "kern/select.h"

enum {
    SIZE = 384, /* of a product: its operands fit the caches of a core */
    TRIES = 3,
    ROUNDS = 4, /* of one thread and of all, in turns: what disturbs one of them does not disturb the best of several */
    BYTES = 8 << 20, /* that a thread copies at a time */
    MAX_THREADS = 256,
};

typedef struct team {
    cpu_set_t cores;
    int threads;
    _Atomic int arrived;    /* threads that have come to a point where they wait for each other */
    _Atomic bool cancelled; /* some could not be started */
    double gemm[MAX_THREADS], stream[MAX_THREADS]; /* [threads] */
} team;

typedef struct member {
    team *team;
    int number;
} member;

static size_t nth_core(const cpu_set_t *cores, int n)
{
    size_t i = 0;
    for (; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, cores) && n-- == 0) break;
    return i;
}

/* Waits until all threads have come to the point `number` (from 1). */
static void meet(team *t, int number)
{
    atomic_fetch_add(&t->arrived, 1);
    while (atomic_load(&t->arrived) < number * t->threads && !atomic_load(&t->cancelled)) sched_yield();
}

static void *measure_thread(void *arg)
{
    const member *m = arg;
    team *t = m->team;
    cpu_set_t one;
    char *memory = malloc(2 * (size_t)BYTES);
    CPU_ZERO(&one);
    CPU_SET(nth_core(&t->cores, m->number), &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    if (memory) memset(memory, 1, 2 * (size_t)BYTES);
    meet(t, 1);
    t->gemm[m->number] = ls__gemm_peak(SIZE, TRIES, 1);
    meet(t, 2);
    int64_t best = INT64_MAX;
    for (int i = 0; i < TRIES && memory; i++) {
        int64_t begin = ls_now();
        ls__copy_bytes(memory + BYTES, memory, BYTES, true);
        int64_t took = ls_now() - begin;
        if (took > 0 && took < best) best = took;
    }
    t->stream[m->number] = memory ? 2.0 * BYTES / (double)best : 0;
    free(memory);
    return NULL;
}

/* False: the threads could not be started. */
static bool measure(const cpu_set_t *cores, int threads, double *gemm, double *stream)
{
    team *t = calloc(1, sizeof *t);
    member members[MAX_THREADS];
    pthread_t thread[MAX_THREADS];
    int started = 0;
    if (!t) return false;
    t->cores = *cores;
    t->threads = threads;
    for (; started < threads; started++) {
        members[started] = (member){ .team = t, .number = started };
        if (ls__thread_start(&thread[started], "ls-probe", measure_thread, &members[started])) break;
    }
    atomic_store(&t->cancelled, started < threads);
    for (int i = 0; i < started; i++) pthread_join(thread[i], NULL);
    *gemm = *stream = 1e30;
    for (int i = 0; i < threads; i++) {
        if (t->gemm[i] < *gemm) *gemm = t->gemm[i];
        if (t->stream[i] < *stream) *stream = t->stream[i];
    }
    free(t);
    return started == threads && *gemm > 0 && *stream > 0;
}

static bool keep_better(const cpu_set_t *cores, int threads, double *gemm, double *stream)
{
    double g, s;
    if (!measure(cores, threads, &g, &s)) return false;
    if (g > *gemm) *gemm = g;
    if (s > *stream) *stream = s;
    return true;
}

/* ---- What an earlier run measured. */

/* "CPU model, cores, kernels": rates of other cores are of no use. */
static void describe_cores(const cpu_set_t *cores, char *out, size_t bytes)
{
    char line[256], model[128] = "";
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        const char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !value) continue;
        snprintf(model, sizeof model, "%.*s", (int)strcspn(value + 1, "\n"), value + 1);
        break;
    }
    if (f) fclose(f);
    int n = snprintf(out, bytes, "%s,", model);
    for (size_t i = 0; i < CPU_SETSIZE && n > 0 && (size_t)n < bytes; i++)
        if (CPU_ISSET(i, cores)) n += snprintf(out + n, bytes - (size_t)n, " %zu", i);
    if (n > 0 && (size_t)n < bytes) snprintf(out + n, bytes - (size_t)n, ", %s", ls__instruction_set_used()->name);
}

/* NULL: there is no place. */
static char *cache_folder(void)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *out = NULL;
    int n = -1;
    if (cache && *cache == '/')
        n = asprintf(&out, "%s/lockstep", cache);
    else if (home && *home == '/')
        n = asprintf(&out, "%s/.cache/lockstep", home);
    return n < 0 ? NULL : out;
}

static bool read_cached(const char *path, const char *key, ls__node_rates *out)
{
    char *text;
    size_t bytes;
    const char *of = NULL;
    if (ls__file_read(path, 1 << 16, &text, &bytes)) return false;
    json_t *j = json_loadb(text, bytes, 0, NULL);
    bool found = j && !json_unpack(j, "{s:s, s:F, s:F, s:F, s:F}", "of", &of, "gemm_one", &out->gemm_one, "gemm_all",
                                   &out->gemm_all, "stream_one", &out->stream_one, "stream_all", &out->stream_all);
    found = found && !strcmp(of, key) && out->gemm_one > 0 && out->gemm_all > 0 && out->stream_one > 0 &&
            out->stream_all > 0;
    json_decref(j);
    free(text);
    return found;
}

/* A failure costs the next run some milliseconds, and nothing else. */
static void write_cache(const char *folder, const char *path, const char *key, const ls__node_rates *r)
{
    json_t *j = json_pack("{s:s, s:f, s:f, s:f, s:f}", "of", key, "gemm_one", r->gemm_one, "gemm_all", r->gemm_all,
                          "stream_one", r->stream_one, "stream_all", r->stream_all);
    char *text = j ? json_dumps(j, JSON_INDENT(2)) : NULL;
    ls_status status = text ? ls__file_make_own_dir(folder) : LS_ENOMEM;
    if (!status) status = ls__file_write(path, text, strlen(text));
    (void)status;
    free(text);
    json_decref(j);
}

static void find(const cpu_set_t *cores, ls__node_rates *out)
{
    char key[2048], *folder = cache_folder(), *path = NULL;
    int all = CPU_COUNT(cores) < MAX_THREADS ? CPU_COUNT(cores) : MAX_THREADS;
    describe_cores(cores, key, sizeof key);
    if (folder && asprintf(&path, "%s/node-rates.json", folder) < 0) path = NULL;
    if (!path || !read_cached(path, key, out)) {
        *out = (ls__node_rates){ 0 };
        bool done = true;
        for (int round = 0; round < ROUNDS && done; round++) {
            done = keep_better(cores, 1, &out->gemm_one, &out->stream_one) &&
                   (all == 1 || keep_better(cores, all, &out->gemm_all, &out->stream_all));
        }
        if (all == 1) out->gemm_all = out->gemm_one, out->stream_all = out->stream_one;
        if (!done) *out = (ls__node_rates){ 0 };
        if (done && path) write_cache(folder, path, key, out);
    }
    if (out->gemm_one > 0) out->cores = CPU_COUNT(cores);
    free(path);
    free(folder);
}

ls_status ls__node_rates_find(ls_group *node_group, ls__node_rates *out)
{
    cpu_set_t own, cores;
    int size = ls_group_size(node_group);
    cpu_set_t *all = malloc((size_t)size * sizeof *all);
    *out = (ls__node_rates){ 0 };
    if (!all) return ls__fail(LS_ENOMEM, "node rates: out of memory");
    CPU_ZERO(&own);
    CPU_ZERO(&cores);
    sched_getaffinity(0, sizeof own, &own);
    ls_status status = ls_allgather(node_group, &own, all, sizeof own, LS_U8);
    for (int r = 0; r < size && !status; r++) CPU_OR(&cores, &cores, &all[r]);
    if (!status && ls_group_rank(node_group) == 0 && CPU_COUNT(&cores) > 0) find(&cores, out);
    if (!status && size > 1) status = ls_barrier(node_group);
    free(all);
    return status;
}
