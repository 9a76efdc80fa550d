/* Reading what ranks recorded (record/event_file.h), without trust. */
#ifndef LS_MEASURE_READ_H
#define LS_MEASURE_READ_H

#include "measure/model.h"

/* Reads one file and adds its events, names and head to `r`. LS_EFORMAT if not even the head can be read; r->cut if it ends too early.
 * `newest_bytes`: starts this far before the end (at a block; names, metadata and clocks are always read), 0: at the beginning. Times are
 * the rank's own. */
LS_MUST_CHECK ls_status ls__events_read(ls_run_rank *r, int fd, size_t bytes, size_t newest_bytes);
void ls__events_free(ls_run_rank *r);

/* Finds and reads the files of a run; fills ranks and notes. */
LS_MUST_CHECK ls_status ls__run_load(ls_run *run, size_t newest_bytes);

#endif
