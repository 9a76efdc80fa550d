/* What only collectives and benchmarks need of a record, beside lockstep/record.h. A record may be NULL. */
#ifndef LS_RECORD_RECORD_H
#define LS_RECORD_RECORD_H

#include <stdbool.h>
#include "lockstep/record.h"

/* Samples the counters of the thread that makes the steps, if it is the caller, a file is written, and there is time for it. Returns the time of the
 * sample: `now`, or a little later. */
int64_t ls__record_sample(ls_record *record, int64_t now);
/* The caller was blocked in a collective from `begin` to `now`. Returns until when: `now`, or a little later, with a sample. */
int64_t ls__record_blocked(ls_record *record, uint64_t collective, int64_t begin, int64_t now);
/* The ring that events are added to: for code that adds events often, and checks nothing else of the record. */
struct ls__ring *ls__record_ring(const ls_record *record);
/* For measurements: meanwhile nothing is sampled or written. */
void ls__record_pause(ls_record *record, bool paused);

#endif
