/* See findings_text.h. To change the wording of a finding, or the options that it suggests, change it here. */
#include "cli/findings_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "cli/amount.h"
#include "record/event_file.h"

enum { MOST_NAMED = 6, MOST_MISSING = 10 };

#define WHAT(t, ...)     ls__append((t)->what, sizeof(t)->what, __VA_ARGS__)
#define EVIDENCE(t, ...) ls__append((t)->evidence, sizeof(t)->evidence, __VA_ARGS__)
#define REMEDY(t, ...)   ls__append((t)->remedy, sizeof(t)->remedy, __VA_ARGS__)
#define NS(x)            amount_ns((double)(x)).text

static const ls_run_rank *first_present(const ls_run *run)
{
    int r = 0;
    while (r + 1 < run->ranks && !run->rank[r].present) r++;
    return &run->rank[r];
}

/* Whether 'lockstep train' made the run. Other programs have no options; they call the library. */
static bool is_train(const ls_run *run)
{
    return first_present(run)->metadata[LS_METADATA_TRAIN] > 0;
}

/* Whether PyTorch made the steps: remedies then name its settings. */
static bool is_torch(const ls_run *run)
{
    return first_present(run)->metadata[LS_METADATA_TORCH] > 0;
}

static double counted(const ls_run *run)
{
    return (double)(run->n_steps - run->first_counted);
}

/* ---- One rank. */

static const char *phase_words(const ls_finding *f)
{
    return f->phase == LS_PHASE_DATA ? "data loading" : ls_phase_name(f->phase);
}

static void say_when(finding_text *t, const ls_run *run, const ls_finding *f)
{
    if (f->evidence.rank.persistent) return;
    if (f->steps == 1)
        WHAT(t, ", all of it in step %lld (1 of %.0f)", (long long)f->first, counted(run));
    else
        WHAT(t, ", in %lld of %.0f steps", (long long)f->steps, counted(run));
}

/* Whose time it is compared with. */
static const char *others_words(const ls_run *run)
{
    return run->ranks == 2 ? "the other rank's" : "the other ranks'";
}

static void say_waited(finding_text *t, const ls_run *run, const ls_finding *f)
{
    if (f->evidence.rank.waited <= 0) return;
    if (run->ranks == 2)
        EVIDENCE(t, "; rank %d waits %s per step for it", 1 - f->rank, NS(f->evidence.rank.waited));
    else
        EVIDENCE(t, "; each of the others waits up to %s per step for it", NS(f->evidence.rank.waited));
}

static void say_straggler(finding_text *t, const ls_run *run, const ls_finding *f)
{
    const ls_rank_evidence *e = &f->evidence.rank;
    WHAT(t, "rank %d stalls all ranks %s per step in %s", f->rank, NS(f->cost), phase_words(f));
    say_when(t, run, f);
    if (e->own > e->others)
        EVIDENCE(t, "its %s takes %s, %s %s", phase_words(f), NS(e->own), others_words(run), NS(e->others));
    else /* it loses time in one segment and gains some in others */
        EVIDENCE(t, "one segment of its %s takes %s longer than %s", phase_words(f), NS(f->cost), others_words(run));
    say_waited(t, run, f);
    if (f->remedy == LS_REMEDY_OBSERVE) EVIDENCE(t, "; it was on a core, and it did not happen again");
    if (e->build > 0)
        EVIDENCE(t, "; its batches take %s to build, %s %s", NS(e->build), others_words(run), NS(e->others_build));
    if (e->span >= 0 && (size_t)e->span < run->rank[f->rank].n_spans && run->rank[f->rank].span_names[e->span])
        EVIDENCE(t, "; most of it before the gradient of '%.80s'", run->rank[f->rank].span_names[e->span]);
}

static void say_preempted(finding_text *t, const ls_run *run, const ls_finding *f)
{
    const ls_rank_evidence *e = &f->evidence.rank;
    WHAT(t, "rank %d was runnable but not scheduled for %s of a step", f->rank,
         NS(e->own * (double)f->steps / fmax(1, counted(run))));
    say_when(t, run, f);
    EVIDENCE(t, "its run-queue delay is %s, %s %s", NS(e->own), others_words(run), NS(e->others));
    say_waited(t, run, f);
}

static void say_slow_core(finding_text *t, const ls_finding *f)
{
    const ls_rank_evidence *e = &f->evidence.rank;
    WHAT(t, "rank %d computes %.0f%% slower than the others, in %s", f->rank,
         100 * (e->own - e->others) / fmax(1, e->others),
         !e->backward  ? "forward"
         : !e->forward ? "backward"
                       : "forward and backward");
    EVIDENCE(t, "it takes %s there, the others %s; no segment stands out", NS(e->own), NS(e->others));
}

/* ---- Cores of several ranks. */

/* The ranks that the finding counts. */
static bool is_contended(const ls_finding *f, const ls_run_rank *r)
{
    return r->present && r->use.wall > 0 && r->use.sched_delay >= f->evidence.cores.least;
}

/* "rank 3 was", "ranks 0, 1 were", "all 8 ranks were", and for how long. */
static void say_contended(finding_text *t, const ls_run *run, const ls_finding *f)
{
    const ls_core_evidence *e = &f->evidence.cores;
    int named = 0, present = 0;
    for (int r = 0; r < run->ranks; r++) present += run->rank[r].present && run->rank[r].use.wall > 0;
    if (e->ranks > 2 && e->ranks == present) {
        WHAT(t, "all %d ranks", e->ranks);
    } else {
        WHAT(t, e->ranks > 1 ? "ranks " : "rank ");
        for (int r = 0; r < run->ranks && named < MOST_NAMED; r++)
            if (is_contended(f, &run->rank[r])) WHAT(t, "%s%d", named++ ? ", " : "", r);
        if (e->ranks > named) WHAT(t, " and %d more", e->ranks - named);
    }
    amount least = amount_ns(e->least), most = amount_ns(e->most);
    WHAT(t, " %s runnable but not scheduled for %s", e->ranks > 1 ? "were" : "was", least.text);
    if (strcmp(least.text, most.text) != 0) WHAT(t, " to %s", most.text);
    WHAT(t, " of a step");
}

static void say_contention(finding_text *t, const ls_run *run, const ls_finding *f)
{
    const ls_core_evidence *e = &f->evidence.cores;
    say_contended(t, run, f);
    WHAT(t, ": other programs use %s cores", e->ranks > 1 ? "their" : "its");
    EVIDENCE(t, "run-queue delay of %.0f%%", 100 * e->least_share);
    if (lround(100 * e->most_share) > lround(100 * e->least_share)) EVIDENCE(t, " to %.0f%%", 100 * e->most_share);
    EVIDENCE(t, " of a step");
    if (isfinite(e->used)) EVIDENCE(t, "; the run got %.2f of %.0f cores", e->used, e->cores);
    if (f->rank >= 0) EVIDENCE(t, "; rank %d lost most", f->rank);
}

static void say_oversubscription(finding_text *t, const ls_run *run, const ls_finding *f)
{
    const ls_core_evidence *e = &f->evidence.cores;
    int ranks = 0;
    for (int r = 0; r < run->ranks; r++) ranks += run->rank[r].present;
    WHAT(t, f->remedy == LS_REMEDY_FEWER_RANKS ? "more ranks than cores: " : "more computing threads than cores: ");
    say_contended(t, run, f);
    EVIDENCE(t, "%d rank%s with %.0f thread%s in all share %.0f core%s", ranks, ls__s(ranks), e->threads,
             ls__s((int64_t)e->threads), e->cores, ls__s((int64_t)e->cores));
}

/* The cores of the contended ranks on the first one's node: "0, 1 of vm". */
static void say_cores(finding_text *t, const ls_run *run, const ls_finding *f)
{
    const ls_run_rank *first = NULL;
    int named = 0;
    for (int r = 0; r < run->ranks; r++) {
        const ls_run_rank *x = &run->rank[r];
        if (!is_contended(f, x)) continue;
        if (!first) first = x;
        int q = 0;
        while (q < r && (!is_contended(f, &run->rank[q]) || strcmp(run->rank[q].cores, x->cores) != 0)) q++;
        if (q < r || x->node != first->node) continue;
        if (named++ == MOST_NAMED) {
            REMEDY(t, " ...");
            break;
        }
        REMEDY(t, "%s%.12s", named > 1 ? ", " : "", x->cores);
    }
    if (first) REMEDY(t, " of %.64s", first->host);
}

/* ---- The job. */

static void say_data(finding_text *t, const ls_run *run, const ls_finding *f)
{
    const ls_data_evidence *e = &f->evidence.data;
    double workers = first_present(run)->metadata[LS_METADATA_WORKERS];
    if (!isfinite(e->build)) {
        WHAT(t, "data loading takes %s per step%s", NS(e->waited), run->ranks > 1 ? " on every rank" : "");
        EVIDENCE(t, "%.0f%% of the step, during which nothing else is done",
                 100 * e->waited / fmax(1, e->waited + e->rest));
        return;
    }
    WHAT(t, "all ranks wait %s per step for data", NS(e->waited));
    EVIDENCE(t, "the batches of a step take %s to build with %.0f worker%s; the rest of the step takes %s",
             NS(e->build), workers >= 0 ? workers : 0, workers == 1 ? "" : "s", NS(e->rest));
}

static void say_buckets(finding_text *t, const ls_finding *f)
{
    const ls_comm_evidence *e = &f->evidence.comm;
    WHAT(t, "buckets are too small: the latency of %.0f collectives is %s per step", e->calls,
         NS(e->calls * e->latency));
    EVIDENCE(t, "a collective has a latency of %s; a bucket has %.0f KiB", NS(e->latency), e->bytes / e->calls / 1024);
}

bool findings_waits_known(const ls_run *run)
{
    for (size_t i = 0; i < run->n_collectives; i++) {
        int arrived = 0;
        for (int r = 0; r < run->ranks; r++) arrived += run->collectives[i].arrival[r] != 0;
        if (arrived > 1) return true;
    }
    return !run->n_collectives;
}

static void say_comm(finding_text *t, const ls_run *run, const ls_finding *f)
{
    const ls_comm_evidence *e = &f->evidence.comm;
    WHAT(t, "exposed communication%s%s: %s of a step", e->network ? " between nodes" : "",
         findings_waits_known(run) ? "" : ", with waits for other ranks", NS(e->exposed));
    if (e->bytes > 0)
        EVIDENCE(t, "%s per step", amount_bytes(e->bytes).text);
    else
        EVIDENCE(t, "the sizes of its collectives are not in the record");
    if (e->rate > 0)
        EVIDENCE(t, e->network ? ", %s on a node's link" : " at %s", amount_rate(e->rate, e->network).text);
    if (e->rate > 0 && e->network) EVIDENCE(t, " (%.0f%% of its peak)", 100 * e->of_peak);
    EVIDENCE(t, "; %.0f%% of the communication overlaps with computing", 100 * e->hidden);
}

static void say_overlap(finding_text *t, const ls_finding *f)
{
    WHAT(t, "overlap of communication and backward is disabled, which costs %s per step", NS(f->cost));
    EVIDENCE(t, "all buckets are started after backward and take %s of a step; the first were ready earlier",
             NS(f->evidence.comm.busy));
}

static void say_phase(finding_text *t, const ls_run *run, const ls_finding *f)
{
    WHAT(t, "%s %s of a step, on average", f->kind == LS_FINDING_EVAL ? "evaluation takes" : "checkpoints take",
         NS(f->evidence.lost));
    EVIDENCE(t, "%.0f%% of the run", 100 * f->evidence.lost / fmax(1, run->step_mean));
}

static void say_finding(finding_text *t, const ls_run *run, const ls_finding *f)
{
    switch (f->kind) {
    case LS_FINDING_STRAGGLER: say_straggler(t, run, f); break;
    case LS_FINDING_SLOW_CORE: say_slow_core(t, f); break;
    case LS_FINDING_PREEMPTED: say_preempted(t, run, f); break;
    case LS_FINDING_CONTENTION: say_contention(t, run, f); break;
    case LS_FINDING_OVERSUBSCRIPTION: say_oversubscription(t, run, f); break;
    case LS_FINDING_DATA: say_data(t, run, f); break;
    case LS_FINDING_BUCKETS: say_buckets(t, f); break;
    case LS_FINDING_COMM: say_comm(t, run, f); break;
    case LS_FINDING_OVERLAP: say_overlap(t, f); break;
    case LS_FINDING_PAGE_FAULTS:
        WHAT(t, "memory is read back from disk: %.1f major page faults per step", f->evidence.faults);
        EVIDENCE(t, "each costs about 0.1 ms");
        break;
    case LS_FINDING_STEAL:
        WHAT(t, "the hypervisor takes cores away, which costs %s per step (steal)", NS(f->evidence.lost));
        EVIDENCE(t, "threads were neither off-CPU nor in a run queue, and yet got no CPU time");
        break;
    case LS_FINDING_CHECKPOINT:
    case LS_FINDING_EVAL: say_phase(t, run, f); break;
    case LS_FINDING_IMBALANCE:
        WHAT(t, "ranks wait %s per step for each other", NS(f->evidence.lost));
        EVIDENCE(t, "no single straggler; the slowest rank varies");
        break;
    case LS_FINDING_KINDS: break;
    }
}

/* ---- Remedies. */

static void say_work(finding_text *t, const ls_run *run, const ls_finding *f)
{
    if (f->kind == LS_FINDING_IMBALANCE)
        REMEDY(t, "equal work in each step (equal-length sequences), or more micro-batches between optimizer steps");
    else if (f->phase == LS_PHASE_BACKWARD)
        REMEDY(t, "give all ranks equal work (equal-length sequences)%s",
               is_train(run)   ? "; see 'lockstep train --profile' for the layer"
               : is_torch(run) ? "; 'lockstep profile' has its operators"
                               : "");
    else
        REMEDY(t, "give all ranks equal work: equal-length sequences, the same number of threads and the same kind of "
                  "core");
}

static void say_comm_remedy(finding_text *t, const ls_run *run, const ls_finding *f)
{
    char accumulate[48] = "ls_ddp_begin(), LS_DDP_ACCUMULATE";
    if (is_torch(run)) snprintf(accumulate, sizeof accumulate, "under DDP's no_sync() but for the last");
    if (is_train(run)) snprintf(accumulate, sizeof accumulate, "--accumulate %.0f", f->target);
    if (f->remedy == LS_REMEDY_HALF_PRECISION)
        REMEDY(t,
               "%s: half the bytes, with gradients rounded to bfloat16 for communication; or more micro-batches "
               "between optimizer steps (%s)",
               is_train(run)   ? "--wire bfloat16"
               : is_torch(run) ? "DDP's bf16_compress_hook"
                               : "LS_WIRE_BF16 in ls_ddp_options",
               accumulate);
    else
        REMEDY(t,
               "more micro-batches between optimizer steps (%s): twice the work for the same communication; expected: "
               "half "
               "the time of such a step",
               accumulate);
}

static void say_buckets_remedy(finding_text *t, const ls_run *run, const ls_finding *f)
{
    double calls = 1 + ceil(f->evidence.comm.bytes / f->target);
    if (is_train(run))
        REMEDY(t, "--bucket-mb %g (%.0f collectives)", f->target / (1 << 20), calls);
    else if (is_torch(run))
        REMEDY(t, "larger buckets: DistributedDataParallel(bucket_cap_mb=%g) (%.0f collectives)", f->target / (1 << 20),
               calls);
    else
        REMEDY(t, "larger buckets: bucket_bytes %.0f in ls_ddp_options (%.0f collectives)", f->target, calls);
}

static void say_remedy(finding_text *t, const ls_run *run, const ls_finding *f)
{
    bool train = is_train(run);
    const ls_run_rank *rank = f->rank >= 0 ? &run->rank[f->rank] : first_present(run);
    switch (f->remedy) {
    case LS_REMEDY_OBSERVE:
        REMEDY(t, "check whether it happens again; a single occurrence may be noise: a hypervisor can stop a core for "
                  "a moment and count it as work");
        break;
    case LS_REMEDY_FASTER_READS:
        REMEDY(t, "its reads are slow: keep its data on a local disk%s, or prefetch with more %sworkers%s",
               train ? " (--stage)" : "", train ? "--" : "",
               rank->metadata[LS_METADATA_WORKERS] >= 1 ? "" : " (it has none)");
        break;
    case LS_REMEDY_CHECK_DATA:
        REMEDY(t, "check what that rank does %s",
               train ? "between taking a batch and forward; more --workers help only if building batches is slow"
               : is_torch(run)
                   ? "to get its data; a DataLoader with more num_workers and a larger prefetch_factor hides it"
                   : "to get its data");
        break;
    case LS_REMEDY_EQUAL_WORK: say_work(t, run, f); break;
    case LS_REMEDY_FREE_CORE:
        REMEDY(t, "another program uses its core (%s on %s): stop it, or bind the rank to another core with 'taskset'",
               rank->cores, rank->host);
        break;
    case LS_REMEDY_FREE_CORES:
        REMEDY(t, "stop the other programs on cores ");
        say_cores(t, run, f);
        REMEDY(t, " ('top' lists them), or run where cores are free");
        break;
    case LS_REMEDY_CHECK_CORE:
        REMEDY(t,
               "its core (%s on %s) is slower, or its sequences are longer: check the core's clock rate, and for other "
               "programs on it or on its hyperthread",
               rank->cores, rank->host);
        break;
    case LS_REMEDY_FEWER_RANKS:
        REMEDY(t, "as many ranks as cores (-n %.0f) do the same work with less waiting", f->target);
        break;
    case LS_REMEDY_FEWER_THREADS:
        REMEDY(t, "as many threads as cores (%s %.0f) do the same work with less waiting",
               train ? "--threads" : "OMP_NUM_THREADS", f->target);
        break;
    case LS_REMEDY_MORE_WORKERS: {
        bool staged = rank->metadata[LS_METADATA_STAGED] > 0;
        REMEDY(t,
               train           ? "--workers %.0f"
               : is_torch(run) ? "DataLoader(num_workers=%.0f, persistent_workers=True)"
                               : "%.0f workers",
               f->target);
        if (!staged) REMEDY(t, ", or a copy of the data on a local disk%s", train ? " (--stage)" : "");
        break;
    }
    case LS_REMEDY_PREFETCH:
        REMEDY(t, is_torch(run) ? "load batches ahead: DataLoader(num_workers=..., prefetch_factor=...)"
                                : "load the next batch in another thread while this one is computed");
        break;
    case LS_REMEDY_LARGER_BUCKETS: say_buckets_remedy(t, run, f); break;
    case LS_REMEDY_OVERLAP: REMEDY(t, "remove %s", train ? "--no-overlap" : "no_overlap from ls_ddp_options"); break;
    case LS_REMEDY_HALF_PRECISION:
    case LS_REMEDY_ACCUMULATE: say_comm_remedy(t, run, f); break;
    case LS_REMEDY_LARGER_BATCHES:
        REMEDY(t, "larger micro-batches: twice the work for the same communication, in less than twice the time; and "
                  "overlap: "
                  "under FSDP2, set_modules_to_forward_prefetch() and reshard_after_forward=False where memory allows");
        break;
    case LS_REMEDY_FEWER_CHECKPOINTS:
        if (f->rank >= 0)
            REMEDY(t, "checkpoint less often, or to a faster disk");
        else
            REMEDY(t, "checkpoint half as often%s", train ? " (--checkpoint-every)" : "");
        break;
    case LS_REMEDY_FEWER_EVALS:
        REMEDY(t, "evaluate half as often%s, or on fewer batches", train ? " (--eval-every)" : "");
        break;
    case LS_REMEDY_DEDICATED_CORES: REMEDY(t, "a virtual machine shares its host: ask for dedicated cores"); break;
    case LS_REMEDY_LESS_MEMORY:
        REMEDY(t, "the data or the model do not fit in memory: fewer ranks, a smaller batch, or no swap");
        break;
    }
}

/* Who waited for whom, and for how long, is not surer than the clocks. */
static void say_doubt(finding_text *t, const ls_run *run, const ls_finding *f)
{
    int64_t unsure = 0;
    if (f->kind != LS_FINDING_STRAGGLER && f->kind != LS_FINDING_IMBALANCE) return;
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present && run->rank[r].clock_uncertainty > unsure) unsure = run->rank[r].clock_uncertainty;
    if (f->cost < unsure)
        EVIDENCE(t, "; clocks are only known to %s, so it is unknown who waited", amount_ns((double)unsure).text);
}

finding_text finding_describe(const ls_run *run, const ls_finding *f)
{
    finding_text t = { "", "", "" };
    say_finding(&t, run, f);
    say_doubt(&t, run, f);
    say_remedy(&t, run, f);
    return t;
}

const char *cause_name(const ls_wait_cause *c)
{
    return c->unscheduled ? "run-queue delay" : ls_phase_name(c->phase);
}

/* ---- Notes. */

static void say_missing(note_text *t, const ls_run *run, const ls_note *n)
{
    bool many = n->number > 1;
    int named = 0;
    if (n->number > MOST_MISSING)
        ls__append(t->text, sizeof t->text, "%lld of %d ranks have no readable events (ranks ", (long long)n->number,
                   run->ranks);
    else
        ls__append(t->text, sizeof t->text, "rank%s ", many ? "s" : "");
    for (int r = 0; r < run->ranks && named < MOST_MISSING; r++)
        if (!run->rank[r].present) ls__append(t->text, sizeof t->text, "%s%d", named++ ? ", " : "", r);
    if (n->number > MOST_MISSING)
        ls__append(t->text, sizeof t->text, " and others); what they did is unknown");
    else
        ls__append(t->text, sizeof t->text, " of %d %s no readable events; what %s did is unknown", run->ranks,
                   many ? "have" : "has", many ? "they" : "it");
}

/* Of the ranks' files. */
static double segment_bytes(const ls_run *run)
{
    uint64_t bytes = 0;
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].segment_bytes > bytes) bytes = run->rank[r].segment_bytes;
    return bytes ? (double)bytes : (double)LS__EVENT_FILE_SEGMENT;
}

note_text note_describe(const ls_run *run, const ls_note *n)
{
    note_text t = { "" };
    long long number = (long long)n->number;
    double steps = counted(run);
#define SAY(...) ls__append(t.text, sizeof t.text, __VA_ARGS__)
    switch (n->kind) {
    case LS_NOTE_UNREADABLE: SAY("%s", n->text ? n->text : "a file could not be read"); break;
    case LS_NOTE_WRONG_RANK: SAY("rank %d: its file belongs to rank %lld; ignored", n->rank, number); break;
    case LS_NOTE_WRONG_SIZE:
        SAY("rank %d: its events belong to a run with %lld rank%s, not %d; ignored", n->rank, number, ls__s(n->number),
            run->ranks);
        break;
    case LS_NOTE_TRUNCATED:
        SAY("rank %d: its event file is truncated; read up to the last complete block", n->rank);
        break;
    case LS_NOTE_LOST:
        SAY("rank %d: %lld events were lost because they came faster than they could be written", n->rank, number);
        break;
    case LS_NOTE_INVALID:
        SAY("rank %d: %lld event%s with an impossible time or clock (ls_record_event(), ls_record_clock()) %s left out",
            n->rank, number, ls__s(n->number), n->number == 1 ? "is" : "are");
        break;
    case LS_NOTE_STEP_NUMBERS:
        SAY("rank %d: %lld step%s left out: the numbers of its steps (ls_record_step()) must be \u2265 0 and increase",
            n->rank, number, n->number == 1 ? " is" : "s are");
        break;
    case LS_NOTE_MISSING: say_missing(&t, run, n); break;
    case LS_NOTE_NO_BEGINNING:
        SAY("the first %s are no longer recorded: a record keeps the newest %s to %s of a rank", NS(n->number),
            amount_bytes(segment_bytes(run)).text, amount_bytes(2 * segment_bytes(run)).text);
        break;
    case LS_NOTE_NO_STEPS_OF_RANK:
        SAY("rank %d: no complete step was recorded; the steps are shown without it", n->rank);
        break;
    case LS_NOTE_NO_STEPS: SAY("no complete step was recorded, so there is nothing to analyse"); break;
    case LS_NOTE_FEW_STEPS:
        SAY("%.0f step%s counted: too few to distinguish a slow rank from noise; at least %lld are needed", steps,
            steps == 1 ? "" : "s", number);
        break;
    case LS_NOTE_CLOCK:
        SAY("node %d: its clock moved by up to %s after it was compared; corrected by the collectives' times", n->rank,
            NS(llabs(number)));
        break;
    case LS_NOTE_NO_COLLECTIVES:
        SAY("rank %d takes %s per step longer than the others in %s; no collectives were recorded, so nothing shows "
            "that "
            "they wait for it",
            n->rank, NS(n->number), n->text ? n->text : "a phase");
        break;
    case LS_NOTE_NOT_ENDED:
        SAY("rank %d: %s was begun %lld time%s without being ended in that step (ls_record_end()); what follows is "
            "counted as part of it",
            n->rank, n->text ? n->text : "a phase", number, ls__s(n->number));
        break;
    case LS_NOTE_WAIT_MARKS:
        SAY("%s per step are marked as waiting, but no collectives were recorded (ls_record_collective()): who waits "
            "for whom is not known",
            NS(n->number));
        break;
    case LS_NOTE_NO_OVERLAP:
        SAY("overlap of communication and backward is disabled (%s); here it would gain less than 1%%",
            is_train(run) ? "--no-overlap" : "no_overlap in ls_ddp_options");
        break;
    }
#undef SAY
    return t;
}
