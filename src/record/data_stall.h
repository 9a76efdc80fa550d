/* Whether ranks wait for data. Judged in one place: while a training runs (train/loading.c) and from its record (measure). */
#ifndef LS_RECORD_DATA_STALL_H
#define LS_RECORD_DATA_STALL_H

#include <stdbool.h>

/* Sums over some steps of one rank; times in any unit, one for all. */
typedef struct ls__data_load {
    double wall, waited;    /* of the wall time, waiting for batches */
    double batches, missed; /* taken; of those, not ready when asked for (< 0: not known) */
    double build;           /* time to build those taken */
} ls__data_load;

typedef enum ls__data_stall {
    LS__DATA_KEEPS_UP = 0,
    LS__DATA_STALLS_RANK = 1, /* one rank waits for its batches, and the others for that rank */
    LS__DATA_STALLS_ALL = 2,
} ls__data_stall;

/* *slowest, *fastest: the ranks that wait most and least. */
ls__data_stall ls__data_stall_find(const ls__data_load *all, int ranks, int *slowest, int *fastest);
/* Whether the rank waits because building takes long, and not because it was not scheduled. */
bool ls__data_is_late(const ls__data_load *rank);
/* Whether that takes a part of its time that is worth reporting. */
bool ls__data_stalls(const ls__data_load *rank);
/* Whether a batch takes longer to build than on the other ranks. */
bool ls__data_is_slow(const ls__data_load *rank, const ls__data_load *others);

#endif
