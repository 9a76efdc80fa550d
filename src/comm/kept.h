/* Kept memory: what outlives the ranks of an elastic job.
 *
 * An elastic job is a sequence of generations. In a generation a fixed number of ranks run, with a job memory of their own (job.h).
 * A rank's death ends it, and the launcher starts the next one, perhaps with another number of ranks. What the ranks computed is in
 * this memory: a second memfd, made by the launcher and inherited by the ranks of all generations. It begins with the header below,
 * by which launcher and ranks tell each other what happened; the rest belongs to the program (train/kept.h).
 *
 * Ranks may be killed between any two instructions, so what is here must be usable at every moment. */
#ifndef LS_COMM_KEPT_H
#define LS_COMM_KEPT_H

#include <stdatomic.h>
#include <stdbool.h>
#include "lockstep/comm.h"

struct ls__job;

/* The variable that holds the descriptor's number. */
#define LS__KEPT_FD_VARIABLE "LOCKSTEP_KEPT_FD"

enum {
    LS__KEPT_HEADER = 64 << 10, /* bytes before the program's part */
    LS__KEPT_PATH = 4096,
    LS__KEPT_EXIT =
        75, /* exit code of ranks that end because the number of ranks changes; sysexits.h has it for "try again" */
    LS__KEPT_KILLS = 16,
    LS__KEPT_HELD = 2048,
};

/* An allocation of job memory that outlives its generation: the launcher leaves it as it is when it renews the job. */
typedef struct ls__kept_held {
    _Atomic uint64_t offset; /* 0: none; 1: being entered */
    uint64_t bytes;
    int32_t generation; /* that entered it */
    int32_t kind;       /* the program's own */
} ls__kept_held;

typedef struct ls__kept {
    char magic[16];         /* names the layout */
    uint64_t header_bytes;  /* sizeof(ls__kept): a second check of the layout */
    _Atomic uint32_t ready; /* the program's part is complete: the next generation continues from it */
    _Atomic int32_t generation, ranks;
    _Atomic int32_t slots,
        torch_ranks;             /* of the first generation, where they follow from its ranks; 0: not known yet */
    _Atomic int64_t step;        /* steps that are finished */
    _Atomic uint32_t stopping;   /* the launcher passes on a signal: the job ends, not a rank */
    _Atomic int32_t leaving;     /* ranks that end with this generation because they got SIGTERM */
    _Atomic int32_t wanted;      /* ranks that a resize asks for; 0: none */
    _Atomic uint32_t change;     /* this generation ends after a step: the launcher asks for it, or the ranks agreed */
    _Atomic uint32_t noted;      /* this generation has finished a step, and written why it began */
    int64_t lost_at;             /* ls_now() when the generation before ended; 0: this is the first */
    char why[256];               /* it ended */
    char run_dir[LS__KEPT_PATH]; /* "": not known yet */
    /* For tests: a rank kills itself when it passes a point for the nth time, one after another. See ls__kept_point(). */
    struct {
        int32_t point, rank; /* point 0: none; rank -1: any */
        _Atomic int32_t after;
    } kill[LS__KEPT_KILLS];
    _Atomic int32_t next_kill;
    ls__kept_held held[LS__KEPT_HELD];
} ls__kept;

/* Makes it in a new memfd (close-on-exec) and maps the header. */
LS_MUST_CHECK ls_status ls__kept_create(ls__kept **out, int *fd);
/* Maps the header of an inherited descriptor, after checking that it is of this version. */
LS_MUST_CHECK ls_status ls__kept_attach(int fd, ls__kept **out);
/* Makes room for the program's part; memory that the node does not have is LS_ENOMEM. */
LS_MUST_CHECK ls_status ls__kept_allocate(int fd, size_t bytes);
/* Maps the program's part, of which there must be `bytes`. */
LS_MUST_CHECK ls_status ls__kept_map(int fd, size_t bytes, void **out);
void ls__kept_detach(ls__kept **kept);
/* Whether the node has so much memory left, as far as that is known. */
bool ls__kept_fits(size_t bytes);

/* ---- Held allocations, in job memory that the launcher made. Where ranks made it (several machines), it ends with them: nothing is held. */

/* Enters the allocation at `memory` (ls_world_alloc(), ls__group_share()). False: there is no room. */
bool ls__kept_hold(ls__kept *kept, const ls_world *world, const void *memory, int kind);
/* Memory to be held: as ls_world_alloc(), but with any content. NULL: the world has none that can be held, or there is too little. */
void *ls__kept_alloc(ls_world *world, size_t bytes);
/* The allocation that `memory` is in is no longer held, and stays allocated. */
void ls__kept_let_go(ls__kept *kept, const ls_world *world, const void *memory);
/* One rank: frees those of earlier generations, or only number `index` of kept->held. With `reuse` the next allocations get their
 * pages. */
void ls__kept_drop_held(ls__kept *kept, ls_world *world, bool reuse);
void ls__kept_drop(ls__kept *kept, ls_world *world, int index, bool reuse);
/* One rank: gives the pages of job memory that earlier generations used and nobody has allocated back to the system. */
void ls__kept_trim(const ls_world *world);
/* The launcher, after it renewed the job: what is held is allocated there. If that cannot be, nothing is held any more. */
void ls__kept_renew_held(ls__kept *kept, struct ls__job *job);
/* Where something is in that memory (0: it is not), and what is at an offset (NULL: no such place). */
uint64_t ls__world_offset(const ls_world *world, const void *memory);
void *ls__world_at(const ls_world *world, uint64_t offset, size_t bytes);

/* Points below the training run, whose own are in train/kept.h. They are passed many times. */
enum {
    LS__POINT_STORE = 40, /* a rank on several machines: each call of the store, each connection to another rank */
    LS__POINT_KEEPER,     /* a keeper: each thing that it says, hears or starts; as rank -1 */
    LS__POINT_DROPPED,    /* an allocation is no longer held, and not free yet */
};

/* The descriptor of the world's kept memory; 0: the job is not elastic. */
int ls__world_kept_fd(const ls_world *world);

/* A numbered point of the protocol; tests kill ranks there. `kept` may be NULL. */
void ls__kept_point(ls__kept *kept, int point, int rank);
/* Whether it is the next one at which a rank is killed. */
bool ls__kept_is_next_point(const ls__kept *kept, int point);

#endif
