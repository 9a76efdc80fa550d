/* Clocks that drift. The offset of a machine's clock is measured when the job starts; in hours it may move by milliseconds. The
 * collectives show it: no rank is done with one before the last has arrived. With times of machine A and of machine B, whose clock has
 * moved by d since,
 *
 *     arrival(B) - done(A)  <=  d  <=  done(B) - arrival(A)
 *
 * for every collective that both are in, and where each is last in some of them, the two sides come close. Per half minute, d is
 * assumed to be 0 if that is possible and the middle otherwise; between, it is interpolated. Where one machine is always last, one side is
 * as far away as it is late: then d is at most twice what it must be. */
#include <stdlib.h>
#include "record/event_file.h"
#include "base/status.h"
#include "measure/limits.h"
#include "measure/model.h"

typedef struct window {
    int64_t low, high; /* of d */
    int64_t moved;     /* what it is assumed to be */
} window;

static int64_t first_time(const ls_run *run)
{
    int64_t first = INT64_MAX;
    for (size_t i = 0; i < run->n_collectives; i++)
        for (int r = 0; r < run->ranks; r++)
            if (run->collectives[i].arrival[r]) first = ls__min(first, run->collectives[i].arrival[r]);
    return first;
}

/* Whether nobody leaves it before all have come. The root of a broadcast may. */
static bool is_symmetric(uint8_t kind)
{
    return kind != LS_COLLECTIVE_BROADCAST && kind != LS_COLLECTIVE_REDUCE && kind != LS_COLLECTIVE_GATHER &&
           kind != LS_COLLECTIVE_SCATTER && kind != LS_COLLECTIVE_SEND && kind != LS_COLLECTIVE_RECEIVE;
}

/* What the collectives show of machine `node`'s clock. */
static void gather(const ls_run *run, int node, int64_t first, window *windows, size_t count)
{
    for (size_t w = 0; w < count; w++) windows[w] = (window){ .low = INT64_MIN, .high = INT64_MAX };
    for (size_t i = 0; i < run->n_collectives; i++) {
        const ls_run_collective *m = &run->collectives[i];
        if (!is_symmetric(m->kind)) continue;
        int64_t there_in = INT64_MIN, there_out = INT64_MAX, here_in = INT64_MIN, here_out = INT64_MAX;
        for (int r = 0; r < run->ranks; r++) {
            if (!m->arrival[r] || !m->done[r]) continue;
            if (run->rank[r].node == node) {
                there_in = ls__max(there_in, m->arrival[r]);
                there_out = ls__min(there_out, m->done[r]);
            } else if (run->rank[r].node == 0) {
                here_in = ls__max(here_in, m->arrival[r]);
                here_out = ls__min(here_out, m->done[r]);
            }
        }
        if (there_in == INT64_MIN || here_in == INT64_MIN) continue;
        size_t w = (size_t)((here_in - first) / (LS__CLOCK_WINDOW_S * INT64_C(1000000000)));
        if (here_in < first || w >= count) continue;
        windows[w].low = ls__max(windows[w].low, there_in - here_out);
        windows[w].high = ls__min(windows[w].high, there_out - here_in);
    }
}

/* What d is, if it is not 0. A contradiction of less than the times' own precision is none. */
static int64_t least_move(int64_t low, int64_t high)
{
    int64_t least = low > 0 ? low : high < 0 ? high : 0, half = high / 2 - low / 2;
    if (llabs(least) < LS__CLOCK_SLACK_NS) return 0;
    return low > 0 ? low + ls__min(half, low) : high - ls__min(half, -high);
}

/* Fills `moved`; the largest of them. */
static int64_t find_moves(window *windows, size_t count)
{
    int64_t last = 0, most = 0;
    for (size_t w = 0; w < count; w++) {
        window *x = &windows[w];
        if (x->low == INT64_MIN || x->high == INT64_MAX)
            x->moved = last; /* no collective */
        else
            x->moved = least_move(x->low, x->high);
        last = x->moved;
        if (llabs(last) > llabs(most)) most = last;
    }
    return most;
}

static void shift(ls_run_rank *r, int64_t first, const window *windows, size_t count)
{
    const double length = LS__CLOCK_WINDOW_S * 1e9;
    for (size_t i = 0; i < r->n_events; i++) {
        double at = (double)(r->events[i].time - first) / length - 0.5; /* in windows, from the middle of the first */
        size_t w = at <= 0 ? 0 : (size_t)at < count - 1 ? (size_t)at : count - 1;
        double moved = (double)windows[w].moved;
        if (at > 0 && w + 1 < count) moved += (double)(windows[w + 1].moved - windows[w].moved) * (at - (double)w);
        r->events[i].time -= (int64_t)moved;
    }
}

ls_status ls__run_check_clocks(ls_run *run, bool *moved)
{
    int nodes = 0;
    *moved = false;
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present && run->rank[r].node >= nodes) nodes = run->rank[r].node + 1;
    if (nodes < 2 || !run->n_collectives) return LS_OK;
    int64_t first = first_time(run);
    window *windows = malloc(LS__CLOCK_WINDOWS * sizeof *windows);
    if (!windows) return ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    for (int node = 1; node < nodes; node++) {
        gather(run, node, first, windows, LS__CLOCK_WINDOWS);
        int64_t most = find_moves(windows, LS__CLOCK_WINDOWS);
        if (!most) continue;
        *moved = true;
        ls__run_note(run, LS_NOTE_CLOCK, node, most, NULL);
        for (int r = 0; r < run->ranks; r++)
            if (run->rank[r].node == node && run->rank[r].present)
                shift(&run->rank[r], first, windows, LS__CLOCK_WINDOWS);
    }
    free(windows);
    return LS_OK;
}
