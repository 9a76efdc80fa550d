/* bench_ring: what recording one event costs, for one writer and for one writer a core at once. The median of many
 * batches; limit: 50 ns for a single writer. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/futex.h"
#include "record/ring.h"
#include "base/thread.h"

enum { BATCHES = 201, EVENTS = 10000, CAPACITY = 1 << 14, MAX_THREADS = 64 };
static const double LIMIT_NS = 50;

static ls__ring *ring;
static _Atomic int waiting; /* threads that have not come yet */

typedef struct writer {
    double ns[BATCHES];
    pthread_t thread;
} writer;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void *write_events(void *arg)
{
    writer *w = arg;
    atomic_fetch_sub(&waiting, 1);
    while (atomic_load(&waiting) > 0) ls__cpu_relax();
    for (int b = 0; b < BATCHES; b++) {
        int64_t begin = ls_now();
        for (uint64_t i = 0; i < EVENTS; i++) ls__ring_add(ring, LS_EVENT_COLL_START, i, 8);
        w->ns[b] = (double)(ls_now() - begin) / EVENTS;
    }
    qsort(w->ns, BATCHES, sizeof *w->ns, ascending);
    return NULL;
}

/* The slowest writer's median. */
static double measure(int threads)
{
    static writer writers[MAX_THREADS];
    double worst = 0;
    atomic_store(&waiting, threads);
    for (int i = 0; i < threads; i++)
        if (ls__thread_start(&writers[i].thread, "writer", write_events, &writers[i])) {
            fprintf(stderr, "bench_ring: %s\n", ls_error());
            exit(1);
        }
    for (int i = 0; i < threads; i++) {
        pthread_join(writers[i].thread, NULL);
        if (writers[i].ns[BATCHES / 2] > worst) worst = writers[i].ns[BATCHES / 2];
    }
    return worst;
}

int main(void)
{
    size_t bytes = (ls__ring_bytes(CAPACITY) + 63) / 64 * 64;
    void *memory = aligned_alloc(64, bytes);
    if (!memory) return 1;
    memset(memory, 0, bytes);
    ring = ls__ring_init(memory, CAPACITY);
    int cores = ls__cpu_count() < MAX_THREADS ? ls__cpu_count() : MAX_THREADS;
    double one = measure(1);
    printf("event ring, one writer:  %6.1f ns per event (limit %.0f: %s)\n", one, LIMIT_NS,
           one <= LIMIT_NS ? "held" : "MISSED");
    if (cores > 1) printf("event ring, %d writers:   %6.1f ns per event\n", cores, measure(cores));
    free(memory);
    return 0;
}
