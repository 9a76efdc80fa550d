/* What the files of `lockstep bench allreduce` share: its options, its rows, and the parts that fill and show them. */
#ifndef LS_CLI_BENCH_ALLREDUCE_H
#define LS_CLI_BENCH_ALLREDUCE_H

#include <stdbool.h>
#include <stdio.h>
#include "lockstep/comm.h"

enum { BENCH_MAX_ROWS = 64 };

/* Times of rounds, in microseconds. All zero: none yet. */
typedef struct bench_times {
    double *us;
    size_t count, room;
} bench_times;

/* One row of the table: `total` bytes, all-reduced in chunks of `chunk`. */
typedef struct bench_row {
    size_t total, chunk;
    bench_times ours, peers;
} bench_row;

typedef struct bench_options {
    int ranks;           /* 0: not given */
    double seconds;      /* minimum measuring time */
    const char *against; /* NULL: none; "mpi", "mpich" or a command */
    const char *plot;    /* NULL: none */
    bool json, user_owned, figure;
    bench_row rows[BENCH_MAX_ROWS];
    int row_count;
    /* What measuring found out. */
    double
        copy_bandwidth; /* B: bytes read and written per second, all ranks copying at once. The best of the run's copies, not
                            * the mean: load must not lower the bound */
    double copy_median; /* the same by the median copy; far below the best, something disturbed the run */
    int world_size;
    char transport[16];
    char peer_name[64];
} bench_options;

/* Runs a benchmark by name: argv[0]. */
int bench_allreduce(int argc, char **argv);
int bench_ddp(int argc, char **argv);
int bench_loader(int argc, char **argv);

/* ---- measure.c: what every rank does. Fills the rows' times (on rank 0). `rank` is set once it is known. */
LS_MUST_CHECK ls_status bench_measure(bench_options *o, int *rank);

/* ---- bench_times: adding, and looking at, times. */
LS_MUST_CHECK ls_status bench_times_add(bench_times *t, const double *us, size_t count);
/* The times are put in order; 0 if there are none. `share` of them, 0 to 1, are not longer; 0.5 is the median. */
double bench_times_quantile(bench_times *t, double share);
double bench_times_median(bench_times *t);
void bench_options_release(bench_options *o);

/* ---- peer.c: another program that does the same work. It is started once, measures a block at a time, and sleeps in between. */
typedef struct bench_peer bench_peer;
/* Starts it with `ranks` ranks; `name` receives its name and version. */
LS_MUST_CHECK ls_status bench_peer_open(bench_peer **out, const char *what, int ranks, char *name, size_t name_bytes);
LS_MUST_CHECK ls_status bench_peer_ask(bench_peer *p, size_t total, size_t chunk, int rounds, bench_times *out);
void bench_peer_free(bench_peer **p);
/* Whether `what` names a peer that could be started; otherwise a message names what is missing. */
LS_MUST_CHECK ls_status bench_peer_check(const char *what);

/* ---- report.c: what rank 0 prints. */
void bench_report(bench_options *o, FILE *to);
LS_MUST_CHECK ls_status bench_report_plot(bench_options *o);

#endif
