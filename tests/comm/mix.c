/* See mix.h. No deadlock is possible if the library keeps its word: of all ranks, look at the one that is at the earliest
 * place of the list. It waits only for calls that all ranks have begun, and everyone who waits makes progress. */
#include "mix.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* LS_COLLECTIVE_SEND: one rank sends and another receives. */
static const ls_collective_kind kinds[] = { LS_COLLECTIVE_ALLREDUCE,      LS_COLLECTIVE_REDUCE,
                                            LS_COLLECTIVE_REDUCE_SCATTER, LS_COLLECTIVE_ALLGATHER,
                                            LS_COLLECTIVE_BROADCAST,      LS_COLLECTIVE_GATHER,
                                            LS_COLLECTIVE_SCATTER,        LS_COLLECTIVE_ALLTOALL,
                                            LS_COLLECTIVE_BARRIER,        LS_COLLECTIVE_SEND };
enum { KINDS = sizeof kinds / sizeof *kinds };

enum { GROUPS = 4, UNDER_WAY = 12 };

/* A call that this rank takes part in. */
typedef struct call {
    ls_work *work; /* NULL: done */
    ls_collective_kind what;
    int group;
    int root, to; /* of a pair: who sends, who receives */
    ls_dtype type;
    size_t count;
    uint64_t salt;     /* inputs are a function of it */
    uint8_t *in, *out; /* the same where the call works in place */
    bool shared;
} call;

typedef struct mix {
    ls_world *world;
    ls_group *groups[GROUPS]; /* the first is that of all ranks; NULL: this rank is in none */
    bool made[GROUPS];        /* some ranks have a group here; the same on all ranks */
    uint64_t plan, own;       /* random numbers: the same on all ranks, and this rank's */
    call calls[UNDER_WAY];
    int under_way;
    size_t largest;
    char *why;
} mix;

static uint64_t scramble(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t below(uint64_t *state, uint64_t n)
{
    *state = scramble(*state);
    return n ? *state % n : 0;
}

/* ---- What is sent, and what must come out. */

/* Element i of a rank's input. Floats are of different sizes, so that their sum shows the order it was made in. */
static double input(const call *c, int rank, size_t i)
{
    uint64_t x = scramble(c->salt * 1000003 + (uint64_t)rank * 7919 + i);
    if (c->type == LS_U8) return (double)(x % 256);
    if (c->type == LS_I32) return (double)((int64_t)(x % 200003) - 100000);
    return (double)(((float)(x % 20001) - 10000.0f) * (x >> 40 & 1 ? 1.0f : 1.0f / 4096));
}

static double add(ls_dtype type, double a, double b)
{
    if (type == LS_F32) return (double)((float)a + (float)b);
    return type == LS_U8 ? (double)(uint8_t)(uint64_t)(a + b) : a + b;
}

/* The canonical sum over ranks first..first+n-1. */
static double sum(const call *c, int first, int n, size_t i)
{
    if (n == 1) return input(c, first, i);
    int m = 1;
    while (2 * m < n) m *= 2;
    return add(c->type, sum(c, first, m, i), sum(c, first + m, n - m, i));
}

static void put(const call *c, uint8_t *to, size_t i, double x)
{
    if (c->type == LS_F32)
        ((float *)(void *)to)[i] = (float)x;
    else if (c->type == LS_I32)
        ((int32_t *)(void *)to)[i] = (int32_t)x;
    else
        to[i] = (uint8_t)x;
}

static double get(const call *c, const uint8_t *from, size_t i)
{
    if (c->type == LS_F32) return (double)((const float *)(const void *)from)[i];
    if (c->type == LS_I32) return (double)((const int32_t *)(const void *)from)[i];
    return (double)from[i];
}

static bool in_place(const call *c)
{
    return c->what == LS_COLLECTIVE_ALLREDUCE || c->what == LS_COLLECTIVE_REDUCE || c->what == LS_COLLECTIVE_BROADCAST;
}

static size_t in_blocks(const call *c, int p)
{
    return c->what == LS_COLLECTIVE_REDUCE_SCATTER || c->what == LS_COLLECTIVE_SCATTER ||
                   c->what == LS_COLLECTIVE_ALLTOALL
               ? (size_t)p
               : 1;
}

static size_t out_blocks(const call *c, int p)
{
    return c->what == LS_COLLECTIVE_ALLGATHER || c->what == LS_COLLECTIVE_GATHER || c->what == LS_COLLECTIVE_ALLTOALL
               ? (size_t)p
               : 1;
}

/* Element i of block b of this rank's output; false: it is not written. */
static bool expected(const call *c, int rank, int p, size_t b, size_t i, double *x)
{
    size_t mine = (size_t)rank * c->count + i;
    switch (c->what) {
    case LS_COLLECTIVE_ALLREDUCE: *x = sum(c, 0, p, i); return true;
    case LS_COLLECTIVE_REDUCE: *x = rank == c->root ? sum(c, 0, p, i) : input(c, rank, i); return true;
    case LS_COLLECTIVE_REDUCE_SCATTER: *x = sum(c, 0, p, mine); return true;
    case LS_COLLECTIVE_ALLGATHER: *x = input(c, (int)b, i); return true;
    case LS_COLLECTIVE_BROADCAST: *x = input(c, c->root, i); return true;
    case LS_COLLECTIVE_GATHER: *x = input(c, (int)b, i); return rank == c->root;
    case LS_COLLECTIVE_SCATTER: *x = input(c, c->root, mine); return true;
    case LS_COLLECTIVE_ALLTOALL: *x = input(c, (int)b, mine); return true;
    case LS_COLLECTIVE_SEND: *x = input(c, c->root, i); return rank == c->to;
    case LS_COLLECTIVE_BARRIER:
    case LS_COLLECTIVE_PARALLEL_FOR:
    case LS_COLLECTIVE_RECEIVE: break;
    }
    return false;
}

/* ---- Calls. */

static int give_up(mix *m, const call *c, const char *what)
{
    snprintf(m->why, MIX_WHY, "rank %d: %s of %zu %s in group %d: %s", ls_world_rank(m->world),
             ls_collective_name((uint8_t)c->what), c->count, ls_dtype_name(c->type), c->group, what);
    char why[200];
    snprintf(why, sizeof why, "%.190s", m->why);
    for (int i = 0; i < GROUPS; i++)
        if (m->groups[i]) ls_group_abort(m->groups[i], why);
    return 1;
}

static void free_buffers(mix *m, call *c)
{
    void *memory[] = { c->in, c->out };
    for (int i = 0; i < (c->in == c->out ? 1 : 2); i++) {
        if (c->shared)
            ls_world_dealloc(m->world, &memory[i]);
        else
            free(memory[i]);
    }
}

static int allocate(mix *m, const call *c, size_t blocks, uint8_t **out)
{
    size_t bytes = blocks * c->count * ls_dtype_size(c->type) + 8;
    void *p = NULL;
    if (c->shared) {
        if (ls_world_alloc(m->world, bytes, &p)) return give_up(m, c, ls_error());
    } else {
        p = malloc(bytes);
    }
    memset(p, 0xee, bytes);
    *out = p;
    return 0;
}

/* The call is done: looks at what came out. */
static int check_result(mix *m, call *c)
{
    ls_group *g = m->groups[c->group];
    int rank = ls_group_rank(g), p = ls_group_size(g), bad = 0;
    for (size_t b = 0; b < out_blocks(c, p) && !bad; b++)
        for (size_t i = 0; i < c->count && !bad; i++) {
            double want, got = get(c, c->out, b * c->count + i);
            if (!expected(c, rank, p, b, i, &want) || got == want) continue;
            char what[160];
            snprintf(what, sizeof what, "block %zu, element %zu is %.9g, expected %.9g", b, i, got, want);
            bad = give_up(m, c, what);
        }
    free_buffers(m, c);
    return bad;
}

static ls_status start(ls_group *g, call *c)
{
    void *in = c->in, *out = c->out;
    size_t n = c->count;
    bool receives = ls_group_rank(g) == c->to;
    switch (c->what) {
    case LS_COLLECTIVE_ALLREDUCE: return ls_allreduce_start(g, in, n, c->type, LS_SUM, &c->work);
    case LS_COLLECTIVE_REDUCE: return ls_reduce_start(g, in, n, c->type, LS_SUM, c->root, &c->work);
    case LS_COLLECTIVE_REDUCE_SCATTER: return ls_reduce_scatter_start(g, in, out, n, c->type, LS_SUM, &c->work);
    case LS_COLLECTIVE_ALLGATHER: return ls_allgather_start(g, in, out, n, c->type, &c->work);
    case LS_COLLECTIVE_BROADCAST: return ls_broadcast_start(g, in, n, c->type, c->root, &c->work);
    case LS_COLLECTIVE_GATHER: return ls_gather_start(g, in, out, n, c->type, c->root, &c->work);
    case LS_COLLECTIVE_SCATTER: return ls_scatter_start(g, in, out, n, c->type, c->root, &c->work);
    case LS_COLLECTIVE_ALLTOALL: return ls_alltoall_start(g, in, out, n, c->type, &c->work);
    case LS_COLLECTIVE_BARRIER: return ls_barrier_start(g, &c->work);
    case LS_COLLECTIVE_SEND:
        return receives ? ls_recv_start(g, out, n, c->type, c->root, &c->work)
                        : ls_send_start(g, in, n, c->type, c->to, &c->work);
    case LS_COLLECTIVE_PARALLEL_FOR:
    case LS_COLLECTIVE_RECEIVE: break;
    }
    return LS_EINVAL;
}

static ls_status block(ls_group *g, call *c)
{
    void *in = c->in, *out = c->out;
    size_t n = c->count;
    bool receives = ls_group_rank(g) == c->to;
    switch (c->what) {
    case LS_COLLECTIVE_ALLREDUCE: return ls_allreduce(g, in, n, c->type, LS_SUM);
    case LS_COLLECTIVE_REDUCE: return ls_reduce(g, in, n, c->type, LS_SUM, c->root);
    case LS_COLLECTIVE_REDUCE_SCATTER: return ls_reduce_scatter(g, in, out, n, c->type, LS_SUM);
    case LS_COLLECTIVE_ALLGATHER: return ls_allgather(g, in, out, n, c->type);
    case LS_COLLECTIVE_BROADCAST: return ls_broadcast(g, in, n, c->type, c->root);
    case LS_COLLECTIVE_GATHER: return ls_gather(g, in, out, n, c->type, c->root);
    case LS_COLLECTIVE_SCATTER: return ls_scatter(g, in, out, n, c->type, c->root);
    case LS_COLLECTIVE_ALLTOALL: return ls_alltoall(g, in, out, n, c->type);
    case LS_COLLECTIVE_BARRIER: return ls_barrier(g);
    case LS_COLLECTIVE_SEND: return receives ? ls_recv(g, out, n, c->type, c->root) : ls_send(g, in, n, c->type, c->to);
    case LS_COLLECTIVE_PARALLEL_FOR:
    case LS_COLLECTIVE_RECEIVE: break;
    }
    return LS_EINVAL;
}

/* Waits for the call at place i, or only tests it. */
static int look_at(mix *m, int i, bool waits)
{
    call *c = &m->calls[i];
    ls_status status = waits ? ls_work_wait(&c->work) : ls_work_test(&c->work);
    if (status == LS_PENDING) return 0;
    if (status) return give_up(m, c, ls_error());
    int bad = check_result(m, c);
    *c = m->calls[--m->under_way];
    return bad;
}

/* A call on a group, by the plan. Every rank draws the same numbers, also one that takes no part. */
static int make_call(mix *m)
{
    static const size_t sizes[] = { 0, 1, 2, 3, 7, 100, 1000, 1025, 4099, 20011, 70001, 300007 };
    static const ls_dtype types[] = { LS_F32, LS_I32, LS_U8 };
    call c = { .what = kinds[below(&m->plan, KINDS)], .group = (int)below(&m->plan, GROUPS) };
    c.type = types[below(&m->plan, 3)];
    c.count = sizes[below(&m->plan, sizeof sizes / sizeof *sizes)];
    uint64_t root = below(&m->plan, 1000), other = below(&m->plan, 1000);
    c.salt = m->plan;
    ls_group *g = m->groups[c.group];
    if (!g) return 0;
    int rank = ls_group_rank(g), p = ls_group_size(g);
    if (c.what == LS_COLLECTIVE_SEND && p == 1) return 0;
    c.root = (int)(root % (uint64_t)p);
    c.to = p > 1 ? (c.root + 1 + (int)(other % (uint64_t)(p - 1))) % p : -1;
    if (c.what == LS_COLLECTIVE_SEND && rank != c.root && rank != c.to) return 0;
    if (c.count * ls_dtype_size(c.type) > m->largest) c.count = m->largest / ls_dtype_size(c.type);

    if (c.what == LS_COLLECTIVE_BARRIER) c.count = 0;
    c.shared = below(&m->own, 2);
    size_t elements = in_blocks(&c, p) * c.count;
    if (allocate(m, &c, in_blocks(&c, p), &c.in)) return 1;
    if (in_place(&c))
        c.out = c.in;
    else if (allocate(m, &c, out_blocks(&c, p), &c.out))
        return 1;
    for (size_t i = 0; i < elements; i++) put(&c, c.in, i, input(&c, rank, i));
    if (below(&m->own, 3) == 0) {
        if (block(g, &c)) return give_up(m, &c, ls_error());
        return check_result(m, &c);
    }
    if (m->under_way == UNDER_WAY && look_at(m, (int)below(&m->own, UNDER_WAY), true)) return 1;
    if (start(g, &c)) return give_up(m, &c, ls_error());
    m->calls[m->under_way++] = c;
    return 0;
}

/* Groups come and go while works are under way. */
static int change_group(mix *m)
{
    int slot = 1 + (int)below(&m->plan, GROUPS - 1), parent = (int)below(&m->plan, GROUPS);
    uint64_t salt = below(&m->plan, 0);
    uint64_t colors = 1 + salt % 3;
    int rank = ls_world_rank(m->world);
    if (m->made[slot]) {
        m->made[slot] = false;
        for (int i = m->under_way - 1; i >= 0; i--)
            if (m->calls[i].group == slot && look_at(m, i, true)) return 1;
        ls_group_free(&m->groups[slot]);
        return 0;
    }
    if (parent == slot || !m->made[parent]) return 0;
    m->made[slot] = true;
    if (!m->groups[parent]) return 0;
    int color = (int)(scramble(salt + (uint64_t)rank) % (colors + 1)) - (salt >> 8 & 1 ? 1 : 0);
    if (ls_group_split(m->groups[parent], color, (int)(scramble(salt ^ (uint64_t)rank) % 100), &m->groups[slot])) {
        snprintf(m->why, MIX_WHY, "rank %d: split: %s", rank, ls_error());
        for (int i = 0; i < GROUPS; i++)
            if (m->groups[i]) ls_group_abort(m->groups[i], "split failed");
        return 1;
    }
    return 0;
}

int mix_run(ls_world *world, const mix_options *o, char *why)
{
    mix m = {
        .world = world, .groups = { ls_world_group(world) }, .made = { true }, .largest = o->largest, .why = why
    };
    m.plan = scramble(o->seed);
    m.own = scramble(o->seed ^ (uint64_t)(ls_world_rank(world) + 1) << 32);
    int bad = 0;
    for (int i = 0; i < o->calls && !bad; i++) {
        bad = below(&m.plan, 8) == 0 ? change_group(&m) : make_call(&m);
        for (uint64_t n = below(&m.own, 3); n && m.under_way && !bad; n--)
            bad = look_at(&m, (int)below(&m.own, (uint64_t)m.under_way), below(&m.own, 4) == 0);
    }
    while (m.under_way && !bad) bad = look_at(&m, (int)below(&m.own, (uint64_t)m.under_way), true);
    for (int i = 0; i < m.under_way; i++) { /* after a failure: whatever has become of them */
        (void)!ls_work_wait(&m.calls[i].work);
        free_buffers(&m, &m.calls[i]);
    }
    for (int i = 1; i < GROUPS; i++) ls_group_free(&m.groups[i]);
    return bad;
}
