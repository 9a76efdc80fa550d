/* The ordinary loop and worse: between the gradients that become ready there are blocking collectives, works that are started and
 * waited for in any order, and other ddps. What happens is drawn from a seed that all ranks share; when, and in which order a rank
 * waits for its works, from one of its own. Every value is checked. */
#include <unistd.h>
#include "comm/nodes.h"
#include "lockstep/ddp.h"

enum { DDPS = 3, SPANS = 7, WORKS = 12, SMALL = 100, LARGE = 30000 };
static const size_t span_counts[SPANS] = { 40, 9000, 0, 3000, 17, 20000, 1 };

/* xorshift: the same numbers from the same seed, everywhere. */
static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state ^= *state << 13, *state ^= *state >> 17, *state ^= *state << 5;
    return *state % below;
}

typedef struct started {
    ls_work *work; /* NULL: none */
    float *buf;
    size_t count;
    int kind, stamp;
} started;

typedef struct player {
    ls_world *world;
    ls_group *group;
    int rank, size;
    uint32_t common, own; /* the two seeds */
    ls_ddp *ddp[DDPS];
    ls_ddp_options options[DDPS];
    int step[DDPS], micro[DDPS], ready[DDPS]; /* ready: how many spans are; -1: not begun */
    uint8_t order[DDPS][SPANS];
    started works[WORKS];
    float *shared[WORKS], *heap[WORKS]; /* buffers that the ranks see, and such that go through staging */
} player;

/* Small whole numbers: sums and means over a power of two of ranks are exact. */
static float gradient(int d, int step, int micro, int rank, size_t i, size_t k)
{
    return (float)((d * 31 + step * 17 + micro * 7 + rank * 5 + (int)i * 3 + (int)(k % 11)) % 64);
}

static int check_step(player *p, int d, const ls_ddp_result *r, char *why)
{
    need(r->weight == 2 * p->size, "ddp %d, step %d: weight %g", d, p->step[d], r->weight);
    for (size_t i = 0; i < SPANS; i++)
        for (size_t k = 0; k < span_counts[i]; k++) {
            float sum = 0;
            for (int rank = 0; rank < p->size; rank++)
                sum += gradient(d, p->step[d], 0, rank, i, k) + gradient(d, p->step[d], 1, rank, i, k);
            float expected = p->options[d].keep_sums ? sum : sum / (float)(2 * p->size);
            float got = ls_ddp_reduced(p->ddp[d], i)[k];
            need(got == expected, "rank %d, ddp %d, step %d, span %zu, element %zu: %g, expected %g", p->rank, d,
                 p->step[d], i, k, (double)got, (double)expected);
        }
    if (p->options[d].reduce_to_local_root) /* before the first rank writes there again */
        need(ls_barrier(p->group) == LS_OK, "rank %d: %s", p->rank, ls_error());
    return 0;
}

/* One call on ddp d: begin, the next span, or finish. */
static int play_ddp(player *p, int d, char *why)
{
    ls_world *world = p->world;
    if (p->ready[d] < 0) {
        need_ok(ls_ddp_begin(p->ddp[d], p->micro[d] ? LS_DDP_SYNC : LS_DDP_ACCUMULATE, 1));
        for (uint8_t i = 0; i < SPANS; i++) p->order[d][i] = i;
        for (uint32_t i = SPANS - 1; i > 0; i--) {
            uint32_t j = draw(&p->common, i + 1);
            uint8_t swapped = p->order[d][i];
            p->order[d][i] = p->order[d][j];
            p->order[d][j] = swapped;
        }
        p->ready[d] = 0;
    } else if (p->ready[d] < SPANS) {
        size_t i = p->order[d][p->ready[d]++];
        for (size_t k = 0; k < span_counts[i]; k++)
            ls_ddp_grad(p->ddp[d], i)[k] = gradient(d, p->step[d], p->micro[d], p->rank, i, k);
        need_ok(ls_ddp_ready(p->ddp[d], i));
        need_ok(ls_ddp_poll(p->ddp[d]));
    } else {
        ls_ddp_result r;
        need_ok(ls_ddp_finish(p->ddp[d], &r));
        p->ready[d] = -1;
        if (p->micro[d] && check_step(p, d, &r, why)) return 1;
        p->step[d] += p->micro[d];
        p->micro[d] = !p->micro[d];
    }
    return 0;
}

/* A blocking collective. */
static int play_blocking(player *p, char *why)
{
    ls_world *world = p->world;
    size_t count = draw(&p->common, 2) ? 1 + draw(&p->common, SMALL) : 1 + draw(&p->common, LARGE);
    int root = (int)draw(&p->common, (uint32_t)p->size), kind = (int)draw(&p->common, 3);
    static _Thread_local float buf[LARGE];
    for (size_t k = 0; k < count; k++) buf[k] = (float)(p->rank * 3) + (float)(k % 7);
    if (kind == 0)
        need_ok(ls_allreduce(p->group, buf, count, LS_F32, LS_SUM));
    else if (kind == 1)
        need_ok(ls_broadcast(p->group, buf, count, LS_F32, root));
    else
        need_ok(ls_barrier(p->group));
    for (size_t k = 0; k < count; k++) {
        float sum = (float)(3 * p->size * (p->size - 1) / 2) + (float)(k % 7) * (float)p->size;
        float expected = kind == 0 ? sum : (float)((kind == 1 ? root : p->rank) * 3) + (float)(k % 7);
        need(buf[k] == expected, "rank %d, blocking %d, element %zu of %zu: %g, expected %g", p->rank, kind, k, count,
             (double)buf[k], (double)expected);
    }
    return 0;
}

static int check_work(player *p, started *s, char *why)
{
    for (size_t k = 0; k < s->count; k++) {
        float sum = (float)(p->size * (p->size - 1) / 2 + p->size * s->stamp) + (float)(k % 5) * (float)p->size;
        float own = (float)(p->rank + s->stamp) + (float)(k % 5);
        float expected = s->kind == 0 || (s->kind == 1 && p->rank == 0) ? sum
                         : s->kind == 1                                 ? own
                                                                        : own - (float)p->rank;
        need(s->buf[k] == expected, "rank %d, work %d of kind %d, element %zu of %zu: %g, expected %g", p->rank,
             s->stamp, s->kind, k, s->count, (double)s->buf[k], (double)expected);
    }
    return 0;
}

/* Starts a work in a free place, or waits for all of them if there is none: which one first, every rank decides by itself. */
static int play_started(player *p, int turn, char *why)
{
    ls_world *world = p->world;
    int at = 0;
    while (at < WORKS && p->works[at].work) at++;
    if (at == WORKS || draw(&p->common, 4) == 0) {
        for (int left = 0, i = 0; i < WORKS; i++) left += p->works[i].work != NULL, at = left;
        while (at > 0) {
            started *s = &p->works[draw(&p->own, WORKS)];
            if (!s->work) continue;
            if (draw(&p->own, 2)) {
                ls_status status = ls_work_test(&s->work);
                if (status == LS_PENDING) continue;
                need(!status, "rank %d: test: %s", p->rank, ls_error());
            } else {
                need_ok(ls_work_wait(&s->work));
            }
            if (check_work(p, s, why)) return 1;
            at--;
        }
        return 0;
    }
    started *s = &p->works[at];
    *s = (started){ .kind = (int)draw(&p->common, 3), .stamp = turn % 50 };
    s->count = draw(&p->common, 2) ? draw(&p->common, SMALL) : draw(&p->common, LARGE);
    s->buf = draw(&p->common, 2) ? p->shared[at] : p->heap[at];
    for (size_t k = 0; k < s->count; k++) s->buf[k] = (float)(p->rank + s->stamp) + (float)(k % 5);
    if (s->kind == 0)
        need_ok(ls_allreduce_start(p->group, s->buf, s->count, LS_F32, LS_SUM, &s->work));
    else if (s->kind == 1)
        need_ok(ls_reduce_start(p->group, s->buf, s->count, LS_F32, LS_SUM, 0, &s->work));
    else
        need_ok(ls_broadcast_start(p->group, s->buf, s->count, LS_F32, 0, &s->work));
    return 0;
}

static int play(ls_world *world, void *arg, char *why)
{
    player p = { .world = world, .group = ls_world_group(world), .rank = ls_world_rank(world) };
    p.size = ls_world_size(world);
    p.common = *(uint32_t *)arg;
    p.own = p.common * 7919u + (uint32_t)p.rank + 1;
    for (int i = 0; i < WORKS; i++) {
        void *memory;
        need_ok(ls_world_alloc(world, LARGE * sizeof(float), &memory));
        p.shared[i] = memory;
        p.heap[i] = malloc(LARGE * sizeof(float));
    }
    for (int d = 0; d < DDPS; d++) {
        ls_span spans[SPANS];
        for (size_t i = 0; i < SPANS; i++) spans[i] = (ls_span){ .name = "w", .count = span_counts[i] };
        p.options[d] = (ls_ddp_options){ .bucket_bytes = 1u << (4 + draw(&p.common, 14)),
                                         .first_bucket_bytes = 1u << (4 + draw(&p.common, 14)),
                                         .keep_sums = draw(&p.common, 2),
                                         .reduce_to_local_root = draw(&p.common, 3) == 0,
                                         .no_overlap = draw(&p.common, 4) == 0 };
        need_ok(ls_ddp_open(&p.ddp[d], world, spans, SPANS, &p.options[d]));
        p.ready[d] = -1;
    }
    for (int turn = 0; turn < 250; turn++) {
        uint32_t what = draw(&p.common, 10);
        if (draw(&p.own, 20) == 0) usleep(draw(&p.own, 300));
        if (what < 7   ? play_ddp(&p, (int)draw(&p.common, DDPS), why)
            : what < 8 ? play_blocking(&p, why)
                       : play_started(&p, turn, why))
            return 1;
    }
    for (int d = 0; d < DDPS; d++)
        while (p.ready[d] >= 0 || p.micro[d])
            if (play_ddp(&p, d, why)) return 1;
    for (int i = WORKS - 1; i >= 0; i--) {
        if (!p.works[i].work) continue;
        need_ok(ls_work_wait(&p.works[i].work));
        if (check_work(&p, &p.works[i], why)) return 1;
    }
    need(p.step[0] + p.step[1] + p.step[2] > 3, "only %d steps", p.step[0] + p.step[1] + p.step[2]);
    for (int d = 0; d < DDPS; d++) ls_ddp_free(&p.ddp[d]);
    for (int i = 0; i < WORKS; i++) free(p.heap[i]);
    return 0;
}

static void collectives_and_other_ddps_may_come_in_between(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 24; seed++) {
        uint32_t s = seed * 2654435761u;
        on_ranks(1 << seed % 4, play, &s, NULL); /* 2, 4, 8 or 1 */
    }
    static const char *const places[] = { "01", "0011", "0101", "0123" };
    for (uint32_t seed = 0; seed < 8; seed++) {
        uint32_t s = 77 + seed * 2654435761u;
        on_nodes(places[seed % 4], play, &s, (ls_world_options){ .staging_bytes = seed % 2 ? 32768 : 0 });
    }
}

/* The loop that everybody writes: part of backward, the loss summed over the ranks for the log, the rest of backward. */
static int ordinary(ls_world *world, void *arg, char *why)
{
    ls_span spans[4];
    ls_ddp *ddp;
    int size = ls_world_size(world), rank = ls_world_rank(world);
    (void)arg;
    for (int i = 0; i < 4; i++) spans[i] = (ls_span){ .name = "w", .count = 5000 };
    need_ok(ls_ddp_open(&ddp, world, spans, 4, &(ls_ddp_options){ .bucket_bytes = 4, .first_bucket_bytes = 4 }));
    for (int step = 0; step < 30; step++) {
        double loss = rank + step;
        need_ok(ls_ddp_begin(ddp, LS_DDP_SYNC, 1));
        for (size_t i = 0; i < 4; i++) {
            for (int k = 0; k < 5000; k++) ls_ddp_grad(ddp, i)[k] = (float)(rank + step);
            need_ok(ls_ddp_ready(ddp, i));
            if (i == 1) need_ok(ls_allreduce(ls_world_group(world), &loss, 1, LS_F64, LS_MEAN));
        }
        need_ok(ls_ddp_finish(ddp, NULL));
        double expected = (size - 1) / 2.0 + step;
        need(loss == expected && (double)ls_ddp_grad(ddp, 0)[4999] == expected,
             "step %d: loss %g, gradient %g, expected %g", step, loss, (double)ls_ddp_grad(ddp, 0)[4999], expected);
    }
    ls_ddp_free(&ddp);
    return 0;
}

static void a_loss_may_be_summed_within_backward(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size *= 2) on_ranks(size, ordinary, NULL, NULL);
    on_nodes("0011", ordinary, NULL, (ls_world_options){ 0 });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_may_be_summed_within_backward),
        cmocka_unit_test(collectives_and_other_ddps_may_come_in_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
