/* What tests/comm/net starts under mpirun: sends and receives through the plug-in alone. Prints one line from rank 0
 * and ends with 0, or prints the error and ends with 1 (2: the net does not open). With --bench: latency and
 * bandwidth between ranks 0 and the last. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/net.h"

static ls__net *net;
static int rank, size;

static void check(ls_status status, const char *what)
{
    if (!status) return;
    fprintf(stderr, "rank %d: %s: %s: %s\n", rank, what, ls_status_name(status), ls_error());
    exit(1);
}

static void expect(long got, long expected, const char *what)
{
    if (got == expected) return;
    fprintf(stderr, "rank %d: %s: got %ld, expected %ld\n", rank, what, got, expected);
    exit(1);
}

static void wait_all(ls__net_request *requests, int count)
{
    ls__net_request *list[64];
    for (int i = 0; i < count; i++) list[i] = &requests[i];
    for (int vain = 0, left = count; left; left && (ls__net_pause(&vain), 0)) {
        check(ls__net_test(net, list, count), "test");
        left = 0;
        for (int i = 0; i < count; i++) left += requests[i].active;
    }
}

/* Everyone learns everyone's rank. */
static void gather(void)
{
    int *all = calloc((size_t)size, sizeof *all), mine = 1000 + rank;
    check(ls__net_allgather(net, &mine, all, sizeof mine, 10000), "allgather");
    for (int i = 0; i < size; i++) expect(all[i], 1000 + i, "gathered");
    free(all);
}

/* To the next rank, from the one before: messages of one tag keep their order, also when large ones are among them. */
static void ring(void)
{
    static const size_t sizes[] = { 0, 1, 4096, 3 << 20, 17, 65536, 8 };
    enum { N = sizeof sizes / sizeof *sizes };
    ls__net_request r[2 * N];
    unsigned char *out[N], *in[N];
    for (int i = 0; i < N; i++) {
        out[i] = malloc(sizes[i] + 1);
        in[i] = malloc(sizes[i] + 1);
        memset(out[i], rank * 16 + i, sizes[i]);
        check(ls__net_recv(net, in[i], sizes[i], (rank + size - 1) % size, 7, &r[i]), "recv");
    }
    for (int i = 0; i < N; i++)
        check(ls__net_send(net, out[i], sizes[i], (rank + 1) % size, 7, false, &r[N + i]), "send");
    wait_all(r, 2 * N);
    for (int i = 0; i < N; i++) {
        int from = (rank + size - 1) % size;
        expect((long)r[i].bytes, (long)sizes[i], "bytes received");
        expect(r[i].from, from, "sender");
        if (sizes[i]) expect(in[i][sizes[i] - 1], (unsigned char)(from * 16 + i), "last byte");
        free(out[i]);
        free(in[i]);
    }
}

/* A receive from anyone finds the shorter message that was sent, and one that nobody answers can be given up. */
static void any(void)
{
    ls__net_request r[2];
    char text[32] = "", never[8];
    if (rank == 0) {
        check(ls__net_recv(net, text, sizeof text, LS__NET_ANY, LS__NET_MAX_TAG, &r[0]), "recv any");
        check(ls__net_recv(net, never, sizeof never, LS__NET_ANY, 99, &r[1]), "recv never");
        if (size == 1) {
            ls__net_cancel(net, &r[0]);
        } else {
            wait_all(r, 1);
            expect((long)r[0].bytes, 6, "bytes from anyone");
            expect(r[0].from, size - 1, "who it was");
            expect(strcmp(text, "hello"), 0, "text");
        }
        ls__net_cancel(net, &r[1]);
        expect(r[1].active, 0, "active after cancel");
    } else if (rank == size - 1) {
        check(ls__net_send(net, "hello", 6, 0, LS__NET_MAX_TAG, false, &r[0]), "send");
        wait_all(r, 1);
    }
    gather();
}

static void bench(void)
{
    enum { ROUNDS = 2000, BIG = 1 << 20, BIGS = 64, WINDOW = 8 };
    int last = size - 1;
    char byte = 0, *big = calloc(WINDOW, BIG);
    ls__net_request r[WINDOW];
    gather();
    int64_t begin = ls_now();
    for (int i = 0; i < ROUNDS; i++)
        for (int turn = 0; turn < 2; turn++) {
            int from = turn ? last : 0, to = turn ? 0 : last;
            if (rank == from) check(ls__net_send(net, &byte, 1, to, 1, false, r), "send");
            if (rank == to) check(ls__net_recv(net, &byte, 1, from, 1, r), "recv");
            if (rank == from || rank == to) wait_all(r, 1);
        }
    double latency = (double)(ls_now() - begin) / 1e3 / ROUNDS / 2;
    begin = ls_now();
    for (int i = 0; i < BIGS; i += WINDOW) {
        for (int k = 0; k < WINDOW; k++) {
            if (rank == 0) check(ls__net_send(net, big + (size_t)k * BIG, BIG, last, 2, false, &r[k]), "send");
            if (rank == last) check(ls__net_recv(net, big + (size_t)k * BIG, BIG, 0, 2, &r[k]), "recv");
        }
        if (rank == 0 || rank == last) wait_all(r, WINDOW);
    }
    gather();
    double seconds = (double)(ls_now() - begin) / 1e9;
    if (!rank) printf("latency %.1f us, %.2f GB/s one way\n", latency, (double)BIG * BIGS / seconds / 1e9);
    free(big);
}

static const char *from_environment(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

int main(int argc, char **argv)
{
    ls__launch_info id;
    ls_status status = ls__launch_info_read(&id, from_environment, NULL);
    if (!status) status = ls__net_open(&net, NULL, &id);
    if (status) {
        fprintf(stderr, "%s: %s\n", ls_status_name(status), ls_error());
        return 2;
    }
    rank = ls__net_rank(net);
    size = ls__net_size(net);
    gather();
    ring();
    any();
    if (argc > 1 && !strcmp(argv[1], "--bench") && size > 1) bench();
    if (!rank) printf("ok: %d ranks, %s, %s\n", size, ls__net_library(net), ls__net_path(net));
    ls__net_close(&net, true, NULL);
    return 0;
}
