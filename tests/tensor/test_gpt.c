/* A whole GPT-2 on the tape: PyTorch's loss, gradients and training; the same bits for any number of threads; no heap
 * in a steady step; memory that grows linearly with the context. */
#include "goldens.h"
#include "gpt.h"
#include "harness.h"

/* ---- Counting what the heap is asked for. The linker resolves these before libc's. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *p, size_t bytes);
__attribute__((unused)) static _Atomic long heap_calls; /* under a sanitizer, which has its own heap, nothing counts */

#ifndef __SANITIZE_ADDRESS__
#ifdef __has_feature
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif
#else
#define SANITIZED
#endif
/* Instrumented loops are some thirty times slower. */
#ifdef SANITIZED
enum { STEPS = 3, CONTEXT = 256 };
#else
enum { STEPS = 20, CONTEXT = 1024 };
void *malloc(size_t bytes)
{
    heap_calls++;
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes)
{
    heap_calls++;
    return __libc_calloc(count, bytes);
}
void *realloc(void *p, size_t bytes)
{
    heap_calls++;
    return __libc_realloc(p, bytes);
}
#endif

static void fill_tokens(int32_t *to, int count, uint32_t seed, int vocab)
{
    for (int i = 0; i < count; i++) to[i] = (int32_t)((double)(test_value(seed, (uint32_t)i) + 1.0) / 2 * vocab);
}

/* Values as in make_goldens.py. */
static void open_test_gpt(gpt *g, const gpt_config *c, float scale)
{
    gpt_open(g, c, calloc);
    for (int i = 0; i < g->n_params; i++) {
        ls_param *p = &g->params[i];
        bool gain = p->dims == 1 && strstr(p->name, "weight");
        test_fill(p->value, p->shape[0] * p->shape[1], 100 + (uint32_t)i, scale, gain ? 1 : 0);
    }
}

static void close_gpt(gpt *g)
{
    free(g->values);
    free(g->grads);
    free(g->m);
    free(g->v);
}

static float step_gpt(gpt *g, ls_tape *t, int step, int threads, const ls_pass *pass)
{
    int32_t tokens[8192], targets[8192];
    int count = g->c.batch * g->c.seq;
    assert_true(count <= 8192);
    fill_tokens(tokens, count, 200 + (uint32_t)step, g->c.vocab);
    fill_tokens(targets, count, 300 + (uint32_t)step, g->c.vocab);
    check_ok(ls_tape_begin(t, g->params, g->n_params, pass));
    ls_tensor *loss = gpt_loss(g, t, tokens, targets);
    check_ok(ls_tape_backward(t, loss));
    float value = loss->data[0];
    gpt_update(g, step + 1, 1e-2f, 0.01f, threads);
    return value;
}

static void loss_gradients_and_training_agree_with_pytorch(void **state)
{
    (void)state;
    goldens golden;
    static gpt g;
    ls_tape *t;
    float losses[10];
    goldens_open(&golden);
    open_test_gpt(&g, &(gpt_config){ .layers = 4, .width = 16, .heads = 2, .vocab = 61, .batch = 2, .seq = 12 }, 0.2f);
    check_ok(ls_tape_open(&t, &(ls_tape_options){ .threads = 2 }));
    for (int step = 0; step < 10; step++) {
        losses[step] = step_gpt(&g, t, step, 2, NULL);
        for (int i = 0; step == 0 && i < g.n_params; i++) {
            char name[64];
            snprintf(name, sizeof name, "gpt.%s", g.params[i].name);
            goldens_check(&golden, name, g.params[i].grad, (size_t)(g.params[i].shape[0] * g.params[i].shape[1]), 1e-4);
        }
    }
    goldens_check(&golden, "gpt.losses", losses, 10, 1e-4);
    goldens_check(&golden, "gpt.loss", losses, 1, 1e-5);
    ls_tape_free(&t);
    close_gpt(&g);
    free(golden.text);
}

static void train(gpt *g, int threads, int steps, float dropout)
{
    gpt_config c = { .layers = 2, .width = 96, .heads = 3, .vocab = 300, .batch = 3, .seq = 150, .dropout = dropout };
    ls_tape *t;
    open_test_gpt(g, &c, 0.1f);
    check_ok(ls_tape_open(&t, &(ls_tape_options){ .threads = threads }));
    for (int step = 0; step < steps; step++)
        step_gpt(g, t, step, threads, &(ls_pass){ .seed = 7, .stream = (uint64_t)step });
    ls_tape_free(&t);
}

static void weights_do_not_depend_on_the_number_of_threads(void **state)
{
    (void)state;
    for (int dropout = 0; dropout < 2; dropout++) {
        static gpt one, other;
        train(&one, 1, STEPS, dropout ? 0.1f : 0);
        for (int threads = dropout ? 2 : 1; threads <= (dropout ? 2 : 3); threads++) { /* 1 again: two runs are equal */
            train(&other, threads, STEPS, dropout ? 0.1f : 0);
            for (size_t i = 0; i < one.count; i++)
                if (memcmp(&one.values[i], &other.values[i], sizeof(float)))
                    fail_msg("1 and %d threads: weight %zu is %.9g and %.9g after %d steps", threads, i,
                             (double)one.values[i], (double)other.values[i], STEPS);
            close_gpt(&other);
        }
        close_gpt(&one);
    }
}

/* Steps on one tape; the bytes that it took. */
static size_t train_aliased(gpt *g, bool alias, bool dropout)
{
    gpt_config c = {
        .layers = 8, .width = 64, .heads = 2, .vocab = 40, .batch = 1, .seq = 40, .dropout = dropout ? 0.1f : 0
    };
    ls_tape *t;
    open_test_gpt(g, &c, 0.1f);
    check_ok(ls_tape_open(&t, &(ls_tape_options){ .threads = 2 }));
    size_t first = (size_t)(c.vocab * c.width); /* the embedding is the output projection, too */
    if (alias) ls__tape_alias(t, g->grads + first, g->count - first);
    for (int step = 0; step < 3; step++) step_gpt(g, t, step, 2, &(ls_pass){ .seed = 7, .stream = (uint64_t)step });
    size_t peak = ls__tape_peak(t);
    ls_tape_free(&t);
    return peak;
}

static void gradients_that_are_aliased_hold_the_activations_and_get_the_same_bits(void **state)
{
    (void)state;
    for (int dropout = 0; dropout < 2; dropout++) {
        static gpt own, aliased;
        size_t whole = train_aliased(&own, false, dropout), rest = train_aliased(&aliased, true, dropout);
        for (size_t i = 0; i < own.count; i++)
            if (memcmp(&own.values[i], &aliased.values[i], sizeof(float)) ||
                memcmp(&own.grads[i], &aliased.grads[i], sizeof(float)))
                fail_msg("weight %zu is %.9g and %.9g, its gradient %.9g and %.9g", i, (double)own.values[i],
                         (double)aliased.values[i], (double)own.grads[i], (double)aliased.grads[i]);
        if (rest > whole / 2) fail_msg("the tape took %zu bytes with aliased memory, %zu without", rest, whole);
        close_gpt(&own);
        close_gpt(&aliased);
    }
}

static void a_steady_step_takes_nothing_from_the_heap(void **state)
{
    (void)state;
#ifdef SANITIZED
    skip();
#else
    static gpt g;
    ls_tape *t;
    open_test_gpt(&g, &(gpt_config){ .layers = 2, .width = 96, .heads = 3, .vocab = 300, .batch = 3, .seq = 150 },
                  0.1f);
    check_ok(ls_tape_open(&t, &(ls_tape_options){ .threads = 2 }));
    for (int step = 0; step < 2; step++) step_gpt(&g, t, step, 2, NULL); /* OpenMP and OpenBLAS set themselves up */
    size_t peak = ls__tape_peak(t);
    long before = heap_calls;
    for (int step = 2; step < 5; step++) step_gpt(&g, t, step, 2, NULL);
    assert_int_equal(heap_calls - before, 0);
    assert_int_equal(ls__tape_peak(t), peak);
    void *volatile probe = malloc(1); /* the count counts */
    free(probe);
    assert_int_equal(heap_calls - before, 1);
    ls_tape_free(&t);
    close_gpt(&g);
#endif
}

static size_t peak_at(int seq)
{
    static gpt g;
    ls_tape *t;
    open_test_gpt(&g, &(gpt_config){ .layers = 2, .width = 32, .heads = 2, .vocab = 64, .batch = 1, .seq = seq }, 0.1f);
    check_ok(ls_tape_open(&t, &(ls_tape_options){ .threads = 2 }));
    float loss = step_gpt(&g, t, 0, 2, NULL);
    assert_true(isfinite(loss));
    size_t peak = ls__tape_peak(t);
    ls_tape_free(&t);
    close_gpt(&g);
    return peak;
}

static void memory_grows_linearly_with_the_context(void **state)
{
    (void)state;
    enum { LONGEST = 4 * CONTEXT };
    size_t quarter = peak_at(CONTEXT), half = peak_at(2 * CONTEXT), all = peak_at(LONGEST);
    double growth = (double)(all - half) / (double)(half - quarter);
    if (growth > 2.1)
        fail_msg("peak %zu at %d, %zu at %d, %zu at %d: the growth grew %.2f times", quarter, CONTEXT, half,
                 2 * CONTEXT, all, LONGEST, growth);
    if (LONGEST >= 4096 && all > (size_t)LONGEST * LONGEST * sizeof(float))
        fail_msg("%zu bytes at %d: as much as one (T, T) matrix", all, LONGEST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_gradients_and_training_agree_with_pytorch),
        cmocka_unit_test(weights_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(gradients_that_are_aliased_hold_the_activations_and_get_the_same_bits),
        cmocka_unit_test(a_steady_step_takes_nothing_from_the_heap),
        cmocka_unit_test(memory_grows_linearly_with_the_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
