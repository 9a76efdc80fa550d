/* See load.h. */
#include "predict/load.h"

#include <math.h>

/* Threads that have a core at the same time. */
static double running(const ls__load *l)
{
    return fmin(l->threads, l->cores);
}

double ls__load_turns(const ls__load *l)
{
    return fmax(1, l->threads / l->cores);
}

/* Clocks fall with every core that computes. */
double ls__load_gemm(const ls__load *l)
{
    const ls__node_speed *s = l->speed;
    double n = running(l);
    if (s->cores <= 1 || n <= 1) return s->gemm_one;
    return s->gemm_one + (s->gemm_all - s->gemm_one) * fmin(1, (n - 1) / (s->cores - 1));
}

/* Memory gives each thread what it can take until all that there is is taken. */
static double shared(double one, double all, double n, double cores)
{
    return n <= 1 ? one : fmin(one, fmax(all, all * cores / n));
}

double ls__load_stream(const ls__load *l, double bytes)
{
    const ls__node_speed *s = l->speed;
    double n = running(l), inside = s->cache > 0 ? fmin(1, fmax(0, 2 - 2 * bytes / s->cache)) : 1;
    double cached = shared(s->stream_one, s->stream_all, n, s->cores);
    double memory = shared(s->memory_one, s->memory_all, n, s->cores);
    return 1 / (inside / cached + (1 - inside) / memory);
}

double ls__load_stream_all(const ls__load *l, double bytes)
{
    return ls__load_stream(l, bytes) * running(l);
}
