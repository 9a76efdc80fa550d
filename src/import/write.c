/* See write.h. */
#include "import/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/status.h"
#include "record/event_file.h"

/* ---- Events in order of time, merged from lists that are in order: a list of all of them would need more memory than the trace does. */

enum { STEPS, PHASES, CALLS, ENDS, WAITS, SOURCES };

typedef struct call_end {
    int64_t time;
    uint32_t call;
} call_end;

typedef struct writer {
    const ls__trace *t;
    uint64_t *words; /* of each call: which collective it is; UINT64_MAX: none */
    call_end *ends;  /* in order */
    size_t n_ends;
    size_t at[SOURCES];
    int part[SOURCES]; /* of the entry at `at`: how many of its events are taken */
    size_t step;       /* that the next call is in */
    int64_t bucket;    /* its number there */
} writer;

/* What ends at a time comes before what begins there. */
static int place(uint32_t kind)
{
    switch (kind) {
    case LS_EVENT_COLL_DONE: return 0;
    case LS_EVENT_BLOCKED: return 1;
    case LS_EVENT_PHASE_END: return 2;
    case LS_EVENT_STEP: return 3;
    case LS_EVENT_PHASE_BEGIN: return 4;
    case LS_EVENT_COLL_START: return 5;
    default: return 6;
    }
}

static int by_end(const void *a, const void *b)
{
    const call_end *x = a, *y = b;
    return (x->time > y->time) - (x->time < y->time);
}

static bool next_step(writer *w, ls_event *e)
{
    const ls__trace *t = w->t;
    size_t i = w->at[STEPS];
    if (i == t->steps.count) return false;
    const ls__trace_interval *s = &t->steps.at[i];
    /* A pause between two recordings belongs to no step. */
    bool pause = i + 1 < t->steps.count && s[1].begin - s->end > s->end - s->begin;
    *e = (ls_event){ .time = w->part[STEPS] ? s->end : s->begin,
                     .kind = LS_EVENT_STEP,
                     .a = (uint64_t)t->step_numbers.at[i] };
    w->part[STEPS] = pause && !w->part[STEPS];
    w->at[STEPS] += !w->part[STEPS];
    return true;
}

static bool next_phase(writer *w, ls_event *e)
{
    if (w->at[PHASES] == w->t->intervals.count) return false;
    const ls__trace_interval *p = &w->t->intervals.at[w->at[PHASES]];
    bool end = w->part[PHASES];
    *e = (ls_event){ .time = end ? p->end : p->begin,
                     .kind = end ? LS_EVENT_PHASE_END : LS_EVENT_PHASE_BEGIN,
                     .a = p->phase };
    w->part[PHASES] = !end;
    w->at[PHASES] += end;
    return true;
}

/* Its arrival and, of an all-reduce in backward, the bucket that was ready. */
static bool next_call(writer *w, ls_event *e)
{
    enum { MOST_BUCKETS = 4096 };
    const ls__trace *t = w->t;
    size_t *i = &w->at[CALLS];
    int *part = &w->part[CALLS];
    while (*i < t->calls.count && w->words[*i] == UINT64_MAX) ++*i;
    if (*i == t->calls.count) return false;
    const ls__call *c = &t->calls.at[*i];
    uint64_t word = w->words[*i];
    for (; w->step + 1 < t->steps.count && c->arrived >= t->steps.at[w->step + 1].begin; w->step++) w->bucket = 0;
    *e = (ls_event){ .time = c->arrived };
    if (*part == 0) {
        e->kind = LS_EVENT_COLL_START;
        e->a = word;
        e->b = (uint64_t)c->kind << 56 | ((uint64_t)c->bytes & (UINT64_MAX >> 8));
    } else {
        e->kind = *part == 1 ? LS_EVENT_BUCKET_READY : LS_EVENT_BUCKET_START;
        e->a = (uint64_t)w->bucket;
        e->b = *part == 1 ? (uint64_t)c->bytes : word;
    }
    bool bucket = c->in_backward && c->kind == LS_COLLECTIVE_ALLREDUCE && w->bucket < MOST_BUCKETS;
    if (bucket && ++*part <= 2) return true;
    w->bucket += bucket;
    *part = 0;
    ++*i;
    return true;
}

static bool next_end(writer *w, ls_event *e)
{
    if (w->at[ENDS] == w->n_ends) return false;
    const call_end *c = &w->ends[w->at[ENDS]++];
    *e = (ls_event){
        .time = c->time, .kind = LS_EVENT_COLL_DONE, .a = w->words[c->call], .b = (uint64_t)w->t->rank << 48
    };
    return true;
}

static bool next_wait(writer *w, ls_event *e)
{
    const ls__trace *t = w->t;
    size_t *i = &w->at[WAITS];
    while (*i < t->waits.count && w->words[t->waits.at[*i].call] == UINT64_MAX) ++*i;
    if (*i == t->waits.count) return false;
    const ls__trace_wait *s = &t->waits.at[(*i)++];
    *e = (ls_event){
        .time = s->end, .kind = LS_EVENT_BLOCKED, .a = w->words[s->call], .b = (uint64_t)(s->end - s->begin)
    };
    return true;
}

static bool prepare(writer *w, const ls__trace *t)
{
    uint64_t alone = 0;
    *w = (writer){ .t = t,
                   .words = malloc((t->calls.count + 1) * sizeof *w->words),
                   .ends = malloc((t->calls.count + 1) * sizeof *w->ends) };
    if (!w->words || !w->ends) return false;
    for (size_t i = 0; i < t->calls.count; i++) {
        const ls__call *c = &t->calls.at[i];
        /* What could not be joined is written for this rank alone. */
        w->words[i] = c->sends    ? UINT64_MAX
                      : c->joined ? ls_collective_id(t->groups.at[c->group].key, c->number)
                                  : ls_collective_id((uint64_t)t->rank + 0xa10e, ++alone);
        if (!c->sends && c->done) w->ends[w->n_ends++] = (call_end){ c->done, (uint32_t)i };
    }
    ls__sort_nearly(w->ends, w->n_ends, sizeof *w->ends, by_end);
    return true;
}

/* Adds all events, their times `shift` later. Nothing is written after the last step. */
static void add_events(writer *w, ls__event_file *f, int64_t shift)
{
    static bool (*const next[SOURCES])(writer *, ls_event *) = { next_step, next_phase, next_call, next_end,
                                                                 next_wait };
    int64_t end = w->t->steps.at[w->t->steps.count - 1].end;
    ls_event head[SOURCES];
    bool has[SOURCES];
    for (int k = 0; k < SOURCES; k++) has[k] = next[k](w, &head[k]);
    for (;;) {
        int first = -1;
        for (int k = 0; k < SOURCES; k++) {
            if (!has[k]) continue;
            const ls_event *a = &head[k], *b = first < 0 ? NULL : &head[first];
            if (!b || a->time < b->time || (a->time == b->time && place(a->kind) < place(b->kind))) first = k;
        }
        if (first < 0) break;
        ls_event e = head[first];
        e.time += shift;
        if (head[first].time <= end || e.kind == LS_EVENT_COLL_DONE) ls__event_file_add(f, &e);
        has[first] = next[first](w, &head[first]);
    }
    ls__event_file_add(f, &(ls_event){ .time = end + shift, .kind = LS_EVENT_NONE });
}

static void clean(char *text)
{
    for (char *c = text; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ' || (unsigned char)*c > '~') *c = '?';
}

ls_status ls__write_events(const ls__trace *t, const char *out, int ranks, int slots, int node, int local, int64_t zero)
{
    writer w;
    char head[1024], host[65], transport[8], *folder = NULL;
    snprintf(host, sizeof host, "%s", *t->host ? t->host : "-");
    snprintf(transport, sizeof transport, "%.7s", *t->backend ? t->backend : "none");
    transport[strcspn(transport, ":,")] = 0;
    clean(host);
    clean(transport);
    int64_t start = t->first + t->base - zero, time = t->first + t->base > 0 ? t->first + t->base : 0;
    snprintf(head, sizeof head,
             "{\"lockstep\":\"%s\",\"rank\":%d,\"ranks\":%d,\"node\":%d,\"local_rank\":%d,\"host\":\"%s\",\"pid\":0,"
             "\"cores\":\"\",\"threads\":0,\"transport\":\"%s\",\"start\":%lld,\"time\":%lld.%06lld}",
             ls_version(), t->rank, ranks, node, local, host, transport, (long long)start,
             (long long)(time / 1000000000), (long long)(time / 1000 % 1000000));
    ls__event_file *f = prepare(&w, t) ? ls__event_file_new(NULL) : NULL;
    if (asprintf(&folder, "%s/events", out) < 0) folder = NULL;
    ls_status status = f && folder ? LS_OK : ls__fail(LS_ENOMEM, "%s: no memory for its events", t->path);
    if (!status) {
        ls__event_file_metadata(f, LS_METADATA_TORCH, 1);
        if (slots) ls__event_file_metadata(f, LS_METADATA_SLOTS, slots);
        status = ls__event_file_start(f, folder, t->rank, head, SIZE_MAX);
    }
    if (!status) {
        for (int k = 0; k < 2 && t->aligned && (t->ahead[0] || t->ahead[1]); k++)
            ls__event_file_add(f, &(ls_event){ .time = t->ahead_at[k] - zero,
                                               .kind = LS_EVENT_CLOCK,
                                               .a = (uint64_t)t->ahead[k],
                                               .b = (uint64_t)t->uncertainty });
        add_events(&w, f, t->base - zero);
        if (!ls__event_file_stop(f))
            status = ls__fail(LS_EIO, "%s/rank-%d.bin: cannot be written; the disk may be full", folder, t->rank);
    }
    ls__event_file_free(&f);
    free(folder);
    free(w.words);
    free(w.ends);
    return status;
}

/* ---- What operators cost. */

static json_t *describe_operations(const ls__trace *t)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; rows && i < t->operations.count; i++) {
        const ls__trace_operation *o = &t->operations.at[i];
        char name[200];
        ls__text_copy((ls__text){ t->operation_names.text[i], strlen(t->operation_names.text[i]) }, name, sizeof name);
        json_array_append_new(rows,
                              json_pack("{s:s, s:s, s:s, s:s, s:[], s:I, s:f, s:f}", "op", name, "pass",
                                        2 * o->in_backward > o->calls ? "backward" : "forward", "module", "", "layer",
                                        "", "shape", "calls", (json_int_t)o->calls, "ms",
                                        (double)(o->own > 0 ? o->own : 0) / 1e6, "max_ms", (double)o->longest / 1e6));
    }
    return rows;
}

static void sum_phases(const ls__trace *t, double out[LS_PHASE_COUNT])
{
    int64_t begin = t->steps.at[0].begin, end = t->steps.at[t->steps.count - 1].end;
    memset(out, 0, LS_PHASE_COUNT * sizeof *out);
    for (size_t i = 0; i < t->intervals.count; i++) {
        const ls__trace_interval *p = &t->intervals.at[i];
        int64_t from = p->begin > begin ? p->begin : begin, to = p->end < end ? p->end : end;
        if (to > from) out[p->phase] += (double)(to - from) / 1e6;
    }
}

ls_status ls__write_profile(const ls__trace *t, const char *out, int ranks)
{
    char *path = NULL, *folder = NULL, *text = NULL;
    double phases[LS_PHASE_COUNT], all = (double)(t->steps.at[t->steps.count - 1].end - t->steps.at[0].begin) / 1e6;
    sum_phases(t, phases);
    json_t *rows = describe_operations(t),
           *root =
               json_pack("{s:s, s:i, s:i, s:i, s:I, s:I, s:i, s:f, s:{s:f, s:f, s:f, s:f, s:f}, s:f, s:I, s:I, s:o}",
                         "lockstep", ls_version(), "rank", t->rank, "ranks", ranks, "threads", 1, "first_step",
                         (json_int_t)t->step_numbers.at[0], "steps", (json_int_t)t->steps.count, "micro_batches",
                         t->micro_batches ? t->micro_batches : 1, "step_ms", all, "phase_ms", "data",
                         phases[LS_PHASE_DATA], "forward", phases[LS_PHASE_FORWARD], "backward",
                         phases[LS_PHASE_BACKWARD], "update", phases[LS_PHASE_UPDATE], "other", 0.0, "peak_gflops", 0.0,
                         "activation_peak_bytes", (json_int_t)0, "resident_peak_bytes", (json_int_t)0, "operations",
                         rows);
    if (root) text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    ls_status status = text && asprintf(&folder, "%s/profile", out) >= 0 &&
                               asprintf(&path, "%s/profile/rank-%d.json", out, t->rank) >= 0
                           ? LS_OK
                           : ls__fail(LS_ENOMEM, "%s: out of memory", t->path);
    if (!status) status = ls__file_make_own_dir(folder);
    if (!status) status = ls__file_write(path, text, strlen(text));
    json_decref(root);
    free(text);
    free(folder);
    free(path);
    return status;
}

/* ---- import.json. */

static double ms(int64_t ns)
{
    return (double)ns / 1e6;
}

static json_t *describe_kernels(const ls__trace *t)
{
    enum { TOP = 20 };
    json_t *rows = json_array();
    bool *taken = calloc(t->kernel_sums.count + 1, sizeof *taken);
    for (int k = 0; k < TOP && taken && rows; k++) {
        size_t best = t->kernel_sums.count;
        for (size_t i = 0; i < t->kernel_sums.count; i++)
            if (!taken[i] && (best == t->kernel_sums.count || t->kernel_sums.at[i].ns > t->kernel_sums.at[best].ns))
                best = i;
        if (best == t->kernel_sums.count) break;
        taken[best] = true;
        const ls__kernel_sum *s = &t->kernel_sums.at[best];
        char name[200];
        ls__text_copy((ls__text){ t->kernel_names.text[best], strlen(t->kernel_names.text[best]) }, name, sizeof name);
        json_array_append_new(rows, json_pack("{s:s, s:s, s:I, s:f}", "name", name, "class",
                                              ls__kernel_kind_name((ls__kernel_kind)s->kind), "calls",
                                              (json_int_t)s->calls, "ms", ms(s->ns)));
    }
    free(taken);
    return rows;
}

static json_t *describe_device(const ls__trace *t)
{
    const ls__device *d = &t->device;
    json_t *classes = json_object(), *streams = json_array();
    for (int k = 0; k < LS__KERNEL_KINDS; k++)
        if (d->kind[k])
            json_object_set_new(classes, ls__kernel_kind_name((ls__kernel_kind)k), json_real(ms(d->kind[k])));
    for (size_t i = 0; i < t->streams.count; i++) {
        const ls__stream *s = &t->streams.at[i];
        char name[64];
        const char *text = t->threads.text[s->thread];
        ls__text_copy((ls__text){ text, strlen(text) }, name, sizeof name);
        json_array_append_new(streams, json_pack("{s:s, s:I, s:f, s:f, s:f, s:f}", "stream", name, "kernels",
                                                 (json_int_t)s->kernels, "busy_ms", ms(s->busy), "idle_host_ms",
                                                 ms(s->idle_host), "idle_gap_ms", ms(s->idle_gap), "idle_other_ms",
                                                 ms(s->idle_other)));
    }
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o}", "span_ms",
                     ms(d->end - d->begin), "compute_ms", ms(d->compute), "comm_ms", ms(d->comm), "memory_ms",
                     ms(d->memory), "overlap_ms", ms(d->overlap), "exposed_ms", ms(d->exposed), "copies_ms",
                     ms(d->copies), "idle_ms", ms(d->idle), "idle_host_ms", ms(d->idle_host), "idle_data_ms",
                     ms(d->idle_data), "idle_gap_ms", ms(d->idle_gap), "idle_other_ms", ms(d->idle_other), "classes_ms",
                     classes, "streams", streams, "kernels", describe_kernels(t));
}

json_t *ls__describe_trace(const ls__trace *t)
{
    json_t *o = json_pack("{s:i, s:s%, s:s, s:I, s:I, s:b, s:f, s:f, s:f}", "rank", t->rank, "file", t->path,
                          strlen(t->path), "host", t->host, "steps", (json_int_t)t->steps.count, "collectives",
                          (json_int_t)t->calls.count, "clock_known", t->aligned, "clock_ahead_ms", ms(t->ahead[0]),
                          "clock_drift_ppm", t->drift_ppm, "clock_uncertainty_ms", ms(t->uncertainty));
    if (o && t->device.end > t->device.begin) json_object_set_new(o, "device", describe_device(t));
    return o;
}
