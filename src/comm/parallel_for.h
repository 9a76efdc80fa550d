/* parallel_for: a loop over chunks that all ranks of a node share. The array is split into chunks, and each rank that waits
 * takes the next one.
 *
 * It is a collective like the others: it begins when all members have arrived, and ends when all chunks are done. What a chunk
 * computes must not depend on the rank that runs it: everything it writes is in memory that the members share. */
#ifndef LS_COMM_PARALLEL_FOR_H
#define LS_COMM_PARALLEL_FOR_H

#include "lockstep/comm.h"

/* Processes elements [begin, end). data[r] is rank r's whole buffer; NULL if none was given. */
typedef void (*ls__chunk_fn)(void *user, const void *const *data, size_t begin, size_t end);

/* `data`: this rank's buffer of `count` elements, from ls_world_alloc(), or NULL (on all ranks). `chunk`: elements of a chunk, the
 * same on all ranks. A group of ranks on several nodes is LS_EUNSUPPORTED. */
LS_MUST_CHECK ls_status ls__parallel_for_start(ls_group *g, const void *data, size_t count, ls_dtype type, size_t chunk,
                                               ls__chunk_fn fn, void *user, ls_work **out);
/* The same, blocking. */
LS_MUST_CHECK ls_status ls__parallel_for(ls_group *g, const void *data, size_t count, ls_dtype type, size_t chunk,
                                         ls__chunk_fn fn, void *user);

#endif
