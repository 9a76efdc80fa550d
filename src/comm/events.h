/* What a rank knows about its collectives: for the layers above. */
#ifndef LS_COMM_EVENTS_H
#define LS_COMM_EVENTS_H

#include "lockstep/comm.h"

/* Nanoseconds that this rank has been blocked in collectives so far: waiting for others, and exposed communication. */
int64_t ls__world_blocked_ns(const ls_world *world);
/* The word that the next collective of a group will have in events. */
uint64_t ls__group_next_word(const ls_group *group);

#endif
