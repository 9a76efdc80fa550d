/* Elastic jobs: a sequence of generations, each with a fixed number of ranks.
 *
 * Ranks hold nothing that the job needs: their state is in kept memory (comm/kept.h), which stays consistent whenever they are
 * killed. So when a rank is lost, the launcher kills the others and starts the next generation, which continues from that memory.
 * It is the same after any death, of any rank and at any moment, also of several or all at once, and when the number of ranks
 * changes on request.
 *
 * A lost rank is replaced while there are restarts left (--max-restarts); after that the job continues with one rank fewer. A
 * generation that ends without having finished a step delays the next one, twice as long each time, and a few of them in a row end
 * the job: whatever kills it would kill the next one, too.
 *
 * A job that ends for want of ranks first starts one more, which saves the state: it is nowhere else.
 *
 * A signal that asks the job to save and end reaches the ranks of the next generation, too: if it comes while there are none, or
 * some are lost after it, the state is still in kept memory, and they save it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "cli/launch_parts.h"

enum {
    FIRST_DELAY_MS = 100, /* after a generation without a step; then twice as long each time */
    MOST_IN_VAIN = 8,     /* generations in a row without a step */
};

struct launch_elastic {
    ls__kept *kept;
    int wanted;       /* ranks that the user asked for */
    int missing;      /* of them, lost and not replaced */
    int restarts;     /* that are left */
    int lost;         /* ranks of this generation */
    bool changed;     /* ranks ended this generation themselves */
    int64_t began_at; /* the step that this generation began at */
    int in_vain;      /* generations in a row without a step */
    int64_t lost_at;  /* what this generation is recovering from, and why that happened; 0: from nothing */
    char why[256];
    int64_t next_lost_at; /* the same for the next one. Ranks may still be writing what this one recovered from */
    char next_why[256];
    bool saving; /* the job ends: this generation saves the state */
};

/* LOCKSTEP_KILL_POINTS=POINT:RANK:NTH,..., for tests: see ls__kept_point(). RANK -1: any. On several machines
 * MACHINE=POINT:RANK:NTH,... for each, separated by spaces. */
static void read_kill_points(ls__kept *k, const char *machine)
{
    const char *text = getenv("LOCKSTEP_KILL_POINTS");
    size_t n = machine ? strlen(machine) : 0;
    while (machine && text && *text && (strncmp(text, machine, n) != 0 || text[n] != '=')) {
        text += strcspn(text, " ");
        text += *text == ' ';
    }
    if (machine && text && *text) text += n + 1;
    for (int i = 0; text && *text && i < LS__KEPT_KILLS; i++) {
        int after = 0;
        if (sscanf(text, "%d:%d:%d", &k->kill[i].point, &k->kill[i].rank, &after) != 3) k->kill[i].point = 0;
        atomic_store(&k->kill[i].after, after);
        text += strcspn(text, ", ");
        if (*text != ',') break;
        text++;
    }
}

ls_status launch_elastic_open(launch *l)
{
    struct launch_elastic *e = calloc(1, sizeof *e);
    if (!e) return LS_ENOMEM;
    ls_status status = ls__kept_create(&e->kept, &l->common.kept_fd);
    if (status) {
        free(e);
        return status;
    }
    e->wanted = l->own.ranks;
    e->restarts = l->own.max_restarts;
    atomic_store(&e->kept->ranks, e->wanted);
    snprintf(e->kept->why, sizeof e->kept->why, "start");
    read_kill_points(e->kept, launch_keeper_name(l));
    l->elastic = e;
    return LS_OK;
}

void launch_elastic_close(launch *l)
{
    struct launch_elastic *e = l->elastic;
    if (!e) return;
    ls__kept_detach(&e->kept);
    if (l->common.kept_fd >= 0) close(l->common.kept_fd);
    free(e);
    l->elastic = NULL;
}

bool launch_elastic_lost(launch *l, int rank, const char *how)
{
    struct launch_elastic *e = l->elastic;
    if (!e || l->phase != LAUNCH_RUNNING || (l->end_requested && !l->end_signal)) return false;
    e->lost++;
    e->next_lost_at = ls_now();
    snprintf(e->next_why, sizeof e->next_why, "rank %d %s", rank, how);
    launch_keeper_report_loss(l, rank, how);
    /* Before the other ranks learn of it and give up. */
    launch_fail(l, EXIT_FAILED);
    launch_enter(l, LAUNCH_KILLED);
    return true;
}

bool launch_elastic_changed(launch *l)
{
    struct launch_elastic *e = l->elastic;
    const ls__kept *k = e->kept;
    if (!e->changed && !atomic_load(&k->wanted) && !atomic_load(&k->leaving) && !atomic_load(&k->change)) return false;
    if (!e->changed && !e->lost) e->next_lost_at = ls_now();
    e->changed = true;
    return true;
}

void launch_elastic_stop(launch *l)
{
    if (l->elastic) atomic_store(&l->elastic->kept->stopping, 1);
}

void launch_elastic_begin(launch *l, const char *why, int64_t lost_us_ago)
{
    struct launch_elastic *e = l->elastic;
    ls__kept *k = e->kept;
    e->lost = 0;
    e->changed = l->end_requested = false;
    l->end_signal = 0;
    l->interrupted_at = 0; /* a signal is sent to each generation */
    atomic_store(&k->wanted, 0);
    atomic_store(&k->leaving, 0);
    atomic_store(&k->change, 0);
    atomic_store(&k->noted, 0);
    atomic_store(&k->ranks, l->common.world_size);
    atomic_store(&k->generation, l->common.generation);
    k->lost_at = lost_us_ago ? ls_now() - lost_us_ago * 1000 : 0;
    snprintf(k->why, sizeof k->why, "%s", why);
}

ls_status launch_elastic_renew(launch *l, int timeout_ms)
{
    ls_status status = ls__job_renew(l->job, l->options->ranks, timeout_ms);
    if (!status) ls__kept_renew_held(l->elastic->kept, l->job);
    return status;
}

bool launch_elastic_gave_up(const launch *l)
{
    return l->elastic && l->elastic->saving;
}

launch_elastic_outcome launch_elastic_end(launch *l)
{
    struct launch_elastic *e = l->elastic;
    const ls__kept *k = e->kept;
    return (launch_elastic_outcome){ .step = atomic_load(&k->step),
                                     .lost = e->lost,
                                     .leaving = atomic_load(&k->leaving),
                                     .slots = atomic_load(&k->slots),
                                     .changed = e->changed,
                                     .noted = atomic_load(&k->noted) != 0,
                                     .ready = atomic_load(&k->ready) != 0 };
}

void launch_elastic_ask_for_change(launch *l)
{
    atomic_store(&l->elastic->kept->change, 1);
}

void launch_elastic_keeper_point(launch *l)
{
    ls__kept_point(l->elastic->kept, LS__POINT_KEEPER, -1);
}

/* The job ends, because of `reason`. True: after one more generation, which saves the state. Programs of one's own keep theirs as they like. */
static bool give_up(launch *l, int64_t step, const char *reason)
{
    struct launch_elastic *e = l->elastic;
    bool save = !e->saving && atomic_load(&e->kept->ready) && l->options->hold_signals;
    char what[64] = "";
    if (save) snprintf(what, sizeof what, "saving the state after step %lld, and ", (long long)step);
    fprintf(stderr, "lockstep: %s; %s: %sending the job\n", e->next_why, e->saving ? "the state was not saved" : reason,
            what);
    if (!save) return false;
    e->saving = l->end_requested = true;
    l->end_signal = SIGTERM;
    launch_elastic_stop(l);
    e->missing = e->wanted - 1;
    e->in_vain = 0;
    return true;
}

/* Whether the job may continue after losses, and with how many ranks. */
static bool replace(launch *l, int64_t step)
{
    struct launch_elastic *e = l->elastic;
    char reason[160];
    e->in_vain = step > e->began_at ? 0 : e->in_vain + 1;
    snprintf(reason, sizeof reason,
             "%d starts in a row were lost before a step was finished; if memory ran out, 'dmesg' says so", e->in_vain);
    if (e->saving || e->in_vain >= MOST_IN_VAIN) return give_up(l, step, reason);
    for (int i = 0; i < e->lost; i++) {
        if (e->restarts > 0)
            e->restarts--;
        else
            e->missing++;
    }
    return e->missing < e->wanted || give_up(l, step, "no rank is left, and no restart (--max-restarts)");
}

/* What was asked for: by a resize, or by SIGTERM to ranks. Also if a rank was lost in the step that accepted it: nobody asks again. */
static void change(launch *l)
{
    struct launch_elastic *e = l->elastic;
    ls__kept *k = e->kept;
    int wanted = atomic_exchange(&k->wanted, 0), leaving = atomic_exchange(&k->leaving, 0);
    char why[sizeof e->next_why], lost[sizeof e->next_why];
    if (e->lost && !wanted && !leaving) return;
    if (wanted) {
        snprintf(why, sizeof why, "resize from %d to %d ranks", l->own.ranks, wanted);
        e->wanted = wanted;
        e->missing = 0;
    } else {
        snprintf(why, sizeof why, "SIGTERM to %d rank%s", leaving, leaving == 1 ? "" : "s");
        e->missing += leaving;
        if (e->missing >= e->wanted) e->missing = e->wanted - 1;
    }
    snprintf(lost, sizeof lost, "%s", e->next_why);
    if (e->lost)
        snprintf(e->next_why, sizeof e->next_why, "%.120s; %.120s", lost, why);
    else
        snprintf(e->next_why, sizeof e->next_why, "%s", why);
}

/* A generation that was lost before it finished a step leaves no line (train/kept.c): the next one says for both what happened,
 * and since when. */
static void remember_why(struct launch_elastic *e)
{
    ls__kept *k = e->kept;
    char both[sizeof e->why + sizeof e->next_why + 2];
    bool earlier = !atomic_exchange(&k->noted, 0) && e->lost_at;
    snprintf(both, sizeof both, "%s%s%s", earlier ? e->why : "", earlier ? "; " : "", e->next_why);
    snprintf(k->why, sizeof k->why, "%.*s", (int)sizeof k->why - 1, both);
    k->lost_at = earlier ? e->lost_at : e->next_lost_at;
    e->lost_at = k->lost_at;
    snprintf(e->why, sizeof e->why, "%s", k->why);
}

bool launch_elastic_next(launch *l)
{
    struct launch_elastic *e = l->elastic;
    ls__kept *k = e->kept;
    int64_t step = atomic_load(&k->step);
    if ((l->end_requested && !l->end_signal) || l->hopeless || (!e->lost && !e->changed)) return false;
    change(l);
    if (!e->lost) e->in_vain = 0;
    if (e->lost && !replace(l, step)) return false;
    e->lost = 0;
    e->changed = false;
    atomic_store(&k->change, 0);
    e->began_at = step;
    l->own.ranks = e->wanted - e->missing;
    atomic_store(&k->ranks, l->own.ranks);
    atomic_fetch_add(&k->generation, 1);
    if (!e->saving)
        fprintf(stderr, "lockstep: %s; continuing after step %lld with %d rank%s\n", e->next_why, (long long)step,
                l->own.ranks, l->own.ranks == 1 ? "" : "s");
    remember_why(e);
    int64_t delay = e->in_vain > 1 ? (int64_t)FIRST_DELAY_MS << (e->in_vain - 2) : 0;
    if (delay) nanosleep(&(struct timespec){ delay / 1000, delay % 1000 * 1000000 }, NULL);
    return true;
}
