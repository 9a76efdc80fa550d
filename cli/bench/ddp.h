/* What the files of `lockstep bench ddp` share: its options, its rows, and the parts that fill and show them. */
#ifndef LS_CLI_BENCH_DDP_H
#define LS_CLI_BENCH_DDP_H

#include <stdbool.h>
#include <stdio.h>
#include "lockstep/base.h"

enum { DDP_MAX_ROWS = 40, DDP_MAX_LIST = 12, DDP_MICRO_BATCHES = 4 };

/* The parts of the benchmark, each a table and a plot. */
typedef enum ddp_part { DDP_BREAKDOWN, DDP_BUCKETS, DDP_SKIP, DDP_ACCUMULATE, DDP_PARTS } ddp_part;

/* The phases of a step in milliseconds; the four add up to the total. */
typedef struct ddp_times {
    double forward, backward, exposed, update, total;
} ddp_times;

/* One way to make a step. */
typedef struct ddp_row {
    ddp_part part;
    size_t bucket_bytes;
    bool no_overlap;
    int micro_batches; /* of a step, on each rank */
    bool sync_each;    /* every one of them is synchronized; otherwise the last alone */
    int batch_size;    /* micro-batch size per rank */
    ddp_times *samples;
    int count;
    ddp_times result;
} ddp_row;

typedef struct ddp_bench {
    int ranks; /* 0: not given */
    int layers, width, vocab_size, seq_len, batch_size, micro_batch_size, threads, steps;
    const char *parts_text, *buckets_text, *link, *plot;
    bool json, one_node;
    bool parts[DDP_PARTS];
    double buckets[DDP_MAX_LIST]; /* MiB */
    int n_buckets;
    ddp_row table[DDP_MAX_ROWS];
    int n_rows;
    /* What measuring found out. */
    int world_size, hosts;
    char transport[16];
    double parameters;
} ddp_bench;

extern const char *const ddp_part_names[DDP_PARTS + 1];

/* ---- ddp_measure.c: what every rank does. Fills the rows' results (on rank 0). `rank` is set once it is known. */
LS_MUST_CHECK ls_status ddp_measure(ddp_bench *b, int *rank);

/* ---- ddp_report.c: what rank 0 prints. */
void ddp_report(const ddp_bench *b, FILE *to);
LS_MUST_CHECK ls_status ddp_report_plots(const ddp_bench *b);

#endif
