/* A list of records of a few whole numbers each, in as few bytes as they need: of every number, the difference from that of the
 * record before. The spans of a trace follow each other closely, so a record takes about a third of its size as a struct. It is
 * read once, from its start to its end, and is given back on the way. */
#ifndef LS_IMPORT_DELTAS_H
#define LS_IMPORT_DELTAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS__DELTAS_FIELDS = 4 };

typedef struct ls__deltas { /* all zero: empty */
    uint8_t *bytes;         /* pages of its own: what was never written, or was read, is no memory */
    size_t used, room, count;
    int64_t last[LS__DELTAS_FIELDS];
    size_t at, left; /* reading: bytes, and records that are to come */
    bool reading;
} ls__deltas;

/* False: out of memory. */
bool ls__deltas_add(ls__deltas *d, const int64_t fields[LS__DELTAS_FIELDS]);
/* The next record; false, and the list is empty: there was none. Nothing may be added once reading has begun. */
bool ls__deltas_take(ls__deltas *d, int64_t fields[LS__DELTAS_FIELDS]);
void ls__deltas_free(ls__deltas *d);

#endif
