/* Matrix products of a training step's shapes: ours compared with OpenBLAS and MKL, alternating.
 *
 *     bench_gemm [--threads 1] [--tries 7] [--filter TEXT]
 *
 * GFLOP/s are of the best try of each. `ratio` is the time of the fastest of the others divided by ours, of the same try:
 * the median of all tries, and the lowest and highest. Above 1 ours is faster. One thread is measured by its CPU time. */
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "bench/sgemm.h"
#include "kern/select.h"
#include "lockstep/base.h"

typedef struct shape {
    const char *name;
    int64_t m, n, k;
    bool a_trans, b_trans;
} shape;

/* The linear layers of a GPT-2 shape: forward, gradient of the input, gradient of the weights. */
#define LINEAR(name, rows, in, out)                                                                  \
    { name " forward", rows, out, in, false, false }, { name " input", rows, in, out, false, true }, \
    {                                                                                                \
        name " weights", in, out, rows, true, false                                                  \
    }
#define HEAD(name, rows, width, vocab)                                                                         \
    { name " forward", rows, vocab, width, false, true }, { name " input", rows, width, vocab, false, false }, \
    {                                                                                                          \
        name " weights", vocab, width, rows, true, false                                                       \
    }
static const shape shapes[] = {
    LINEAR("a.attn", 1024, 384, 1152),
    LINEAR("a.proj", 1024, 384, 384),
    LINEAR("a.fc", 1024, 384, 1536),
    LINEAR("a.mlp", 1024, 1536, 384),
    HEAD("a.head", 256, 384, 50257),
    LINEAR("b.attn", 512, 768, 2304),
    LINEAR("b.proj", 512, 768, 768),
    LINEAR("b.fc", 512, 768, 3072),
    LINEAR("b.mlp", 512, 3072, 768),
    HEAD("b.head", 256, 768, 50257),
    LINEAR("c.attn", 4096, 384, 1152),
    LINEAR("c.proj", 4096, 384, 384),
    LINEAR("c.fc", 4096, 384, 1536),
    LINEAR("c.mlp", 4096, 1536, 384),
    HEAD("c.head", 4096, 384, 256),
    { "cube 64", 64, 64, 64, false, false },
    { "cube 128", 128, 128, 128, false, false },
    { "cube 1000", 1000, 1000, 1000, false, false },
    { "cube 2048", 2048, 2048, 2048, false, false },
    { "vector", 1, 3072, 768, false, false },
    { "vector transposed", 1, 50257, 768, false, true },
};

static int64_t time_of(int threads)
{
    struct timespec t;
    if (threads > 1 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t)) return ls_now();
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static float *allocate(size_t count)
{
    void *p = mmap(NULL, count * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    madvise(p, count * sizeof(float), MADV_HUGEPAGE);
    return p;
}

static void fill(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) x[i] = (float)(i % 17 - 8) * 0.1f;
}

/* Several threads: those of the library before wait on the cores for a while before they sleep, and those that wake may begin together on
 * one core and stay there for some milliseconds. A training step has neither: everybody rests, and works, before it is measured. */
enum { MOST_TRIES = 101, REST_US = 60000, WARM_NS = 25000000 };
static const double FLOPS_OF_ONE = 4e8, FLOPS_OF_SEVERAL = 4e9; /* at least so many in a try */

static void measure(const shape *s, const sgemm *peers, int n_peers, int threads, int tries, float *workspace)
{
    float *a = allocate((size_t)(s->m * s->k)), *b = allocate((size_t)(s->k * s->n)),
          *c = allocate((size_t)(s->m * s->n));
    double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k, best[MOST_SGEMM] = { 0 }, ratios[MOST_TRIES];
    int repeats = (int)((threads > 1 ? FLOPS_OF_SEVERAL : FLOPS_OF_ONE) / flops) + 1;
    fill(a, s->m * s->k);
    fill(b, s->k * s->n);
    ls__gemm g = { .m = s->m,
                   .n = s->n,
                   .k = s->k,
                   .a_trans = s->a_trans,
                   .b_trans = s->b_trans,
                   .a = a,
                   .lda = s->a_trans ? s->m : s->k,
                   .b = b,
                   .ldb = s->b_trans ? s->k : s->n,
                   .c = c,
                   .ldc = s->n };
    for (int t = -1; t < tries; t++) {
        double took[MOST_SGEMM], least = 1e300;
        for (int i = 0; i < n_peers; i++) {
            if (threads > 1) {
                usleep(REST_US);
                for (int64_t from = ls_now(); ls_now() - from < WARM_NS;) run_sgemm(&peers[i], &g, threads, workspace);
            }
            int64_t begin = time_of(threads);
            for (int r = 0; r < repeats; r++) run_sgemm(&peers[i], &g, threads, workspace);
            took[i] = (double)(time_of(threads) - begin) / repeats;
            if (i && took[i] < least) least = took[i];
            if (t >= 0 && flops / took[i] > best[i]) best[i] = flops / took[i];
        }
        if (t >= 0) ratios[t] = least / took[0];
    }
    qsort(ratios, (size_t)tries, sizeof *ratios, by_value);
    printf("%-18s %6lld %6lld %6lld %c%c", s->name, (long long)s->m, (long long)s->n, (long long)s->k,
           s->a_trans ? 't' : '-', s->b_trans ? 't' : '-');
    for (int i = 0; i < n_peers; i++) printf(" %9.1f", best[i]);
    if (n_peers > 1) printf("   %5.2f (%.2f to %.2f)", ratios[tries / 2], ratios[0], ratios[tries - 1]);
    printf("\n");
    fflush(stdout);
    munmap(a, (size_t)(s->m * s->k) * sizeof(float));
    munmap(b, (size_t)(s->k * s->n) * sizeof(float));
    munmap(c, (size_t)(s->m * s->n) * sizeof(float));
}

int main(int argc, char **argv)
{
    int threads = 1, tries = 7;
    const char *filter = "";
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && !strcmp(argv[i], "--threads"))
            threads = atoi(argv[i + 1]);
        else if (i + 1 < argc && !strcmp(argv[i], "--tries"))
            tries = atoi(argv[i + 1]);
        else if (i + 1 < argc && !strcmp(argv[i], "--filter"))
            filter = argv[i + 1];
        else
            threads = 0;
    }
    if (threads < 1 || tries < 1 || tries > MOST_TRIES) {
        fprintf(stderr, "usage: bench_gemm [--threads N] [--tries N (1 to %d)] [--filter TEXT]\n", MOST_TRIES);
        return 2;
    }
    if (ls__kernels_check()) {
        fprintf(stderr, "%s\n", ls_error());
        return 2;
    }
    sgemm peers[MOST_SGEMM];
    int n_peers = find_sgemm(peers);
    for (int i = 0; i < n_peers; i++)
        if (peers[i].set_threads) peers[i].set_threads(threads);
    float *workspace = allocate(ls__gemm_workspace(threads));
    printf("kernels %s, %d thread%s; GFLOP/s\n%-18s %6s %6s %6s   ", ls__instruction_set_used()->name, threads,
           threads > 1 ? "s" : "", "", "m", "n", "k");
    for (int i = 0; i < n_peers; i++) printf(" %9s", peers[i].name);
    printf("%s\n", n_peers > 1 ? "   ratio" : "");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strstr(shapes[i].name, filter)) measure(&shapes[i], peers, n_peers, threads, tries, workspace);
    return 0;
}
