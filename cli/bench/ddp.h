/* What the files of `lockstep bench ddp` share: its options, its rows, and the parts that fill and show them.
 *
 * Results are JSON objects, one per row, whoever measured them: ranks on this machine, ranks on two hosts, or torch. The
 * program that the user starts collects them, and prints or draws them. */
#ifndef LS_CLI_BENCH_DDP_H
#define LS_CLI_BENCH_DDP_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include "lockstep/base.h"
#include "lockstep/comm.h"
#include "lockstep/nn.h"

enum { DDP_MAX_ROWS = 80, DDP_MAX_LIST = 12, DDP_MICRO_BATCHES = 4 };

/* The one list of parts, each a table and a plot. */
#define DDP_PART_LIST(X)        \
    X(DDP_ALLREDUCE, allreduce) \
    X(DDP_READY, ready)         \
    X(DDP_BREAKDOWN, breakdown) \
    X(DDP_BUCKETS, buckets)     \
    X(DDP_SCALING, scaling)     \
    X(DDP_SKIP, skip)           \
    X(DDP_ACCURACY, accuracy)   \
    X(DDP_GROUPS, groups)       \
    X(DDP_ACCUMULATE, accumulate)

typedef enum ddp_part {
#define X(name, text) name,
    DDP_PART_LIST(X)
#undef X
        DDP_PARTS
} ddp_part;

typedef enum ddp_kind { DDP_RESNET, DDP_BERT, DDP_MODELS } ddp_kind;

typedef struct ddp_bench {
    int ranks; /* 0: not given */
    int layers, width, vocab_size, seq_len, batch_size, threads;
    int steps; /* to measure per row; 0: by `full` */
    const char *parts_text, *models_text, *buckets_text, *link, *plot;
    const char *peer; /* an interpreter with torch; "none": no peer; NULL: python3, if it has torch */
    bool json, one_node, full;
    bool parts[DDP_PARTS], models[DDP_MODELS];
    double buckets[DDP_MAX_LIST]; /* MiB; 0: each parameter by itself */
    int n_buckets;
} ddp_bench;

extern const char *const ddp_part_names[DDP_PARTS + 1];
extern const char *const ddp_model_names[DDP_MODELS + 1];

/* ---- ddp_start.c: the program that the user starts. Returns an exit code. */
int ddp_start(ddp_bench *b);

/* ---- ddp_measure.c: what every rank does. Adds rows on rank 0. `rank` is set once it is known. */
LS_MUST_CHECK ls_status ddp_measure(const ddp_bench *b, int *rank, json_t *rows);

/* ---- ddp_model.c: a model with its batch, tape and optimizer. Random inputs. */
typedef struct ddp_model {
    ls_model *model;
    ls_tape *tape;
    ls_optimizer *optimizer;
    ls_model_batch batch;
    void *memory; /* of the batch */
} ddp_model;
LS_MUST_CHECK ls_status ddp_model_open(ddp_model *m, const ddp_bench *b, ddp_kind kind, int rank);
void ddp_model_free(ddp_model *m);
/* "BERT of 4 layers..." */
void ddp_model_describe(const ddp_bench *b, ddp_kind kind, char *out, size_t room);

/* ---- ddp_curves.c: parts that do not time whole steps. Each adds its rows on rank 0. */
LS_MUST_CHECK ls_status ddp_measure_allreduce(const ddp_bench *b, ls_world *world, json_t *rows);
LS_MUST_CHECK ls_status ddp_measure_ready(const ddp_bench *b, ls_world *world, ddp_kind kind, json_t *rows);
LS_MUST_CHECK ls_status ddp_measure_accuracy(const ddp_bench *b, ls_world *world, json_t *rows);

/* ---- ddp_report.c, ddp_plots.c: what is printed and drawn of rows. */
void ddp_report(const ddp_bench *b, const json_t *rows, FILE *to);
void ddp_label(const json_t *row, char *out, size_t room);
LS_MUST_CHECK ls_status ddp_plots(const ddp_bench *b, const json_t *rows);

/* A member of a row: a number, NAN if it is none; a text, "" if it is none. */
double ddp_number(const json_t *row, const char *key);
const char *ddp_text(const json_t *row, const char *key);
/* The row is of this part, of this model ("" for parts without one), on two hosts or not. */
bool ddp_is(const json_t *row, ddp_part part, const char *model, bool hosts);
/* These rows, fewer ranks first. For the caller to release; NULL: no memory. */
json_t *ddp_select(const json_t *rows, ddp_part part, const char *model, bool hosts);

#endif
