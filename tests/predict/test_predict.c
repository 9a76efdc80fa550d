/* Predictions from made-up records, in which the answer is known. */
#include "../measure/records.h"

#include <math.h>
#include "folder.h"
#include "lockstep/predict.h"

enum { STEPS = 40, SPANS = 4, SPAN_BYTES = 1 << 20 };

typedef struct job {
    int ranks, slots, cores;
    int64_t jitter;    /* of backward, on one rank after the other */
    double slower_all; /* matrix products and memory, when all cores compute: share of one core's rate; 0: 1 */
    double stream;     /* bytes per ns that arrays are added with; 0: as if that took no time */
    int64_t add;   /* ns that each addition to a slot's gradients takes in backward, for each 4 bytes of an element */
    double steady; /* rank 1 takes so many times as long in all steps; 0: 1 */
    double delay;  /* share of a phase in which the rank has no core... */
    double others; /* ...and how many cores other programs use */
    bool sizes;    /* of gradients are recorded */
    int lost_rank; /* without a record; -1: none */
} job;

static void put_metadata(rank_record *r, const job *j)
{
    double all = j->slower_all > 0 ? j->slower_all : 1;
    ls__event_file_metadata(r->file, LS_METADATA_SLOTS, j->slots);
    ls__event_file_metadata(r->file, LS_METADATA_TOKENS, 1000.0 * j->slots);
    ls__event_file_metadata(r->file, LS_METADATA_CORES, j->cores);
    ls__event_file_metadata(r->file, LS_METADATA_GEMM_ONE, 100);
    ls__event_file_metadata(r->file, LS_METADATA_GEMM_ALL, 100 * all);
    ls__event_file_metadata(r->file, LS_METADATA_STREAM_ONE, j->stream > 0 ? j->stream : 1e6);
    ls__event_file_metadata(r->file, LS_METADATA_STREAM_ALL, (j->stream > 0 ? j->stream : 1e6) * all);
    ls__event_file_metadata(r->file, LS_METADATA_FLOPS, 1e9);
}

static int64_t phase(rank_record *r, ls_phase p, int64_t at, int64_t ns, const job *j, int micro)
{
    sample(r, at, 0, 0, false);
    add(r, at, LS_EVENT_PHASE_BEGIN, p, 0);
    for (int i = 0; i < SPANS && p == LS_PHASE_BACKWARD; i++)
        add(r, at + ns * (i + 1) / SPANS - (i == SPANS - 1), LS_EVENT_SPAN_READY, (uint64_t)i,
            (j->sizes ? (uint64_t)SPAN_BYTES << 16 : 0) | (uint64_t)micro);
    at += ns;
    int64_t delay = (int64_t)(j->delay * (double)ns);
    sample(r, at, ns - delay, delay, false);
    add(r, at, LS_EVENT_PHASE_END, p, 0);
    return at;
}

/* 4-byte words per element that the gradients of slot m of n take to be added: a copy, or copies and additions as a binary counter does. */
static int words(int m, int n)
{
    static const int of_four[] = { 2, 3, 2, 3 };
    return n == 4 ? of_four[m] : 0;
}

/* Each slot: 10 ms forward, 20 ms backward; then a collective of 1 ms and an update of 4. */
static ls_run *record_job(const char *name, const job *j)
{
    char live[32], made[32];
    ls_run *run;
    double steady = j->steady > 0 ? j->steady : 1;
    int each = j->slots / j->ranks;
    int64_t sum = 0;
    for (int m = 0; m < each; m++) sum += 30 * MS + words(m, each) * j->add;
    int64_t step = 5 * MS + (int64_t)(steady * (double)sum) + j->jitter;
    snprintf(made, sizeof made, "%.20s", name);
    snprintf(live, sizeof live, "%.20s-live", name);
    for (int k = 0; k < j->ranks; k++) {
        rank_record r;
        if (k == j->lost_rank) continue;
        begin_record(&r, live, k, j->ranks, 0, 0);
        put_metadata(&r, j);
        for (int i = 0; i < SPANS; i++) ls__event_file_name(r.file, LS_NAME_SPAN, (uint32_t)i, "g");
        for (int s = 0; s < STEPS; s++) {
            int64_t at = 1000 * MS + s * step, meet = at + step - 5 * MS;
            add(&r, at, LS_EVENT_STEP, (uint64_t)s + 1, 0);
            add(&r, at, LS_EVENT_SAMPLE, LS_SAMPLE_CPU, (uint64_t)(s * step));
            add(&r, at, LS_EVENT_SAMPLE, LS_SAMPLE_BUSY, (uint64_t)((j->ranks + j->others) * (double)(s * step)));
            for (int m = 0; m < j->slots / j->ranks; m++) {
                int64_t more = m == 0 && s % j->ranks == k ? j->jitter : 0;
                double slow = k == 1 ? steady : 1;
                at = phase(&r, LS_PHASE_FORWARD, at, (int64_t)(slow * 10 * MS), j, m);
                at = phase(&r, LS_PHASE_BACKWARD, at,
                           (int64_t)(slow * (double)(20 * MS + words(m, each) * j->add)) + more, j, m);
            }
            if (j->ranks > 1) {
                add(&r, at, LS_EVENT_COLL_START, (uint64_t)s + 1, 64);
                add(&r, meet + MS, LS_EVENT_COLL_DONE, (uint64_t)s + 1, 0);
                add(&r, meet + MS, LS_EVENT_BLOCKED, (uint64_t)s + 1, (uint64_t)(meet + MS - at));
            }
            phase(&r, LS_PHASE_UPDATE, meet + MS, 4 * MS, j, 0);
        }
        add(&r, 1000 * MS + STEPS * step, LS_EVENT_STEP, STEPS + 1, 0);
        end_killed(&r, live, made, k);
    }
    assert_int_equal(ls_run_open(&run, made, NULL), LS_OK);
    return run;
}

static ls_predictor *predictor_of(const job *j)
{
    static int number;
    char path[20];
    ls_predictor *p;
    snprintf(path, sizeof path, "run%d", number++);
    ls_run *run = record_job(path, j);
    assert_int_equal(ls_predictor_open(&p, run), LS_OK);
    ls_run_free(&run);
    return p;
}

static const job two = { .ranks = 2, .slots = 4, .cores = 2, .sizes = true, .lost_rank = -1 };

static double predict_ms(const ls_predictor *p, const ls_setup *s)
{
    ls_prediction out;
    double sum = 0;
    if (ls_predict(p, s, &out)) fail_msg("%s", ls_error());
    for (int i = 0; i < LS_TERM_COUNT; i++) sum += out.term[i];
    assert_float_equal(sum / MS, out.step / MS, 1e-6);
    assert_true(out.low <= out.step && out.step <= out.high && out.step <= out.slow_step * 1.0001);
    return out.step / MS;
}

static void test_recorded_setup_is_what_was_recorded(void **state)
{
    ls_predictor *p = predictor_of(&two);
    (void)state;
    assert_float_equal(ls_predictor_recorded_step(p) / MS, 65, 0.01);
    assert_float_equal(predict_ms(p, NULL), 65, 0.01);
    ls_predictor_free(&p);
    assert_null(p);
}

static void test_one_rank_computes_all_slots(void **state)
{
    ls_predictor *p = predictor_of(&two);
    ls_prediction out;
    (void)state;
    assert_int_equal(ls_predict(p, &(ls_setup){ .ranks = 1 }, &out), LS_OK);
    assert_float_equal(out.term[LS_TERM_COMPUTE] / MS, 120, 0.1);
    assert_float_equal(out.term[LS_TERM_COMM], 0, 1);
    assert_float_equal(out.tokens_per_s, 4000 / (out.step / 1e9), 1);
    ls_predictor_free(&p);
}

static void test_ranks_beyond_the_cores_take_turns(void **state)
{
    ls_predictor *p = predictor_of(&two);
    ls_prediction two_ranks, four;
    (void)state;
    assert_int_equal(ls_predict(p, NULL, &two_ranks), LS_OK);
    assert_int_equal(ls_predict(p, &(ls_setup){ .ranks = 4 }, &four), LS_OK);
    double before = two_ranks.term[LS_TERM_COMPUTE] + two_ranks.term[LS_TERM_SHARING];
    assert_float_equal((four.term[LS_TERM_COMPUTE] + four.term[LS_TERM_SHARING]) / MS, before / MS, 0.1);
    assert_true(four.step > two_ranks.step);
    /* Two of three share a core until the third is done: 1.5 times the work of one is not reached. */
    ls_prediction three;
    assert_int_equal(ls_predict(p, &(ls_setup){ .ranks = 3, .slots = 6 }, &three), LS_OK);
    assert_true(three.step > 1.5 * 60 * MS + 5 * MS && three.step < 2 * 60 * MS);
    ls_predictor_free(&p);
}

/* Other programs use one of the two cores, and took a quarter of the time of a rank on each. A rank has a free core without them; of more
 * ranks than cores, they take half. */
static void test_what_other_programs_take(void **state)
{
    job j = two;
    (void)state;
    j.delay = 0.25;
    j.others = 1;
    ls_predictor *p = predictor_of(&j);
    assert_float_equal(predict_ms(p, NULL), 65, 0.01);
    assert_float_equal(predict_ms(p, &(ls_setup){ .ranks = 1 }), 4 * 30 * 0.75 + 4 + 4, 4);
    double four = predict_ms(p, &(ls_setup){ .ranks = 4 });
    assert_true(four > 90 && four < 90 * 1.06 + 5 + 4);
    ls_predictor_free(&p);
}

static void test_a_node_with_fewer_cores(void **state)
{
    ls_predictor *p = predictor_of(&two);
    ls_prediction out;
    (void)state;
    assert_int_equal(ls_predict(p, &(ls_setup){ .cores = 1 }, &out), LS_OK);
    assert_float_equal((out.term[LS_TERM_COMPUTE] + out.term[LS_TERM_SHARING]) / MS, 120, 0.1);
    assert_int_equal(ls_predict(p, &(ls_setup){ .ranks = 1, .cores = 0.5 }, &out), LS_OK);
    assert_float_equal((out.term[LS_TERM_COMPUTE] + out.term[LS_TERM_SHARING]) / MS, 240, 0.1);
    ls_predictor_free(&p);
}

/* 4 slots of a rank, which take 10 words of 4 bytes per element to be added, in 1.2 ms each: that time is theirs, not computing. */
static void test_what_it_takes_to_add_slots(void **state)
{
    job j = two;
    ls_prediction out;
    (void)state;
    j.slots = 8;
    j.add = 1200000;
    ls_predictor *p = predictor_of(&j);
    assert_int_equal(ls_predict(p, NULL, &out), LS_OK);
    assert_float_equal((out.term[LS_TERM_COMPUTE] + out.term[LS_TERM_SHARING]) / MS, 120 + 12, 0.1);
    assert_int_equal(ls_predict(p, &(ls_setup){ .slots = 2 }, &out), LS_OK); /* none is added */
    assert_float_equal((out.term[LS_TERM_COMPUTE] + out.term[LS_TERM_SHARING]) / MS, 30, 0.1);
    assert_int_equal(ls_predict(p, &(ls_setup){ .slots = 4 }, &out), LS_OK); /* a copy, and one addition in place */
    assert_float_equal((out.term[LS_TERM_COMPUTE] + out.term[LS_TERM_SHARING]) / MS, 60 + 4 * 1.2, 0.1);
    ls_predictor_free(&p);
}

/* Rank 1 takes 1.1 times as long in all steps. Of as many ranks as there may be, some are on such a core; but none on a slower one. */
static void test_what_stays_with_a_rank(void **state)
{
    job j = two;
    ls_prediction out;
    (void)state;
    j.cores = 8;
    j.steady = 1.1;
    ls_predictor *p = predictor_of(&j);
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        assert_int_equal(ls_predict(p, &(ls_setup){ .ranks = ranks, .slots = 16 }, &out), LS_OK);
        double computing = out.term[LS_TERM_COMPUTE] + out.term[LS_TERM_SHARING] + out.term[LS_TERM_IMBALANCE];
        assert_float_equal(computing / MS, 1.1 * 30 * 16 / ranks, 0.3);
    }
    ls_predictor_free(&p);
}

static void test_cores_that_slow_each_other_down(void **state)
{
    job alone = two;
    ls_prediction out;
    (void)state;
    alone.ranks = 1;
    alone.slower_all = 0.5;
    ls_predictor *p = predictor_of(&alone);
    assert_int_equal(ls_predict(p, &(ls_setup){ .ranks = 2 }, &out), LS_OK);
    assert_float_equal(out.term[LS_TERM_COMPUTE] / MS, 60, 0.1);
    assert_float_equal(out.term[LS_TERM_SHARING] / MS, 60, 0.1); /* all rates are halved */
    ls_predictor_free(&p);
}

static double comm_ms(const ls_predictor *p, const ls_setup *s)
{
    ls_prediction out;
    assert_int_equal(ls_predict(p, s, &out), LS_OK);
    return out.term[LS_TERM_COMM] / MS;
}

/* 4 buckets of 1 MiB, full after 1/4, 2/4... of backward (20 ms). Each takes 2 * (1 MiB / 2) / rate on the link, with headers, and two
 * exchanges of 18 us; in backward 0.2 ms more until messages are looked for. 18 us are a collective without data. The processor time
 * of a bucket is 1.05 ms. */
static void test_what_a_link_cannot_hide_is_exposed(void **state)
{
    ls_predictor *p = predictor_of(&two);
    double rate = SPAN_BYTES / (2.0 * MS), bucket = 2 / 0.956 + 0.036, cpu = SPAN_BYTES / (1.0 * MS), small = 0.018;
    ls_setup s = { .nodes = 2, .bucket_bytes = SPAN_BYTES, .link_rate = rate };
    (void)state;
    /* All but the last one are sent in backward, from which they only take processor time. */
    assert_float_equal(comm_ms(p, &s), 3 * cpu + bucket + small, 0.02);
    s.overlap = LS_OVERLAP_OFF;
    assert_float_equal(comm_ms(p, &s), 4 * bucket + small, 0.02);
    s.link_latency = 1 * MS; /* two for each, and one of the small collective */
    assert_float_equal(comm_ms(p, &s), 4 * (bucket + 2) + small + 1, 0.02);
    /* 20 ms for each: from 5 ms on the link is busy, and what the processor does for it is hidden. */
    s = (ls_setup){ .nodes = 2, .bucket_bytes = SPAN_BYTES, .link_rate = rate / 10 };
    bucket = 20 / 0.956 + 0.036;
    assert_float_equal(comm_ms(p, &s), 4 * bucket + 0.2 - 15 + small, 0.02);
    s.wire_bytes = 2; /* half of it; the second one begins in backward, too */
    bucket = 10 / 0.956 + 0.036;
    assert_float_equal(comm_ms(p, &s), 4 * bucket + 2 * 0.2 - 15 + small, 0.02);
    ls_predictor_free(&p);
}

static void test_a_link_faster_than_the_processor(void **state)
{
    ls_predictor *p = predictor_of(&two);
    double cpu = SPAN_BYTES / (1.0 * MS);
    ls_setup s = { .nodes = 2, .bucket_bytes = SPAN_BYTES, .link_rate = 100, .overlap = LS_OVERLAP_OFF };
    (void)state;
    assert_float_equal(comm_ms(p, &s), 4 * (cpu + 0.036) + 0.018, 0.02);
    s.link_rate = 1000;
    assert_float_equal(comm_ms(p, &s), 4 * (cpu + 0.036) + 0.018, 0.02);
    s.overlap = LS_OVERLAP_ON; /* the work is the same, whenever it is done */
    assert_float_equal(comm_ms(p, &s), 4 * cpu + 0.036 + 0.018, 0.02);
    ls_predictor_free(&p);
}

/* A node with half a core: each exchange waits 0.6 ms for it. */
static void test_messages_wait_for_a_core(void **state)
{
    ls_predictor *p = predictor_of(&two);
    double bucket = 20 / 0.956 + 0.036;
    ls_setup s = { .nodes = 2,
                   .bucket_bytes = SPAN_BYTES,
                   .link_rate = SPAN_BYTES / (20.0 * MS),
                   .overlap = LS_OVERLAP_OFF,
                   .cores = 0.5 };
    (void)state;
    assert_float_equal(comm_ms(p, &s), 4 * (bucket + 2 * 0.6) + 0.018 + 0.6, 0.02);
    ls_predictor_free(&p);
}

static void test_a_slow_rank_and_noise_make_others_wait(void **state)
{
    job noisy = two;
    (void)state;
    ls_predictor *p = predictor_of(&two);
    assert_float_equal(predict_ms(p, &(ls_setup){ .slow_rank = 1.5 }), 65 + 30, 0.5);
    ls_predictor_free(&p);
    /* Every step one rank loses 6 ms of 60; with many ranks some always does. */
    noisy.jitter = 6 * MS;
    p = predictor_of(&noisy);
    ls_prediction few, many;
    assert_int_equal(ls_predict(p, &(ls_setup){ .ranks = 2 }, &few), LS_OK);
    assert_float_equal(few.step / MS, 71, 0.5);
    assert_int_equal(
        ls_predict(p,
                   &(ls_setup){ .ranks = 100000, .slots = 200000, .nodes = 50000, .link_rate = 1, .link_latency = 1 },
                   &many),
        LS_OK);
    assert_true(many.step >= few.step);
    ls_predictor_free(&p);
}

/* Whole cores, fractions and more threads than cores: another way through the model each. */
static void test_slower_ranks_and_fewer_cores_are_never_faster(void **state)
{
    static const double cores[] = { 4, 3.5, 3, 2.5, 2, 1.5, 1.01, 1, 0.99, 0.75, 0.5, 0.1 }, slow[] = { 1, 1.01, 2, 3 };
    enum { CORES = sizeof cores / sizeof *cores, SLOW = sizeof slow / sizeof *slow };
    job noisy = two;
    (void)state;
    noisy.cores = 4;
    noisy.jitter = 6 * MS;
    ls_predictor *p = predictor_of(&noisy);
    for (int ranks = 1; ranks <= 5; ranks++) {
        double before[SLOW] = { 0 };
        for (int c = 0; c < CORES; c++) {
            double quicker = 0;
            for (int k = 0; k < SLOW; k++) {
                double ms =
                    predict_ms(p, &(ls_setup){ .ranks = ranks, .slots = 30, .slow_rank = slow[k], .cores = cores[c] });
                if (ms < before[k] * 0.9999 || ms < quicker * 0.9999)
                    fail_msg(
                        "%d ranks on %g cores, one %g times as slow: %.2f ms; with more cores %.2f, with a less slow "
                        "rank %.2f",
                        ranks, cores[c], slow[k], ms, before[k], quicker);
                before[k] = quicker = ms;
            }
            /* One rank has nobody to share its core with: three times the work takes three times as long. */
            if (ranks == 1) assert_true(before[SLOW - 1] > 2.8 * before[0] && before[SLOW - 1] < 3 * before[0]);
        }
    }
    ls_predictor_free(&p);
}

/* Nobody waits less than not at all, and one rank waits for nobody. predict_ms() checks that the terms add up. */
static void test_waiting_is_never_negative(void **state)
{
    job noisy = two;
    ls_prediction out;
    (void)state;
    noisy.jitter = 6 * MS;
    ls_predictor *p = predictor_of(&noisy);
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int slow = 1; slow <= 3; slow += 2)
            for (double cores = 2; cores > 0.4; cores -= 0.5) {
                ls_setup s = { .ranks = ranks, .slots = 12, .slow_rank = slow, .cores = cores };
                predict_ms(p, &s);
                assert_int_equal(ls_predict(p, &s, &out), LS_OK);
                if (!(out.term[LS_TERM_IMBALANCE] >= 0) || (ranks == 1 && out.term[LS_TERM_IMBALANCE] != 0))
                    fail_msg("%d ranks on %g cores: waiting %g ms", ranks, cores, out.term[LS_TERM_IMBALANCE] / MS);
                for (int i = 0; i < LS_TERM_COUNT; i++) assert_true(out.term[i] <= out.term[out.bottleneck]);
            }
    assert_float_equal(predict_ms(p, NULL), 71, 0.5);
    ls_predictor_free(&p);
}

static void refused(const ls_predictor *p, ls_setup s, ls_status status, const char *reason)
{
    ls_prediction out;
    assert_int_equal(ls_predict(p, &s, &out), status);
    if (!strstr(ls_error(), reason)) fail_msg("'%s' is not in '%s'", reason, ls_error());
}

static void test_what_cannot_be_said_is_refused(void **state)
{
    job j = two;
    ls_predictor *p = predictor_of(&two);
    (void)state;
    refused(p, (ls_setup){ .ranks = 5 }, LS_EINVAL, "set slots=5 or more");
    refused(p, (ls_setup){ .ranks = -1 }, LS_EINVAL, "ranks is -1");
    refused(p, (ls_setup){ .threads = -1 }, LS_EINVAL, "threads is -1");
    refused(p, (ls_setup){ .workers = -2 }, LS_EINVAL, "workers is -2");
    refused(p, (ls_setup){ .overlap = (ls_overlap)3 }, LS_EINVAL, "overlap is 3");
    refused(p, (ls_setup){ .nodes = 3 }, LS_EINVAL, "3 nodes for 2 ranks");
    refused(p, (ls_setup){ .nodes = 2 }, LS_EUNSUPPORTED, "link");
    refused(p, (ls_setup){ .threads = 2 }, LS_EUNSUPPORTED, "1 thread per rank");
    refused(p, (ls_setup){ .cores = 3 }, LS_EUNSUPPORTED, "2 cores");
    refused(p, (ls_setup){ .cores = -1 }, LS_EINVAL, "cores is -1");
    refused(p, (ls_setup){ .cores = (double)NAN }, LS_EINVAL, "cores");
    refused(p, (ls_setup){ .wire_bytes = 3 }, LS_EINVAL, "wire_bytes");
    refused(p, (ls_setup){ .nodes = 2, .link_rate = (double)NAN }, LS_EINVAL, "link");
    refused(p, (ls_setup){ .slow_rank = 0.5 }, LS_EINVAL, "slow_rank");
    refused(p, (ls_setup){ .slow_rank = 1e300 }, LS_EINVAL, "from 1 to 1000000");
    refused(p, (ls_setup){ .nodes = 2, .link_rate = 1, .link_latency = 1e30 }, LS_EINVAL, "link_latency");
    ls_predictor_free(&p);
    j.sizes = false;
    j.ranks = 1;
    p = predictor_of(&j);
    refused(p, (ls_setup){ .ranks = 2 }, LS_EUNSUPPORTED, "sizes of the gradients (LS_EVENT_SPAN_READY)");
    ls_predictor_free(&p);
}

static void test_runs_without_what_is_needed(void **state)
{
    job j = two;
    ls_predictor *p;
    (void)state;
    j.lost_rank = 1;
    ls_run *run = record_job("lost", &j);
    assert_int_equal(ls_predictor_open(&p, run), LS_EINVAL);
    assert_null(p);
    assert_non_null(strstr(ls_error(), "rank 1 is missing"));
    ls_run_free(&run);
    j = two;
    j.cores = 0;
    run = record_job("old", &j);
    assert_int_equal(ls_predictor_open(&p, run), LS_EINVAL);
    assert_non_null(strstr(ls_error(), "missing: LS_METADATA_CORES"));
    assert_non_null(strstr(ls_error(), "ls_record_metadata()"));
    ls_run_free(&run);
    assert_int_equal(ls_predictor_open(&p, NULL), LS_EINVAL);
    assert_int_equal(ls_predictor_open(&p, &(ls_run){ 0 }), LS_EINVAL);
    assert_non_null(strstr(ls_error(), "ls_run_open()"));
    assert_int_equal(ls_predict(NULL, NULL, NULL), LS_EINVAL);
    ls_predictor_free(NULL);
    assert_string_equal(ls_term_name((ls_term)99), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_setup_is_what_was_recorded),
        cmocka_unit_test(test_one_rank_computes_all_slots),
        cmocka_unit_test(test_ranks_beyond_the_cores_take_turns),
        cmocka_unit_test(test_what_other_programs_take),
        cmocka_unit_test(test_a_node_with_fewer_cores),
        cmocka_unit_test(test_what_it_takes_to_add_slots),
        cmocka_unit_test(test_what_stays_with_a_rank),
        cmocka_unit_test(test_cores_that_slow_each_other_down),
        cmocka_unit_test(test_what_a_link_cannot_hide_is_exposed),
        cmocka_unit_test(test_a_link_faster_than_the_processor),
        cmocka_unit_test(test_messages_wait_for_a_core),
        cmocka_unit_test(test_a_slow_rank_and_noise_make_others_wait),
        cmocka_unit_test(test_slower_ranks_and_fewer_cores_are_never_faster),
        cmocka_unit_test(test_waiting_is_never_negative),
        cmocka_unit_test(test_what_cannot_be_said_is_refused),
        cmocka_unit_test(test_runs_without_what_is_needed),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
