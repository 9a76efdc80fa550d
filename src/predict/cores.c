/* See cores.h. What Linux does, as far as it shows in the time of a step: each core has a queue of tasks, which take turns, and
 * changes from one to the next at a tick of its clock; a core that has nothing to do takes a task that waits elsewhere, but only at a
 * tick. So 3 equal tasks on 2 cores end later than after 1.5 times the work of one: two of them share a core until the third is done. */
#include "predict/cores.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include "base/random.h"

static const double TICK_NS = 4e6;         /* 250 Hz, as most distributions build their kernels */
static const double LEAST_TURN_NS = 1.4e6; /* a task that has had its core for less keeps it at the tick */
static const double SWITCH_NS = 6e4;       /* a task finds the core's caches full of another one's data */
enum { MOST_TURNS = 20000 };               /* of all tasks; longer work is simulated with a longer tick */

typedef struct core {
    double at;    /* simulated up to here */
    double tick;  /* the next one */
    double since; /* when the task that runs got the core */
    int first;    /* of its queue, the one that runs; -1: none */
    int last;
    int length;
    bool idle; /* it has looked for a task */
} core;

typedef struct queues {
    core *core;
    int n_cores;
    int *next; /* [tasks]: the task behind it in its queue; -1: none */
    double tick;
} queues;

static void push(queues *q, core *c, int task)
{
    q->next[task] = -1;
    if (c->first < 0)
        c->first = task;
    else
        q->next[c->last] = task;
    c->last = task;
    c->length++;
}

static int pop(queues *q, core *c)
{
    int task = c->first;
    c->first = q->next[task];
    c->length--;
    return task;
}

/* The task that waits first behind the one that runs. */
static int take_waiting(queues *q, core *c)
{
    int task = q->next[c->first];
    q->next[c->first] = q->next[task];
    if (c->last == task) c->last = c->first;
    c->length--;
    return task;
}

static core *longest_queue(const queues *q)
{
    core *best = &q->core[0];
    for (int i = 1; i < q->n_cores; i++)
        if (q->core[i].length > best->length) best = &q->core[i];
    return best;
}

/* When the turn of the task that runs ends, if others wait. */
static double end_of_turn(const queues *q, core *c)
{
    while (c->tick <= c->at) c->tick += q->tick;
    return c->tick - c->since < LEAST_TURN_NS ? c->tick + q->tick : c->tick;
}

/* A core without tasks: looks, and takes one a tick later. False: there is none to take, nor will be. */
static bool find_task(queues *q, core *c)
{
    core *from = longest_queue(q);
    if (from->length < 2) return false;
    if (!c->idle) {
        c->idle = true;
        c->at += q->tick;
        return true;
    }
    c->idle = false;
    c->since = c->at;
    push(q, c, take_waiting(q, from));
    return true;
}

/* The first task of the core runs until it is done or its turn ends. */
static void run_task(queues *q, core *c, double *work, double *end)
{
    double tick = end_of_turn(q, c), left = work[c->first] - (tick - c->at);
    if (left <= 0) {
        c->at += work[c->first];
        *end = fmax(*end, c->at);
        pop(q, c);
        c->since = c->at;
        return;
    }
    work[c->first] = left;
    c->at = tick;
    if (c->length < 2) return;
    push(q, c, pop(q, c));
    work[c->first] += SWITCH_NS;
    c->since = tick;
}

static core *earliest(const queues *q)
{
    core *best = NULL;
    for (int i = 0; i < q->n_cores; i++)
        if (isfinite(q->core[i].at) && (!best || q->core[i].at < best->at)) best = &q->core[i];
    return best;
}

/* Tasks are dealt to the cores in a random order. */
static void deal(queues *q, int n, uint64_t seed)
{
    int *order = malloc((size_t)n * sizeof *order);
    for (int i = 0; i < n && order; i++) order[i] = i;
    for (int i = n - 1; i > 0 && order; i--) {
        int k = (int)(ls__random_u32(2, seed, (uint64_t)i) % (uint32_t)(i + 1)), task = order[i];
        order[i] = order[k];
        order[k] = task;
    }
    for (int i = 0; i < n; i++) push(q, &q->core[i % q->n_cores], order ? order[i] : i);
    free(order);
}

double ls__share_cores(double *work, int n, int cores, uint64_t seed)
{
    double sum = 0, end = 0;
    for (int i = 0; i < n; i++) sum += work[i];
    queues q = { .n_cores = cores < n ? cores : n, .tick = fmax(TICK_NS, sum / MOST_TURNS) };
    q.core = malloc((size_t)q.n_cores * sizeof *q.core);
    q.next = malloc((size_t)n * sizeof *q.next);
    for (int i = 0; i < q.n_cores && q.core; i++)
        q.core[i] = (core){ .first = -1, .tick = q.tick * (double)ls__random_uniform(3, seed, (uint64_t)i) };
    if (q.core && q.next) {
        deal(&q, n, seed);
        for (core *c; (c = earliest(&q));)
            if (c->first >= 0)
                run_task(&q, c, work, &end);
            else if (!find_task(&q, c))
                c->at = INFINITY;
    }
    free(q.core);
    free(q.next);
    return fmax(end, sum / cores);
}
