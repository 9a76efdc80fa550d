/* An import from start to end: files are read in parallel, each rank's steps and phases are found; then the ranks are joined
 * and written. */
#include "lockstep/import.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "base/text.h"
#include "base/thread.h"
#include "import/files.h"
#include "import/flight.h"
#include "import/folder.h"
#include "import/write.h"
#include "record/event_file.h"

enum { MAX_RANKS = LS__EVENT_FILE_MAX_RANKS, FARTHEST_DAYS = 12000 /* an event file's times are within 36 years */ };
#define DAY_NS (INT64_C(86400) * 1000000000)

static const char *const trace_ends[] = { ".json", ".json.gz", ".json.zst", ".gz", ".zst", NULL };

typedef struct job {
    ls__file_list list;
    ls__file_state *files;
    ls__traces *read; /* of each file */
    char **failed;    /* its message; NULL: it was read */
    ls_status *status;
    _Atomic size_t next, finished;
    pthread_mutex_t lock;
    pthread_cond_t done;
    ls__trace **traces; /* one per rank, in order */
    size_t count;
    int ranks;
    ls__remarks remarks;
} job;

/* ---- Reading. */

static ls_status read_file(job *j, size_t i)
{
    ls_status status = ls__traces_read(&j->read[i], &j->files[i]);
    for (size_t k = 0; k < j->read[i].count && !status; k++) {
        ls__trace *t = &j->read[i].at[k];
        status = ls__trace_host(t);
        if (!status) status = ls__trace_device(t);
    }
    return status;
}

static void *read_files(void *user)
{
    job *j = user;
    for (size_t i; (i = atomic_fetch_add(&j->next, 1)) < j->list.count;) {
        j->status[i] = read_file(j, i);
        if (j->status[i]) j->failed[i] = strdup(ls_error());
        atomic_fetch_add(&j->finished, 1);
    }
    pthread_mutex_lock(&j->lock);
    pthread_cond_signal(&j->done);
    pthread_mutex_unlock(&j->lock);
    return NULL;
}

static void show(job *j, const ls_import_options *o)
{
    uint64_t done = 0, all = 0;
    for (size_t i = 0; i < j->list.count; i++) {
        struct stat s;
        done += atomic_load_explicit(&j->files[i].done, memory_order_relaxed);
        if (!stat(j->list.path[i], &s)) all += (uint64_t)s.st_size;
    }
    o->progress(o->user, done, all);
}

static ls_status read_all(job *j, const ls_import_options *o)
{
    enum { THREADS = 64 };
    pthread_t threads[THREADS];
    int want = o->threads > 0 ? o->threads : ls__cpu_count(), started = 0;
    if (want > THREADS) want = THREADS;
    if ((size_t)want > j->list.count) want = (int)j->list.count;
    ls_status status = LS_OK;
    for (; started < want && !status; started++)
        status = ls__thread_start(&threads[started], "ls-import", read_files, j);
    if (status) started--;
    pthread_mutex_lock(&j->lock);
    while (started && atomic_load(&j->finished) < j->list.count) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 100000000;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&j->done, &j->lock, &until);
        if (o->progress) show(j, o);
    }
    pthread_mutex_unlock(&j->lock);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    if (started) status = LS_OK; /* fewer threads did it all */
    if (o->progress) show(j, o);
    /* A file that the user named must be a trace; one found in a folder need not. */
    bool some = false;
    for (size_t i = 0; i < j->list.count; i++) some = some || (!j->status[i] && j->read[i].count);
    for (size_t i = 0; i < j->list.count && !status; i++) {
        if (!j->status[i]) continue;
        if (j->list.named[i] || j->status[i] == LS_ENOMEM || !some)
            status = ls__fail(j->status[i], "%s", j->failed[i] ? j->failed[i] : "out of memory");
        else
            ls__remark(&j->remarks, "skipped: %s", j->failed[i] ? j->failed[i] : j->list.path[i]);
    }
    return status;
}

/* ---- Which rank is which. */

static int by_rank(const void *a, const void *b)
{
    return (*(ls__trace *const *)a)->rank - (*(ls__trace *const *)b)->rank;
}

static ls_status find_ranks(job *j)
{
    size_t all = 0;
    for (size_t i = 0; i < j->list.count; i++) all += j->read[i].count;
    j->traces = calloc(all + 1, sizeof *j->traces);
    if (!j->traces) return ls__fail(LS_ENOMEM, "out of memory");
    const ls__trace *sized = NULL;
    for (size_t i = 0; i < j->list.count; i++)
        for (size_t k = 0; k < j->read[i].count; k++) {
            ls__trace *t = &j->read[i].at[k];
            if (t->rank < 0) t->rank = ls__files_rank(t->path, all);
            if (t->rank < 0 && all == 1) t->rank = 0;
            if (t->rank < 0)
                return ls__fail(LS_EFORMAT,
                                "%s: neither its distributedInfo nor its name has the rank; name it like rank-0.json",
                                t->path);
            if (t->world_size > MAX_RANKS)
                return ls__fail(LS_EFORMAT, "%s: distributedInfo has world_size %d; at most %d ranks can be imported",
                                t->path, t->world_size, (int)MAX_RANKS);
            if (t->world_size && t->rank >= t->world_size)
                return ls__fail(LS_EFORMAT, "%s: distributedInfo has rank %d of %d", t->path, t->rank, t->world_size);
            if (t->world_size && sized && sized->world_size != t->world_size)
                return ls__fail(LS_EFORMAT,
                                "%s is from a job with %d ranks, %s from one with %d; import the ranks of one job",
                                sized->path, sized->world_size, t->path, t->world_size);
            if (t->world_size) sized = t;
            if (t->rank >= j->ranks) j->ranks = t->rank + 1;
            j->traces[j->count++] = t;
        }
    qsort(j->traces, j->count, sizeof *j->traces, by_rank);
    if (sized && j->ranks > sized->world_size)
        return ls__fail(LS_EFORMAT,
                        "%s has rank %d in its name, %s is from a job with %d ranks; import the ranks of one job",
                        j->traces[j->count - 1]->path, j->ranks - 1, sized->path, sized->world_size);
    if (sized) j->ranks = sized->world_size;
    for (size_t i = 1; i < j->count; i++)
        if (j->traces[i]->rank == j->traces[i - 1]->rank)
            return ls__fail(LS_EFORMAT, "%s and %s are both from rank %d; import one trace per rank, of the same steps",
                            j->traces[i - 1]->path, j->traces[i]->path, j->traces[i]->rank);
    return LS_OK;
}

/* ---- What a reader of the report should know. */

static void remark_files(job *j)
{
    for (size_t i = 0; i < j->list.count; i++) {
        const ls__file_state *f = &j->files[i];
        if (j->status[i]) continue;
        if (f->broken)
            ls__remark(&j->remarks, "%s: %llu invalid event%s skipped, the first at byte %llu", f->path,
                       (unsigned long long)f->broken, ls__s((int64_t)f->broken), (unsigned long long)f->first_broken);
        if (f->cut) ls__remark(&j->remarks, "%s: truncated or corrupt; read as far as possible", f->path);
        if (j->read[i].count > 1)
            ls__remark(&j->remarks, "%s: has %zu JSON documents; each is read as one rank", f->path, j->read[i].count);
    }
    for (size_t i = 0; i < j->count; i++) {
        const ls__trace *t = j->traces[i];
        if (t->odd)
            ls__remark(&j->remarks, "rank %d: %llu events with invalid times skipped", t->rank,
                       (unsigned long long)t->odd);
        if (t->last - t->first > DAY_NS)
            ls__remark(
                &j->remarks,
                "rank %d: its events are spread over %.1f days: some have wrong times; those after the last step are "
                "left out",
                t->rank, (double)(t->last - t->first) / DAY_NS);
        if (t->without_end && (t->damaged || 10 * t->without_end > t->calls.count))
            ls__remark(
                &j->remarks,
                "rank %d: events of Gloo's threads are missing, so the ends of %llu of its %zu collectives are not "
                "known, nor how long it waited there",
                t->rank, (unsigned long long)t->without_end, t->calls.count);
        if (t->one_step)
            ls__remark(&j->remarks,
                       "rank %d: its trace has neither ProfilerStep#N nor Optimizer.step, so all of it is shown as one "
                       "step; call prof.step() after each step",
                       t->rank);
        else if (t->own_steps)
            ls__remark(
                &j->remarks,
                "steps end with Optimizer.step: the traces have no ProfilerStep#N (it needs profile(schedule=...) "
                "and prof.step() after each step)");
    }
    if (j->count == 1 && j->ranks > 1)
        ls__remark(&j->remarks,
                   "only rank %d's trace was given: waits for other ranks cannot be distinguished from communication; "
                   "give the "
                   "traces of all ranks",
                   j->traces[0]->rank);
    bool device = false, host = false, common = j->count < 2;
    for (size_t i = 0; i < j->count; i++) {
        device = device || j->traces[i]->device.end > j->traces[i]->device.begin;
        host = host || j->traces[i]->device.end <= j->traces[i]->device.begin;
        for (size_t k = 0; k < j->traces[i]->steps.count && i == 1 && !common; k++)
            for (size_t m = 0; m < j->traces[0]->steps.count && !common; m++)
                common = j->traces[1]->step_numbers.at[k] == j->traces[0]->step_numbers.at[m];
    }
    if (!common)
        ls__remark(&j->remarks, "ranks %d and %d have no step in common: their traces are from different times",
                   j->traces[0]->rank, j->traces[1]->rank);
    if (device && host) ls__remark(&j->remarks, "some ranks have GPU kernels in their traces, others have none");
}

/* ---- Writing. */

/* Machines by the names of their hosts; without names all are one. */
static void find_nodes(const job *j, int *node, int *local)
{
    int nodes = 0;
    for (size_t i = 0; i < j->count; i++) {
        node[i] = -1;
        local[i] = 0;
        for (size_t k = 0; k < i; k++)
            if (!strcmp(j->traces[k]->host, j->traces[i]->host)) {
                node[i] = node[k];
                local[i]++;
            }
        if (node[i] < 0) node[i] = nodes++;
    }
}

/* Micro-batches of a step, of all ranks; 0: not known. */
static int count_slots(const job *j)
{
    int each = j->count ? j->traces[0]->micro_batches : 0;
    for (size_t i = 1; i < j->count; i++)
        if (j->traces[i]->micro_batches != each) return 0;
    return each <= INT_MAX / j->ranks ? each * j->ranks : 0;
}

static ls_status write_all(job *j, const ls_import_options *o, ls_import_result *result)
{
    int *node = calloc(j->count + 1, sizeof *node), *local = calloc(j->count + 1, sizeof *local);
    json_t *ranks = json_array(), *sizes = NULL, *content = NULL;
    int64_t zero = INT64_MAX;
    int slots = count_slots(j);
    ls_status status = node && local && ranks ? LS_OK : ls__fail(LS_ENOMEM, "out of memory");
    if (!status) find_nodes(j, node, local);
    for (size_t i = 0; i < j->count; i++) {
        const ls__trace *t = j->traces[i];
        if (t->base + t->first < zero) zero = t->base + t->first;
    }
    for (size_t i = 0; i < j->count && !status; i++) {
        const ls__trace *t = j->traces[i];
        if (t->base + t->first - zero > FARTHEST_DAYS * DAY_NS)
            status =
                ls__fail(LS_EFORMAT,
                         "%s: its times are %.0f years after those of other ranks: it has another time base, such as "
                         "the time since the machine's start",
                         t->path, (double)(t->base + t->first - zero) / DAY_NS / 365.25);
    }
    zero -= 10000000000; /* no event's time is 0 */
    ls__folder folder;
    if (!status) status = ls__folder_begin(&folder, o->out);
    bool made = !status;
    for (size_t i = 0; i < j->count && !status; i++) {
        const ls__trace *t = j->traces[i];
        status = ls__write_events(t, folder.at, j->ranks, slots, node[i], local[i], zero);
        if (!status) status = ls__write_profile(t, folder.at, j->ranks);
        if (!status) json_array_append_new(ranks, ls__describe_trace(t));
        if ((int64_t)t->steps.count > result->steps) result->steps = (int64_t)t->steps.count;
        if (t->uncertainty > result->uncertainty) result->uncertainty = t->uncertainty;
        int64_t joined = 0;
        for (size_t k = 0; k < t->calls.count && i > 0; k++) joined += t->calls.at[k].joined;
        if (joined > result->collectives) result->collectives = joined;
    }
    if (!status) status = ls__describe_sizes(j->traces, j->count, j->ranks, &sizes);
    if (!status && !(content = json_pack("{s:O, s:O}", "ranks", ranks, "communication", sizes)))
        status = ls__fail(LS_ENOMEM, "out of memory");
    if (!status) status = ls__folder_finish(folder.at, "pytorch profiler", &j->remarks, content);
    if (made) status = ls__folder_end(&folder, status);
    json_decref(content);
    json_decref(sizes);
    json_decref(ranks);
    free(node);
    free(local);
    return status;
}

static ls_status prepare(job *j, const ls_import_options *o)
{
    ls_status status = ls__files_find(&j->list, o->files, o->count, trace_ends);
    if (status) return status;
    size_t n = j->list.count;
    j->files = calloc(n, sizeof *j->files);
    j->read = calloc(n, sizeof *j->read);
    j->failed = calloc(n, sizeof *j->failed);
    j->status = calloc(n, sizeof *j->status);
    if (!j->files || !j->read || !j->failed || !j->status) return ls__fail(LS_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) j->files[i].path = j->list.path[i];
    return LS_OK;
}

static ls_status import_traces(const ls_import_options *o, ls_import_result *result)
{
    job j = { .lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER };
    ls_status status = ls__folder_check(o->out);
    if (!status) status = prepare(&j, o);
    if (!status) status = read_all(&j, o);
    if (!status) status = find_ranks(&j);
    if (!status) remark_files(&j);
    if (!status) status = ls__join(j.traces, j.count, j.ranks, &j.remarks);
    if (!status) status = ls__clocks_find(j.traces, j.count, &j.remarks);
    if (!status) status = write_all(&j, o, result);
    result->ranks = j.ranks;
    result->present = (int)j.count;
    for (size_t i = 0; i < j.list.count && j.files; i++) {
        result->events += j.files[i].events;
        result->broken += j.files[i].broken;
        result->bytes += j.files[i].bytes;
    }
    if (!status) {
        result->notes = j.remarks.text;
        result->n_notes = j.remarks.count;
        j.remarks = (ls__remarks){ 0 };
    }
    for (size_t i = 0; i < j.list.count; i++) {
        if (j.read) ls__traces_free(&j.read[i]);
        if (j.failed) free(j.failed[i]);
    }
    free(j.traces);
    free(j.files);
    free(j.read);
    free(j.failed);
    free(j.status);
    ls__files_free(&j.list);
    ls__remarks_free(&j.remarks);
    return status;
}

ls_status ls_import(const ls_import_options *o, ls_import_result *result)
{
    LS__NEED(o, "options");
    LS__NEED(result, "result");
    *result = (ls_import_result){ 0 };
    switch (o->kind) {
    case LS_IMPORT_TRACES: return import_traces(o, result);
    case LS_IMPORT_FLIGHT_RECORDER: return ls__flight_import(o, result);
    }
    return ls__fail(LS_EINVAL, "import: unknown kind of files %d", (int)o->kind);
}

void ls_import_result_free(ls_import_result *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->n_notes; i++) free(r->notes[i]);
    free(r->notes);
    *r = (ls_import_result){ 0 };
}
