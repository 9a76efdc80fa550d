/* What a rank notes about itself: for the layers above. */
#ifndef LS_COMM_EVENTS_H
#define LS_COMM_EVENTS_H

#include <stdbool.h>
#include "record/ring.h"
#include "lockstep/comm.h"

/* This rank's ring. */
ls__ring *ls__world_ring(const ls_world *world);
/* A number that reports want to know. Kept until there is a record, if there is none yet. */
void ls__world_fact(ls_world *world, ls__fact_kind fact, double value);
/* The thread's CPU time and the like go into the ring, if there is a record. Returns when they were taken: `now`, or a little later. */
int64_t ls__world_sample(ls_world *world, int64_t now);
/* An event in the middle of a phase, and a sample with it where those at its ends leave time for more. */
void ls__world_mark(ls_world *world, ls__event_kind kind, uint64_t a, uint64_t b);
/* For measurements: events are not written meanwhile, as if there were no record. */
void ls__record_pause(ls_record *record, bool paused);
/* The thread stood in a call from `begin` to `now`. Returns until when: `now`, or a little later. */
int64_t ls__world_blocked_since(ls_world *world, uint64_t call, int64_t begin, int64_t now);
/* Names of gradients, by the index that events give; they replace those before. */
void ls__world_names(ls_world *world, const char *const *names, size_t count);
void ls__world_forget_names(ls_world *world);
/* The name of an operation, by the index that events give. Without a record it is dropped. */
void ls__world_operation_name(ls_world *world, uint32_t index, const char *name);
/* Nanoseconds that this rank has stood in calls so far: waiting for others, and communication that nothing hid. */
int64_t ls__world_blocked(const ls_world *world);
/* The word that the next collective of a group will have in events. */
uint64_t ls__group_next_call(const ls_group *group);

#endif
