/* From made-up events to findings: phases that add up, waiting and its reason, on clocks that differ. */
#include "records.h"

#include "folder.h"

enum { STEPS = 40 };

typedef struct late {
    int rank;
    ls_phase phase; /* in which `ns` are lost; LS_PHASE_OTHER: run-queue delay */
    int64_t ns;
    int64_t every, shift; /* of rank 1's clock */
    int64_t more;         /* ns that are lost there beyond that, in one step of ten */
    bool recorded;        /* that clock's shift is */
    bool moved;           /* rank 1 is on another machine, whose clock moved after it was compared */
    bool marked, spread;  /* gradients are noted; what is lost in backward is lost before all of them, not before one */
    int64_t exchange;     /* more time that the exchange takes, which carries a bucket */
    bool train;           /* metadata as of 'lockstep train' */
    int64_t jitter;       /* what backward varies by, on both ranks, all over it */
    int counted;          /* the process's CPU time, 70 ms per step, is recorded once in this many steps; 0: never */
    double copies;        /* GB/s that each rank copies; 0: not noted */
    bool alone;           /* no collectives: each rank at its own pace */
    int64_t preempted;    /* ns of run-queue delay in each backward of the rank, before another gradient each time */
} late;

/* Loss of this rank in this phase and step. */
static int64_t lost(const late *l, int rank, ls_phase phase, int step)
{
    if (l->rank != rank || l->phase != phase) return 0;
    return (step % l->every == 0 ? l->ns : 0) + (step % 10 == 0 ? l->more : 0);
}

/* What backward takes more in this step, by chance. */
static int64_t chance(const late *l, int rank, int step)
{
    uint32_t x = (uint32_t)(2 * step + rank) * 2654435761u;
    x = (x ^ x >> 15) * 2246822519u;
    return (int64_t)(x >> 16) * l->jitter >> 16;
}

enum { MARKS = 6, LATE_MARK = 3 };

static int64_t preempted(const late *l, int rank)
{
    return l->rank == rank ? l->preempted : 0;
}

static void mark_gradients(rank_record *r, const late *l, int rank, int step, int64_t at, int64_t even, int64_t more)
{
    int64_t late_by = l->spread ? 0 : more, each = (even + (l->spread ? more : 0)) / MARKS;
    for (int i = 0; i < MARKS; i++) {
        at += each + (i == LATE_MARK ? late_by : 0) + (i == step % MARKS ? preempted(l, rank) : 0);
        add(r, at - (i == MARKS - 1), LS_EVENT_SPAN_READY, (uint64_t)i, 0);
    }
}

static int64_t in_phase(rank_record *r, const late *l, int rank, ls_phase phase, int64_t at, int64_t ns, int step)
{
    int64_t more = lost(l, rank, phase, step), core = phase == LS_PHASE_FORWARD    ? lost(l, rank, LS_PHASE_OTHER, step)
                                                      : phase == LS_PHASE_BACKWARD ? preempted(l, rank)
                                                                                   : 0;
    sample(r, at, 0, 0, false);
    add(r, at, LS_EVENT_PHASE_BEGIN, phase, 0);
    if (phase == LS_PHASE_BACKWARD) ns += chance(l, rank, step);
    if (phase == LS_PHASE_BACKWARD && l->marked) mark_gradients(r, l, rank, step, at, ns, more);
    at += ns + more + core;
    sample(r, at, ns + more, core, false);
    add(r, at, LS_EVENT_PHASE_END, phase, 0);
    return at;
}

/* When rank k comes to the collective of a step that begins at 0. */
static int64_t arrival(const late *l, int k, int step)
{
    return 55 * MS + lost(l, k, LS_PHASE_DATA, step) + lost(l, k, LS_PHASE_FORWARD, step) +
           lost(l, k, LS_PHASE_BACKWARD, step) + lost(l, k, LS_PHASE_OTHER, step) + chance(l, k, step) +
           preempted(l, k);
}

/* 5 ms data, 20 forward, 30 backward, then a collective of 2 ms, and update for 3. */
static void make_rank(const char *folder_of_run, const late *l, int k)
{
    rank_record r;
    begin_record(&r, "live", k, 2, l->moved ? k : 0, 0);
    if (k == 1) r.shift = l->shift;
    if (l->copies > 0) ls__event_file_metadata(r.file, LS_METADATA_COPY, l->copies);
    if (k == 1 && l->recorded) ls__event_file_clock(r.file, l->shift, 1000);
    if (l->train) ls__event_file_metadata(r.file, LS_METADATA_TRAIN, 1);
    int64_t begin = INT64_C(3600) * 1000 * MS;
    for (int step = 1; step <= STEPS; step++) {
        int64_t mine = begin + arrival(l, k, step), other = begin + arrival(l, 1 - k, step);
        int64_t done = (mine > other || l->alone ? mine : other) + 2 * MS + l->exchange;
        add(&r, begin, LS_EVENT_STEP, (uint64_t)step, 0);
        if (l->counted && (step - 1) % l->counted == 0)
            add(&r, begin, LS_EVENT_SAMPLE, LS_SAMPLE_CPU, (uint64_t)(step - 1) * 70 * MS);
        int64_t at = in_phase(&r, l, k, LS_PHASE_DATA, begin, 5 * MS, step);
        at = in_phase(&r, l, k, LS_PHASE_FORWARD, at, 20 * MS, step);
        at = in_phase(&r, l, k, LS_PHASE_BACKWARD, at, 30 * MS, step);
        assert_int_equal(at, mine);
        if (l->exchange) add(&r, at, LS_EVENT_BUCKET_READY, 0, 1 << 20);
        if (l->exchange) add(&r, at, LS_EVENT_BUCKET_START, 0, (uint64_t)step);
        if (!l->alone) {
            add(&r, at, LS_EVENT_COLL_START, (uint64_t)step, 1 << 20);
            add(&r, done, LS_EVENT_COLL_DONE, (uint64_t)step, 0);
            add(&r, done, LS_EVENT_BLOCKED, (uint64_t)step, (uint64_t)(done - at));
        }
        sample(&r, done, 2 * MS, 0, true);
        begin = in_phase(&r, l, k, LS_PHASE_UPDATE, done, 3 * MS, step) + MS;
        ls__event_file_drain(r.file, false);
    }
    add(&r, begin, LS_EVENT_STEP, STEPS + 1, 0);
    end_killed(&r, "live", folder_of_run, k);
}

static void make_run(const char *folder_of_run, const late *l)
{
    for (int k = 0; k < 2; k++) make_rank(folder_of_run, l, k);
}

static void phases_add_up(void **state)
{
    (void)state;
    ls_run *run;
    make_run("level/events", &(late){ .rank = -1, .every = 1 });
    assert_int_equal(ls_run_open(&run, "level", NULL), LS_OK);
    assert_int_equal(run->n_steps, STEPS);
    for (size_t i = 0; i < STEPS; i++)
        for (int k = 0; k < 2; k++) {
            const ls_step_rank *s = &run->steps[i].rank[k];
            int64_t sum = 0;
            for (int p = 0; p < LS_PHASE_COUNT; p++) sum += s->ns[p];
            assert_int_equal(sum, s->end - s->begin);
            assert_int_equal(s->ns[LS_PHASE_DATA], 5 * MS);
            assert_int_equal(s->ns[LS_PHASE_FORWARD], 20 * MS);
            assert_int_equal(s->ns[LS_PHASE_BACKWARD], 30 * MS);
            assert_int_equal(s->ns[LS_PHASE_WAIT], 0);
            assert_int_equal(s->ns[LS_PHASE_COMM], 2 * MS);
            assert_int_equal(s->ns[LS_PHASE_UPDATE], 3 * MS);
            assert_int_equal(s->ns[LS_PHASE_OTHER], 1 * MS);
        }
    for (size_t i = 0; i < run->n_findings; i++) assert_int_equal(run->findings[i].rank, -1);
    ls_run_free(&run);
}

/* A call that was over before its thread came to wait for it takes nothing of the phase around it. */
static void no_rank_is_blocked_for_a_negative_time(void **state)
{
    (void)state;
    rank_record r;
    ls_run *run;
    int64_t at = INT64_C(3600) * 1000 * MS;
    begin_record(&r, "live", 0, 1, 0, 0);
    for (int step = 1; step <= 4; step++, at += 30 * MS) {
        add(&r, at, LS_EVENT_STEP, (uint64_t)step, 0);
        add(&r, at, LS_EVENT_PHASE_BEGIN, LS_PHASE_BACKWARD, 0);
        add(&r, at + 20 * MS, LS_EVENT_COLL_START, (uint64_t)step, 64);
        add(&r, at + 20 * MS, LS_EVENT_COLL_DONE, (uint64_t)step, 0);
        add(&r, at + 20 * MS, LS_EVENT_BLOCKED, (uint64_t)step, (uint64_t)-600);
        add(&r, at + 30 * MS, LS_EVENT_PHASE_END, LS_PHASE_BACKWARD, 0);
    }
    add(&r, at, LS_EVENT_STEP, 5, 0);
    end_killed(&r, "live", "negative/events", 0);
    assert_int_equal(ls_run_open(&run, "negative", NULL), LS_OK);
    assert_int_equal(run->n_steps, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(run->steps[i].rank[0].ns[LS_PHASE_BACKWARD], 30 * MS);
        assert_int_equal(run->steps[i].rank[0].ns[LS_PHASE_COMM], 0);
    }
    for (size_t i = 0; i < run->n_collectives; i++) assert_int_equal(run->collectives[i].blocked[0], 0);
    ls_run_free(&run);
}

static void steps_whose_numbers_do_not_increase_are_noted(void **state)
{
    (void)state;
    static const int64_t numbers[] = { 1, 2, 2, 3, 1, -4, 5, 6 };
    rank_record r;
    ls_run *run;
    int64_t at = INT64_C(3600) * 1000 * MS;
    begin_record(&r, "live", 0, 1, 0, 0);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++, at += 30 * MS)
        add(&r, at, LS_EVENT_STEP, (uint64_t)numbers[i], 0);
    end_killed(&r, "live", "numbers/events", 0);
    assert_int_equal(ls_run_open(&run, "numbers", NULL), LS_OK);
    assert_int_equal(run->n_steps, 4);
    size_t i = 0;
    while (i < run->n_notes && run->notes[i].kind != LS_NOTE_STEP_NUMBERS) i++;
    assert_true(i < run->n_notes);
    assert_int_equal(run->notes[i].rank, 0);
    assert_int_equal(run->notes[i].number, 3);
    ls_run_free(&run);
}

static const ls_note *find_note(const ls_run *run, ls_note_kind kind)
{
    for (size_t i = 0; i < run->n_notes; i++)
        if (run->notes[i].kind == kind) return &run->notes[i];
    return NULL;
}

/* The phases that follow must not be lost because of it, however many steps there are. */
static void a_phase_that_is_not_ended_is_noted(void **state)
{
    (void)state;
    enum { MANY = 40 };
    rank_record r;
    ls_run *run;
    int64_t at = INT64_C(3600) * 1000 * MS;
    begin_record(&r, "live", 0, 1, 0, 0);
    for (int step = 1; step <= MANY + 1; step++, at += 30 * MS) {
        add(&r, at, LS_EVENT_STEP, (uint64_t)step, 0);
        add(&r, at, LS_EVENT_PHASE_BEGIN, LS_PHASE_FORWARD, 0);
        add(&r, at + 10 * MS, LS_EVENT_PHASE_END, LS_PHASE_FORWARD, 0);
        add(&r, at + 10 * MS, LS_EVENT_PHASE_BEGIN, LS_PHASE_BACKWARD, 0);
        add(&r, at + 25 * MS, LS_EVENT_PHASE_BEGIN, LS_PHASE_UPDATE, 0);
        add(&r, at + 30 * MS, LS_EVENT_PHASE_END, LS_PHASE_UPDATE, 0);
    }
    end_killed(&r, "live", "unended/events", 0);
    assert_int_equal(ls_run_open(&run, "unended", NULL), LS_OK);
    assert_int_equal(run->n_steps, MANY);
    for (int i = 0; i < MANY; i++) {
        const ls_step_rank *s = &run->steps[i].rank[0];
        assert_int_equal(s->ns[LS_PHASE_FORWARD], 10 * MS);
        assert_int_equal(s->ns[LS_PHASE_BACKWARD], 15 * MS);
        assert_int_equal(s->ns[LS_PHASE_UPDATE], 5 * MS);
    }
    const ls_note *n = find_note(run, LS_NOTE_NOT_ENDED);
    assert_non_null(n);
    assert_int_equal(n->rank, 0);
    assert_int_equal(n->number, MANY);
    assert_string_equal(n->text, "backward");
    ls_run_free(&run);
}

static void waiting_that_is_marked_without_collectives_is_noted(void **state)
{
    (void)state;
    ls_run *run;
    int64_t begin = INT64_C(3600) * 1000 * MS;
    for (int rank = 0; rank < 2; rank++) {
        rank_record r;
        int64_t at = begin;
        begin_record(&r, "live", rank, 2, 0, 0);
        for (int step = 1; step <= 20; step++, at += 30 * MS) {
            add(&r, at, LS_EVENT_STEP, (uint64_t)step, 0);
            add(&r, at, LS_EVENT_PHASE_BEGIN, LS_PHASE_WAIT, 0);
            add(&r, at + 10 * MS * rank, LS_EVENT_PHASE_END, LS_PHASE_WAIT, 0);
        }
        end_killed(&r, "live", "waits/events", rank);
    }
    assert_int_equal(ls_run_open(&run, "waits", NULL), LS_OK);
    const ls_note *n = find_note(run, LS_NOTE_WAIT_MARKS);
    assert_non_null(n);
    assert_int_equal(n->number, 5 * MS);
    assert_null(find_note(run, LS_NOTE_NOT_ENDED));
    ls_run_free(&run);
}

/* The rank and the phase are named, in the collectives and in the findings, and the cost is what was lost. */
static void check_attribution(const late *l, const char *at)
{
    char events[100];
    ls_run *run;
    snprintf(events, sizeof events, "%s/events", at);
    make_run(events, l);
    assert_int_equal(ls_run_open(&run, at, NULL), LS_OK);
    bool core = l->phase == LS_PHASE_OTHER;
    int64_t waited = 0, seen = 0;
    for (size_t i = 0; i < run->n_attributions; i++) {
        const ls_attribution *d = &run->attributions[i];
        if (d->waited < MS) continue;
        assert_int_equal(d->rank, l->rank);
        assert_int_equal(d->unscheduled, core);
        if (!core) assert_int_equal(d->phase, l->phase);
        assert_in_range(d->excess, l->ns - MS / 10, l->ns + MS / 10);
        seen++;
        waited += d->waited;
    }
    assert_int_equal(seen, STEPS / l->every);
    assert_in_range(waited, seen * l->ns - MS, seen * l->ns + MS);
    const ls_finding *f = run->findings;
    while (f < run->findings + run->n_findings && f->rank < 0) f++; /* about all ranks */
    assert_true(f < run->findings + run->n_findings);
    assert_int_equal(f->rank, l->rank);
    assert_int_equal(f->kind, core ? LS_FINDING_PREEMPTED : LS_FINDING_STRAGGLER);
    if (!core) assert_int_equal(f->phase, l->phase);
    int64_t counted = 0, hit = 0;
    for (size_t i = run->first_counted; i < run->n_steps && run->steps[i].number <= STEPS; i++)
        counted++, hit += run->steps[i].number % l->every == 0;
    double cost = (double)l->ns * (double)hit / (double)counted;
    assert_true((double)f->cost > 0.9 * cost && (double)f->cost < 1.1 * cost);
    assert_true(run->wait_matrix[(size_t)(1 - l->rank) * 2 + (size_t)l->rank] > hit * l->ns - MS);
    assert_true(run->wait_matrix[(size_t)l->rank * 2 + (size_t)(1 - l->rank)] < MS);
    ls_run_free(&run);
}

static void the_late_rank_is_named(void **state)
{
    (void)state;
    static const ls_phase phases[] = { LS_PHASE_DATA, LS_PHASE_FORWARD, LS_PHASE_BACKWARD, LS_PHASE_OTHER };
    for (int rank = 0; rank < 2; rank++)
        for (size_t p = 0; p < 4; p++)
            for (int64_t every = 1; every <= 10; every += 9) {
                char at[40];
                snprintf(at, sizeof at, "late-%d-%zu-%d", rank, p, (int)every);
                check_attribution(
                    &(late){ .rank = rank, .phase = phases[p], .ns = (p == 3 ? 30 : 12) * MS, .every = every }, at);
            }
}

static ls_run *run_of(const late *l, const char *at)
{
    char events[100];
    ls_run *run;
    snprintf(events, sizeof events, "%s/events", at);
    make_run(events, l);
    assert_int_equal(ls_run_open(&run, at, NULL), LS_OK);
    return run;
}

static const ls_finding *finding_of(const ls_run *run, ls_finding_kind kind)
{
    for (size_t i = 0; i < run->n_findings; i++)
        if (run->findings[i].kind == kind && run->findings[i].rank >= 0) return &run->findings[i];
    return NULL;
}

/* 3 ms in one of 40 steps of 60 ms, where backward varies by 8 ms: the phase does not show it, the segment before one gradient does. */
static void without_collectives_nobody_stalls_anybody(void **state)
{
    (void)state;
    late l = { .rank = 1, .phase = LS_PHASE_FORWARD, .ns = 12 * MS, .every = 1, .alone = true };
    ls_run *run = run_of(&l, "alone");
    assert_null(finding_of(run, LS_FINDING_STRAGGLER));
    assert_int_equal(run->n_notes, 1);
    assert_int_equal(run->notes[0].kind, LS_NOTE_NO_COLLECTIVES);
    assert_int_equal(run->notes[0].rank, 1);
    assert_int_equal(run->notes[0].number, 12 * MS);
    assert_string_equal(run->notes[0].text, "forward");
    ls_run_free(&run);
}

static void a_delay_at_one_place_is_seen_in_noise(void **state)
{
    (void)state;
    late l = { .rank = 1, .phase = LS_PHASE_BACKWARD, .ns = 3 * MS, .every = 20, .jitter = 8 * MS, .marked = true };
    ls_run *run = run_of(&l, "place");
    const ls_finding *f = finding_of(run, LS_FINDING_STRAGGLER);
    assert_non_null(f);
    assert_int_equal(f->rank, 1);
    assert_int_equal(f->phase, LS_PHASE_BACKWARD);
    assert_int_equal(f->steps, 2);
    ls_run_free(&run);
    l.marked = false;
    run = run_of(&l, "unmarked");
    assert_null(finding_of(run, LS_FINDING_STRAGGLER));
    ls_run_free(&run);
    l.marked = true;
    l.ns = 0;
    run = run_of(&l, "noise");
    assert_null(finding_of(run, LS_FINDING_STRAGGLER));
    ls_run_free(&run);
}

/* Samples are taken at the ends of phases alone here: of what a phase lost, it must be found out where. */
static void a_lost_core_is_no_delay_and_hides_none(void **state)
{
    (void)state;
    late l = { .rank = 1, .phase = LS_PHASE_BACKWARD, .every = 10, .marked = true, .preempted = 8 * MS };
    ls_run *run = run_of(&l, "preempted");
    assert_null(finding_of(run, LS_FINDING_STRAGGLER));
    assert_non_null(finding_of(run, LS_FINDING_PREEMPTED));
    ls_run_free(&run);
    l.ns = 3 * MS;
    run = run_of(&l, "preempted-late");
    const ls_finding *f = finding_of(run, LS_FINDING_STRAGGLER);
    assert_non_null(f);
    assert_int_equal(f->rank, 1);
    assert_int_equal(f->phase, LS_PHASE_BACKWARD);
    assert_int_equal(f->steps, STEPS / l.every);
    ls_run_free(&run);
}

/* What happens once while computing may be the machine's, and what happens again is not. */
static void once_weighs_less_than_again(void **state)
{
    (void)state;
    late l = { .rank = 0, .phase = LS_PHASE_BACKWARD, .ns = 6 * MS, .every = STEPS / 2, .marked = true };
    ls_run *run = run_of(&l, "again");
    const ls_finding *f = finding_of(run, LS_FINDING_STRAGGLER);
    assert_non_null(f);
    assert_int_equal(f->steps, 2);
    assert_true(f->weight == 1);
    ls_run_free(&run);
    l.every = STEPS;
    run = run_of(&l, "once");
    f = finding_of(run, LS_FINDING_STRAGGLER);
    assert_non_null(f);
    assert_int_equal(f->rank, 0);
    assert_int_equal(f->phase, LS_PHASE_BACKWARD);
    assert_int_equal(f->steps, 1);
    assert_true(f->weight < 1);
    ls_run_free(&run);
    l.phase = LS_PHASE_DATA; /* too short for the machine's stops to fall into it */
    run = run_of(&l, "once-data");
    f = finding_of(run, LS_FINDING_STRAGGLER);
    assert_non_null(f);
    assert_true(f->weight == 1);
    ls_run_free(&run);
}

static void slowness_all_over_a_phase_is_the_cores(void **state)
{
    (void)state;
    late l = { .rank = 0, .phase = LS_PHASE_BACKWARD, .ns = 12 * MS, .every = 1, .marked = true, .spread = true };
    ls_run *run = run_of(&l, "spread");
    const ls_finding *f = finding_of(run, LS_FINDING_SLOW_CORE);
    assert_null(finding_of(run, LS_FINDING_STRAGGLER));
    assert_non_null(f);
    assert_int_equal(f->rank, 0);
    assert_true(f->evidence.rank.backward && !f->evidence.rank.forward);
    assert_true(f->evidence.rank.own - f->evidence.rank.others > 11 * MS);
    ls_run_free(&run);
    l.spread = false;
    run = run_of(&l, "one-place");
    f = finding_of(run, LS_FINDING_STRAGGLER);
    assert_non_null(f);
    assert_int_equal(f->rank, 0);
    assert_int_equal(f->phase, LS_PHASE_BACKWARD);
    assert_true(f->cost > 11 * MS && f->cost < 13 * MS);
    ls_run_free(&run);
}

/* A rank that is slow in a phase, and in a few steps slower still, is one cause. */
static void one_cause_is_one_finding(void **state)
{
    (void)state;
    static const ls_phase phases[] = { LS_PHASE_DATA, LS_PHASE_FORWARD, LS_PHASE_BACKWARD, LS_PHASE_OTHER };
    for (size_t i = 0; i < 4; i++) {
        late l = { .rank = 1, .phase = phases[i], .ns = 12 * MS, .every = 1, .more = 40 * MS, .marked = true };
        char at[40];
        snprintf(at, sizeof at, "cause-%zu", i);
        ls_run *run = run_of(&l, at);
        size_t n = 0;
        for (size_t k = 0; k < run->n_findings; k++) n += run->findings[k].rank == 1;
        if (n != 1) fail_msg("%zu findings for rank 1, losing in %s", n, ls_phase_name(phases[i]));
        const ls_finding *f =
            finding_of(run, phases[i] == LS_PHASE_OTHER ? LS_FINDING_PREEMPTED : LS_FINDING_STRAGGLER);
        assert_non_null(f);
        assert_in_range(f->cost, 15 * MS, 17 * MS); /* 12 and a tenth of 40 */
        ls_run_free(&run);
    }
}

static void clocks_that_differ_change_nothing(void **state)
{
    (void)state;
    check_attribution(
        &(late){
            .rank = 0, .phase = LS_PHASE_FORWARD, .ns = 12 * MS, .every = 1, .shift = 1000 * MS, .recorded = true },
        "ahead");
    check_attribution(
        &(late){ .rank = 0, .phase = LS_PHASE_DATA, .ns = 12 * MS, .every = 1, .shift = -1000 * MS, .recorded = true },
        "behind");
    check_attribution(
        &(late){
            .rank = 1, .phase = LS_PHASE_BACKWARD, .ns = 12 * MS, .every = 1, .shift = 300 * MS, .recorded = true },
        "third");
}

/* The collectives show a clock that moved: no rank can be done before the last has arrived. */
static void a_clock_that_moves_is_put_right(void **state)
{
    (void)state;
    late l = { .rank = 0, .phase = LS_PHASE_FORWARD, .ns = 12 * MS, .every = 1, .shift = 40 * MS, .moved = true };
    ls_run *run;
    make_run("drift/events", &l);
    assert_int_equal(ls_run_open(&run, "drift", NULL), LS_OK);
    assert_true(run->n_notes > 0 && run->notes[0].kind == LS_NOTE_CLOCK && run->notes[0].rank == 1);
    assert_true(run->wait_matrix[1 * 2 + 0] > (int64_t)(STEPS - 4) * 4 * MS);
    assert_int_equal(run->findings[0].rank, 0);
    assert_int_equal(run->findings[0].phase, LS_PHASE_FORWARD);
    ls_run_free(&run);
}

/* Without the measured offset the clocks' difference would look like waiting: the test above can fail. */
static void a_clock_offset_that_is_not_recorded_misleads(void **state)
{
    (void)state;
    ls_run *run;
    make_run("unrecorded/events",
             &(late){ .rank = 0, .phase = LS_PHASE_FORWARD, .ns = 12 * MS, .every = 1, .shift = 40 * MS });
    assert_int_equal(ls_run_open(&run, "unrecorded", NULL), LS_OK);
    assert_true(run->wait_matrix[1 * 2 + 0] < MS); /* rank 0 seems to come first */
    assert_true(run->wait_matrix[0 * 2 + 1] > (int64_t)STEPS / 2 * MS);
    ls_run_free(&run);
}

static void cpu_time_is_divided_among_steps(void **state)
{
    (void)state;
    late l = { .rank = -1, .every = 1, .counted = 5 };
    ls_run *run = run_of(&l, "counted");
    for (size_t i = 0; i < 35; i++)
        for (int k = 0; k < 2; k++) assert_in_range(run->steps[i].rank[k].cpu, 70 * MS - 1000, 70 * MS + 1000);
    assert_int_equal(run->steps[STEPS - 1].rank[0].cpu, -1); /* no sample after it */
    ls_run_free(&run);
}

/* 1 MiB of two ranks is read and written twice: 4 MiB at the 20 GB/s of both. */
static void communication_has_a_bound(void **state)
{
    (void)state;
    late l = { .rank = -1, .every = 1, .copies = 10 };
    ls_run *run = run_of(&l, "bound");
    assert_int_equal(run->n_comm, 1);
    const ls_comm_row *c = run->comm;
    assert_in_range(c->busy, c->count * (2 * MS - 1000), c->count * (2 * MS + 1000));
    assert_in_range(c->bound, c->count * 209700, c->count * 209730);
    ls_run_free(&run);
    l.copies = 0;
    run = run_of(&l, "no-bound");
    assert_int_equal(run->comm[0].bound, 0);
    ls_run_free(&run);
}

static void calls_have_the_names_of_comm(void **state)
{
    (void)state;
    assert_string_equal(ls_collective_name(0), "allreduce");
    assert_string_equal(ls_collective_name(8), "barrier");
    assert_string_equal(ls_collective_name(9), "parallel_for");
    assert_string_equal(ls_collective_name(255), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phases_add_up),
        cmocka_unit_test(no_rank_is_blocked_for_a_negative_time),
        cmocka_unit_test(steps_whose_numbers_do_not_increase_are_noted),
        cmocka_unit_test(a_phase_that_is_not_ended_is_noted),
        cmocka_unit_test(waiting_that_is_marked_without_collectives_is_noted),
        cmocka_unit_test(the_late_rank_is_named),
        cmocka_unit_test(without_collectives_nobody_stalls_anybody),
        cmocka_unit_test(a_delay_at_one_place_is_seen_in_noise),
        cmocka_unit_test(a_lost_core_is_no_delay_and_hides_none),
        cmocka_unit_test(once_weighs_less_than_again),
        cmocka_unit_test(slowness_all_over_a_phase_is_the_cores),
        cmocka_unit_test(one_cause_is_one_finding),
        cmocka_unit_test(clocks_that_differ_change_nothing),
        cmocka_unit_test(a_clock_that_moves_is_put_right),
        cmocka_unit_test(a_clock_offset_that_is_not_recorded_misleads),
        cmocka_unit_test(cpu_time_is_divided_among_steps),
        cmocka_unit_test(communication_has_a_bound),
        cmocka_unit_test(calls_have_the_names_of_comm),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
