/* Fault injection: an artificial delay of one rank in one phase, by which the analysis of runs is tested (`train --inject`). */
#ifndef LS_TRAIN_INJECT_H
#define LS_TRAIN_INJECT_H

#include "lockstep/train.h"

/* LS_EINVAL: the delay is for a rank that does not exist. */
LS_MUST_CHECK ls_status ls__inject_check(const ls_train *t);
/* The delay of the options, if it is for this rank, phase and step. */
void ls__inject_delay(ls_train *t, ls_phase phase);

#endif
