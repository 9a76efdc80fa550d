/* Cores that other programs use, in made-up records: found whichever rank loses them, first where they cost most, and with their
 * full cost. */
#include "records.h"

#include <math.h>
#include "folder.h"

enum { STEPS = 40, MOST_RANKS = 4 };

/* A step is 10 ms forward, 20 ms backward, 2 ms in which the ranks reduce, and 2 ms update: 34 ms. */
typedef struct plan {
    int ranks, cores;         /* cores: that all ranks share; 0: each has one */
    int64_t lost[MOST_RANKS]; /* ns of backward in which the rank is runnable but not scheduled, in every step */
    bool alternate;           /* in even steps the even ranks lose that, in odd ones the others */
    int64_t vary;             /* what that varies by from step to step and rank to rank, up and down */
    int threads;              /* that compute in a rank; 0: one. The main one sleeps as long as it loses in forward */
    bool data;                /* all ranks wait 8 ms for data as well */
    /* of two ranks, 0 has 10 ms more to do in forward, after which there is a collective, and 1 as much more in backward */
    bool uneven;
    /* ns in which they are not scheduled while they reduce, which takes longer by that; it is a bucket then */
    int64_t calls;
    int64_t in_call; /* ns in which the last rank is not scheduled while they reduce: all are blocked meanwhile */
    /* ns in which the last rank is not scheduled after that, so that it leaves later than the others do */
    int64_t leaves;
    int seldom; /* both in one of so many steps only; 0: in all */
    bool nodes; /* each rank is on a machine of its own */
} plan;

/* What `ns` of the plan are for a rank in a step. */
static int64_t of_last(const plan *p, int64_t ns, int rank, int step)
{
    return rank + 1 == p->ranks && (!p->seldom || step % p->seldom == 0) ? ns : 0;
}

static int64_t lost(const plan *p, int rank, int step)
{
    uint32_t x = (uint32_t)(MOST_RANKS * step + rank + 1) * 2654435761u;
    x = (x ^ x >> 15) * 2246822519u;
    return p->alternate && (step + rank) % 2 ? 0 : p->lost[rank] + ((int64_t)(x >> 16) * 2 * p->vary >> 16) - p->vary;
}

static int64_t off_cpu(const plan *p, int rank, int step)
{
    return p->threads > 1 ? lost(p, rank, step) / 2 : 0;
}

static int64_t arrival(const plan *p, int rank, int step)
{
    return (p->data ? 38 : p->uneven ? 50 : 30) * MS + lost(p, rank, step) + off_cpu(p, rank, step);
}

static int64_t phase(rank_record *r, ls_phase which, int64_t at, int64_t work, int64_t delay, int64_t sleep)
{
    sample(r, at, 0, 0, false);
    add(r, at, LS_EVENT_PHASE_BEGIN, which, 0);
    at += work + delay + sleep;
    sample(r, at, work, delay, sleep > 0);
    add(r, at, LS_EVENT_PHASE_END, which, 0);
    return at;
}

/* Both are there, and done, at `until`. */
static int64_t collective(rank_record *r, int64_t at, int64_t until, uint64_t call)
{
    add(r, at, LS_EVENT_COLL_START, call, 8);
    add(r, until, LS_EVENT_COLL_DONE, call, 0);
    add(r, until, LS_EVENT_BLOCKED, call, (uint64_t)(until - at));
    sample(r, until, 0, 0, true);
    return until;
}

static void make_rank(const plan *p, int k, const char *to)
{
    rank_record r;
    int64_t begins[MOST_RANKS];
    uint64_t cpu = 0;
    for (int q = 0; q < MOST_RANKS; q++) begins[q] = INT64_C(3600) * 1000 * MS;
    char head[200];
    size_t bytes = (ls__ring_bytes(1 << 14) + 63) / 64 * 64;
    void *memory = aligned_alloc(64, bytes);
    memset(memory, 0, bytes);
    r = (rank_record){ .ring = ls__ring_init(memory, 1 << 14) };
    snprintf(head, sizeof head,
             "{\"rank\":%d,\"ranks\":%d,\"node\":%d,\"host\":\"h\",\"cores\":\"%d%s\",\"threads\":%d,\"start\":1}", k,
             p->ranks, p->nodes ? k : 0, p->cores ? 0 : k, p->cores > 1 ? "-" : "", p->cores ? p->cores : 1);
    r.file = ls__event_file_new(r.ring);
    assert_int_equal(ls__event_file_start(r.file, "live", k, head, 0), LS_OK);
    ls__event_file_metadata(r.file, LS_METADATA_TRAIN, 1);
    ls__event_file_metadata(r.file, LS_METADATA_THREADS, p->threads ? p->threads : 1);
    for (int step = 1; step <= STEPS + 1; step++) {
        int64_t last = 0, begin = begins[k], at = begin;
        for (int q = 0; q < p->ranks; q++)
            if (begins[q] + arrival(p, q, step) > last) last = begins[q] + arrival(p, q, step);
        add(&r, at, LS_EVENT_SAMPLE, LS_SAMPLE_CPU, cpu);
        add(&r, at, LS_EVENT_STEP, (uint64_t)step, 0);
        if (step > STEPS) break;
        cpu += (uint64_t)((p->threads ? p->threads : 1) * 34 * MS);
        if (p->data) at = phase(&r, LS_PHASE_DATA, at, 0, 0, 8 * MS);
        at = phase(&r, LS_PHASE_FORWARD, at, (p->uneven && !k ? 20 : 10) * MS, 0, off_cpu(p, k, step));
        if (p->uneven) at = collective(&r, at, begin + 20 * MS, (uint64_t)(STEPS + step));
        at = phase(&r, LS_PHASE_BACKWARD, at, (p->uneven && k ? 30 : 20) * MS, lost(p, k, step), 0);
        assert_int_equal(at, begin + arrival(p, k, step) - (p->uneven && !k ? 10 * MS : 0));
        int64_t reduced = last + 2 * MS + p->calls + of_last(p, p->in_call, p->ranks - 1, step),
                own = p->calls + of_last(p, p->in_call + p->leaves, k, step),
                done = reduced + of_last(p, p->leaves, k, step);
        if (p->calls) add(&r, at, LS_EVENT_BUCKET_READY, 0, 1 << 20);
        if (p->calls) add(&r, at, LS_EVENT_BUCKET_START, 0, (uint64_t)step);
        if (p->ranks > 1) {
            add(&r, at, LS_EVENT_COLL_START, (uint64_t)step, 1 << 20);
            add(&r, done, LS_EVENT_COLL_DONE, (uint64_t)step, 0);
            add(&r, done, LS_EVENT_BLOCKED, (uint64_t)step, (uint64_t)(done - at));
        }
        sample(&r, done, 2 * MS, own, true);
        phase(&r, LS_PHASE_UPDATE, done, 2 * MS, 0, 0);
        for (int q = 0; q < p->ranks; q++) begins[q] = reduced + of_last(p, p->leaves, q, step) + 2 * MS;
        ls__event_file_drain(r.file, false);
    }
    end_killed(&r, "live", to, k);
}

static ls_run *run_of(const plan *p, const char *name)
{
    char events[100];
    ls_run *run;
    snprintf(events, sizeof events, "%s/events", name);
    for (int k = 0; k < p->ranks; k++) make_rank(p, k, events);
    assert_int_equal(ls_run_open(&run, name, NULL), LS_OK);
    return run;
}

static size_t count(const ls_run *run, ls_finding_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < run->n_findings; i++) n += run->findings[i].kind == kind;
    return n;
}

/* The first finding, and the only one of its kind: contention of `ranks` ranks by `least` to `most` ms, with a step of 34 ms without it. */
static const ls_finding *check_first(const ls_run *run, int rank, int ranks, double least, double most)
{
    const ls_finding *f = run->findings;
    if (!run->n_findings) fail_msg("nothing was found");
    if (f->kind != LS_FINDING_CONTENTION || count(run, LS_FINDING_CONTENTION) != 1)
        fail_msg("first of %zu: %s", run->n_findings, ls_finding_name(f->kind));
    const ls_core_evidence *e = &f->evidence.cores;
    assert_int_equal(f->rank, rank);
    assert_int_equal(f->remedy, LS_REMEDY_FREE_CORES);
    assert_int_equal(e->ranks, ranks);
    if (fabs(e->least - least * MS) > 1000 || fabs(e->most - most * MS) > 1000)
        fail_msg("%g to %g ms, not %g to %g", e->least / MS, e->most / MS, least, most);
    if (llabs(f->expected - 34 * MS) > MS) fail_msg("expected %g ms", (double)f->expected / MS);
    if (llabs(f->cost + f->expected - (int64_t)run->step_mean) > 2) fail_msg("cost %g", (double)f->cost);
    assert_int_equal(count(run, LS_FINDING_IMBALANCE), 0);
    assert_int_equal(count(run, LS_FINDING_STEAL), 0); /* waiting has one reason, and it is not that */
    assert_int_equal(count(run, LS_FINDING_STRAGGLER), 0);
    return f;
}

static void a_single_rank_is_reported(void **state)
{
    (void)state;
    ls_run *run = run_of(&(plan){ .ranks = 1, .lost = { 30 * MS } }, "alone");
    check_first(run, -1, 1, 30, 30);
    ls_run_free(&run);
    run = run_of(&(plan){ .ranks = 1, .lost = { MS } }, "alone-little");
    assert_int_equal(run->n_findings, 0);
    ls_run_free(&run);
}

/* The main thread is off-CPU while the others are not scheduled: both are lost. */
static void threads_that_wait_for_each_other_are_reported(void **state)
{
    (void)state;
    ls_run *run = run_of(&(plan){ .ranks = 1, .cores = 2, .lost = { 20 * MS }, .threads = 2 }, "team");
    check_first(run, -1, 1, 20, 20);
    ls_run_free(&run);
}

static void what_all_ranks_lose_is_reported_with_its_full_cost(void **state)
{
    (void)state;
    ls_run *run = run_of(&(plan){ .ranks = 2, .lost = { 35 * MS, 35 * MS } }, "alike");
    const ls_finding *f = check_first(run, -1, 2, 35, 35);
    assert_true(f->evidence.cores.cores == 2 && fabs(f->evidence.cores.used - 0.99) < 0.005);
    ls_run_free(&run);
    run = run_of(&(plan){ .ranks = 4, .lost = { 35 * MS, 33 * MS, 34 * MS, 35 * MS } }, "four");
    check_first(run, -1, 4, 33, 35);
    ls_run_free(&run);
}

/* Other programs have every core for 70 % of the time: 30 ms of computing take 100. Time slices make it uneven from step to step, so that
 * ranks wait for each other, and the slowest rank varies. */
static void cores_that_others_use_for_70_percent_come_first(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        plan p = { .ranks = ranks, .vary = 24 * MS };
        char name[24];
        for (int r = 0; r < ranks; r++) p.lost[r] = 70 * MS;
        snprintf(name, sizeof name, "busy-%d", ranks);
        ls_run *run = run_of(&p, name);
        const ls_finding *f = run->findings;
        if (!run->n_findings || f->kind != LS_FINDING_CONTENTION)
            fail_msg("%d ranks: %s", ranks, run->n_findings ? ls_finding_name(f->kind) : "nothing was found");
        assert_int_equal(f->rank, -1);
        assert_int_equal(f->evidence.cores.ranks, ranks);
        /* All but the 34 ms of a step, the waiting for each other included. */
        double step = run->step_mean, waiting = ls_run_mean(run, -1, LS_PHASE_WAIT);
        if (ranks > 1 && waiting < 4 * MS) fail_msg("ranks wait %g ms: this tests nothing", waiting / MS);
        if (fabs((double)f->cost - (step - 34 * MS)) > 0.02 * step)
            fail_msg("%d ranks: cost %g of %g ms", ranks, (double)f->cost / MS, step / MS);
        assert_true(f->evidence.cores.least_share > 0.55);
        assert_int_equal(count(run, LS_FINDING_IMBALANCE), 0);
        assert_int_equal(count(run, LS_FINDING_STRAGGLER), 0);
        assert_int_equal(count(run, LS_FINDING_PREEMPTED), 0);
        ls_run_free(&run);
    }
}

/* The difference between them is not what it costs. */
static void the_rank_that_loses_most_is_named_with_all_that_both_lose(void **state)
{
    (void)state;
    ls_run *run = run_of(&(plan){ .ranks = 2, .lost = { 23 * MS, 35 * MS } }, "more");
    check_first(run, 1, 2, 23, 35);
    ls_run_free(&run);
    run = run_of(&(plan){ .ranks = 2, .lost = { 0, 35 * MS } }, "one"); /* the other loses nothing */
    assert_true(run->n_findings > 0);
    assert_int_equal(run->findings[0].kind, LS_FINDING_PREEMPTED);
    assert_int_equal(run->findings[0].rank, 1);
    if (llabs(run->findings[0].expected - 34 * MS) > MS) fail_msg("%g", (double)run->findings[0].expected / MS);
    assert_int_equal(count(run, LS_FINDING_IMBALANCE), 0);
    assert_int_equal(count(run, LS_FINDING_STRAGGLER), 0);
    ls_run_free(&run);
}

/* Then each waits for the other, in half of the steps, and that is not another finding. */
static void what_they_lose_in_alternate_steps_is_contention(void **state)
{
    (void)state;
    plan p = { .ranks = 2, .lost = { 40 * MS, 40 * MS }, .alternate = true };
    ls_run *run = run_of(&p, "alternate");
    check_first(run, -1, 2, 20, 20);
    ls_run_free(&run);
    p.data = true;
    run = run_of(&p, "alternate-data");
    assert_int_equal(run->findings[0].kind, LS_FINDING_CONTENTION);
    ls_run_free(&run);
}

/* Each waits for the other in every step, because of work alone. */
static void waiting_with_other_reasons_is_not_contention(void **state)
{
    (void)state;
    ls_run *run = run_of(&(plan){ .ranks = 2, .uneven = true }, "uneven");
    for (int r = 0; r < 2; r++) assert_true(ls_run_mean(run, r, LS_PHASE_WAIT) > 9 * MS);
    assert_int_equal(count(run, LS_FINDING_CONTENTION), 0);
    assert_int_equal(count(run, LS_FINDING_PREEMPTED), 0);
    assert_int_equal(count(run, LS_FINDING_STEAL), 0);
    assert_int_equal(count(run, LS_FINDING_STRAGGLER), 2);
    ls_run_free(&run);
}

/* What a reduction takes longer because its ranks are not scheduled has nothing to do with communication. */
static void contention_in_calls_is_not_exposed_communication(void **state)
{
    (void)state;
    ls_run *run = run_of(&(plan){ .ranks = 2, .lost = { 35 * MS, 35 * MS }, .calls = 10 * MS }, "calls");
    assert_true(ls_run_mean(run, -1, LS_PHASE_COMM) > 11 * MS);
    /* No such phase or rank. */
    assert_float_equal(ls_run_mean(run, -1, (ls_phase)99), 0, 0);
    assert_float_equal(ls_run_unscheduled(run, 0, (ls_phase)-1), 0, 0);
    assert_float_equal(ls_run_mean(run, run->ranks, LS_PHASE_COMM), 0, 0);
    assert_int_equal(run->findings[0].kind, LS_FINDING_CONTENTION);
    assert_int_equal(count(run, LS_FINDING_COMM), 0);
    ls_run_free(&run);
}

/* ns of a counted step that the last rank loses in calls. */
static double lost_by_last(const ls_run *run, const plan *p)
{
    double sum = 0;
    for (size_t i = run->first_counted; i < run->n_steps; i++)
        sum += (double)of_last(p, p->in_call + p->leaves, p->ranks - 1, (int)run->steps[i].number);
    return sum / (double)(run->n_steps - run->first_counted);
}

/* What a rank loses within a collective counts like what it loses elsewhere: in its row of the table, and in a finding that names it and
 * explains all of the others' waiting, in every step or in some. */
static void a_rank_that_loses_its_core_in_collectives_is_named(void **state)
{
    (void)state;
    static const plan plans[] = {
        { .ranks = 2, .in_call = 20 * MS },
        { .ranks = 2, .leaves = 20 * MS },
        { .ranks = 2, .in_call = 20 * MS, .leaves = 20 * MS },
        { .ranks = 4, .leaves = 80 * MS, .seldom = 3 },
        { .ranks = 2, .in_call = 40 * MS, .leaves = 40 * MS, .seldom = 3 },
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        const plan *p = &plans[i];
        char name[24];
        snprintf(name, sizeof name, "in-calls-%zu", i);
        ls_run *run = run_of(p, name);
        const ls_finding *f = run->findings;
        const ls_resource_use *u = &run->rank[p->ranks - 1].use;
        double lost = lost_by_last(run, p), step = run->step_mean;
        if (fabs(u->sched_delay - lost) > 1000)
            fail_msg("%s: run-queue delay %g, not %g ms", name, u->sched_delay / MS, lost / MS);
        assert_true(u->busy >= u->sched_delay);
        assert_true(run->rank[0].use.sched_delay < 1000);
        if (!run->n_findings || f->kind != LS_FINDING_PREEMPTED)
            fail_msg("%s: %s", name, run->n_findings ? ls_finding_name(f->kind) : "nothing was found");
        assert_int_equal(f->rank, p->ranks - 1);
        if (fabs((double)f->cost - lost) > 0.05 * lost)
            fail_msg("%s: cost %g of %g ms", name, (double)f->cost / MS, step / MS);
        assert_int_equal(run->n_findings, 1);
        ls_run_free(&run);
    }
}

/* Both lose some in backward. Collectives of which one rank does not do its part are part of the cost, and name it. */
static void contention_counts_what_is_lost_in_collectives(void **state)
{
    (void)state;
    plan p = { .ranks = 2, .lost = { 10 * MS, 10 * MS }, .in_call = 20 * MS };
    ls_run *run = run_of(&p, "both-one-in-calls");
    check_first(run, 1, 2, 10, 30);
    ls_run_free(&run);
    p.seldom = 3;
    p.in_call = 0;
    p.leaves = 80 * MS;
    run = run_of(&p, "both-one-leaves");
    const ls_finding *f = run->findings;
    assert_true(run->n_findings > 0);
    assert_int_equal(f->kind, LS_FINDING_CONTENTION);
    assert_int_equal(f->rank, 1);
    if (fabs((double)f->cost - (10 * MS + lost_by_last(run, &p))) > MS) fail_msg("cost %g ms", (double)f->cost / MS);
    assert_int_equal(run->n_findings, 1);
    ls_run_free(&run);
    /* One loses in every step, the other three times that and more in every third: neither lost most. */
    run = run_of(&(plan){ .ranks = 2, .lost = { 10 * MS }, .leaves = 36 * MS, .seldom = 3 }, "in-turn");
    assert_true(run->n_findings > 0);
    assert_int_equal(run->findings[0].kind, LS_FINDING_CONTENTION);
    assert_int_equal(run->findings[0].rank, -1);
    ls_run_free(&run);
    run = run_of(&(plan){ .ranks = 2, .calls = 10 * MS }, "only-in-calls"); /* at the same time */
    check_first(run, -1, 2, 10, 10);
    ls_run_free(&run);
}

/* Between machines, a thread in a call mostly polls: that it has to queue for its core then costs nothing. */
static void polling_between_nodes_is_not_contention(void **state)
{
    (void)state;
    ls_run *run = run_of(&(plan){ .ranks = 2, .calls = 10 * MS, .nodes = true }, "nodes");
    assert_int_equal(count(run, LS_FINDING_CONTENTION), 0);
    assert_int_equal(count(run, LS_FINDING_PREEMPTED), 0);
    assert_true(run->rank[0].use.sched_delay < 1000);
    ls_run_free(&run);
}

/* Four ranks on two cores: no other program is needed for that. */
static void more_ranks_than_cores_is_oversubscription(void **state)
{
    (void)state;
    ls_run *run = run_of(&(plan){ .ranks = 4, .cores = 2, .lost = { 34 * MS, 34 * MS, 34 * MS, 34 * MS } }, "crowd");
    assert_int_equal(run->n_findings, 1);
    assert_int_equal(run->findings[0].kind, LS_FINDING_OVERSUBSCRIPTION);
    assert_int_equal(run->findings[0].remedy, LS_REMEDY_FEWER_RANKS);
    assert_true(run->findings[0].target == 2);
    assert_int_equal(run->findings[0].expected, (int64_t)run->step_mean); /* no gain is promised */
    ls_run_free(&run);
    /* But if they do not even get those two cores, others have them. */
    run = run_of(&(plan){ .ranks = 4, .cores = 2, .lost = { 200 * MS, 200 * MS, 200 * MS, 200 * MS } }, "crowd-others");
    assert_true(run->n_findings > 0);
    assert_int_equal(run->findings[0].kind, LS_FINDING_CONTENTION);
    ls_run_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_single_rank_is_reported),
        cmocka_unit_test(threads_that_wait_for_each_other_are_reported),
        cmocka_unit_test(what_all_ranks_lose_is_reported_with_its_full_cost),
        cmocka_unit_test(cores_that_others_use_for_70_percent_come_first),
        cmocka_unit_test(the_rank_that_loses_most_is_named_with_all_that_both_lose),
        cmocka_unit_test(what_they_lose_in_alternate_steps_is_contention),
        cmocka_unit_test(waiting_with_other_reasons_is_not_contention),
        cmocka_unit_test(contention_in_calls_is_not_exposed_communication),
        cmocka_unit_test(a_rank_that_loses_its_core_in_collectives_is_named),
        cmocka_unit_test(contention_counts_what_is_lost_in_collectives),
        cmocka_unit_test(polling_between_nodes_is_not_contention),
        cmocka_unit_test(more_ranks_than_cores_is_oversubscription),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
