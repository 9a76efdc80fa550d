/* bench_kern [PROCESSORS]: how fast the loops of kern move memory, one thread a processor, each on its own slice.
 *
 * Rows: a copy and sums of p float32 arrays, in place and into other memory, with plain and with streaming stores, at
 * sizes inside and beyond the caches; GB/s counts each byte once as it is read and once as it is written. All rows take
 * turns in every round and buffers are written in between, so that no row finds memory as its own last round left it.
 * The comment in src/kern/loops.h quotes these rows. */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/futex.h"
#include "base/thread.h"
#include "kern/copy.h"
#include "kern/reduce.h"
#include "kern/table.h"

enum { ROUNDS = 11, MAX_P = 16, MAX_THREADS = 64 };

typedef struct row {
    const char *what;
    int p; /* 0: copy */
    bool in_place, stream;
} row;

static const row rows[] = {
    { "copy, plain stores", 0, false, false },
    { "copy, streaming", 0, false, true },
    { "sum of 2 in place", 2, true, false },
    { "sum of 2 elsewhere, plain", 2, false, false },
    { "sum of 2 elsewhere, streaming", 2, false, true },
    { "sum of 3 in place", 3, true, false },
    { "sum of 4 in place", 4, true, false },
    { "sum of 8 in place", 8, true, false },
    { "sum of 16 in place", 16, true, false },
};
enum { ROWS = sizeof rows / sizeof *rows };

static int threads;
static char *memory; /* 2 * MAX_P arrays of `bytes` */
static size_t bytes; /* of an array, all threads' slices together */
static double us[ROWS][ROUNDS];
static _Atomic int arrived, turn;

static void barrier(void)
{
    int t = atomic_load(&turn);
    if (atomic_fetch_add(&arrived, 1) == threads - 1) {
        atomic_store(&arrived, 0);
        atomic_store(&turn, t + 1);
    } else {
        while (atomic_load(&turn) == t) ls__cpu_relax();
    }
}

/* One thread's part of a row. */
static void run(const row *r, int me)
{
    size_t slice = bytes / (size_t)threads / 64 * 64, at = (size_t)me * slice;
    void *out[MAX_P];
    const void *in[MAX_P];
    int p = r->p ? r->p : 1;
    for (int i = 0; i < p; i++) {
        in[i] = memory + (size_t)i * bytes + at;
        out[i] = memory + (size_t)(r->in_place ? i : p + i) * bytes + at;
    }
    if (r->p)
        ls__reduce_arrays(LS_F32, LS_SUM, out, p, in, p, slice / 4, r->stream);
    else
        ls__copy_bytes(out[0], in[0], slice, r->stream);
}

static void *work(void *arg)
{
    int me = *(int *)arg;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)me, &one);
    sched_setaffinity(0, sizeof one, &one);
    for (int round = -2; round < ROUNDS; round++)
        for (int i = 0; i < ROWS; i++) {
            int arrays = rows[i].p ? rows[i].in_place ? rows[i].p : 2 * rows[i].p : 2;
            size_t share = bytes * (size_t)arrays / (size_t)threads;
            memset(memory + (size_t)me * share, 0, share);
            barrier();
            int64_t begin = ls_now();
            run(&rows[i], me);
            barrier();
            if (me == 0 && round >= 0) us[i][round] = (double)(ls_now() - begin) / 1e3;
        }
    return NULL;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int measure(size_t array_bytes)
{
    static int number[MAX_THREADS];
    pthread_t thread[MAX_THREADS];
    bytes = array_bytes;
    for (int i = 0; i < threads; i++) {
        number[i] = i;
        if (ls__thread_start(&thread[i], "bench", work, &number[i])) {
            fprintf(stderr, "bench_kern: %s\n", ls_error());
            return 1;
        }
    }
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < ROWS; i++) {
        qsort(us[i], ROUNDS, sizeof us[i][0], ascending);
        double moved = (double)bytes * 2 * (rows[i].p ? rows[i].p : 1), median = us[i][ROUNDS / 2];
        printf("%8.2f MiB  %-32s %10.1f us  %6.1f GB/s\n", (double)bytes / 1048576, rows[i].what, median,
               moved / median / 1e3);
    }
    printf("\n");
    return 0;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = { 64u << 10, 256u << 10, 4u << 20, 25u << 20, 100u << 20 };
    threads = argc > 1 ? atoi(argv[1]) : ls__cpu_count();
    if (threads < 1 || threads > MAX_THREADS) {
        fprintf(stderr, "usage: bench_kern [PROCESSORS], 1 to %d\n", MAX_THREADS);
        return 2;
    }
    size_t all = 2 * MAX_P / 2 * sizes[4];
    memory = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("bench_kern: mmap");
        return 1;
    }
    printf("loops: %s; %d threads\n\n", ls__kernels_best()->name, threads);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (measure(sizes[i])) return 1;
    munmap(memory, all);
    return 0;
}
