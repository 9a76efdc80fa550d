/* What the layers above use of this one besides lockstep/comm.h. */
#ifndef LS_COMM_PRIVATE_H
#define LS_COMM_PRIVATE_H

#include <stdbool.h>
#include "lockstep/comm.h"

/* A world of one rank, independent of the environment. */
LS_MUST_CHECK ls_status ls__world_open_alone(ls_world **out, const ls_world_options *options);
/* Collective, for a group whose members are all on one node (else LS_EUNSUPPORTED): one block of memory that all of them see,
 * zero-filled. It belongs to the world; one member may free it early with ls_world_dealloc(). */
LS_MUST_CHECK ls_status ls__group_share(ls_group *group, size_t bytes, void **memory);
/* Nanoseconds that this rank has been blocked in collectives so far: waiting for others, and exposed communication. */
int64_t ls__world_blocked_ns(const ls_world *world);
/* ls_collective_id() of the group's next collective. */
uint64_t ls__group_next_collective_id(const ls_group *group);
/* Whether an error ended the group; every later collective then returns that error. */
bool ls__group_is_broken(const ls_group *group);
/* That error; LS_OK: none. */
ls_status ls__group_status(const ls_group *group);

/* A public function that uses collectives of its own: messages name it with them. */
typedef enum ls__caller {
    LS__CALLER_USER = 0,
    LS__CALLER_SPLIT = 1,
    LS__CALLER_DDP_OPEN = 2,
    LS__CALLER_ELASTIC_OPEN = 3,
    LS__CALLER_PARAMS_VERIFY = 4,
    LS__CALLERS
} ls__caller;
/* From now on the group's collectives are those of this function, unless it was called by another of them. Returns what
 * ls__group_end_call() needs. */
ls__caller ls__group_begin_call(ls_group *group, ls__caller caller);
void ls__group_end_call(ls_group *group, ls__caller before);

#endif
