/* See inject.h. */
#include "train/inject.h"

#include <errno.h>
#include <time.h>
#include "base/status.h"
#include "base/text.h"
#include "train/training.h"

ls_status ls__inject_check(const ls_train *t)
{
    const ls_train_delay *d = &t->options.inject;
    int ranks = t->parallel.size;
    if (!(d->ms >= 0) || d->every < 0)
        return ls__fail(LS_EINVAL, "inject: ms=%g, every=%lld: must not be negative", d->ms, (long long)d->every);
    if ((unsigned)d->phase > LS_PHASE_UPDATE || (d->ms > 0 && d->phase == LS_PHASE_OTHER))
        return ls__fail(LS_EINVAL, "inject: phase=%d: must be data, forward, backward or update", (int)d->phase);
    if (d->ms <= 0 || (d->rank >= 0 && d->rank < ranks)) return LS_OK;
    return ls__fail(LS_EINVAL, "inject: rank %d does not exist; there %s %d rank%s", d->rank, ranks == 1 ? "is" : "are",
                    ranks, ls__s(ranks));
}

static int64_t own_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void ls__inject_delay(ls_train *t, ls_phase phase)
{
    const ls_train_delay *d = &t->options.inject;
    int64_t step = t->step + 1;
    if (d->ms <= 0 || d->rank != t->parallel.rank || d->phase != phase || step < d->first) return;
    if (d->every ? (step - d->first) % d->every != 0 : step != d->first) return;
    if (t->injected == step) return; /* once per step, not per micro-batch */
    t->injected = step;
    if (d->off_cpu) {
        int64_t ns = (int64_t)(d->ms * 1e6);
        struct timespec left = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
        while (nanosleep(&left, &left) && errno == EINTR) {
        }
        return;
    }
    /* By the thread's CPU time, so that it is the same work on a busy machine. */
    int64_t until = own_time() + (int64_t)(d->ms * 1e6);
    while (own_time() < until) {
    }
}
