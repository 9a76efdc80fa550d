/* Findings and notes as sentences: every kind and every remedy has its own, with its numbers; options are for runs of 'lockstep
 * train', calls for programs that use the library. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "cli/findings_text.h"

enum { RANKS = 4, STEPS = 40 };

static ls_run_rank ranks[RANKS];
static ls_run_step steps[STEPS];
static ls_run run = {
    .path = "run", .ranks = RANKS, .rank = ranks, .steps = steps, .n_steps = STEPS, .step_mean = 50e6
};

static int make_run(void **state)
{
    static char *spans[] = { "h.0.mlp.c_fc.weight" };
    (void)state;
    for (int r = 0; r < RANKS; r++) {
        ls_run_rank *k = &ranks[r];
        *k = (ls_run_rank){
            .present = true, .rank = r, .ranks = RANKS, .threads = 1, .span_names = spans, .n_spans = 1
        };
        snprintf(k->host, sizeof k->host, "vm");
        snprintf(k->cores, sizeof k->cores, "%d", r);
        for (int i = 0; i < LS_METADATA_MAX; i++) k->metadata[i] = NAN;
        k->metadata[LS_METADATA_TRAIN] = 1;
        k->use = (ls_resource_use){ .wall = 50e6, .sched_delay = r < 2 ? 20e6 + 1e6 * r : 0 };
    }
    for (int i = 0; i < STEPS; i++) steps[i].number = i + 1;
    run.n_notes = 0;
    return 0;
}

/* `train`: the run is of 'lockstep train'. */
static finding_text describe(ls_finding f, bool train)
{
    for (int r = 0; r < RANKS; r++) ranks[r].metadata[LS_METADATA_TRAIN] = train;
    return finding_describe(&run, &f);
}

static void check_has(const char *text, const char *what)
{
    if (!strstr(text, what)) fail_msg("'%s' is not in: %s", what, text);
}

static void check_lacks(const char *text, const char *what)
{
    if (strstr(text, what)) fail_msg("'%s' is in: %s", what, text);
}

static ls_finding straggler(ls_phase phase)
{
    return (
        ls_finding){ .kind = LS_FINDING_STRAGGLER,
                     .remedy = LS_REMEDY_EQUAL_WORK,
                     .rank = 1,
                     .phase = phase,
                     .cost = 41000000,
                     .steps = STEPS,
                     .evidence.rank = { .own = 52e6, .others = 11e6, .waited = 40e6, .span = -1, .persistent = true } };
}

static void stragglers(void **state)
{
    (void)state;
    ls_finding f = straggler(LS_PHASE_DATA);
    f.remedy = LS_REMEDY_FASTER_READS;
    f.evidence.rank.build = 8.5e6;
    f.evidence.rank.others_build = 900e3;
    finding_text t = describe(f, true);
    assert_string_equal(t.what, "rank 1 stalls all ranks 41.0 ms per step in data loading");
    assert_string_equal(
        t.evidence,
        "its data loading takes 52.0 ms, the other ranks' 11.0 ms; each of the others "
        "waits up to 40.0 ms per step for it; its batches take 8.50 ms to build, the other ranks' 900 \u00b5s");
    f.evidence.rank.others = 53e6;
    check_has(describe(f, true).evidence,
              "one segment of its data loading takes 41.0 ms longer than the other ranks'; ");
    f.evidence.rank.others = 11e6;
    run.ranks = 2;
    check_has(describe(f, true).evidence, "the other rank's 11.0 ms; rank 0 waits 40.0 ms per step for it");
    run.ranks = RANKS;
    check_has(t.remedy, "on a local disk (--stage), or prefetch with more --workers (it has none)");
    check_lacks(describe(f, false).remedy, "--");
    f = straggler(LS_PHASE_BACKWARD);
    f.evidence.rank.span = 0;
    f.evidence.rank.persistent = false;
    f.steps = 4;
    t = describe(f, true);
    assert_string_equal(t.what, "rank 1 stalls all ranks 41.0 ms per step in backward, in 4 of 40 steps");
    check_has(t.evidence, "most of it before the gradient of 'h.0.mlp.c_fc.weight'");
    check_has(t.remedy, "'lockstep train --profile'");
    f.steps = 1;
    f.first = f.last = 17;
    f.remedy = LS_REMEDY_OBSERVE;
    t = describe(f, true);
    check_has(t.what, "in backward, all of it in step 17 (1 of 40)");
    check_has(t.evidence, "it was on a core, and it did not happen again");
    check_has(t.remedy, "a single occurrence may be noise");
}

static void cores(void **state)
{
    (void)state;
    ls_finding f = straggler(LS_PHASE_OTHER);
    f.kind = LS_FINDING_PREEMPTED;
    f.remedy = LS_REMEDY_FREE_CORE;
    finding_text t = describe(f, true);
    assert_string_equal(t.what, "rank 1 was runnable but not scheduled for 52.0 ms of a step");
    check_has(t.remedy, "uses its core (1 on vm): stop it, or bind the rank to another core with 'taskset'");
    f.kind = LS_FINDING_SLOW_CORE;
    f.remedy = LS_REMEDY_CHECK_CORE;
    f.evidence.rank = (ls_rank_evidence){ .own = 12e6, .others = 10e6, .forward = true, .backward = true };
    t = describe(f, true);
    assert_string_equal(t.what, "rank 1 computes 20% slower than the others, in forward and backward");
    f.evidence.rank.forward = false;
    check_has(describe(f, true).what, "others, in backward");
    f = (ls_finding){ .kind = LS_FINDING_CONTENTION,
                      .remedy = LS_REMEDY_FREE_CORES,
                      .rank = 1,
                      .cost = 20000000,
                      .evidence.cores = { .ranks = 2,
                                          .least = 20e6,
                                          .most = 21e6,
                                          .least_share = 0.4,
                                          .most_share = 0.42,
                                          .used = 0.6,
                                          .cores = 4 } };
    t = describe(f, true);
    assert_string_equal(
        t.what, "ranks 0, 1 were runnable but not scheduled for 20.0 ms to 21.0 ms of a step: other programs use their "
                "cores");
    assert_string_equal(t.evidence,
                        "run-queue delay of 40% to 42% of a step; the run got 0.60 of 4 cores; rank 1 lost most");
    assert_string_equal(t.remedy,
                        "stop the other programs on cores 0, 1 of vm ('top' lists them), or run where cores are free");
    f.kind = LS_FINDING_OVERSUBSCRIPTION;
    f.remedy = LS_REMEDY_FEWER_RANKS;
    f.target = 2;
    f.evidence.cores.threads = 4;
    f.evidence.cores.cores = 2;
    t = describe(f, true);
    check_has(t.what, "more ranks than cores: ranks 0, 1 were runnable");
    assert_string_equal(t.evidence, "4 ranks with 4 threads in all share 2 cores");
    check_has(t.remedy, "(-n 2)");
    f.remedy = LS_REMEDY_FEWER_THREADS;
    check_has(describe(f, true).remedy, "(--threads 2)");
    check_has(describe(f, false).remedy, "(OMP_NUM_THREADS 2)");
}

static void data(void **state)
{
    (void)state;
    ls_finding f = { .kind = LS_FINDING_DATA,
                     .remedy = LS_REMEDY_MORE_WORKERS,
                     .rank = -1,
                     .phase = LS_PHASE_DATA,
                     .target = 3,
                     .evidence.data = { .waited = 20e6, .build = 45e6, .rest = 30e6 } };
    finding_text t = describe(f, true);
    assert_string_equal(t.what, "all ranks wait 20.0 ms per step for data");
    check_has(t.evidence, "take 45.0 ms to build with 0 workers; the rest of the step takes 30.0 ms");
    assert_string_equal(t.remedy, "--workers 3, or a copy of the data on a local disk (--stage)");
    assert_string_equal(describe(f, false).remedy, "3 workers, or a copy of the data on a local disk");
    ranks[0].metadata[LS_METADATA_STAGED] = 1;
    assert_string_equal(describe(f, true).remedy, "--workers 3");
    ranks[0].metadata[LS_METADATA_TORCH] = 1;
    assert_string_equal(describe(f, false).remedy, "DataLoader(num_workers=3, persistent_workers=True)");
    ranks[0].metadata[LS_METADATA_TORCH] = 0;
    f.remedy = LS_REMEDY_PREFETCH;
    f.evidence.data.build = NAN;
    t = describe(f, false);
    assert_string_equal(t.what, "data loading takes 20.0 ms per step on every rank");
    check_has(t.evidence, "40% of the step");
}

static void communication(void **state)
{
    (void)state;
    ls_finding f = { .kind = LS_FINDING_COMM,
                     .remedy = LS_REMEDY_HALF_PRECISION,
                     .rank = -1,
                     .phase = LS_PHASE_COMM,
                     .cost = 10000000,
                     .target = 2,
                     .evidence.comm = { .exposed = 20e6,
                                        .busy = 25e6,
                                        .bytes = 4 << 20,
                                        .calls = 40,
                                        .latency = 50e3,
                                        .rate = 129e-4 / 0.8,
                                        .of_peak = 0.9,
                                        .hidden = 0.2,
                                        .network = true } };
    finding_text t = describe(f, true);
    assert_string_equal(t.what, "exposed communication between nodes: 20.0 ms of a step");
    assert_string_equal(
        t.evidence,
        "4.00 MiB per step, 129 Mbit/s on a node's link (90% of its peak); 20% of the communication overlaps "
        "with computing");
    check_has(t.remedy, "--wire bfloat16: half the bytes");
    check_has(t.remedy, "(--accumulate 2)");
    t = describe(f, false);
    check_has(t.remedy, "LS_WIRE_BF16 in ls_ddp_options");
    check_has(t.remedy, "LS_DDP_ACCUMULATE");
    f.remedy = LS_REMEDY_ACCUMULATE;
    f.evidence.comm.network = false;
    check_lacks(describe(f, true).remedy, "bfloat16");
    f.kind = LS_FINDING_BUCKETS;
    f.remedy = LS_REMEDY_LARGER_BUCKETS;
    f.target = 4 << 20;
    t = describe(f, true);
    assert_string_equal(t.what, "buckets are too small: the latency of 40 collectives is 2.00 ms per step");
    assert_string_equal(t.remedy, "--bucket-mb 4 (2 collectives)");
    check_has(describe(f, false).remedy, "bucket_bytes 4194304 in ls_ddp_options");
    f.kind = LS_FINDING_OVERLAP;
    f.remedy = LS_REMEDY_OVERLAP;
    check_has(describe(f, true).what, "overlap of communication and backward is disabled, which costs 10.0 ms");
    assert_string_equal(describe(f, true).remedy, "remove --no-overlap");
}

/* No kind and no remedy without words, whatever the numbers. */
static void everything_has_words(void **state)
{
    (void)state;
    for (int kind = 0; kind < LS_FINDING_KINDS; kind++)
        for (int remedy = 0; remedy <= LS_REMEDY_LESS_MEMORY; remedy++)
            for (int rank = -1; rank < 2; rank++) {
                ls_finding f = {
                    .kind = (ls_finding_kind)kind, .remedy = (ls_remedy)remedy, .rank = rank < 0 ? 0 : rank, .target = 1
                };
                if (kind > LS_FINDING_PREEMPTED) f.rank = rank;
                finding_text t = describe(f, rank != 0);
                if (strlen(t.what) < 20 || strlen(t.evidence) < 10 || strlen(t.remedy) < 10)
                    fail_msg("%s, remedy %d: '%s', '%s', '%s'", ls_finding_name(f.kind), remedy, t.what, t.evidence,
                             t.remedy);
            }
    for (int kind = 0; kind <= LS_NOTE_NO_OVERLAP; kind++)
        assert_true(strlen(note_describe(&run, &(ls_note){ .kind = (ls_note_kind)kind, .number = 1 }).text) > 15);
}

static void notes(void **state)
{
    (void)state;
    ranks[1].present = ranks[3].present = false;
    assert_string_equal(note_describe(&run, &(ls_note){ .kind = LS_NOTE_MISSING, .rank = 1, .number = 2 }).text,
                        "ranks 1, 3 of 4 have no readable events; what they did is unknown");
    assert_string_equal(note_describe(&run, &(ls_note){ .kind = LS_NOTE_LOST, .rank = 2, .number = 7 }).text,
                        "rank 2: 7 events were lost because they came faster than they could be written");
    check_has(note_describe(&run, &(ls_note){ .kind = LS_NOTE_CLOCK, .rank = 1, .number = -2500000 }).text,
              "up to 2.50 ms");
    check_has(note_describe(&run, &(ls_note){ .kind = LS_NOTE_NO_BEGINNING, .number = INT64_C(90000000000) }).text,
              "the first 90.0 s");
    assert_string_equal(note_describe(&run, &(ls_note){ .kind = LS_NOTE_UNREADABLE, .text = "a: no" }).text, "a: no");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(stragglers, make_run),
        cmocka_unit_test_setup(cores, make_run),
        cmocka_unit_test_setup(data, make_run),
        cmocka_unit_test_setup(communication, make_run),
        cmocka_unit_test_setup(everything_has_words, make_run),
        cmocka_unit_test_setup(notes, make_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
