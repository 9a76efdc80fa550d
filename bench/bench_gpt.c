/* One rank's training step of a GPT-2 shape: how long it takes, and how long its matrix products alone would take.
 *
 *     bench_gpt --layers 6 --width 384 --heads 6 --vocab 50257 --batch 4 --seq 256 --steps 10 --threads 1 [--profile]
 *
 * Prints one JSON line in the words of bench/peers/torch_gpt.py. `bound_s` is the time of the step's products (linear
 * layers, attention and output projection, forward and backward) as plain SGEMM calls of the same shapes in the same
 * process between the steps, by the fastest of our own, OpenBLAS and MKL (`bound_by`; see sgemm.h); `bound_share` is
 * bound_s / step_s. --profile prints time per operation as well. */
#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "base/random.h"
#include "bench/sgemm.h"
#include "tensor/hooks.h"
#include "tests/tensor/gpt.h"

static void *allocate(size_t count, size_t size)
{
    void *p = mmap(NULL, count * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    madvise(p, count * size, MADV_HUGEPAGE);
    return p;
}

/* Wall-clock nanoseconds, or the process's own (--cpu 1), which other work on the machine disturbs less. */
static int own_time;
static int64_t now(void)
{
    if (!own_time) return ls_now();
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- The products of a step, alone. */

typedef struct products {
    float *pool;     /* operands are taken from it in turn, so that like in a step none is in the cache from before */
    size_t room, at; /* in floats */
    int threads;
    const sgemm *by;
    float *workspace;
    double flops;
} products;

static float *operand(products *p, int64_t rows, int64_t cols)
{
    size_t count = (size_t)(rows * cols);
    if (p->at + count > p->room) p->at = 0;
    p->at += count;
    return p->pool + p->at - count;
}

static void multiply(products *p, int64_t m, int64_t n, int64_t k, bool a_trans, bool b_trans)
{
    ls__gemm g = { .m = m,
                   .n = n,
                   .k = k,
                   .a = operand(p, m, k),
                   .lda = a_trans ? m : k,
                   .a_trans = a_trans,
                   .b = operand(p, k, n),
                   .ldb = b_trans ? k : n,
                   .b_trans = b_trans,
                   .c = operand(p, m, n),
                   .ldc = n };
    run_sgemm(p->by, &g, p->threads, p->workspace);
    p->flops += 2.0 * (double)m * (double)n * (double)k;
}

static void linear_products(products *p, int64_t rows, int64_t in, int64_t out)
{
    multiply(p, rows, out, in, false, false);
    multiply(p, rows, in, out, false, true);
    multiply(p, in, out, rows, true, false);
}

/* Seconds of all products of a step. Attention: two forward and five backward, half of the square each. */
static double run_products(products *p, const gpt_config *c)
{
    int64_t N = (int64_t)c->batch * c->seq, C = c->width, T = c->seq, D = C / c->heads;
    if (!p->pool) {
        p->room = (size_t)1 << 26; /* 256 MiB, or twice the largest product */
        if (p->room < (size_t)(2 * (N * c->vocab + (N + c->vocab) * C)))
            p->room = (size_t)(2 * (N * c->vocab + (N + c->vocab) * C));
        p->pool = allocate(p->room, sizeof(float));
        for (size_t i = 0; i < p->room; i++) p->pool[i] = 1e-3f;
    }
    if (p->by->set_threads) p->by->set_threads(p->threads);
    p->at = 0;
    int64_t begin = now();
    p->flops = 0;
    for (int layer = 0; layer < c->layers; layer++) {
        linear_products(p, N, C, 3 * C);
        linear_products(p, N, C, C);
        linear_products(p, N, C, 4 * C);
        linear_products(p, N, 4 * C, C);
        int heads = c->batch * c->heads;
        if (p->by->set_threads) p->by->set_threads(1);
        float *q = operand(p, 3 * N, C), *scores = operand(p, p->threads * T, T);
#pragma omp parallel for num_threads(p->threads) schedule(dynamic, 1)
        for (int i = 0; i < heads; i++) {
            size_t thread = (size_t)omp_get_thread_num();
            float *mine = scores + (size_t)(T * T) * thread, *a = q + i * T * D;
            float *space = p->workspace + ls__gemm_workspace(1) * (thread + 1);
            ls__gemm wide = { .m = T,
                              .n = T / 2,
                              .k = D,
                              .a = a,
                              .lda = D,
                              .b = a + N * C,
                              .ldb = D,
                              .b_trans = true,
                              .c = mine,
                              .ldc = T / 2 };
            ls__gemm narrow = { .m = T,
                                .n = D,
                                .k = T / 2,
                                .a = mine,
                                .lda = T / 2,
                                .b = a + N * C,
                                .ldb = D,
                                .c = a + 2 * N * C,
                                .ldc = D };
            for (int j = 0; j < 3; j++) run_sgemm(p->by, &wide, 1, space);
            for (int j = 0; j < 4; j++) run_sgemm(p->by, &narrow, 1, space);
        }
        if (p->by->set_threads) p->by->set_threads(p->threads);
        p->flops += 7.0 * heads * (double)T * (double)T * (double)D;
    }
    multiply(p, N, c->vocab, C, false, true);
    multiply(p, N, C, c->vocab, false, false);
    multiply(p, c->vocab, C, N, true, false);
    return (double)(now() - begin) * 1e-9;
}

/* ---- Time per operation: of each the best of all steps, so that other work on the machine shows less. */

typedef struct cost {
    char name[48];
    int64_t ns;
    double flops;
} cost;
enum { COSTS = 4096 };
typedef struct costs {
    cost all[COSTS]; /* the operations of a step, in order */
    int count, at;   /* at: in this step */
} costs;

static void add_cost(void *user, const ls__op_cost *p)
{
    costs *c = user;
    if (c->at == COSTS) return;
    cost *one = &c->all[c->at++];
    if (c->at > c->count) {
        const char *part = strrchr(p->param, '.');
        while (part && part > p->param && part[-1] != '.') part--;
        snprintf(one->name, sizeof one->name, "%.15s %.20s %s", p->op, part ? part : p->param,
                 p->backward ? "backward" : "forward");
        c->count = c->at;
        one->ns = p->ns;
    }
    if (p->ns < one->ns) one->ns = p->ns;
    one->flops = p->flops;
}

static void print_costs(costs *c)
{
    for (int i = 0; i < c->count; i++) {
        cost sum = c->all[i];
        if (!sum.name[0]) continue;
        for (int j = i + 1; j < c->count; j++)
            if (!strcmp(c->all[j].name, sum.name)) {
                sum.ns += c->all[j].ns;
                sum.flops += c->all[j].flops;
                c->all[j].name[0] = '\0';
            }
        fprintf(stderr, "%-48s %9.2f ms %8.1f GFLOP/s\n", sum.name, (double)sum.ns * 1e-6, sum.flops / (double)sum.ns);
    }
}

/* ---- */

enum {
    REST_US = 60000
}; /* threads of the library before wait on the cores for a while (OpenBLAS's 20 ms) before they sleep */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
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

#define CHECK(call)                              \
    do {                                         \
        if (call) {                              \
            fprintf(stderr, "%s\n", ls_error()); \
            exit(1);                             \
        }                                        \
    } while (0)

int main(int argc, char **argv)
{
    gpt_config c = { .layers = 6, .width = 384, .heads = 6, .vocab = 50257, .batch = 4, .seq = 256 };
    int steps = 10, threads = 1, profile = 0, bound = 1, help = 0;
    struct {
        const char *name;
        int *value;
    } options[] = { { "--layers", &c.layers }, { "--width", &c.width },   { "--heads", &c.heads },
                    { "--vocab", &c.vocab },   { "--batch", &c.batch },   { "--seq", &c.seq },
                    { "--steps", &steps },     { "--threads", &threads }, { "--bound", &bound },
                    { "--profile", &profile }, { "--cpu", &own_time } };
    for (int i = 1; i < argc; i++) {
        size_t o = 0;
        while (o < sizeof options / sizeof *options && strcmp(argv[i], options[o].name)) o++;
        if (o == sizeof options / sizeof *options || i + 1 == argc)
            help = 1;
        else
            *options[o].value = atoi(argv[++i]);
    }
    if (help || c.layers > GPT_MAX_LAYERS || steps < 1 || steps > 1000) {
        fprintf(stderr,
                "usage: bench_gpt [--layers|--width|--heads|--vocab|--batch|--seq|--steps|--threads|--bound|--cpu|"
                "--profile N]...\n");
        return 2;
    }
    int64_t start = now();
    static gpt g;
    static costs profiled;
    gpt_open(&g, &c, allocate);
    init(&g);
    ls_tape *t;
    CHECK(ls_tape_open(&t, &(ls_tape_options){ .threads = threads }));
    if (profile) ls__tape_on_profile(t, add_cost, &profiled);
    size_t tokens = (size_t)c.batch * (size_t)c.seq;
    int32_t *x = allocate(tokens, 4), *y = allocate(tokens, 4);
    struct rusage usage;
    sgemm libraries[MOST_SGEMM];
    int n_libraries = find_sgemm(libraries);
    products p = { .threads = threads };
    double times[1002], bounds[MOST_SGEMM][1002], ready = (double)(now() - start) * 1e-9, update_s = 0;
    float loss = 0;
    for (int step = 0; step < steps + 2; step++) {
        for (size_t i = 0; i < tokens; i++) {
            x[i] = (int32_t)(ls__random_u32(2, (uint64_t)step, i) % (uint32_t)c.vocab);
            y[i] = (int32_t)(ls__random_u32(3, (uint64_t)step, i) % (uint32_t)c.vocab);
        }
        profiled.at = 0;
        if (threads > 1) usleep(REST_US);
        int64_t begin = now();
        CHECK(ls_tape_begin(t, g.params, g.n_params, NULL));
        ls_tensor *l = gpt_loss(&g, t, x, y);
        CHECK(ls_tape_backward(t, l));
        loss = l->data[0];
        int64_t update = now();
        gpt_update(&g, step + 1, 3e-4f, 0.01f, threads);
        times[step] = (double)(now() - begin) * 1e-9;
        update_s = (double)(now() - update) * 1e-9;
        if (step == 1) getrusage(RUSAGE_SELF, &usage); /* before the products take memory of their own */
        if (step >= 1 && bound && !p.workspace)
            p.workspace = allocate(ls__gemm_workspace(1) * (size_t)(threads + 1), sizeof(float));
        for (int i = 0; step >= 1 && bound && i < n_libraries; i++) {
            p.by = &libraries[i];
            if (threads > 1) usleep(REST_US);
            bounds[i][step] = run_products(&p, &c);
        }
    }
    qsort(times + 2, (size_t)steps, sizeof *times, by_value);
    double step_s = times[2 + steps / 2], bound_s = 0;
    const char *bound_by = "";
    for (int i = 0; bound && i < n_libraries; i++) {
        qsort(bounds[i] + 2, (size_t)steps, sizeof *bounds[i], by_value);
        if (i && bounds[i][2 + steps / 2] >= bound_s) continue;
        bound_s = bounds[i][2 + steps / 2];
        bound_by = libraries[i].name;
    }
    if (profile) print_costs(&profiled);
    printf("{\"peer\": \"lockstep %s\", \"threads\": %d, \"params\": %zu, \"step_s\": %.4f, \"min_s\": %.4f, "
           "\"tokens_per_s\": %.1f, \"peak_rss_mb\": %ld, \"startup_s\": %.2f, \"update_s\": %.4f, \"loss\": %.4f, "
           "\"bound_s\": %.4f, \"bound_share\": %.3f, \"gemm_gflops\": %.1f, \"bound_by\": \"%s\"}\n",
           ls_version(), threads, g.count, step_s, times[2], (double)tokens / step_s, usage.ru_maxrss / 1024, ready,
           update_s, (double)loss, bound_s, bound_s / step_s, bound ? p.flops / bound_s * 1e-9 : 0, bound_by);
    ls_tape_free(&t);
    return 0;
}
