/* If loading a batch takes l and computing on it takes c, l / c workers can just keep up; a few percent more are needed. Both are
 * known after a few batches, when the first decision is made. Later windows correct it, because l changes with the number of
 * workers if they share a core or a disk.
 *
 *   more     as soon as l / c requires it. If the run does not become faster, the workers obstruct each other: back to the number
 *            before, which is then the maximum.
 *   further  (prefetch) if the trainer waits although l / c says that there are enough workers: load times vary. Undone if it does not
 *            help.
 *   fewer    if fewer would have been enough for several consecutive windows; for more of them each time that this
 *            was wrong. */
#include "data/tuner.h"

#include <stdio.h>

enum {
    FIRST_WINDOW = 4, /* batches before the first decision */
    WINDOW = 8,       /* batches before each later one */
    CALM_WINDOWS = 4, /* before workers are taken away, at first */
    MOST_PATIENCE = 1 << 20,
    STARVED_WINDOWS = 2,
    MAX_PREFETCH = 16,
    FUTILE = 3, /* growths of the prefetch without an effect, before it is given up */
};
static const double air = 0.95;         /* of its time a worker may be busy */
static const double waiting = 0.02;     /* of the run's time: less does not count as waiting */
static const double less = 0.8;         /* of the waiting before: what a growth of the prefetch must reach */
static const double improvement = 0.93; /* of the old pace: what a growth must reach to be kept */

void ls__tuner_init(ls__tuner *t, int max_workers)
{
    *t = (ls__tuner){
        .workers = 1, .prefetch = 1, .patience = CALM_WINDOWS, .max_workers = max_workers > 0 ? max_workers : 1
    };
}

/* Workers that would keep up, by this window's times. */
static int workers_needed(const ls__tuner *t)
{
    double need = (double)t->load / (double)(t->compute > 0 ? t->compute : 1) / air;
    int limit = t->best && t->best < t->max_workers ? t->best : t->max_workers;
    if (need >= limit) return limit;
    int whole = (int)need;
    return whole < need || !whole ? whole + 1 : whole;
}

static bool decide(ls__tuner *t, char *reason, size_t room)
{
    int64_t total = t->wait + t->compute, pace = total / t->batches;
    double waited = total > 0 ? (double)t->wait / (double)total : 0, ms = 1e-6 / t->batches;
    double load = (double)t->load * ms, compute = (double)t->compute * ms;
    if (t->workers_before) {
        int before = t->workers_before;
        t->workers_before = 0;
        if (waited > waiting && (double)pace > improvement * (double)t->pace_before) {
            snprintf(reason, room,
                     "%d workers are not faster than %d (%.2f ms per batch, %.2f before): they share a core or a disk",
                     t->workers, before, (double)pace * 1e-6, (double)t->pace_before * 1e-6);
            t->workers = t->best = before;
            return true;
        }
    }
    int need = workers_needed(t);
    t->calm = need < t->workers ? t->calm + 1 : 0;
    t->starved = waited > waiting && need <= t->workers ? t->starved + 1 : 0;
    if (need > t->workers && waited > waiting) {
        snprintf(reason, room, "loading a batch takes %.2f ms, computing on it %.2f ms; the trainer waited %.0f %%",
                 load, compute, 100 * waited);
        if (t->shrunk && t->patience < MOST_PATIENCE) t->patience *= 2;
        t->shrunk = false;
        t->workers_before = t->workers;
        t->pace_before = pace;
        t->workers = need;
        return true;
    }
    if (t->starved >= STARVED_WINDOWS && t->prefetch < MAX_PREFETCH && t->futile < FUTILE &&
        (double)t->load < air * t->workers * (double)t->compute) {
        t->futile = t->waited_before > 0 && waited > less * t->waited_before ? t->futile + 1 : 0;
        t->waited_before = waited;
        t->starved = 0;
        if (t->futile == FUTILE) {
            snprintf(reason, room, "a larger prefetch did not help: the trainer still waited %.0f %%", 100 * waited);
            t->prefetch -= FUTILE;
            return true;
        }
        snprintf(reason, room,
                 "workers keep up on average (%.2f ms to load, %.2f ms to compute), but the trainer waited "
                 "%.0f %%: load times vary",
                 load, compute, 100 * waited);
        t->prefetch++;
        return true;
    }
    if (t->calm >= t->patience) {
        snprintf(reason, room, "loading a batch takes %.2f ms, computing on it %.2f ms: fewer workers are enough", load,
                 compute);
        t->workers = need;
        t->shrunk = true;
        t->calm = 0;
        return true;
    }
    return false;
}

bool ls__tuner_feed(ls__tuner *t, int64_t wait, int64_t compute, int64_t load, char *reason, size_t room)
{
    t->wait += wait;
    t->compute += compute;
    t->load += load;
    t->batches++;
    bool first = !t->decided;
    if (t->batches < (first ? FIRST_WINDOW : WINDOW)) return false;
    bool changed = t->changed ? false : decide(t, reason, room);
    t->changed = changed;
    t->decided = true;
    t->batches = 0;
    t->wait = t->compute = t->load = 0;
    return changed;
}
