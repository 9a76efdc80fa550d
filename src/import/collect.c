/* From a document's events to what is kept of them. See trace.h. */
#include <ctype.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "base/status.h"
#include "import/document.h"
#include "import/calls.h"
#include "import/trace.h"

/* ---- Operators of a thread: who called whom. */

enum { DEPTH = 48 };
#define FAR (INT64_C(1) << 61) /* ns: times further from the base are invalid */

typedef struct open_operation {
    int64_t end, inside; /* inside: time of those that it called */
    uint32_t name;
} open_operation;

typedef struct thread_stack {
    open_operation *open;
    int depth, room;
    int64_t last;
    ls__busy busy, backward; /* its newest entries, which may become longer */
    bool has_busy, has_backward;
    int64_t busy_ns;     /* of those before */
    int64_t covered;     /* what was busy is known up to here */
    int64_t in_backward; /* until when */
} thread_stack;

typedef struct collect {
    ls__traces *out;
    ls__trace *t; /* the document that is read; NULL: none yet */
    ls__file_state *file;
    ls__input *in;
    thread_stack *threads;
    uint32_t n_threads;
    uint32_t last_thread; /* of the event before: mostly the same again */
    bool dump;            /* of the Flight Recorder instead of a trace */
    ls__text last_tid;
    char last_text[40];
    uint64_t seen;
    int64_t last_time;    /* of the newest event that was kept */
    uint32_t annotations; /* names of them among those of operators */
} collect;

static ls_status no_memory(const collect *c)
{
    return ls__fail(LS_ENOMEM, "%s: out of memory", c->file->path);
}

static void close_operation(ls__trace *t, thread_stack *s)
{
    const open_operation *o = &s->open[--s->depth];
    t->operations.at[o->name].own -= o->inside;
}

static bool pack_busy(ls__deltas *to, const ls__busy *b)
{
    return ls__deltas_add(to, (int64_t[]){ b->begin, b->end - b->begin, b->thread, b->calls });
}

/* The end of a document. */
static ls_status drop_threads(collect *c)
{
    bool ok = true;
    for (uint32_t i = 0; i < c->n_threads && c->t; i++) {
        thread_stack *s = &c->threads[i];
        while (s->depth) close_operation(c->t, s);
        if (s->has_busy) ok = pack_busy(&c->t->packed_busy, &s->busy) && ok;
        s->busy_ns += s->busy.end - s->busy.begin;
        if (s->busy_ns > c->threads[c->t->busiest_thread].busy_ns) c->t->busiest_thread = i;
        if (s->has_backward) ok = pack_busy(&c->t->packed_backward, &s->backward) && ok;
    }
    for (uint32_t i = 0; i < c->n_threads; i++) free(c->threads[i].open);
    free(c->threads);
    c->threads = NULL;
    c->n_threads = 0;
    c->last_tid.bytes = 0;
    return ok ? LS_OK : no_memory(c);
}

static thread_stack *stack_of(collect *c, uint32_t thread)
{
    if (thread >= c->n_threads) {
        uint32_t room = thread + thread / 2 + 8;
        thread_stack *more = reallocarray(c->threads, room, sizeof *more);
        if (!more) return NULL;
        memset(more + c->n_threads, 0, (room - c->n_threads) * sizeof *more);
        c->threads = more;
        c->n_threads = room;
    }
    return &c->threads[thread];
}

static uint32_t thread_of(collect *c, const ls__trace_event *e)
{
    ls__text tid = e->tid;
    if (tid.bytes > 32) tid.bytes = 32;
    if (tid.bytes && tid.bytes == c->last_tid.bytes && !memcmp(tid.at, c->last_text, tid.bytes)) return c->last_thread;
    uint32_t thread = ls__interned_of(&c->t->threads, tid);
    memcpy(c->last_text, tid.at ? tid.at : "", tid.bytes);
    c->last_tid = (ls__text){ c->last_text, tid.bytes };
    c->last_thread = thread;
    return thread;
}

/* ---- Collectives. */

static ls_status add_comms(collect *c, const ls__trace_event *e, uint32_t thread)
{
    bool sends = false;
    ls__call call = { .begin = e->time,
                      .end = e->time + e->duration,
                      .sequence = -1,
                      .thread = thread,
                      .kind = UINT8_MAX,
                      .group = UINT32_MAX };
    if (ls__text_is(e->name, "record_param_comms")) {
        if (!ls__call_read(c->t, e, &call)) return LS_OK;
        return LS__ADD(&c->t->calls, call) ? LS_OK : no_memory(c);
    }
    int kind = ls__collective_of(e->name, &sends);
    if (kind < 0) return LS_OK; /* c10d::monitored... */
    call.kind = (uint8_t)kind;
    call.sends = sends;
    call.bytes = ls__call_bytes(e, kind);
    return LS__ADD(&c->t->c10d, call) ? LS_OK : no_memory(c);
}

/* ---- Spans by category. */

/* Autograd's functions: "autograd::engine::evaluate_function: AddmmBackward0", and the function within. */
static bool is_backward(ls__text name)
{
    const char *end = name.at + name.bytes;
    while (end > name.at && end[-1] >= '0' && end[-1] <= '9') end--;
    return ls__text_begins(name, "autograd::engine::") || ls__text_contains(name, "ddp.reducer::") ||
           ls__text_contains(name, "AccumulateGrad") || (end - name.at > 8 && !memcmp(end - 8, "Backward", 8));
}

enum { CLOSE_NS = 10000 }; /* what follows so soon is one with what was before */

static bool add_backward(ls__trace *t, thread_stack *s, uint32_t thread, int64_t begin, int64_t end)
{
    ls__busy *b = &s->backward;
    if (end > s->in_backward) s->in_backward = end;
    if (s->has_backward && begin >= b->begin && begin - b->end < CLOSE_NS) {
        if (end > b->end) b->end = end;
        return true;
    }
    bool ok = !s->has_backward || pack_busy(&t->packed_backward, b);
    *b = (ls__busy){ begin, end, thread, false };
    s->has_backward = true;
    return ok;
}

static bool add_busy(ls__trace *t, thread_stack *s, uint32_t thread, int64_t begin, int64_t end, bool call)
{
    ls__busy *b = &s->busy;
    bool inside = begin < s->covered && s->has_busy; /* within an operator that counts already */
    if (inside && !call) return true;
    if (inside) {
        b->calls = true;
        return true;
    }
    s->covered = end;
    if (s->has_busy && begin >= b->begin && !b->calls && !call && begin - b->end < CLOSE_NS) {
        b->end = end;
        return true;
    }
    bool ok = !s->has_busy || pack_busy(&t->packed_busy, b);
    s->busy_ns += b->end - b->begin;
    *b = (ls__busy){ begin, end, thread, call };
    s->has_busy = true;
    return ok;
}

/* The entry of a name in the table of operators. */
static ls_status operation_of(collect *c, ls__text text, uint32_t *out)
{
    ls__trace *t = c->t;
    *out = ls__interned_of(&t->operation_names, text);
    if (*out == UINT32_MAX) return no_memory(c);
    while (*out >= t->operations.count) {
        ls__trace_operation fresh = { .backward = is_backward(text) };
        if (!LS__ADD(&t->operations, fresh)) return no_memory(c);
    }
    return LS_OK;
}

/* Adds a span to its thread's calls, and to the sums of its name; its time is not its caller's own. */
static ls_status nest(collect *c, const ls__trace_event *e, thread_stack *s, uint32_t name)
{
    ls__trace_operation *o = &c->t->operations.at[name];
    int64_t begin = e->time, end = e->time + e->duration;
    while (s->depth && (begin < s->last || s->open[s->depth - 1].end <= begin)) close_operation(c->t, s);
    if (s->depth) {
        open_operation *parent = &s->open[s->depth - 1];
        parent->inside += (end < parent->end ? end : parent->end) - begin;
    }
    o->calls++;
    o->own += e->duration;
    o->all += e->duration;
    if (begin < s->in_backward) o->in_backward++;
    if (e->duration > o->longest) o->longest = e->duration;
    if (s->depth == s->room && s->depth < DEPTH) {
        int room = s->room ? 2 * s->room : 3;
        open_operation *more = reallocarray(s->open, (size_t)room, sizeof *more);
        if (!more) return no_memory(c);
        s->open = more;
        s->room = room;
    }
    if (s->depth < DEPTH) s->open[s->depth++] = (open_operation){ .end = end, .name = name };
    s->last = begin;
    return LS_OK;
}

static ls_status add_operator(collect *c, const ls__trace_event *e)
{
    ls__trace *t = c->t;
    uint32_t thread = thread_of(c, e), name;
    thread_stack *s = thread == UINT32_MAX ? NULL : stack_of(c, thread);
    ls_status status = s ? operation_of(c, e->name, &name) : no_memory(c);
    if (status) return status;
    int64_t begin = e->time, end = e->time + e->duration;
    if (begin < s->last) s->covered = s->in_backward = INT64_MIN;
    bool call = ls__text_is(e->name, "record_param_comms") || ls__text_begins(e->name, "c10d::");
    bool ok = t->operations.at[name].backward ? add_backward(t, s, thread, begin, end)
                                              : add_busy(t, s, thread, begin, end, call);
    status = ok ? nest(c, e, s, name) : no_memory(c);
    return !status && call ? add_comms(c, e, thread) : status;
}

/* A span of the program's own, or of Python code of PyTorch, that is no phase: FSDP runs collectives in them, within autograd's functions.
 * Names may have numbers in them: beyond so many they share one. */
static ls_status add_annotation(collect *c, const ls__trace_event *e)
{
    enum { MOST = 1000 };
    static const ls__text others = { "other annotations", 17 };
    uint32_t thread = thread_of(c, e), name, before = c->t->operation_names.count;
    thread_stack *s = thread == UINT32_MAX ? NULL : stack_of(c, thread);
    if (!s) return no_memory(c);
    if (e->time < s->last) return LS_OK; /* out of order: who called it is not known any more */
    bool shared = c->annotations >= MOST && ls__interned_find(&c->t->operation_names, e->name) == UINT32_MAX;
    ls_status status = operation_of(c, shared ? others : e->name, &name);
    c->annotations += c->t->operation_names.count - before;
    return status ? status : nest(c, e, s, name);
}

static ls_status add_mark(collect *c, const ls__trace_event *e)
{
    ls__trace *t = c->t;
    ls__mark m = { .begin = e->time, .end = e->time + e->duration, .number = -1 };
    ls__text name = e->name;
    const char *colon = memchr(name.at, ':', name.bytes);
    if (ls__text_begins(name, "ProfilerStep#")) {
        m.kind = LS__MARK_STEP;
        if (!ls__text_integer((ls__text){ name.at + 13, name.bytes - 13 }, &m.number) || m.number < 0) return LS_OK;
    } else if (ls__text_begins(name, "enumerate(DataLoader)") || ls__text_begins(name, "[DataLoader]")) {
        m.kind = LS__MARK_DATA;
    } else if (ls__text_begins(name, "Optimizer.step#")) {
        m.kind = LS__MARK_OPTIMIZER;
        m.number = ls__interned_of(&t->marks_names, name);
    } else if (ls__text_begins(name, "Optimizer.zero_grad")) {
        m.kind = LS__MARK_ZERO_GRAD;
    } else if (ls__text_is(name, "DistributedDataParallel.forward") ||
               ls__text_is(name, "FullyShardedDataParallel.forward")) {
        m.kind = LS__MARK_FORWARD;
    } else if (colon && colon > name.at && colon[1] != ':' &&
               (ls__text_begins(name, "gloo:") || ls__text_begins(name, "nccl:") || ls__text_begins(name, "mpi:") ||
                ls__text_begins(name, "ucc:") || ls__text_begins(name, "hccl:") || ls__text_begins(name, "xccl:"))) {
        bool sends;
        size_t skip = (size_t)(colon + 1 - name.at);
        int kind = ls__collective_of((ls__text){ name.at + skip, name.bytes - skip }, &sends);
        if (kind < 0) return LS_OK;
        m.kind = LS__MARK_WORK;
        m.number = kind;
        if (!*t->backend) ls__text_copy((ls__text){ name.at, skip - 1 }, t->backend, sizeof t->backend);
    } else {
        return add_annotation(c, e);
    }
    m.thread = thread_of(c, e);
    return m.thread != UINT32_MAX && LS__ADD(&t->marks, m) ? LS_OK : no_memory(c);
}

static ls_status add_kernel(collect *c, const ls__trace_event *e, bool memory)
{
    ls__trace *t = c->t;
    ls__text text;
    int64_t correlation = 0;
    /* MTIA has more in this category than kernels: what a stream waits for or records, and spans without a stream. */
    if (ls__text_is(e->cat, "mtia_ccp_events") &&
        (ls__text_is(e->name, "event_wait") || ls__text_is(e->name, "event_record") ||
         !ls__argument(e, "stream", &text)))
        return LS_OK;
    if (ls__argument(e, "correlation", &text)) ls__text_integer(text, &correlation);
    uint32_t name = ls__interned_of(&t->kernel_names, e->name), stream = thread_of(c, e);
    if (name == UINT32_MAX || stream == UINT32_MAX) return no_memory(c);
    while (name >= t->kernel_sums.count) {
        ls__kernel_kind kind = ls__kernel_kind_of(e->name);
        if (memory && kind != LS__KERNEL_SET) kind = LS__KERNEL_COPY;
        if (!LS__ADD(&t->kernel_sums, (ls__kernel_sum){ .kind = (uint8_t)kind })) return no_memory(c);
    }
    ls__kernel_sum *sum = &t->kernel_sums.at[name];
    sum->calls++;
    sum->ns += e->duration;
    if (!ls__deltas_add(&t->packed_kernels, (int64_t[]){ e->time, e->duration, (uint32_t)correlation,
                                                         (int64_t)(uint16_t)stream * LS__KERNEL_KINDS + sum->kind }))
        return no_memory(c);
    if (sum->kind != LS__KERNEL_COMM) return LS_OK;
    bool sends = false;
    int kind = ls__collective_of(e->name, &sends);
    ls__call call = { .begin = e->time,
                      .end = e->time + e->duration,
                      .arrived = e->time,
                      .done = e->time + e->duration,
                      .sequence = -1,
                      .thread = stream,
                      .kind = (uint8_t)(kind < 0 ? UINT8_MAX : kind),
                      .group = UINT32_MAX };
    if (!ls__call_read(t, e, &call)) return LS_OK;
    return LS__ADD(&t->comms, call) && LS__ADD(&t->comm_launch, (uint32_t)correlation) ? LS_OK : no_memory(c);
}

static ls_status add_launch(collect *c, const ls__trace_event *e)
{
    static const char *const words[] = { "Launch", "Memcpy",  "Memset",     "launch",
                                         "Graph",  "Enqueue", "MemoryCopy", "MemoryFill" };
    ls__text text;
    int64_t correlation;
    bool starts = ls__text_is(e->cat, "mtia_runtime"); /* whose names are many */
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) starts = starts || ls__text_contains(e->name, words[i]);
    if (!starts || !ls__argument(e, "correlation", &text) || !ls__text_integer(text, &correlation)) return LS_OK;
    uint32_t thread = thread_of(c, e);
    if (thread == UINT32_MAX) return no_memory(c);
    return ls__deltas_add(&c->t->packed_launches, (int64_t[]){ e->time, (uint32_t)correlation, thread, 0 })
               ? LS_OK
               : no_memory(c);
}

typedef enum category { NONE, OPERATOR, ANNOTATION, KERNEL, MEMORY, RUNTIME } category;

static category category_of(ls__text cat)
{
    static const struct {
        const char *word;
        category category;
    } words[] = {
        { "cpu_op", OPERATOR },
        { "user_annotation", ANNOTATION },
        { "kernel", KERNEL },
        { "cuda_runtime", RUNTIME },
        { "cuda_driver", RUNTIME },
        { "gpu_memcpy", MEMORY },
        { "gpu_memset", MEMORY },
        { "Kernel", KERNEL },
        { "Runtime", RUNTIME },
        { "Memcpy", MEMORY },
        { "Memset", MEMORY },
        { "Operator", OPERATOR },
        { "mtia_ccp_events", KERNEL },
        { "mtia_runtime", RUNTIME },
        { "xpu_runtime", RUNTIME },
        { "xpu_driver", RUNTIME },
        { "hpu_op", KERNEL },
        { "privateuse1_runtime", RUNTIME },
        { "privateuse1_driver", RUNTIME },
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (ls__text_is(cat, words[i].word)) return words[i].category;
    return NONE;
}

static bool unwanted(ls__text cat)
{
    return category_of(cat) == NONE;
}

static ls_status take_event(void *user, const ls__trace_event *e)
{
    collect *c = user;
    ls__trace *t = c->t;
    if (!(++c->seen & 1023)) atomic_store_explicit(&c->file->done, ls__input_position(c->in), memory_order_relaxed);
    category k = e->ph == 'X' ? category_of(e->cat) : NONE;
    if (k == NONE || !e->name.bytes) return LS_OK;
    if (!e->timed || e->duration < 0 || e->time < -FAR || e->time > FAR || e->duration > FAR) {
        t->odd++;
        return LS_OK;
    }
    t->spans++;
    c->last_time = e->time;
    if (e->time < t->first) t->first = e->time;
    if (e->time + e->duration > t->last) t->last = e->time + e->duration;
    switch (k) {
    case OPERATOR: return add_operator(c, e);
    case ANNOTATION: return add_mark(c, e);
    case KERNEL: return add_kernel(c, e, false);
    case MEMORY: return add_kernel(c, e, true);
    default: return add_launch(c, e);
    }
}

/* ---- Documents. */

static ls_status begin_document(void *user)
{
    collect *c = user;
    ls_status status = drop_threads(c);
    if (status) return status;
    ls__trace *more = reallocarray(c->out->at, c->out->count + 1, sizeof *more);
    if (!more) return no_memory(c);
    c->out->at = more;
    c->t = &more[c->out->count];
    *c->t = (ls__trace){
        .rank = -1, .document = (int)c->out->count, .first = INT64_MAX, .last = INT64_MIN, .known_until = INT64_MAX
    };
    c->annotations = 0;
    c->t->path = strdup(c->file->path);
    if (!c->t->path) return no_memory(c);
    c->out->count++;
    return LS_OK;
}

static void take_groups(ls__trace *t, ls__text list)
{
    const char *p = list.at, *end = list.at + list.bytes;
    while (p < end && (p = memchr(p, '{', (size_t)(end - p)))) {
        const char *behind = ls__scan_value(p, end);
        ls__text name, ranks;
        if (!behind) break;
        if (ls__scan_find(p, behind, "pg_name", &name) && ls__scan_find(p, behind, "ranks", &ranks) &&
            !ls__ranks_are_cut(ranks))
            ls__group_of(t, name, ranks);
        p = behind;
    }
}

static void take_value(void *user, ls__text key, ls__text value)
{
    ls__trace *t = ((collect *)user)->t;
    int64_t number;
    ls__text text;
    if (ls__text_is(key, "baseTimeNanoseconds")) {
        if (ls__text_integer(value, &t->base)) t->has_base = true;
    } else if (ls__text_is(key, "host_name")) {
        ls__text_copy(value, t->host, sizeof t->host);
    } else if (ls__text_is(key, "distributedInfo")) {
        const char *p = value.at, *end = p + value.bytes;
        if (ls__scan_find(p, end, "rank", &text) && ls__text_integer(text, &number) && number >= 0 && number < 1 << 16)
            t->rank = (int)number;
        if (ls__scan_find(p, end, "world_size", &text) && ls__text_integer(text, &number) && number > 0)
            t->world_size = number < INT_MAX ? (int)number : INT_MAX;
        if (ls__scan_find(p, end, "backend", &text)) ls__text_copy(text, t->backend, sizeof t->backend);
        if (ls__scan_find(p, end, "pg_config", &text)) take_groups(t, text);
    } else if (ls__text_is(key, "pg_status")) {
        ((collect *)user)->dump = true;
    }
}

ls_status ls__traces_read(ls__traces *out, ls__file_state *file)
{
    collect c = { .out = out, .file = file };
    ls__document_reader r = {
        .user = &c, .begin = begin_document, .value = take_value, .event = take_event, .unwanted = unwanted
    };
    *out = (ls__traces){ 0 };
    ls_status status = ls__input_open(&c.in, file->path);
    if (status) return status;
    file->size = ls__input_size(c.in);
    status = ls__document_read(&r, c.in);
    if (status) status = ls__fail_within(status, "%s", strcmp(file->path, "-") ? file->path : "standard input");
    ls_status dropped = drop_threads(&c);
    if (!status) status = dropped;
    file->events = r.events;
    file->broken = r.broken;
    file->first_broken = r.first_broken;
    file->bytes = r.bytes;
    file->cut = r.cut;
    for (size_t i = 0; i < out->count; i++) out->at[i].damaged = out->at[i].skipped = r.broken > 0;
    if (r.cut && c.t && c.t->spans) {
        c.t->damaged = true;
        c.t->known_until = c.last_time;
        c.t->last_thread = c.last_thread;
    }
    atomic_store_explicit(&file->done, file->size, memory_order_relaxed);
    /* Documents without a single span: another tool's JSON, or a trace that was cut at its beginning. */
    size_t kept = 0;
    uint64_t odd = 0;
    for (size_t i = 0; i < out->count; i++) {
        odd += out->at[i].odd;
        if (out->at[i].spans)
            out->at[kept++] = out->at[i];
        else
            ls__trace_free(&out->at[i]);
    }
    bool none = !status && !kept;
    out->count = kept;
    ls__input_free(&c.in);
    if (none && odd)
        status =
            ls__fail(LS_EFORMAT,
                     "%s: none of its %llu operators, annotations and kernels has a valid time: ts and dur must be "
                     "numbers of microseconds, dur at least 0",
                     file->path, (unsigned long long)odd);
    else if (none && r.cut && r.without_events == r.documents && !c.dump)
        status = ls__fail(LS_EFORMAT,
                          "%s: ends before its traceEvents: the file is truncated, or its compressed data are corrupt",
                          file->path);
    else if (none && (r.without_events == r.documents || (!r.events && r.broken)))
        status = ls__fail(LS_EFORMAT, "%s: is JSON, but not a trace of the PyTorch profiler: it has no traceEvents; %s",
                          file->path,
                          c.dump ? "it is a dump of the Flight Recorder, which needs --flight-recorder"
                                 : "export one with prof.export_chrome_trace()");
    else if (none)
        status =
            ls__fail(LS_EFORMAT,
                     "%s: none of its %llu events is an operator, an annotation or a kernel of the PyTorch profiler; "
                     "%s",
                     file->path, (unsigned long long)r.events,
                     r.cut ? "the file is truncated" : "export a trace with prof.export_chrome_trace()");
    if (status) ls__traces_free(out);
    return status;
}
