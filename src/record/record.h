/* What collectives and benchmarks use of a record beyond lockstep/record.h. A record may be NULL. */
#ifndef LS_RECORD_RECORD_H
#define LS_RECORD_RECORD_H

#include <stdbool.h>
#include "lockstep/record.h"

/* Samples the counters if the caller runs the steps, a file is written, and enough time was saved up. Returns the time of the sample:
 * `now`, or slightly later. */
int64_t ls__record_sample(ls_record *record, int64_t now);
/* The caller was blocked in a collective from `begin` to `now`. Returns the end: `now`, or slightly later with a sample. */
int64_t ls__record_blocked(ls_record *record, uint64_t collective, int64_t begin, int64_t now);
/* The ring that events are added to, for code that adds events often. */
struct ls__ring *ls__record_ring(const ls_record *record);
/* For measurements: pauses sampling and writing. */
void ls__record_pause(ls_record *record, bool paused);

#endif
