/* See node_rates.h.
 *
 * Each thread has a core of its own, also where the launcher has bound the rank to fewer: the cores are those of all ranks of the
 * node. In each round the first thread works alone while the others sleep, and then all work at the same time, so that what disturbs
 * one of them does not disturb the best of several rounds. Of all threads the slowest one counts. No round begins after BUDGET, because
 * the other ranks wait: a build with sanitizers, or cores that other programs use, make a round take seconds. */
#include "train/node_rates.h"

#include <jansson.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "base/thread.h"
#include "kern/gemm.h"
#include "kern/select.h"
#include "kern/vector.h"

enum {
    SIZE = 384, /* of a product: its operands fit the caches of a core */
    TRIES = 3,
    ROUNDS = 4,
    BUDGET = 200 * 1000 * 1000, /* ns; four rounds take a fifth of it on cores that nobody else uses */
    CACHED = 1 << 20,           /* elements that a thread adds in the caches */
    LEAST = 4 << 20,            /* and in memory, each of them once: more than the caches hold */
    MOST = 32 << 20,
    ALL = 128 << 20,        /* by all threads together */
    USUAL_CACHE = 32 << 20, /* bytes */
    MAX_THREADS = 256,
    MOST_CACHED = 32, /* sets of cores and kernels in the file */
};

typedef struct thread_rates {
    double gemm, stream, memory;
} thread_rates;

typedef struct team {
    cpu_set_t cores;
    int threads;
    size_t count, shared_count; /* elements that a thread adds in memory by itself, and together with the others */
    int64_t begin;
    pthread_mutex_t lock; /* of the next four */
    pthread_cond_t changed;
    int arrived;                                /* threads that have come to a point where they wait for each other */
    bool failed;                                /* one could not be started, or has no memory */
    bool over;                                  /* no further round begins */
    thread_rates one, all[MAX_THREADS][ROUNDS]; /* one: the best of the rounds */
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

/* Sleeps until all threads have come to the point `number` (from 1). The last one to come after the first round sees whether there is
 * time for another. False: the threads end here. */
static bool meet(team *t, int number)
{
    pthread_mutex_lock(&t->lock);
    if (++t->arrived == number * t->threads && number > 2 && number % 2) t->over = ls_now() - t->begin > BUDGET;
    pthread_cond_broadcast(&t->changed);
    while (t->arrived < number * t->threads && !t->failed) pthread_cond_wait(&t->changed, &t->lock);
    bool all = !t->failed && !t->over;
    pthread_mutex_unlock(&t->lock);
    return all;
}

static void give_up(team *t)
{
    pthread_mutex_lock(&t->lock);
    t->failed = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

/* GB/s read and written: one array is added to another, as gradients are. */
static double add_rate(float *memory, size_t count, size_t apart, int tries)
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < tries; i++) {
        int64_t begin = ls_now();
        ls__add_f32(memory, memory, memory + apart, count);
        int64_t took = ls_now() - begin;
        if (took > 0 && took < best) best = took;
    }
    return 3 * sizeof *memory * (double)count / (double)best;
}

/* Memory comes first, when the threads have just met. `part` has not been touched for so long that it is in no cache. */
static thread_rates measure(float *memory, size_t apart, size_t part, size_t count)
{
    double rate = add_rate(memory + CACHED + part, count, apart, 1);
    return (thread_rates){ .gemm = ls__gemm_peak(SIZE, TRIES, 1),
                           .stream = add_rate(memory, CACHED, apart, TRIES),
                           .memory = rate };
}

static void keep_best(thread_rates *best, const thread_rates *r)
{
    if (r->gemm > best->gemm) best->gemm = r->gemm;
    if (r->stream > best->stream) best->stream = r->stream;
    if (r->memory > best->memory) best->memory = r->memory;
}

static void *run_member(void *arg)
{
    const member *m = arg;
    team *t = m->team;
    cpu_set_t core;
    size_t apart = CACHED + (m->number ? t->shared_count : t->count), all = 2 * sizeof(float) * apart;
    size_t alone = t->count / 4 / ROUNDS, shared = t->shared_count * 3 / 4 / ROUNDS;
    size_t alone_parts = m->number ? 0 : ROUNDS * alone;
    long page = sysconf(_SC_PAGESIZE);
    float *memory = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        give_up(t);
        return NULL;
    }
    CPU_ZERO(&core);
    CPU_SET(nth_core(&t->cores, m->number), &core);
    pthread_setaffinity_np(pthread_self(), sizeof core, &core);
    madvise(memory, all, MADV_HUGEPAGE);
    for (size_t i = 0; i < all; i += (size_t)page) ((volatile char *)memory)[i] = 0; /* the kernel clears the rest */
    for (int round = 0; round < ROUNDS && meet(t, 2 * round + 1); round++) {
        thread_rates r = { 0 };
        if (m->number == 0) r = measure(memory, apart, (size_t)round * alone, alone);
        if (m->number == 0) keep_best(&t->one, &r);
        if (!meet(t, 2 * round + 2)) break;
        t->all[m->number][round] = measure(memory, apart, alone_parts + (size_t)round * shared, shared);
    }
    munmap(memory, all);
    return NULL;
}

/* The best round of the slowest thread in it. */
static thread_rates slowest(const team *t)
{
    thread_rates best = { 0 };
    for (int round = 0; round < ROUNDS; round++) {
        thread_rates least = t->all[0][round];
        for (int i = 1; i < t->threads; i++) {
            const thread_rates *r = &t->all[i][round];
            if (r->gemm < least.gemm) least.gemm = r->gemm;
            if (r->stream < least.stream) least.stream = r->stream;
            if (r->memory < least.memory) least.memory = r->memory;
        }
        keep_best(&best, &least);
    }
    return best;
}

/* Of the largest one. */
static size_t cache_bytes(void)
{
    long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (bytes <= 0) bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return bytes > 0 ? (size_t)bytes : USUAL_CACHE;
}

/* False: it could not be measured. */
static bool measure_all(const cpu_set_t *cores, int threads, ls__node_rates *out)
{
    team *t = calloc(1, sizeof *t);
    member members[MAX_THREADS];
    pthread_t thread[MAX_THREADS];
    int started = 0;
    if (!t) return false;
    size_t count = cache_bytes() / sizeof(float), each = (size_t)ALL / (size_t)threads;
    t->cores = *cores;
    t->threads = threads;
    t->begin = ls_now();
    t->count = count < LEAST ? LEAST : count > MOST ? MOST : count;
    t->shared_count = each < CACHED ? CACHED : each > t->count ? t->count : each;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    for (; started < threads; started++) {
        members[started] = (member){ .team = t, .number = started };
        if (ls__thread_start(&thread[started], "ls-probe", run_member, &members[started])) break;
    }
    if (started < threads) give_up(t);
    for (int i = 0; i < started; i++) pthread_join(thread[i], NULL);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    thread_rates all = slowest(t);
    *out = (ls__node_rates){ .gemm_one = t->one.gemm,
                             .gemm_all = all.gemm,
                             .stream_one = t->one.stream,
                             .stream_all = all.stream,
                             .memory_one = t->one.memory,
                             .memory_all = all.memory };
    bool done = !t->failed && all.gemm > 0 && all.stream > 0 && all.memory > 0;
    free(t);
    return done;
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

/* The file: {"CPU, cores, kernels": {rates}, ...}. An empty object if there is none that can be read; NULL: out of memory. */
static json_t *read_cache(const char *path)
{
    char *text;
    size_t bytes;
    if (ls__file_read(path, 1 << 16, &text, &bytes)) return json_object();
    json_t *j = json_loadb(text, bytes, 0, NULL);
    free(text);
    if (json_is_object(j)) return j;
    json_decref(j);
    return json_object();
}

static bool find_cached(json_t *cache, const char *key, ls__node_rates *out)
{
    return !json_unpack(json_object_get(cache, key), "{s:F, s:F, s:F, s:F, s:F, s:F}", "gemm_one", &out->gemm_one,
                        "gemm_all", &out->gemm_all, "stream_one", &out->stream_one, "stream_all", &out->stream_all,
                        "memory_one", &out->memory_one, "memory_all", &out->memory_all) &&
           out->gemm_one > 0 && out->gemm_all > 0 && out->stream_one > 0 && out->stream_all > 0 &&
           out->memory_one > 0 && out->memory_all > 0;
}

/* Ranks on some of the cores, or with other kernels, do not replace what was measured before. A failure, or another process that
 * writes at the same time, costs a later run some milliseconds, and nothing else. */
static void write_cache(json_t *cache, const char *folder, const char *path, const char *key, const ls__node_rates *r)
{
    if (json_object_size(cache) >= MOST_CACHED) json_object_clear(cache);
    json_t *rates =
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "gemm_one", r->gemm_one, "gemm_all", r->gemm_all, "stream_one",
                  r->stream_one, "stream_all", r->stream_all, "memory_one", r->memory_one, "memory_all", r->memory_all);
    int failed = json_object_set_new(cache, key, rates);
    char *text = failed ? NULL : json_dumps(cache, JSON_INDENT(2));
    ls_status status = text ? ls__file_make_own_dir(folder) : LS_ENOMEM;
    if (!status) status = ls__file_write(path, text, strlen(text));
    (void)status;
    free(text);
}

static void find(const cpu_set_t *cores, ls__node_rates *out)
{
    char key[2048], *folder = cache_folder(), *path = NULL;
    int all = CPU_COUNT(cores) < MAX_THREADS ? CPU_COUNT(cores) : MAX_THREADS;
    describe_cores(cores, key, sizeof key);
    if (folder && asprintf(&path, "%s/node-rates.json", folder) < 0) path = NULL;
    json_t *cache = path ? read_cache(path) : NULL;
    if (!find_cached(cache, key, out)) {
        bool done = measure_all(cores, all, out);
        if (!done) *out = (ls__node_rates){ 0 };
        if (done && cache) write_cache(cache, folder, path, key, out);
    }
    if (out->gemm_one > 0) out->cores = CPU_COUNT(cores);
    out->cache_bytes = (double)cache_bytes();
    json_decref(cache);
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
