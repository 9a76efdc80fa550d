/* CPU time of each thread of this process, under its name. */
#ifndef LS_RECORD_THREAD_TIMES_H
#define LS_RECORD_THREAD_TIMES_H

#include <stdbool.h>
#include <stdint.h>
#include "base/thread.h"

enum { LS__MAX_ROWS = 128 };

/* A row is a thread, and those of its name that came before it: a thread that is started for each checkpoint has one row. */
typedef struct ls__thread_row {
    char name[LS__THREAD_NAME]; /* "main": the one that opened this; else what the kernel calls it */
    int tid;                    /* 0: none of this row lives */
    uint64_t live, gone;        /* CPU ns of the thread, and of those before it that were seen at work */
    bool seen;
} ls__thread_row;

typedef struct ls__thread_times {
    int main; /* its tid */
    char main_name[LS__THREAD_NAME];
    int count;
    ls__thread_row row[LS__MAX_ROWS]; /* only ever appended to */
    ls__thread_ended ended[LS__MAX_ENDED];
    int n_ended;
} ls__thread_times;

void ls__thread_times_open(ls__thread_times *t);
/* Brings the rows up to now. Threads beyond LS__MAX_ROWS are left out. */
void ls__thread_times_read(ls__thread_times *t);
/* CPU ns of a row until the last reading. */
uint64_t ls__thread_times_of(const ls__thread_times *t, int row);

#endif
