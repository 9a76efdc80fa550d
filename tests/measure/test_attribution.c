/* Which rank is named, on 2, 4 and 8 ranks: made-up records of a training with noise, in which one rank loses a tenth of a step in
 * a phase, on a core or off-CPU, in every step, one in ten or a single one; or its core. tests/soak/attribution does the same with
 * real trainings. */
#include "records.h"

#include <math.h>
#include "folder.h"

enum { STEPS = 40, MARKS = 8, LATE_MARK = 5, MOST_RANKS = 8, ONCE = 0 };

/* A step is 5 ms data, 20 forward, 30 backward, a collective of 2, and 3 update: 60 ms. */
typedef struct delay {
    int rank;
    ls_phase phase;
    int64_t ns;
    int every;    /* in one of this many steps; ONCE: in a single one */
    bool off_cpu; /* otherwise on a core */
    bool sched;   /* otherwise; it is runnable but not scheduled */
} delay;

typedef struct plan {
    int ranks, delays;
    delay delay[2];
    bool batches; /* recorded, none of them ready when asked for: data are loaded within the step */
} plan;

/* Noise of up to `ns`, the same in each run of this test. */
static int64_t noise(int rank, int step, int phase, int64_t ns)
{
    uint32_t x = (uint32_t)((step * MOST_RANKS + rank) * LS_PHASE_COUNT + phase + 1) * 2654435761u;
    x = (x ^ x >> 15) * 2246822519u;
    x = (x ^ x >> 13) * 3266489917u;
    return (int64_t)(x >> 16) * ns >> 16;
}

static bool hits(const delay *d, int rank, ls_phase phase, int step)
{
    return d->rank == rank && d->phase == phase && (d->every == ONCE ? step == STEPS / 2 : step % d->every == 0);
}

typedef struct parts {
    int64_t work, on_core, off_cpu, sched_delay;
} parts;

/* What a phase of a rank is made of in a step. */
static parts parts_of(const plan *p, int rank, ls_phase phase, int step)
{
    static const int64_t work[LS_PHASE_COUNT] = { [LS_PHASE_DATA] = 5 * MS,
                                                  [LS_PHASE_FORWARD] = 20 * MS,
                                                  [LS_PHASE_BACKWARD] = 30 * MS,
                                                  [LS_PHASE_UPDATE] = 3 * MS };
    parts x = { .work = work[phase] + noise(rank, step, (int)phase, work[phase] / 25) };
    for (int i = 0; i < p->delays; i++) {
        const delay *d = &p->delay[i];
        if (!hits(d, rank, phase, step)) continue;
        if (d->sched)
            x.sched_delay += d->ns;
        else if (d->off_cpu)
            x.off_cpu += d->ns;
        else
            x.on_core += d->ns;
    }
    return x;
}

static int64_t length_of(parts x)
{
    return x.work + x.on_core + x.off_cpu + x.sched_delay;
}

static int64_t put_phase(rank_record *r, const plan *p, int rank, ls_phase phase, int64_t at, int step)
{
    parts x = parts_of(p, rank, phase, step);
    int64_t end = at + length_of(x), mark = at;
    sample(r, at, 0, 0, false);
    add(r, at, LS_EVENT_PHASE_BEGIN, phase, 0);
    for (int i = 0; i < MARKS && (phase == LS_PHASE_FORWARD || phase == LS_PHASE_BACKWARD); i++) {
        mark += x.work / MARKS + (i == LATE_MARK ? end - at - x.work : 0);
        add(r, i == MARKS - 1 ? end - 1 : mark, phase == LS_PHASE_FORWARD ? LS_EVENT_SPAN_USED : LS_EVENT_SPAN_READY,
            (uint64_t)i, 0);
    }
    sample(r, end, x.work + x.on_core, x.sched_delay, x.off_cpu > 0);
    add(r, end, LS_EVENT_PHASE_END, phase, 0);
    if (phase == LS_PHASE_DATA && p->batches) add(r, end, LS_EVENT_BATCH, (uint64_t)(end - at), 0);
    return end;
}

/* The step's begin of each rank, which differs by what they take for the update. */
typedef struct times {
    int64_t begin[MOST_RANKS], last; /* last: arrival at the collective */
} times;

static times next_step(const plan *p, times t, int step)
{
    t.last = 0;
    for (int r = 0; r < p->ranks; r++) {
        int64_t at = t.begin[r];
        for (int f = LS_PHASE_DATA; f <= LS_PHASE_BACKWARD; f++) at += length_of(parts_of(p, r, (ls_phase)f, step));
        if (at > t.last) t.last = at;
    }
    return t;
}

static void make_rank(const plan *p, int k, const char *to)
{
    rank_record r;
    times t = { 0 };
    for (int q = 0; q < p->ranks; q++) t.begin[q] = INT64_C(3600) * 1000 * MS;
    begin_record(&r, "live", k, p->ranks, 0, 0);
    ls__event_file_metadata(r.file, LS_METADATA_TRAIN, 1);
    for (int i = 0; i < MARKS; i++) {
        char name[24];
        snprintf(name, sizeof name, "layer.%d", i);
        ls__event_file_name(r.file, LS_NAME_SPAN, (uint32_t)i, name);
    }
    for (int step = 1; step <= STEPS; step++) {
        t = next_step(p, t, step);
        int64_t at = t.begin[k], done = t.last + 2 * MS;
        add(&r, at, LS_EVENT_STEP, (uint64_t)step, 0);
        for (int f = LS_PHASE_DATA; f <= LS_PHASE_BACKWARD; f++) at = put_phase(&r, p, k, (ls_phase)f, at, step);
        add(&r, at, LS_EVENT_COLL_START, (uint64_t)step, 1 << 20);
        add(&r, done, LS_EVENT_COLL_DONE, (uint64_t)step, 0);
        add(&r, done, LS_EVENT_BLOCKED, (uint64_t)step, (uint64_t)(done - at));
        sample(&r, done, 2 * MS, 0, true);
        put_phase(&r, p, k, LS_PHASE_UPDATE, done, step);
        for (int q = 0; q < p->ranks; q++) t.begin[q] = done + length_of(parts_of(p, q, LS_PHASE_UPDATE, step));
        ls__event_file_drain(r.file, false);
    }
    add(&r, t.begin[k], LS_EVENT_STEP, STEPS + 1, 0);
    end_killed(&r, "live", to, k);
}

static ls_run *run_of(const plan *p)
{
    ls_run *run;
    for (int k = 0; k < p->ranks; k++) make_rank(p, k, "run/events");
    assert_int_equal(ls_run_open(&run, "run", NULL), LS_OK);
    assert_int_equal(run->n_steps, STEPS);
    nftw("run", remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    return run;
}

static const ls_finding *first_about_a_rank(const ls_run *run)
{
    for (size_t i = 0; i < run->n_findings; i++)
        if (run->findings[i].rank >= 0) return &run->findings[i];
    return NULL;
}

static void check_named(const plan *p, const ls_finding *f, const delay *d)
{
    static const char *const how[] = { "on a core", "off-CPU", "not scheduled" };
    const char *what = how[d->sched ? 2 : d->off_cpu];
    ls_finding_kind kind = d->sched ? LS_FINDING_PREEMPTED : LS_FINDING_STRAGGLER;
    if (!f)
        fail_msg("%d ranks: rank %d, %s, %s, every %d: nothing", p->ranks, d->rank, ls_phase_name(d->phase), what,
                 d->every);
    if (f->rank != d->rank || f->kind != kind || (!d->sched && f->phase != d->phase))
        fail_msg("%d ranks: rank %d, %s, %s, every %d: got %s of rank %d in %s", p->ranks, d->rank,
                 ls_phase_name(d->phase), what, d->every, ls_finding_name(f->kind), f->rank, ls_phase_name(f->phase));
}

/* How often: the cost and the steps are those of the delay. */
static void check_size(const plan *p, const ls_finding *f, const delay *d)
{
    int64_t hit = 0, counted = 0;
    for (int step = 3; step <= STEPS; step++) counted++, hit += hits(d, d->rank, d->phase, step);
    double cost = (double)d->ns * (double)hit / (double)counted;
    if (fabs((double)f->cost - cost) > 0.3 * cost)
        fail_msg("%d ranks: rank %d, %s, every %d: cost %g, not %g ms", p->ranks, d->rank, ls_phase_name(d->phase),
                 d->every, (double)f->cost / MS, cost / MS);
    if (d->every != 1) assert_int_equal(f->steps, hit);
    if (d->every == ONCE) assert_true(f->first == STEPS / 2 && f->last == STEPS / 2);
}

static void the_delayed_rank_and_phase_are_named(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= MOST_RANKS; ranks *= 2)
        for (int phase = LS_PHASE_DATA; phase <= LS_PHASE_UPDATE; phase++)
            for (int often = 0; often < 3; often++)
                for (int off_cpu = 0; off_cpu < 2; off_cpu++) {
                    plan p = { .ranks = ranks,
                               .delays = 1,
                               .delay = { { .rank = (phase + often + off_cpu) % ranks,
                                            .phase = (ls_phase)phase,
                                            .ns = 6 * MS,
                                            .every = often == 0   ? 1
                                                     : often == 1 ? 10
                                                                  : ONCE,
                                            .off_cpu = off_cpu } } };
                    ls_run *run = run_of(&p);
                    const ls_finding *f = first_about_a_rank(run);
                    check_named(&p, f, &p.delay[0]);
                    check_size(&p, f, &p.delay[0]);
                    if (phase == LS_PHASE_BACKWARD && often < 2) assert_int_equal(f->evidence.rank.span, LATE_MARK);
                    ls_run_free(&run);
                }
}

static void a_lost_core_is_named_as_such(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= MOST_RANKS; ranks *= 2)
        for (int phase = LS_PHASE_FORWARD; phase <= LS_PHASE_BACKWARD; phase++) {
            plan p = {
                .ranks = ranks,
                .delays = 1,
                .delay = { { .rank = ranks - 1, .phase = (ls_phase)phase, .ns = 10 * MS, .every = 1, .sched = true } }
            };
            ls_run *run = run_of(&p);
            check_named(&p, first_about_a_rank(run), &p.delay[0]);
            for (size_t i = 0; i < run->n_findings; i++)
                assert_int_not_equal(run->findings[i].kind, LS_FINDING_STRAGGLER);
            ls_run_free(&run);
        }
}

/* One does not hide the other. */
static void two_stragglers_are_named(void **state)
{
    (void)state;
    for (int ranks = 4; ranks <= MOST_RANKS; ranks *= 2) {
        plan p = { .ranks = ranks,
                   .delays = 2,
                   .delay = { { .rank = 1, .phase = LS_PHASE_DATA, .ns = 9 * MS, .every = 1, .off_cpu = true },
                              { .rank = ranks - 1, .phase = LS_PHASE_BACKWARD, .ns = 12 * MS, .every = 1 } } };
        ls_run *run = run_of(&p);
        for (int d = 0; d < 2; d++) {
            const ls_finding *f = NULL;
            for (size_t i = 0; i < run->n_findings; i++)
                if (run->findings[i].rank == p.delay[d].rank) f = &run->findings[i];
            check_named(&p, f, &p.delay[d]);
        }
        ls_run_free(&run);
    }
}

/* The evidence of a persistent loss is in medians, by which it was found. In means, a few long steps of the other rank would hide it. */
static void evidence_agrees_with_the_finding(void **state)
{
    (void)state;
    plan p = { .ranks = 2,
               .delays = 2,
               .delay = { { .rank = 1, .phase = LS_PHASE_DATA, .ns = 6 * MS, .every = 1, .off_cpu = true },
                          { .rank = 0, .phase = LS_PHASE_DATA, .ns = 200 * MS, .every = 10, .off_cpu = true } } };
    ls_run *run = run_of(&p);
    const ls_finding *f = NULL;
    for (size_t i = 0; i < run->n_findings; i++)
        if (run->findings[i].rank == 1 && run->findings[i].kind == LS_FINDING_STRAGGLER) f = &run->findings[i];
    if (!f) fail_msg("rank 1 is not named");
    const ls_rank_evidence *e = &f->evidence.rank;
    if (!e->persistent || fabs(e->own - 11 * MS) > MS || fabs(e->own - e->others - 6 * MS) > MS)
        fail_msg("%s, %g and %g ms", e->persistent ? "persistent" : "intermittent", e->own / MS, e->others / MS);
    ls_run_free(&run);
}

static const ls_finding *finding_of(const ls_run *run, ls_finding_kind kind)
{
    for (size_t i = 0; i < run->n_findings; i++)
        if (run->findings[i].kind == kind) return &run->findings[i];
    return NULL;
}

/* All ranks wait 5 ms for data in each step, and one of them 6 more in some. */
static void a_late_batch_is_one_ranks_although_all_wait_for_data(void **state)
{
    (void)state;
    for (int often = 0; often < 3; often++) {
        plan p = { .ranks = 2,
                   .delays = 1,
                   .batches = true,
                   .delay = { { .rank = 1,
                                .phase = LS_PHASE_DATA,
                                .ns = 6 * MS,
                                .every = often == 0   ? 1
                                         : often == 1 ? 10
                                                      : ONCE,
                                .off_cpu = often == 1 } } };
        ls_run *run = run_of(&p);
        const ls_finding *f = first_about_a_rank(run), *all = finding_of(run, LS_FINDING_DATA);
        check_named(&p, f, &p.delay[0]);
        check_size(&p, f, &p.delay[0]);
        assert_non_null(all);
        if (fabs(all->evidence.data.waited - 5.1 * MS) > 0.5 * MS)
            fail_msg("all wait for %g ms", all->evidence.data.waited / MS);
        ls_run_free(&run);
    }
}

static void no_rank_is_named_if_now_one_batch_is_late_and_now_another(void **state)
{
    (void)state;
    plan p = { .ranks = 2,
               .delays = 2,
               .batches = true,
               .delay = { { .rank = 0, .phase = LS_PHASE_DATA, .ns = 6 * MS, .every = 4 },
                          { .rank = 1, .phase = LS_PHASE_DATA, .ns = 6 * MS, .every = 5 } } };
    ls_run *run = run_of(&p);
    assert_null(first_about_a_rank(run));
    assert_non_null(finding_of(run, LS_FINDING_DATA));
    ls_run_free(&run);
}

static void no_rank_is_named_without_a_delay(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= MOST_RANKS; ranks *= 2) {
        ls_run *run = run_of(&(plan){ .ranks = ranks });
        const ls_finding *f = first_about_a_rank(run);
        if (f)
            fail_msg("%d ranks: %s of rank %d in %s", ranks, ls_finding_name(f->kind), f->rank,
                     ls_phase_name(f->phase));
        ls_run_free(&run);
    }
}

/* Sums by cause, and the window: only the newest steps count. */
static void causes_are_summed_over_the_window(void **state)
{
    (void)state;
    plan p = { .ranks = 4,
               .delays = 1,
               .delay = { { .rank = 2, .phase = LS_PHASE_FORWARD, .ns = 12 * MS, .every = 1 } } };
    for (int k = 0; k < p.ranks; k++) make_rank(&p, k, "window/events");
    for (int i = 0; i < 3; i++) {
        ls_run *run;
        ls_run_options o = { .window_steps = i == 1 ? 8 : 0, .window_ns = i == 2 ? 10 * 74 * MS : 0 };
        assert_int_equal(ls_run_open(&run, "window", &o), LS_OK);
        size_t counted = run->n_steps - run->first_counted;
        if (i == 1) assert_int_equal(counted, 8);
        if (i == 2) assert_in_range(counted, 9, 10);
        assert_true(run->n_wait_causes > 0);
        const ls_wait_cause *c = run->wait_causes;
        assert_int_equal(c->rank, 2);
        assert_int_equal(c->phase, LS_PHASE_FORWARD);
        assert_false(c->unscheduled);
        assert_in_range(c->count, counted - 1, counted + 1);
        int64_t waited = 0;
        for (int r = 0; r < p.ranks; r++) waited += run->wait_matrix[r * p.ranks + 2];
        assert_true(c->waited <= waited && c->waited > (int64_t)(0.9 * (double)waited));
        assert_true(c->longest <= c->cost && c->cost <= c->waited);
        ls_run_free(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_delayed_rank_and_phase_are_named),
        cmocka_unit_test(a_lost_core_is_named_as_such),
        cmocka_unit_test(two_stragglers_are_named),
        cmocka_unit_test(evidence_agrees_with_the_finding),
        cmocka_unit_test(a_late_batch_is_one_ranks_although_all_wait_for_data),
        cmocka_unit_test(no_rank_is_named_if_now_one_batch_is_late_and_now_another),
        cmocka_unit_test(no_rank_is_named_without_a_delay),
        cmocka_unit_test(causes_are_summed_over_the_window),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
