/* lockstep/predict.h: the step time of a set-up that was never run, from one recorded run.
 *
 *     ls_predictor *p;
 *     ls_setup eight = { .ranks = 8 };
 *     ls_prediction out;
 *     if (ls_predictor_open(&p, run)) ...                 // run: ls_run_open(), lockstep/measure.h
 *     if (ls_predict(p, &eight, &out)) ... ls_error() has the reason that nothing can be said
 *     printf("%.1f ms\n", out.step / 1e6);
 *
 * Method   the recorded step is replayed: data, forward and backward of the rank with the most slots, buckets in the order in which
 *          they fill, waiting for the slowest rank, the update. Cores and memory are shared by the ranks of a node, a link by its
 *          transfers. docs/PREDICT.md describes the model.
 * Limits   a question that leaves what was recorded is an error, LS_EUNSUPPORTED, whose message names what is missing.
 * Times    nanoseconds.
 * Threads  a predictor is read-only once opened and may be used by many threads. */
#ifndef LOCKSTEP_PREDICT_H
#define LOCKSTEP_PREDICT_H

#include "lockstep/measure.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_predictor ls_predictor;

/* Reads what it needs of the run, which may be freed afterwards. LS_EINVAL if the run has too few steps, lacks ranks or numbers, or
 * has files of different runs; the message names them. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_predictor_open(ls_predictor **out, const ls_run *run);
LS_API void ls_predictor_free(ls_predictor **predictor);

/* When buckets are reduced. */
typedef enum ls_overlap {
    LS_OVERLAP_AS_RECORDED = 0,
    LS_OVERLAP_ON = 1,  /* during backward */
    LS_OVERLAP_OFF = 2, /* after it */
} ls_overlap;

/* A set-up. 0: as recorded. */
typedef struct ls_setup {
    int ranks;
    int nodes;           /* ranks are spread evenly */
    int slots;           /* micro-batches of a step, of all ranks; the micro-batch itself is as recorded */
    int threads;         /* per rank; only as recorded can be predicted */
    size_t bucket_bytes; /* of float32 gradients */
    int wire_bytes;      /* per gradient element in communication: 4 or 2 */
    ls_overlap overlap;
    double link_rate;    /* of a node's link, bytes per ns (0.125 is 1 Gbit/s) */
    double link_latency; /* one way, ns */
    int workers;         /* of the loader; -1: none */
    int prefetch;        /* batches built ahead */
    double slow_rank;    /* one rank computes this many times as long, from 1 to 1e6 */
    double cores;        /* that the ranks of a node share; at most as many as recorded */
    void *reserved[3];
} ls_setup;

/* The parts of a step, as its slowest rank sees them. They add up to it. */
#define LS_TERM_LIST(X)                                                                         \
    X(LS_TERM_DATA, 0, "data")           /* waiting for batches */                              \
    X(LS_TERM_COMPUTE, 1, "compute")     /* forward and backward, alone on the node */          \
    X(LS_TERM_SHARING, 2, "sharing")     /* what they take longer because ranks share a node */ \
    X(LS_TERM_IMBALANCE, 3, "imbalance") /* waiting for the slowest rank; at least 0 */         \
    X(LS_TERM_COMM, 4, "communication")  /* exposed communication */                            \
    X(LS_TERM_UPDATE, 5, "update")                                                              \
    X(LS_TERM_OTHER, 6, "other") /* what the model does not explain of the recorded step; may be negative */

typedef enum ls_term {
#define X(name, value, text) name = (value),
    LS_TERM_LIST(X)
#undef X
} ls_term;
enum { LS_TERM_COUNT = 0 LS_TERM_LIST(LS_COUNT_ENTRY) };

/* "compute"; never NULL. */
LS_API const char *ls_term_name(ls_term term);

typedef struct ls_prediction {
    ls_setup setup;             /* with the recorded values filled in */
    double step;                /* median step */
    double low, high;           /* 5-95% band of the median step */
    double slow_step;           /* 95th percentile of the steps */
    double term[LS_TERM_COUNT]; /* by ls_term; add up to `step` */
    double tokens_per_s;        /* NaN: the run does not state its tokens */
    double efficiency;          /* tokens per second and rank, relative to the recorded run */
    ls_term bottleneck;         /* the largest term */
    void *reserved[4];
} ls_prediction;

/* Predicts a step of the set-up; NULL: the recorded one. LS_EINVAL: no such set-up is possible; LS_EUNSUPPORTED: it cannot be
 * predicted from this record. */
LS_API LS_MUST_CHECK ls_status ls_predict(const ls_predictor *predictor, const ls_setup *setup, ls_prediction *out);
/* The median step that was recorded. */
LS_API double ls_predictor_recorded_step(const ls_predictor *predictor);
/* Makes all bands `factor` times as wide; 1 by default. For a factor found by comparing earlier predictions with measured steps. A factor
 * that is not above 0 and below 1e6 is ignored: the bands stay as they were. */
LS_API void ls_predictor_set_band(ls_predictor *predictor, double factor);

#ifdef __cplusplus
}
#endif
#endif
