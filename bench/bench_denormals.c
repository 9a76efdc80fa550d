/* Does training slow down when gradients get tiny?
 *
 *     bench_denormals [--threads 1] [--rounds 15]
 *
 * Several copies of one model are trained in turns, each with its loss divided by another power of two, so that all gradients are that
 * much smaller: with some of the powers many of them are below 2^-126. `ratio` is the time of a step (forward, backward, AdamW) divided
 * by that of the first copy, whose gradients are ordinary, in the same round: median, lowest and highest of all rounds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/random.h"
#include "kern/select.h"
#include "tests/tensor/gpt.h"

enum { MODELS = 5, MOST_ROUNDS = 1000 };
static const int powers[MODELS] = { 0, 102, 105, 108, 130 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *allocate(size_t count, size_t size)
{
    void *p = calloc(count, size);
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

static void check(ls_status status)
{
    if (!status) return;
    fprintf(stderr, "%s\n", ls_error());
    exit(1);
}

static void init(gpt *g)
{
    for (int i = 0; i < g->n_params; i++) {
        ls_param *p = &g->params[i];
        size_t count = (size_t)(p->shape[0] * p->shape[1]);
        if (p->dims == 2)
            ls__random_fill_normal(p->value, count, 0, 0.02f, 1, (uint64_t)i, 0);
        else
            for (size_t j = 0; j < count; j++) p->value[j] = strstr(p->name, "weight") ? 1.0f : 0.0f;
    }
}

static double step(gpt *g, ls_tape *t, int number, int threads, const int32_t *x, const int32_t *y)
{
    int64_t begin = ls_now();
    check(ls_tape_begin(t, g->params, g->n_params, NULL));
    check(ls_tape_backward(t, gpt_loss(g, t, x, y)));
    gpt_update(g, number, 3e-4f, 0.01f, threads);
    return (double)(ls_now() - begin) * 1e-6;
}

int main(int argc, char **argv)
{
    int threads = 1, rounds = 15;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && !strcmp(argv[i], "--threads"))
            threads = atoi(argv[i + 1]);
        else if (i + 1 < argc && !strcmp(argv[i], "--rounds"))
            rounds = atoi(argv[i + 1]);
        else
            threads = 0;
    }
    if (threads < 1 || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: bench_denormals [--threads N] [--rounds N (1 to %d)]\n", MOST_ROUNDS);
        return 2;
    }
    gpt_config c = { .layers = 2, .width = 256, .heads = 4, .vocab = 4096, .batch = 2, .seq = 128 };
    int tokens = c.batch * c.seq;
    int32_t *x = allocate((size_t)tokens, sizeof *x), *y = allocate((size_t)tokens, sizeof *y);
    for (int i = 0; i < tokens; i++) {
        x[i] = (int32_t)(ls__random_u32(2, 0, (uint64_t)i) % (uint32_t)c.vocab);
        y[i] = (int32_t)(ls__random_u32(3, 0, (uint64_t)i) % (uint32_t)c.vocab);
    }
    static gpt models[MODELS];
    static double ms[MODELS][MOST_ROUNDS], ratios[MODELS][MOST_ROUNDS];
    ls_tape *t;
    check(ls_tape_open(&t, &(ls_tape_options){ .threads = threads }));
    for (int i = 0; i < MODELS; i++) {
        c.divisor = ldexp(tokens, powers[i]);
        gpt_open(&models[i], &c, allocate);
        init(&models[i]);
    }
    for (int r = -2; r < rounds; r++)
        for (int i = 0; i < MODELS; i++) {
            double took = step(&models[i], t, r + 3, threads, x, y);
            if (r < 0) continue;
            ms[i][r] = took;
            ratios[i][r] = took / ms[0][r];
        }
    printf("kernels %s, %d thread%s\n%-10s %8s %8s %8s   ratio\n", ls__instruction_set_used()->name, threads,
           threads > 1 ? "s" : "", "gradients", "normal", "zero", "ms");
    for (int i = 0; i < MODELS; i++) {
        size_t normal = 0, zero = 0;
        for (size_t j = 0; j < models[i].count; j++) {
            normal += fabsf(models[i].grads[j]) >= 0x1p-126f;
            zero += models[i].grads[j] == 0;
        }
        qsort(ms[i], (size_t)rounds, sizeof ms[i][0], by_value);
        qsort(ratios[i], (size_t)rounds, sizeof ratios[i][0], by_value);
        double count = (double)models[i].count;
        printf("2^-%-7d %7.1f%% %7.1f%% %8.2f   %.3f (%.2f to %.2f)\n", powers[i], 100 * (double)normal / count,
               100 * (double)zero / count, ms[i][rounds / 2], ratios[i][rounds / 2], ratios[i][0],
               ratios[i][rounds - 1]);
    }
    ls_tape_free(&t);
    return 0;
}
