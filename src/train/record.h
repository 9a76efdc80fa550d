/* What a training records about itself (lockstep/record.h has the marks), and delays put in on purpose. */
#ifndef LS_TRAIN_RECORD_H
#define LS_TRAIN_RECORD_H

#include "lockstep/train.h"

/* Starts the record in the run directory, on every rank. */
LS_MUST_CHECK ls_status ls__train_record_open(ls_train *t);
void ls__train_record_close(ls_train *t);

/* The next phase begins, with a barrier before it if that was asked for. */
LS_MUST_CHECK ls_status ls__train_enter(ls_train *t, ls_phase phase);
void ls__train_leave(ls_train *t, ls_phase phase);
/* A batch was taken from the loader. */
void ls__train_note_batch(ls_train *t);
/* Keeps the core busy for as long as the options say for this rank, phase and step. */
void ls__train_inject(ls_train *t, ls_phase phase);

#endif
