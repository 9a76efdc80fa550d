/* The cost of each operation: collecting it, and RUN/profile/rank-R.json. See profile.h. */
#include "train/profile.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "base/file.h"
#include "base/status.h"
#include "tensor/hooks.h"
#include "train/record.h"
#include "train/training.h"

/* An operation at one place of the model, forward or backward. */
typedef struct row {
    const char *op, *param, *near; /* the tape's and the model's own texts: the same pointers every time */
    bool backward;
    int dims;
    int64_t shape[LS_MAX_DIMS];
    int64_t calls, ns, min_ns, max_ns;
    double flops, bytes; /* of all calls */
    size_t memory;       /* of the call that took most */
    uint32_t name;       /* its index among the record's names; 0: none yet */
} row;

struct ls__profile {
    ls_record *record; /* gets an event for each operation, for lockstep trace */
    uint32_t names;    /* that the record has */
    row *rows;
    size_t count, room, next; /* next: where the next operation is expected */
    bool warm;                /* the first step is over */
    bool recorded;            /* events are written */
    bool paused, failed;      /* failed: out of memory, rows are missing */
    int64_t first_step, steps;
    double step_ms, data_ms, forward_ms, backward_ms, update_ms, other_ms;
    char *path;
};

static bool is_row(const row *r, const ls__op_cost *e)
{
    return r->op == e->op && r->param == e->param && r->near == e->near && r->backward == e->backward &&
           r->dims == e->dims && !memcmp(r->shape, e->shape, (size_t)e->dims * sizeof *e->shape);
}

/* The row of e, new if there is none; NULL: out of memory. */
static row *find_row(ls__profile *p, const ls__op_cost *e)
{
    for (size_t i = 0; i < p->count; i++) {
        size_t at = (p->next + i) % p->count;
        if (!is_row(&p->rows[at], e)) continue;
        p->next = at + 1;
        return &p->rows[at];
    }
    if (p->count == p->room) {
        size_t room = p->room ? 2 * p->room : 256;
        row *rows = reallocarray(p->rows, room, sizeof *rows);
        if (!rows) return NULL;
        p->rows = rows;
        p->room = room;
    }
    row *r = &p->rows[p->count++];
    *r = (row){ .op = e->op, .param = e->param, .near = e->near, .backward = e->backward, .dims = e->dims };
    memcpy(r->shape, e->shape, sizeof r->shape);
    p->next = p->count;
    return r;
}

/* The record's name of an operation is "linear h.0.mlp.c_fc": op and module. */
static void record_operation(ls__profile *p, row *r, int64_t ns)
{
    if (!r->name) {
        char text[160];
        const char *dot = strrchr(r->param, '.');
        snprintf(text, sizeof text, "%s%s%.*s", r->op, *r->param ? " " : "",
                 (int)(dot ? dot - r->param : (ptrdiff_t)strlen(r->param)), r->param);
        r->name = ++p->names;
        ls_record_name(p->record, LS_NAME_OPERATION, r->name, text);
    }
    ls_record_event(p->record, 0, LS_EVENT_OPERATION, (uint64_t)r->name << 1 | r->backward, (uint64_t)ns);
}

static void add(void *user, const ls__op_cost *e)
{
    ls__profile *p = user;
    if (p->paused) return;
    row *r = find_row(p, e);
    if (!r) {
        p->failed = true;
        return;
    }
    r->min_ns = r->calls && r->min_ns < e->ns ? r->min_ns : e->ns;
    r->max_ns = r->max_ns > e->ns ? r->max_ns : e->ns;
    r->calls++;
    r->ns += e->ns;
    r->flops += e->flops;
    r->bytes += e->bytes;
    r->memory = r->memory > e->memory ? r->memory : e->memory;
    if (p->recorded) record_operation(p, r, e->ns);
}

ls_status ls__profile_open(ls_train *t)
{
    const char *folder = t->options.run_dir;
    ls__profile *p = calloc(1, sizeof *p);
    if (p && folder && asprintf(&p->path, "%s/profile/rank-%d.json", folder, t->parallel.rank) < 0) p->path = NULL;
    if (!p || (folder && !p->path)) {
        free(p);
        return ls__fail(LS_ENOMEM, "profile: out of memory");
    }
    p->record = ls_world_record(t->parallel.world);
    p->recorded = folder && !t->options.no_record;
    t->profile = p;
    ls__tape_on_profile(t->tape, add, p);
    return LS_OK;
}

void ls__profile_close(ls_train *t)
{
    ls__profile *p = t->profile;
    if (!p) return;
    if (t->tape) ls__tape_on_profile(t->tape, NULL, NULL);
    free(p->rows);
    free(p->path);
    free(p);
    t->profile = NULL;
}

void ls__profile_pause(ls__profile *p, bool paused)
{
    if (p) p->paused = paused;
}

void ls__profile_step(ls__profile *p, const ls_train_metrics *m)
{
    if (!p) return;
    if (!p->warm) {
        p->warm = true;
        p->first_step = m->step < m->steps ? m->step + 1 : m->step;
        if (m->step < m->steps) {
            p->count = p->next = 0;
            return;
        }
    }
    p->steps++;
    p->step_ms += m->step_ms;
    p->data_ms += m->data_ms;
    p->forward_ms += m->forward_ms;
    p->backward_ms += m->backward_ms;
    p->update_ms += m->update_ms;
    p->other_ms += m->other_ms;
}

/* ---- The file */

/* "h.3.attn.c_attn.bias" is a parameter of the module "h.3.attn.c_attn" in the layer "h.3": a layer ends with the first
 * number of the name, or is its first word. Both are lengths. */
static void split_name(const char *name, int *module, int *layer)
{
    const char *dot = strrchr(name, '.'), *at = name;
    *module = (int)(dot ? dot - name : (ptrdiff_t)strlen(name));
    *layer = (int)strcspn(name, ".");
    while ((at = strchr(at, '.'))) {
        size_t digits = strspn(++at, "0123456789");
        if (!digits || (at[digits] && at[digits] != '.')) continue;
        *layer = (int)(at + digits - name);
        break;
    }
}

static json_t *describe_row(const row *r)
{
    int module, layer, own;
    split_name(r->near, &module, &layer);
    split_name(r->param, &own, &(int){ 0 });
    json_t *shape = json_array();
    for (int i = 0; i < r->dims; i++) json_array_append_new(shape, json_integer(r->shape[i]));
    return json_pack("{s:s, s:s, s:s%, s:s%, s:o, s:I, s:f, s:f, s:f, s:f, s:f, s:I}", "op", r->op, "pass",
                     r->backward ? "backward" : "forward", "module", r->param, (size_t)own, "layer", r->near,
                     (size_t)layer, "shape", shape, "calls", (json_int_t)r->calls, "ms", (double)r->ns / 1e6, "min_ms",
                     (double)r->min_ns / 1e6, "max_ms", (double)r->max_ns / 1e6, "flops", r->flops, "bytes", r->bytes,
                     "memory_bytes", (json_int_t)r->memory);
}

static json_t *describe(ls_train *t)
{
    const ls__profile *p = t->profile;
    struct rusage usage = { 0 };
    getrusage(RUSAGE_SELF, &usage);
    json_t *rows = json_array();
    for (size_t i = 0; i < p->count; i++) json_array_append_new(rows, describe_row(&p->rows[i]));
    json_t *phases = json_pack("{s:f, s:f, s:f, s:f, s:f}", "data", p->data_ms, "forward", p->forward_ms, "backward",
                               p->backward_ms, "update", p->update_ms, "other", p->other_ms);
    return json_pack("{s:s, s:i, s:i, s:i, s:I, s:I, s:i, s:f, s:o, s:f, s:I, s:I, s:o}", "lockstep", ls_version(),
                     "rank", t->parallel.rank, "ranks", t->parallel.size, "threads", t->options.threads, "first_step",
                     (json_int_t)p->first_step, "steps", (json_int_t)p->steps, "micro_batches", t->parallel.each,
                     "step_ms", p->step_ms, "phase_ms", phases, "peak_gflops", ls__train_peak(t, 0),
                     "activation_peak_bytes", (json_int_t)ls__tape_peak(t->tape), "resident_peak_bytes",
                     (json_int_t)usage.ru_maxrss * 1024, "operations", rows);
}

ls_status ls_train_save_profile(ls_train *t)
{
    LS__NEED(t, "train");
    ls__profile *p = t->profile;
    if (!p) return ls__fail(LS_ESTATE, "this run was opened without profile");
    if (!p->path) return ls__fail(LS_ESTATE, "this run has no run folder to save its profile to");
    if (p->failed) return ls__fail(LS_ENOMEM, "%s: out of memory while operations were measured", p->path);
    json_t *root = describe(t);
    char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL,
         *slash = strrchr(p->path, '/');
    *slash = 0;
    ls_status status = text ? ls__file_make_own_dir(p->path) : ls__fail(LS_ENOMEM, "%s: out of memory", p->path);
    *slash = '/';
    if (!status) status = ls__file_write(p->path, text, strlen(text));
    free(text);
    json_decref(root);
    return status;
}
