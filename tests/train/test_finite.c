/* A step whose gradient is not finite on some rank is skipped on all of them: the weights stay as they are, bit for bit and the
 * same everywhere, the step is counted, and training continues. On any number of ranks, with and without clipping, with both ways
 * to update. */
#include <math.h>
#include <unistd.h>
#include "comm/nodes.h"
#include "train/training.h"

enum { SLOTS = 4, STEPS = 8, MAX_ELEMENTS = 1 << 16 };

typedef struct plan {
    double clip; /* 0: 1; < 0: none */
    ls_update update;
    bool bf16, forever;
} plan;

/* What goes wrong in a step, counted from 1: in the gradient of one parameter in one slot, or in two. */
static void spoil(int64_t step, int slot, int param, int params, float *grad, int64_t count)
{
    if (step == 2 && slot == SLOTS - 1 && param == 0) grad[0] = NAN;
    if (step == 3 && slot == 0 && param == params / 2) grad[count - 1] = -INFINITY;
    if (step == 4 && slot % 2 && param == params - 1) grad[count / 2] = 3e38f; /* finite, but not with its like */
    if (step == 6 && slot == 1)
        for (int64_t i = 0; i < count; i++) grad[i] = NAN;
}

typedef struct rank_state {
    ls_train *t;
    const plan *plan;
} rank_state;

/* The trainer's hook, with something in front. */
static ls_status on_ready(void *user, ls_param *param)
{
    const rank_state *s = user;
    ls_train *t = s->t;
    const ls_place *places;
    int n = (int)ls_model_places(t->model, &places), each = t->parallel.each;
    int slot = t->parallel.rank * each + (int)(ls_ddp_get_stats(t->parallel.ddp).micro_batches % each);
    spoil(s->plan->forever ? 6 : t->step + 1, slot, param->index, n, param->grad, (int64_t)places[param->index].count);
    return ls_ddp_ready(t->parallel.ddp, (size_t)(n - 1 - param->index));
}

static ls_train_options tiny(ls_world *world, const plan *p)
{
    return (ls_train_options){ .model = { .layers = 1, .width = 16, .heads = 2 },
                               .batch_size = 1,
                               .seq_len = 16,
                               .slots = SLOTS,
                               .steps = STEPS,
                               .schedule = { .warmup = 1 },
                               .threads = 1,
                               .workers = -1,
                               .bucket_mb = 4096.0 / (1 << 20),
                               .clip = p->clip,
                               .update = p->update,
                               .wire = p->bf16 ? LS_WIRE_BF16 : LS_WIRE_F32,
                               .world = world };
}

/* Weights after the run on one rank: what every other number of ranks must have. */
static float expected[MAX_ELEMENTS];

static int train(ls_world *world, void *arg, char *why)
{
    const plan *p = arg;
    ls_train_options o = tiny(world, p);
    rank_state s = { .plan = p };
    need_ok(ls_train_open(&s.t, &o));
    ls_tape_on_ready(s.t->tape, on_ready, &s);
    size_t elements = ls_model_elements(s.t->model), bytes = elements * sizeof(float);
    need(elements <= MAX_ELEMENTS, "%zu elements", elements);
    float *values = ls_model_values(s.t->model), *before = malloc(bytes);
    int64_t skipped = 0;
    for (int step = 1; step <= STEPS; step++) {
        ls_train_metrics m;
        memcpy(before, values, bytes);
        need_ok(ls_barrier(ls_world_group(world)));
        need_ok(ls_train_step(s.t, &m));
        bool spoiled = step == 2 || step == 3 || step == 4 || step == 6;
        skipped += spoiled;
        need(m.step == step && m.skipped == skipped, "step %lld: %lld were skipped, expected %lld", (long long)m.step,
             (long long)m.skipped, (long long)skipped);
        need(spoiled ? !isfinite(m.grad_norm) : isfinite(m.grad_norm) && m.grad_norm > 0, "step %d: norm %g", step,
             m.grad_norm);
        need(isfinite(m.loss), "step %d: loss %g", step, m.loss);
        need(!memcmp(before, values, bytes) == spoiled, "rank %d, step %d: the update was%s made", ls_world_rank(world),
             step, spoiled ? "" : " not");
        need_ok(ls_params_verify(world, &(ls_named){ "all", values, elements }, 1));
        need_ok(ls_barrier(ls_world_group(world))); /* the weights may be shared */
    }
    if (ls_world_size(world) == 1 && !p->bf16) memcpy(expected, values, bytes);
    if (!p->bf16) need(!memcmp(expected, values, bytes), "other weights than on one rank");
    need_ok(ls_barrier(ls_world_group(world)));
    free(before);
    ls_train_free(&s.t);
    return 0;
}

static void steps_that_are_not_finite_are_skipped_by_all(void **state)
{
    (void)state;
    for (int clip = 0; clip < 2; clip++)
        for (int size = 1; size <= 4; size *= 2)
            for (int update = 0; update < 2; update++) {
                plan p = { .clip = clip ? 0 : -1, .update = update ? LS_UPDATE_REPLICATED : LS_UPDATE_SHARDED };
                on_ranks(size, train, &p, NULL);
                p.bf16 = true;
                on_ranks(size, train, &p, NULL);
                if (size == 1) continue;
                p.bf16 = false;
                on_nodes(size == 2 ? "01" : "0011", train, &p, (ls_world_options){ 0 });
            }
}

static int hopeless(ls_world *world, void *arg, char *why)
{
    plan p = { .clip = -1, .forever = true };
    ls_train_options o = tiny(world, &p);
    o.steps = 30;
    rank_state s = { .plan = &p };
    ls_train_metrics m;
    ls_status status = LS_OK;
    (void)arg;
    need_ok(ls_train_open(&s.t, &o));
    ls_tape_on_ready(s.t->tape, on_ready, &s);
    int made = 0;
    while ((status = ls_train_step(s.t, &m)) == LS_OK) made++;
    need(status == LS_ENOTFINITE && strstr(ls_error(), "step 10: ") && strstr(ls_error(), "in a row"), "%s: %s",
         ls_status_name(status), ls_error());
    need(made == 9, "%d steps", made);
    ls_train_free(&s.t);
    return 0;
}

static void a_run_of_nothing_but_such_steps_is_given_up(void **state)
{
    (void)state;
    on_ranks(1, hopeless, NULL, NULL);
    on_ranks(4, hopeless, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_that_are_not_finite_are_skipped_by_all),
        cmocka_unit_test(a_run_of_nothing_but_such_steps_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
