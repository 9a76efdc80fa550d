/* The cost of data parallelism per training step, compared with the same step with all communication removed, alternating:
 *
 *   with      gradients through the reducer, summed over the ranks during backward; norm and update shared
 *   without   each rank by itself: no reducer, no hook, no collective; norm and update of this rank's share of the elements
 *
 * for a GPT of 6 layers x 384, vocabulary 50257, batch 4 x 256 per rank, one thread. Then the reducer's own cost for many
 * small parameters: 100,000 of 10 elements. Usage: lockstep run -n N -- bench_ddp_cost [ROUNDS]; bench/ddp_cost does it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "comm/parallel_for.h"
#include "comm/private.h"
#include "ddp/reducer.h"
#include "lockstep/ddp.h"
#include "lockstep/nn.h"
#include "nn/norm.h"
#include "nn/optimizer.h"

enum {
    ROWS = 4,
    LENGTH = 256,
    VOCAB = 50257,
    CHUNK = 64 * LS__NORM_BLOCK,
    MAX_ROUNDS = 200,
    SMALL = 100000,
    SMALL_COUNT = 10
};

typedef struct bench {
    ls_world *world;
    ls_group *group;
    int rank, size;
    ls_model *model;
    ls_tape *tape;
    ls_optimizer *optimizer;
    ls_ddp *ddp;
    float *own; /* this rank's gradients, the same memory with the reducer and without */
    const float *reduced;
    double *norms; /* shared */
    int32_t *tokens;
    int64_t step;
    float scale;
} bench;

static ls_status on_ready(void *user, ls_param *param)
{
    bench *b = user;
    const ls_place *places;
    return ls_ddp_ready(b->ddp, ls_model_places(b->model, &places) - 1 - (size_t)param->index);
}

static ls_status open_reducer(bench *b)
{
    const ls_place *places;
    size_t n = ls_model_places(b->model, &places);
    ls_span *spans = malloc(n * sizeof *spans);
    if (!spans) return LS_ENOMEM;
    for (size_t i = 0; i < n; i++)
        spans[i] = (ls_span){ .name = places[n - 1 - i].name, .count = places[n - 1 - i].count };
    ls_ddp_options o = { .slots = b->size, .keep_sums = true, .fixed_order = true, .reduce_to_local_root = true };
    ls_status status = ls_ddp_open(&b->ddp, b->world, spans, n, &o);
    free(spans);
    return status;
}

static ls_status open_model(bench *b)
{
    ls_lm_options m = { .layers = 6, .width = 384, .heads = 6, .vocab_size = VOCAB, .context = LENGTH };
    ls_status status = ls_model_open(&b->model, &(ls_model_options){ .lm = m });
    if (status) return status;
    const ls_place *places;
    void *values = NULL, *state = NULL, *norms = NULL;
    size_t n = ls_model_places(b->model, &places), elements = ls_model_elements(b->model);
    ls_optimizer_options adamw = { .threads = 1 };
    if ((status = ls__optimizer_options_check(&adamw))) return status;
    if ((status = open_reducer(b))) return status;
    if ((status = ls__group_share(b->group, elements * sizeof(float), &values))) return status;
    if ((status = ls__group_share(b->group, ls__optimizer_state_floats(&adamw, elements) * sizeof(float) + 64, &state)))
        return status;
    if ((status = ls__group_share(b->group, ls__norm_blocks(elements) * sizeof(double), &norms))) return status;
    b->norms = norms;
    b->own = ls_ddp_grad(b->ddp, n - 1); /* the last span comes first */
    b->reduced = ls_ddp_reduced(b->ddp, n - 1);
    b->tokens = calloc((size_t)ROWS * LENGTH + 1, sizeof *b->tokens);
    if (!b->tokens) return LS_ENOMEM;
    for (int i = 0; i <= ROWS * LENGTH; i++) b->tokens[i] = (int32_t)((unsigned)(i + b->rank) * 2654435761u % VOCAB);
    if ((status = ls_model_bind(b->model, values, b->own, true))) return status;
    if (b->rank == 0 && (status = ls_model_init(b->model, 1))) return status;
    if ((status = ls__optimizer_open_in(&b->optimizer, places, n, 0, elements, &adamw, state))) return status;
    if ((status = ls_tape_open(&b->tape, &(ls_tape_options){ .threads = 1 }))) return status;
    return ls_barrier(b->group);
}

/* ---- Shared work. */

static void norm_chunk(void *user, const void *const *data, size_t begin, size_t end)
{
    const bench *b = user;
    (void)data;
    ls__norm_sums(ls_model_grads(b->model), begin, end, b->norms, 1);
}
static void norm_of_sums(void *user, const void *const *data, size_t begin, size_t end)
{
    const bench *b = user;
    (void)data;
    ls__norm_sums(b->reduced, begin, end, b->norms, 1);
}
static void update_from(const bench *b, const float *grads, size_t begin, size_t end)
{
    /* The range is the optimizer's own: nothing can fail. */
    ls_status status = ls__optimizer_update_range(b->optimizer, ls_model_values(b->model), grads, begin, end, b->step,
                                                  1e-4f, b->scale, NULL);
    (void)status;
}
static void update_of_sums(void *user, const void *const *data, size_t begin, size_t end)
{
    const bench *b = user;
    (void)data;
    update_from(b, b->reduced, begin, end);
}

static ls_status shared(bench *b, ls__chunk_fn fn)
{
    size_t elements = ls_model_elements(b->model);
    if (b->size > 1) return ls__parallel_for(b->group, NULL, elements, LS_F32, CHUNK, fn, b);
    fn(b, NULL, 0, elements);
    return LS_OK;
}

static ls_status step(bench *b, bool with)
{
    ls_param *params;
    size_t elements = ls_model_elements(b->model);
    ls_model_batch batch = { .batch_size = ROWS, .seq_len = LENGTH, .tokens = b->tokens, .targets = b->tokens + 1 };
    ls_pass pass = { .stream = (uint64_t)b->step };
    ls_status status = LS_OK;
    ls_tape_on_ready(b->tape, with ? on_ready : NULL, b);
    int n = ls_model_params(b->model, &params);
    if (with) status = ls_ddp_begin(b->ddp, LS_DDP_SYNC, 1);
    if (!status) status = ls_tape_begin(b->tape, params, n, &pass);
    if (status) return status;
    ls_tensor *loss = ls_model_loss(b->model, b->tape, &batch);
    if ((status = ls_tape_backward(b->tape, loss))) return status;
    if (with) {
        double sum = (double)loss->data[0];
        if ((status = ls_ddp_finish(b->ddp, NULL))) return status;
        if ((status = ls_allreduce(b->group, &sum, 1, LS_F64, LS_SUM))) return status;
        if ((status = shared(b, norm_of_sums))) return status;
        b->scale = ls__clip_scale(ls__norm_total(b->norms, ls__norm_blocks(elements)), 1);
        return shared(b, update_of_sums);
    }
    size_t chunks = (elements + CHUNK - 1) / CHUNK, each = chunks / (size_t)b->size * CHUNK;
    size_t begin = each * (size_t)b->rank, end = b->rank + 1 == b->size ? elements : begin + each;
    norm_chunk(b, NULL, begin, end);
    b->scale = ls__clip_scale(ls__norm_total(b->norms, ls__norm_blocks(elements)), 1);
    update_from(b, b->own, begin, end);
    return LS_OK;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, ascending);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static double processor_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Pairs of steps, the order within a pair alternating. Times are means over the ranks; besides the wall time, those of the
 * processor, which do not grow when others use the machine, but do not show waiting either. */
static ls_status measure_steps(bench *b, int rounds)
{
    double ms[2][MAX_ROUNDS], cpu[2][MAX_ROUNDS], ratio[MAX_ROUNDS];
    ls_status status = open_model(b);
    for (int round = -1; round < rounds && !status; round++) {
        for (int k = 0; k < 2 && !status; k++) {
            int with = (k + round) & 1;
            status = ls_barrier(b->group);
            int64_t begin = ls_now();
            double processor = processor_ms();
            if (!status) status = step(b, with);
            double t[2] = { (double)(ls_now() - begin) / 1e6 / b->size, (processor_ms() - processor) / b->size };
            if (!status) status = ls_allreduce(b->group, t, 2, LS_F64, LS_SUM);
            if (round >= 0) ms[with][round] = t[0], cpu[with][round] = t[1];
            b->step++;
        }
        if (round >= 0) ratio[round] = ms[1][round] / ms[0][round];
    }
    if (status || b->rank) return status;
    double pair = median(ratio, rounds), with = median(ms[1], rounds), without = median(ms[0], rounds);
    printf("%d rank%s: step %.1f ms, with communication removed %.1f ms: %.4fx (median of pairs %.4fx), by "
           "processor time %.4fx\n",
           b->size, b->size == 1 ? "" : "s", with, without, with / without, pair,
           median(cpu[1], rounds) / median(cpu[0], rounds));
    return LS_OK;
}

/* ---- Many small parameters. */

/* What the sums themselves take: the same bytes in the same buckets, without a reducer. */
static ls_status plain_sums(bench *b, float *data, size_t elements)
{
    enum { BUCKET = (4 << 20) / 4 };
    ls_status status = LS_OK;
    for (size_t at = 0; at < elements && !status; at += BUCKET) {
        size_t n = elements - at < BUCKET ? elements - at : BUCKET;
        status = ls_allreduce(b->group, data + at, n, LS_F32, LS_SUM);
    }
    return status;
}

static ls_status measure_small(bench *b, bool user_owned, int rounds)
{
    static ls_span spans[SMALL];
    static float memory[SMALL][SMALL_COUNT];
    double with[MAX_ROUNDS], plain[MAX_ROUNDS];
    for (int i = 0; i < SMALL; i++)
        spans[i] = (ls_span){ .name = "a parameter", .grad = user_owned ? memory[i] : NULL, .count = SMALL_COUNT };
    ls_ddp *ddp;
    void *block = NULL;
    ls_status status = ls_ddp_open(&ddp, b->world, spans, SMALL, &(ls_ddp_options){ .fixed_order = true });
    size_t elements = status ? 0 : ddp->total;
    if (!status) status = ls_world_alloc(b->world, elements * sizeof(float), &block);
    if (!status) memset(block, 0, elements * sizeof(float));
    for (int round = -2; round < rounds && !status; round++) {
        if (!user_owned) memset(ls_ddp_grad(ddp, SMALL - 1), 0, elements * sizeof(float));
        status = ls_barrier(b->group);
        int64_t begin = ls_now();
        if (!status) status = ls_ddp_begin(ddp, LS_DDP_SYNC, 1);
        for (size_t i = 0; i < SMALL && !status; i++) status = ls_ddp_ready(ddp, i);
        if (!status) status = ls_ddp_finish(ddp, NULL);
        int64_t middle = ls_now();
        memset(block, 0, elements * sizeof(float));
        if (!status) status = ls_barrier(b->group);
        int64_t again = ls_now();
        if (!status) status = plain_sums(b, block, elements);
        if (round < 0) continue;
        with[round] = (double)(middle - begin) / 1e3;
        plain[round] = (double)(ls_now() - again) / 1e3;
    }
    ls_world_dealloc(b->world, &block);
    ls_ddp_free(&ddp);
    if (status || b->rank) return status;
    double t = median(with, rounds), p = median(plain, rounds);
    printf(
        "%d rank%s, %d parameters of %d elements, %s: %.0f us per step, of which the sums %.0f us; reducer %.3f us per "
        "parameter\n",
        b->size, b->size == 1 ? "" : "s", SMALL, SMALL_COUNT, user_owned ? "the caller's memory" : "lockstep's memory",
        t, p, (t - p) / SMALL);
    return LS_OK;
}

int main(int argc, char **argv)
{
    bench b = { 0 };
    int rounds = argc > 1 ? atoi(argv[1]) : 9;
    if (rounds < 0 || rounds > MAX_ROUNDS) rounds = 9;
    ls_status status = ls_world_open(&b.world, NULL);
    if (!status) {
        b.group = ls_world_group(b.world);
        b.rank = ls_world_rank(b.world);
        b.size = ls_world_size(b.world);
    }
    if (!status && rounds) status = measure_steps(&b, rounds);
    for (int user_owned = 0; user_owned < 2 && !status; user_owned++) status = measure_small(&b, user_owned, 51);
    if (status) fprintf(stderr, "bench_ddp_cost: %s\n", ls_error());
    ls_tape_free(&b.tape);
    ls_optimizer_free(&b.optimizer);
    ls_model_free(&b.model);
    ls_ddp_free(&b.ddp);
    ls_world_free(&b.world);
    free(b.tokens);
    return status ? 1 : 0;
}
