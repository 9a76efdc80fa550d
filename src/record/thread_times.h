/* CPU time of each thread of this process, by name. */
#ifndef LS_RECORD_THREAD_TIMES_H
#define LS_RECORD_THREAD_TIMES_H

#include <stdbool.h>
#include <stdint.h>
#include "base/thread.h"

enum { LS__MAX_ROWS = 128 };

/* A row is a thread and earlier threads of the same name: threads that are started for each checkpoint share one row. */
typedef struct ls__thread_row {
    char name[LS__THREAD_NAME]; /* "main": the thread that opened this; else the kernel's name of it */
    int tid;                    /* 0: none is alive */
    uint64_t live, gone;        /* CPU ns of the thread, and of earlier ones */
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
/* Updates the rows. Threads beyond LS__MAX_ROWS are skipped. */
void ls__thread_times_read(ls__thread_times *t);
/* CPU ns of a row at the last reading. */
uint64_t ls__thread_times_of(const ls__thread_times *t, int row);

#endif
