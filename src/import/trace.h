/* What is kept of one rank's trace: steps and phases, collectives, kernels, and sums of operators. Everything else is passed over while
 * reading, so that memory grows with what is kept and not with the file.
 *
 * Times are nanoseconds: `base` + the time in an entry is the time since 1970 on that rank's clock. */
#ifndef LS_IMPORT_TRACE_H
#define LS_IMPORT_TRACE_H

#include <stdbool.h>
#include "import/deltas.h"
#include "import/scan.h"
#include "lockstep/record.h"

/* ---- Texts, each once. */

typedef struct ls__interned {
    char **text;
    uint32_t count, room;
    uint32_t *places; /* open addressing: index + 1 */
    uint32_t mask;
} ls__interned;

/* The index of a text, which is added if it is new; UINT32_MAX: out of memory. */
uint32_t ls__interned_of(ls__interned *n, ls__text text);
/* The index of a text without 0 bytes; UINT32_MAX: it is not there. */
uint32_t ls__interned_find(const ls__interned *n, ls__text text);
void ls__interned_free(ls__interned *n);

/* ---- Entries. */

typedef enum ls__mark_kind {
    LS__MARK_STEP, /* ProfilerStep#N */
    LS__MARK_DATA, /* enumerate(DataLoader)#... */
    LS__MARK_FORWARD /* DistributedDataParallel.forward */,
    LS__MARK_OPTIMIZER, /* Optimizer.step#... */
    LS__MARK_ZERO_GRAD,
    LS__MARK_WORK, /* gloo:all_reduce: a worker carries out a collective. number: ls_collective_kind */
} ls__mark_kind;

typedef struct ls__mark {
    int64_t begin, end;
    int64_t number; /* of a step; a collective's kind; else the index of the name */
    uint32_t thread;
    uint8_t kind;
} ls__mark;

/* Operators of a thread that follow each other closely: the outermost alone, but of autograd's functions, in which hooks of Python may
 * run and wait, what they call. */
typedef struct ls__busy {
    int64_t begin, end;
    uint32_t thread;
    bool calls; /* the last of them called a collective */
} ls__busy;

typedef struct ls__call { /* a collective */
    int64_t begin, end;   /* of the call on the host */
    int64_t arrived;      /* the rank came to it; on a GPU: its kernel began */
    int64_t done;         /* 0: not known */
    int64_t blocked;      /* ns until `done` in which nothing else was done */
    int64_t bytes;
    int64_t sequence; /* in its group; < 0: not known */
    uint32_t group;   /* index in `groups` */
    uint32_t thread;
    uint8_t kind; /* ls_collective_kind */
    bool sends;   /* send or receive: between two ranks */
    bool in_backward;
    uint64_t number; /* join.c: which of its group it is, the same on all ranks */
    bool joined;
} ls__call;

typedef struct ls__trace_group {
    char *name;
    uint32_t *ranks; /* in order; NULL: not known */
    uint32_t count;  /* of ranks, which may be known without them; 0: not known */
    uint64_t key;    /* the same on all its ranks; 0: all ranks */
} ls__trace_group;

typedef enum ls__kernel_kind {
    LS__KERNEL_GEMM,
    LS__KERNEL_ATTENTION,
    LS__KERNEL_CONVOLUTION,
    LS__KERNEL_NORM,
    LS__KERNEL_SOFTMAX,
    LS__KERNEL_OPTIMIZER,
    LS__KERNEL_EMBEDDING,
    LS__KERNEL_REDUCE,
    LS__KERNEL_ELEMENTWISE,
    LS__KERNEL_TRITON,
    LS__KERNEL_OTHER,
    LS__KERNEL_COPY, /* this and the next: memory; before: computation */
    LS__KERNEL_SET,
    LS__KERNEL_COMM,
    LS__KERNEL_KINDS
} ls__kernel_kind;

typedef struct ls__kernel {
    int64_t begin, end;
    uint32_t launch; /* correlation */
    uint16_t stream;
    uint8_t kind;
} ls__kernel;

typedef struct ls__launch { /* the host's call that started a kernel */
    int64_t begin;
    uint32_t correlation;
    uint32_t thread;
} ls__launch;

typedef struct ls__trace_operation { /* sums over the calls of one operator, or over the annotations of one name */
    uint64_t calls;
    int64_t own, all, longest; /* own: without what it called */
    uint64_t in_backward;      /* of the calls, those within autograd's functions */
    bool backward;             /* it is one of autograd's functions */
} ls__trace_operation;

typedef struct ls__kernel_sum {
    uint64_t calls;
    int64_t ns;
    uint8_t kind;
} ls__kernel_sum;

/* A growing array of something. */
#define LS__LIST(type)      \
    struct {                \
        type *at;           \
        size_t count, room; \
    }

typedef struct ls__trace_interval { /* of a rank's time */
    int64_t begin, end;
    uint8_t phase;
} ls__trace_interval;

typedef struct ls__trace_wait { /* the rank was blocked in a collective */
    int64_t begin, end;
    uint32_t call; /* index in `calls` */
} ls__trace_wait;

typedef struct ls__stream { /* of a device: the time between its kernels */
    uint32_t thread;
    uint64_t kernels;
    int64_t busy, idle_host, idle_gap, idle_other;
} ls__stream;

typedef struct ls__device { /* sums of a device's time, from its first kernel to its last; ns */
    int64_t begin, end;
    int64_t compute;    /* at least one computing kernel ran */
    int64_t comm;       /* at least one communication kernel did */
    int64_t memory;     /* a copy or memset did */
    int64_t overlap;    /* computation and communication at once */
    int64_t exposed;    /* communication without computation */
    int64_t copies;     /* memory without either */
    int64_t idle;       /* none of them; and why: */
    int64_t idle_host;  /* the next kernel had not been launched yet */
    int64_t idle_data;  /* of that, the host loaded data */
    int64_t idle_gap;   /* it had; a moment between two kernels */
    int64_t idle_other; /* it had, and yet nothing ran: a dependency */
    int64_t kind[LS__KERNEL_KINDS];
} ls__device;

typedef struct ls__trace {
    char *path;
    int document;   /* of the file, from 0 */
    int rank;       /* -1: not known */
    int world_size; /* 0: not known */
    char host[65];
    char backend[32];
    int64_t base;
    bool has_base;
    /* What is numerous, as it was read; host.c and device.c unpack it, each when it is needed. */
    ls__deltas packed_busy, packed_backward; /* begin, duration, thread, calls */
    ls__deltas packed_kernels;               /* begin, duration, launch, stream and kind */
    ls__deltas packed_launches;              /* begin, correlation, thread */
    LS__LIST(ls__mark) marks;
    LS__LIST(ls__busy) busy;     /* of the main thread */
    LS__LIST(ls__busy) backward; /* autograd's functions */
    LS__LIST(ls__call) calls;    /* record_param_comms */
    LS__LIST(ls__call) c10d;     /* c10d:: operators: what there is without it */
    LS__LIST(ls__call)
    comms; /* communication kernels; begin: of the kernel, `sequence` and the rest from its arguments */
    LS__LIST(uint32_t) comm_launch; /* their correlations */
    LS__LIST(ls__kernel) kernels;
    LS__LIST(ls__launch) launches;
    LS__LIST(ls__trace_group) groups;
    ls__interned threads, operation_names, kernel_names, marks_names;
    LS__LIST(ls__trace_operation) operations; /* by operation_names */
    LS__LIST(ls__kernel_sum) kernel_sums;     /* by kernel_names */
    LS__LIST(char) stack;                     /* collect.c's */
    int64_t first, last;                      /* times of spans */
    uint64_t spans;
    uint64_t odd; /* spans with impossible times */
    /* host.c and device.c: */
    LS__LIST(ls__trace_interval) intervals;
    LS__LIST(ls__trace_interval) steps; /* `phase` unused */
    LS__LIST(int64_t) step_numbers;
    int micro_batches;     /* of a step; 0: not known */
    bool own_steps;        /* no ProfilerStep: by the optimizer's */
    bool one_step;         /* nor that: the whole trace */
    bool damaged, skipped; /* events are missing: the file is cut, or parts of it were skipped; the latter */
    int64_t
        known_until; /* where it is cut: the begin of its last event, which is of `last_thread`; INT64_MAX: it is not cut */
    uint32_t last_thread;
    uint64_t without_end; /* Gloo's collectives of which it is not known which of its threads' spans is theirs */
    uint32_t main_thread;
    uint32_t busiest_thread; /* collect.c: the one whose operators took most time */
    LS__LIST(ls__trace_wait) waits;
    LS__LIST(ls__stream) streams;
    ls__device device; /* begin == end: it has none */
    /* clocks.c: the clock is `ahead[i]` ns ahead of the reference at `ahead_at[i]`, give or take `uncertainty` */
    int64_t ahead[2], ahead_at[2], uncertainty;
    bool aligned;
    double drift_ppm;
} ls__trace;

void ls__trace_free(ls__trace *t);
/* Room for one more in a list: `LS__ADD(&t->marks, mark)`; false: out of memory. */
bool ls__list_grow(void **at, size_t *room, size_t count, size_t size);
#define LS__ADD(list, ...)                                                                   \
    (((list)->count < (list)->room ||                                                        \
      ls__list_grow((void **)&(list)->at, &(list)->room, (list)->count, sizeof *(list)->at)) \
         ? ((list)->at[(list)->count++] = __VA_ARGS__, true)                                 \
         : false)

/* Sorts what is nearly in order already, for which qsort() would take memory for a copy. Stable. */
void ls__sort_nearly(void *at, size_t count, size_t size, int (*order)(const void *, const void *));

/* ---- collect.c: reads a file; each document becomes a trace. */

typedef struct ls__traces {
    ls__trace *at;
    size_t count;
} ls__traces;

/* How far a file has been read, for progress and for notes on what was wrong. */
typedef struct ls__file_state {
    const char *path;
    _Atomic uint64_t done; /* bytes */
    uint64_t size;         /* 0: not known */
    uint64_t events, broken, first_broken, bytes;
    bool cut;
} ls__file_state;

LS_MUST_CHECK ls_status ls__traces_read(ls__traces *out, ls__file_state *file);
void ls__traces_free(ls__traces *t);

/* ---- words.c: what names mean. */

/* ls_collective_kind of "allreduce", "all_reduce", "_allgather_base", "AllReduce" ...; -1: none. *sends: between two ranks. */
int ls__collective_of(ls__text name, bool *sends);
int64_t ls__dtype_bytes(ls__text name);
ls__kernel_kind ls__kernel_kind_of(ls__text name);
const char *ls__kernel_kind_name(ls__kernel_kind kind);

/* ---- ends.c: when the host's collectives were done. Needs steps. */
LS_MUST_CHECK ls_status ls__trace_ends(ls__trace *t);
/* ---- host.c: steps and phases of the host, and how long it was blocked in collectives. */
LS_MUST_CHECK ls_status ls__trace_host(ls__trace *t);
/* The phase that the host is in at `time`. */
ls_phase ls__trace_phase_at(const ls__trace *t, int64_t time);
/* ---- device.c: a GPU's time, and its communication kernels as collectives. */
LS_MUST_CHECK ls_status ls__trace_device(ls__trace *t);

#endif
