/* What a run records about itself (lockstep/record.h has the marks). */
#ifndef LS_TRAIN_RECORD_H
#define LS_TRAIN_RECORD_H

#include "lockstep/train.h"

/* GFLOP/s that matrix products reach with this rank's threads. Measured once, for about 50 ms. A step that `reached` more shows
 * that other programs disturbed the measurement, and replaces it. */
double ls__train_peak(ls_train *t, double reached);

/* Starts the record in the run directory, on every rank. */
LS_MUST_CHECK ls_status ls__train_record_open(ls_train *t);
/* Collective, once all ranks have opened theirs: what the cores of the node can do, for predictions. */
LS_MUST_CHECK ls_status ls__train_record_node(ls_train *t);
void ls__train_record_close(ls_train *t);

/* Phases: recorded and timed in one place. enter() begins with a barrier if the option is set. leave() returns the milliseconds
 * since the leave before, or since t->clock was set. */
LS_MUST_CHECK ls_status ls__train_enter(ls_train *t, ls_phase phase);
double ls__train_leave(ls_train *t, ls_phase phase);
/* The same interval without the end of a phase. */
double ls__train_lap(ls_train *t);
/* What the operations of forward and backward cost between marks (LS_EVENT_SEGMENT), of the first slot of the first step and of every
 * 256th: newer files of the record replace older ones. begin(): before a slot's forward; mark(): where a mark is recorded, or
 * LS_SEGMENT_END where a phase ends. Not with --profile, whose rows have more. */
void ls__train_costs_begin(ls_train *t, int micro);
void ls__train_costs_mark(ls_train *t, uint64_t span, ls_phase phase);
/* After each batch of the loader. */
void ls__train_note_batch(ls_train *t);

#endif
