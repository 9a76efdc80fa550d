/* The report as JSON: for other programs, and for tests. Times are nanoseconds. */
#include <jansson.h>
#include <math.h>
#include "base/status.h"
#include "cli/rank_use.h"
#include "cli/findings_text.h"
#include "cli/job_figures.h"
#include "cli/report.h"
#include "cli/generations.h"
#include "cli/report_import.h"

static const char *const metadata_names[LS_METADATA_COUNT] = {
#define X(name, value, text) [value] = text,
    LS_METADATA_LIST(X)
#undef X
};

static json_t *phases_of(const ls_run *run, int rank)
{
    json_t *out = json_object();
    for (int p = 0; p < LS_PHASE_COUNT; p++)
        json_object_set_new(out, ls_phase_name((ls_phase)p), json_real(ls_run_mean(run, rank, (ls_phase)p)));
    return out;
}

/* NaN is written as null, since JSON has no NaN. */
static json_t *real_or_null(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *threads_of(const ls_run_rank *x)
{
    json_t *out = json_array();
    for (size_t i = 0; i < x->n_thread; i++)
        json_array_append_new(out, json_pack("{s:s, s:s, s:f, s:f}", "name", x->thread[i].name, "role",
                                             device_thread_role(x->thread[i].name), "cpu_ns", x->thread[i].cpu,
                                             "cpu_share", x->thread[i].share));
    return out;
}

/* Means of a step; shares are of its wall time. */
static void put_use(json_t *out, const ls_run_rank *x)
{
    static const char *const levels[] = { "even", "under", "over" };
    const ls_resource_use *u = &x->use;
    const struct {
        const char *key;
        double value;
    } rows[] = { { "cpu_share", u->cpu / u->wall },
                 { "busy_share", u->busy / u->wall },
                 { "off_cpu_share", u->off_cpu / u->wall },
                 { "sched_delay_share", u->sched_delay / u->wall },
                 { "steal_share", u->steal / u->wall },
                 { "mfu", u->mfu },
                 { "voluntary_switches", u->voluntary },
                 { "involuntary_switches", u->involuntary },
                 { "page_faults", u->minor },
                 { "major_faults", u->major },
                 { "read_bytes", u->read_bytes },
                 { "resident_bytes", u->resident } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        json_object_set_new(out, rows[i].key, real_or_null(rows[i].value));
    json_object_set_new(out, "use", json_string(levels[u->level]));
    json_object_set_new(out, "threads", threads_of(x));
}

static json_t *rank_of(const ls_run *run, int r)
{
    const ls_run_rank *x = &run->rank[r];
    if (!x->present) return json_pack("{s:i, s:b}", "rank", r, "present", 0);
    json_t *metadata = json_object();
    for (int i = 0; i < LS_METADATA_COUNT; i++)
        if (isfinite(x->metadata[i])) json_object_set_new(metadata, metadata_names[i], json_real(x->metadata[i]));
    json_t *out =
        json_pack("{s:i, s:b, s:b, s:b, s:s, s:i, s:i, s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:f}", "rank", r, "present",
                  1, "closed", x->closed, "cut", x->cut, "host", x->host, "node", x->node, "pid", x->pid, "cores",
                  x->cores, "transport", x->transport, "clock_ahead", (json_int_t)x->clock_ahead, "clock_uncertainty",
                  (json_int_t)x->clock_uncertainty, "lost_events", (json_int_t)x->lost, "metadata", metadata, "phases",
                  phases_of(run, r), "overlapped", ls_run_overlapped(run, r));
    if (out) put_use(out, x);
    return out;
}

static json_t *machines_of(const ls_run *run)
{
    json_t *out = json_array();
    for (int r = 0; (r = device_next_machine(run, r)) >= 0; r++) {
        const ls_run_rank *x = &run->rank[r];
        char words[160];
        double watts = x->use.wall > 0 ? x->use.watts : NAN;
        device_power(run, r, words, sizeof words);
        json_array_append_new(out, json_pack("{s:i, s:s, s:o, s:o, s:s}", "node", x->node, "host", x->host, "watts",
                                             real_or_null(watts), "joules_per_step",
                                             real_or_null(watts * run->step_mean / 1e9), "power", words));
    }
    return out;
}

/* The sentences are those of the text report. */
static json_t *finding_of(const ls_run *run, const ls_finding *f)
{
    finding_text words = finding_describe(run, f);
    return json_pack("{s:s, s:i, s:s, s:I, s:f, s:I, s:I, s:I, s:I, s:o, s:s, s:s, s:s}", "kind",
                     ls_finding_name(f->kind), "rank", f->rank, "phase", ls_phase_name(f->phase), "cost",
                     (json_int_t)f->cost, "weight", f->weight, "expected_step", (json_int_t)f->expected, "steps",
                     (json_int_t)f->steps, "first_step", (json_int_t)f->first, "last_step", (json_int_t)f->last,
                     "target", real_or_null(f->target), "what", words.what, "evidence", words.evidence, "change",
                     words.remedy);
}

static json_t *attribution_of(const ls_attribution *d)
{
    return json_pack("{s:I, s:i, s:s, s:b, s:I, s:I, s:I}", "step", (json_int_t)d->step, "rank", d->rank, "phase",
                     ls_phase_name(d->phase), "unscheduled", d->unscheduled, "excess", (json_int_t)d->excess, "waited",
                     (json_int_t)d->waited, "longest", (json_int_t)d->longest);
}

static json_t *cause_of(const ls_wait_cause *c)
{
    return json_pack("{s:i, s:s, s:b, s:I, s:I, s:I, s:I}", "rank", c->rank, "phase", ls_phase_name(c->phase),
                     "unscheduled", c->unscheduled, "count", (json_int_t)c->count, "waited", (json_int_t)c->waited,
                     "cost", (json_int_t)c->cost, "longest", (json_int_t)c->longest);
}

/* In the order of the phases' names. */
static json_t *times_of(const int64_t ns[LS_PHASE_COUNT])
{
    json_t *out = json_array();
    for (int p = 0; p < LS_PHASE_COUNT; p++) json_array_append_new(out, json_integer(ns[p]));
    return out;
}

static json_t *step_of(const ls_run *run, const ls_run_step *s)
{
    json_t *ranks = json_array();
    for (int r = 0; r < run->ranks; r++) {
        const ls_step_rank *x = &s->rank[r];
        if (!x->present) {
            json_array_append_new(ranks, json_null());
            continue;
        }
        json_t *batches = json_pack("{s:i, s:I, s:i, s:i}", "taken", x->batches, "build_ns", (json_int_t)x->batch_ns,
                                    "ready", x->batches_ready, "missed", x->batches_missed);
        json_array_append_new(
            ranks, json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:o}", "begin", (json_int_t)x->begin, "end",
                             (json_int_t)x->end, "phases", times_of(x->ns), "own", times_of(x->own), "off_cpu",
                             times_of(x->off_cpu), "sched_delay", times_of(x->sched_delay), "steal", times_of(x->steal),
                             "overlapped", (json_int_t)x->overlapped, "cpu", (json_int_t)x->cpu, "batches", batches));
    }
    return json_pack("{s:I, s:o}", "step", (json_int_t)s->number, "ranks", ranks);
}

static json_t *by_rank(const int64_t *times, int ranks)
{
    json_t *out = json_array();
    for (int r = 0; r < ranks; r++) json_array_append_new(out, times[r] ? json_integer(times[r]) : json_null());
    return out;
}

/* Every bucket of every step: when each rank had it full, started it and saw its sum, and when the last had started. */
static json_t *buckets_of(const ls_run *run)
{
    json_t *out = json_array();
    for (size_t i = 0; i < run->n_collectives; i++) {
        const ls_run_collective *m = &run->collectives[i];
        if (m->bucket < 0 || m->step < 0) continue;
        json_array_append_new(out, json_pack("{s:I, s:i, s:I, s:i, s:I, s:o, s:o, s:o}", "step", (json_int_t)m->step,
                                             "bucket", (int)m->bucket, "bytes", (json_int_t)m->bytes, "last_rank",
                                             m->last_rank, "all_arrived", (json_int_t)m->last_arrival, "ready",
                                             by_rank(m->ready, run->ranks), "started", by_rank(m->arrival, run->ranks),
                                             "done", by_rank(m->done, run->ranks)));
    }
    return out;
}

/* With --barriers: who waited how long at each, in order. */
static json_t *barriers_of(const ls_run *run)
{
    json_t *out = json_array();
    for (size_t i = 0; i < run->n_collectives; i++) {
        const ls_run_collective *m = &run->collectives[i];
        if (m->kind != LS_COLLECTIVE_BARRIER || m->step < 0) continue;
        json_t *waits = json_array();
        for (int r = 0; r < run->ranks; r++) json_array_append_new(waits, json_integer(m->wait[r]));
        json_array_append_new(out, json_pack("{s:I, s:o}", "step", (json_int_t)m->step, "waits", waits));
    }
    return out;
}

static json_t *comm_of(const ls_comm_row *c)
{
    return json_pack("{s:s, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "call", ls_collective_name(c->kind),
                     "buckets", c->bucket, "network", c->network, "count", (json_int_t)c->count, "bytes",
                     (json_int_t)c->bytes, "wire_bytes", (json_int_t)c->wire, "busy", (json_int_t)c->busy, "exposed",
                     (json_int_t)c->exposed, "waited", (json_int_t)c->waited, "bound", (json_int_t)c->bound);
}

enum { LARGEST_MATRIX = 1024 }; /* ranks; the matrix has the square of them */

static json_t *note_of(const ls_run *run, const ls_note *n)
{
    return json_pack("{s:s, s:i, s:I, s:s}", "kind", ls_note_name(n->kind), "rank", n->rank, "number",
                     (json_int_t)n->number, "text", note_describe(run, n).text);
}

int report_json(const ls_run *run, FILE *to)
{
    json_t *ranks = json_array(), *findings = json_array(), *attributions = json_array(), *causes = json_array(),
           *steps = json_array(), *comm = json_array(), *notes = json_array(), *matrix = json_array(),
           *names = json_array();
    for (int r = 0; r < run->ranks; r++) {
        json_array_append_new(ranks, rank_of(run, r));
        if (run->ranks > LARGEST_MATRIX) continue;
        json_t *row = json_array();
        for (int q = 0; q < run->ranks && run->wait_matrix; q++)
            json_array_append_new(row, json_integer(run->wait_matrix[(size_t)r * (size_t)run->ranks + (size_t)q]));
        json_array_append_new(matrix, row);
    }
    if (run->ranks > LARGEST_MATRIX) {
        json_decref(matrix);
        matrix = json_null();
    }
    for (int p = 0; p < LS_PHASE_COUNT; p++) json_array_append_new(names, json_string(ls_phase_name((ls_phase)p)));
    for (size_t i = 0; i < run->n_findings; i++) json_array_append_new(findings, finding_of(run, &run->findings[i]));
    for (size_t i = 0; i < run->n_attributions; i++)
        json_array_append_new(attributions, attribution_of(&run->attributions[i]));
    for (size_t i = 0; i < run->n_wait_causes; i++) json_array_append_new(causes, cause_of(&run->wait_causes[i]));
    for (size_t i = 0; i < run->n_steps; i++) json_array_append_new(steps, step_of(run, &run->steps[i]));
    for (size_t i = 0; i < run->n_comm; i++) json_array_append_new(comm, comm_of(&run->comm[i]));
    for (size_t i = 0; i < run->n_notes; i++) json_array_append_new(notes, note_of(run, &run->notes[i]));
    json_t *all = json_pack("{s:s, s:i}", "run", run->path, "ranks", run->ranks);
    for (int i = 0; i < n_job_figures; i++)
        if (job_figures[i].key) json_object_set_new(all, job_figures[i].key, real_or_null(job_figures[i].of(run)));
    json_t *rest = json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "warm_up_steps",
                             (int)run->first_counted, "phase_names", names, "barriers", barriers_of(run), "buckets",
                             buckets_of(run), "by_rank", ranks, "machines", machines_of(run), "findings", findings,
                             "wait_matrix", matrix, "communication", comm, "attributions", attributions, "wait_causes",
                             causes, "steps", steps, "notes", notes);
    if (!rest || json_object_update(all, rest)) {
        json_decref(all);
        all = NULL;
    }
    json_decref(rest);
    if (!all) return ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    json_t *imported = report_import_read(run->path);
    if (imported) json_object_set_new(all, "import", imported);
    json_t *generations = generations_read(run->path);
    size_t i;
    json_t *generation;
    json_array_foreach(generations, i, generation)
    { /* nine digits are too few for milliseconds since 1970 */
        const json_t *time = json_object_get(generation, "time");
        if (time) json_object_set_new(generation, "time", json_integer(llround(json_number_value(time))));
    }
    if (generations) json_object_set_new(all, "generations", generations);
    int bad = json_dumpf(all, to, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
    fputc('\n', to);
    json_decref(all);
    /* Write errors are reported when main() closes the stream. */
    return bad && !ferror(to) ? ls__fail(LS_ENOMEM, "%s: no memory for the report", run->path) : LS_OK;
}
