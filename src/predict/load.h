/* What the cores and the memory of a node give to each of the threads that compute on it. Rates were measured with one thread and
 * with one on each core; see LS_METADATA_GEMM_ONE. */
#ifndef LS_PREDICT_LOAD_H
#define LS_PREDICT_LOAD_H

typedef struct ls__node_speed {
    double cores;
    double gemm_one, gemm_all;     /* GFLOP/s of a thread */
    double stream_one, stream_all; /* bytes per ns of a thread, in the caches */
    double memory_one, memory_all; /* and in memory */
    double cache;                  /* bytes; 0: not known, so all is said to fit */
} ls__node_speed;

typedef struct ls__load {
    const ls__node_speed *speed;
    double threads; /* that compute on the node */
    double cores;   /* that they have */
} ls__load;

/* How many threads share a core; 1: each has its own. */
double ls__load_turns(const ls__load *l);
/* Of one thread's matrix products. */
double ls__load_gemm(const ls__load *l);
/* Bytes per ns of one thread, if the threads of the node pass over so many bytes together again and again. */
double ls__load_stream(const ls__load *l, double bytes);
/* The same of all threads together. */
double ls__load_stream_all(const ls__load *l, double bytes);

#endif
