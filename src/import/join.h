/* Traces of several ranks, joined. */
#ifndef LS_IMPORT_JOIN_H
#define LS_IMPORT_JOIN_H

#include "import/trace.h"

/* Sentences about what is missing or odd. */
typedef struct ls__remarks {
    char **text;
    size_t count;
    uint64_t left_out; /* beyond those that are kept */
} ls__remarks;

void ls__remark(ls__remarks *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ls__remarks_free(ls__remarks *r);

/* join.c: gives collectives their numbers: the same on all ranks of a group for the same collective. `traces` are in the order of ranks. */
LS_MUST_CHECK ls_status ls__join(ls__trace **traces, size_t count, int ranks, ls__remarks *remarks);
/* clocks.c: how far each clock is ahead of the first trace's, from the collectives. */
LS_MUST_CHECK ls_status ls__clocks_find(ls__trace **traces, size_t count, ls__remarks *remarks);
/* What a time on that trace's clock is on the reference's, since 1970. */
int64_t ls__clock_time(const ls__trace *t, int64_t time);

#endif
