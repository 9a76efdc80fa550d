/* Communication of made-up records: what it takes and what it could, what of it overlaps, and what to change. */
#include "records.h"

#include <math.h>
#include "folder.h"

enum { STEPS = 24, BUCKETS = 4, BYTES = 1 << 20 };

/* 8 ms forward, 10 ms backward in which a bucket is full every 2.5 ms, and 2 ms update. */
typedef struct plan {
    int nodes;
    int64_t takes; /* ns of a bucket, once it is started and the one before is done */
    int64_t first; /* the same of each step's first one, which buffers on the way take in; 0: as the others */
    bool no_overlap;
    double wire; /* bytes of an element; 0: not recorded */
} plan;

static void phase(rank_record *r, ls_phase phase, int64_t begin, int64_t end)
{
    add(r, begin, LS_EVENT_PHASE_BEGIN, phase, 0);
    add(r, end, LS_EVENT_PHASE_END, phase, 0);
}

/* Blocked in the calls one after the other from `at` on, until all are done. */
static int64_t finish(rank_record *r, int64_t at, const int64_t *done, uint64_t call)
{
    for (uint64_t k = 0; k < BUCKETS; k++) {
        int64_t left = done[k] > at ? done[k] : at;
        add(r, done[k], LS_EVENT_COLL_DONE, call + k, 0);
        add(r, left, LS_EVENT_BLOCKED, call + k, (uint64_t)(left - at));
        at = left;
    }
    return at;
}

static void make_rank(const plan *p, int k, const char *to)
{
    rank_record r;
    begin_record(&r, "live", k, 2, p->nodes > 1 ? k : 0, 0);
    ls__event_file_metadata(r.file, LS_METADATA_OVERLAP, !p->no_overlap);
    ls__event_file_metadata(r.file, LS_METADATA_TRAIN, 1);
    if (p->wire > 0) ls__event_file_metadata(r.file, LS_METADATA_WIRE, p->wire);
    int64_t begin = INT64_C(3600) * 1000 * MS;
    for (uint64_t step = 1; step <= STEPS; step++) {
        int64_t backward = begin + 8 * MS, end = backward + 10 * MS, done[BUCKETS], free = 0;
        add(&r, begin, LS_EVENT_STEP, step, 0);
        phase(&r, LS_PHASE_FORWARD, begin, backward);
        phase(&r, LS_PHASE_BACKWARD, backward, end);
        for (uint64_t b = 0; b < BUCKETS; b++) {
            int64_t ready = backward + (int64_t)(b + 1) * 5 * MS / 2, start = p->no_overlap ? end : ready;
            int64_t takes = !b && p->first ? p->first : p->takes;
            add(&r, ready, LS_EVENT_BUCKET_READY, b, BYTES);
            add(&r, start, LS_EVENT_BUCKET_START, b, step * BUCKETS + b);
            add(&r, start, LS_EVENT_COLL_START, step * BUCKETS + b, BYTES);
            done[b] = free = (start > free ? start : free) + takes;
        }
        int64_t out = finish(&r, end, done, step * BUCKETS);
        begin = out + 2 * MS;
        phase(&r, LS_PHASE_UPDATE, out, begin);
        ls__event_file_drain(r.file, false);
    }
    add(&r, begin, LS_EVENT_STEP, STEPS + 1, 0);
    end_killed(&r, "live", to, k);
}

static ls_run *run_of(const plan *p, const char *name)
{
    char events[100];
    ls_run *run;
    snprintf(events, sizeof events, "%s/events", name);
    for (int k = 0; k < 2; k++) make_rank(p, k, events);
    assert_int_equal(ls_run_open(&run, name, NULL), LS_OK);
    return run;
}

static const ls_finding *finding(const ls_run *run, ls_finding_kind kind)
{
    for (size_t i = 0; i < run->n_findings; i++)
        if (run->findings[i].kind == kind) return &run->findings[i];
    return NULL;
}

#define assert_near(x, y, tolerance)                                                       \
    do {                                                                                   \
        double got = (x), want = (y);                                                      \
        if (!(fabs(got - want) <= (tolerance))) fail_msg("%s: %g, not %g", #x, got, want); \
    } while (0)

/* 100 Mbit/s: 84 ms for 1 MiB. The first of each step seems ten times as fast, as a shaper's bucket makes it. */
static const plan slow_link = { .nodes = 2, .takes = 84 * MS, .first = 8 * MS, .wire = 4 };

static void a_saturated_link_is_at_its_peak(void **state)
{
    (void)state;
    ls_run *run = run_of(&slow_link, "link");
    assert_int_equal(run->n_comm, 1);
    assert_true(run->comm[0].network);
    assert_int_equal(run->comm[0].wire, run->comm[0].bytes); /* of two machines each sends as much as the array has */
    ls_comm_mean m = ls_run_get_comm_mean(run, &run->comm[0]);
    assert_near(m.rate * 8e3, 129, 1); /* Mbit/s: 4 MiB in 3 x 84 + 8 ms */
    if (!(m.of_peak > 0.8 && m.of_peak <= 1)) fail_msg("%g of the peak", m.of_peak);
    const ls_finding *f = finding(run, LS_FINDING_COMM);
    assert_non_null(f);
    assert_true(f->evidence.comm.network);
    assert_near(f->evidence.comm.rate * 8e3, 129, 1);
    ls_run_free(&run);
}

static void overlap_is_never_more_than_the_computing(void **state)
{
    (void)state;
    ls_run *run = run_of(&slow_link, "overlap");
    for (size_t i = 0; i < run->n_steps; i++)
        for (int r = 0; r < 2; r++) {
            const ls_step_rank *s = &run->steps[i].rank[r];
            assert_true(s->overlapped <= s->end - s->begin - s->ns[LS_PHASE_COMM] - s->ns[LS_PHASE_WAIT]);
            assert_int_equal(s->overlapped, 15 * MS / 2); /* from the first bucket to the end of backward */
        }
    assert_near(ls_run_overlapped(run, 0), 7.5 * MS, 1);
    ls_run_free(&run);
    plan p = slow_link;
    p.no_overlap = true;
    run = run_of(&p, "overlap-off");
    assert_near(ls_run_overlapped(run, -1), 0, 1);
    ls_run_free(&run);
}

static void half_the_bytes_are_suggested_where_the_link_is_the_bottleneck(void **state)
{
    (void)state;
    plan p = slow_link;
    ls_run *run = run_of(&p, "wide");
    const ls_finding *f = finding(run, LS_FINDING_COMM);
    double step = run->step_mean;
    assert_non_null(f);
    assert_int_equal(f->remedy, LS_REMEDY_HALF_PRECISION);
    assert_near((double)f->expected, step - (3 * 84 + 8) / 2.0 * MS, 20.0 * MS); /* half of it */
    assert_true(f == run->findings);
    ls_run_free(&run);
    for (int i = 0; i < 3; i++) { /* has it already; not known; on one machine */
        p.wire = i == 0 ? 2 : i == 1 ? 0 : 4;
        p.nodes = i < 2 ? 2 : 1;
        run = run_of(&p, "narrow");
        f = finding(run, LS_FINDING_COMM);
        assert_non_null(f);
        assert_int_equal(f->remedy, LS_REMEDY_ACCUMULATE);
        ls_run_free(&run);
    }
}

/* Four buckets of 1 ms after 10 ms of backward: all but the last could have been done before its end. */
static void overlap_that_is_disabled_is_a_finding(void **state)
{
    (void)state;
    plan p = { .nodes = 2, .takes = MS, .wire = 4, .no_overlap = true };
    ls_run *run = run_of(&p, "off");
    const ls_finding *f = finding(run, LS_FINDING_OVERLAP);
    assert_non_null(f);
    assert_int_equal(f->remedy, LS_REMEDY_OVERLAP);
    assert_near((double)f->cost, 3.0 * MS, 1e3);
    assert_near((double)f->expected, 21.0 * MS, 1e3);
    ls_run_free(&run);
    p.no_overlap = false;
    run = run_of(&p, "on");
    assert_near(run->step_mean, 21.0 * MS, 1e3); /* the promise is kept */
    assert_null(finding(run, LS_FINDING_OVERLAP));
    ls_run_free(&run);
    p.no_overlap = true;
    p.takes = MS / 100;
    run = run_of(&p, "off-short"); /* not worth a finding, but a note */
    assert_null(finding(run, LS_FINDING_OVERLAP));
    assert_true(run->n_notes > 0 && run->notes[run->n_notes - 1].kind == LS_NOTE_NO_OVERLAP);
    ls_run_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_saturated_link_is_at_its_peak),
        cmocka_unit_test(overlap_is_never_more_than_the_computing),
        cmocka_unit_test(half_the_bytes_are_suggested_where_the_link_is_the_bottleneck),
        cmocka_unit_test(overlap_that_is_disabled_is_a_finding),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
