/* Checks at the start that all ranks have the same spans and options. Collective; a difference is LS_EMISMATCH on all ranks. */
#ifndef LS_DDP_VERIFY_H
#define LS_DDP_VERIFY_H

#include "lockstep/ddp.h"

/* Returns on all ranks whether all succeeded so far: own status and message, or those of the first rank that failed. */
LS_MUST_CHECK ls_status ls__verify_success(ls_world *world, ls_status own);
LS_MUST_CHECK ls_status ls__verify_spans(ls_world *world, const char *const *names, const size_t *counts, size_t n);
LS_MUST_CHECK ls_status ls__verify_options(ls_world *world, const ls_ddp_options *options);

/* LS_EINVAL if a list, or the data of an entry, is NULL although it has elements. */
LS_MUST_CHECK ls_status ls__verify_named(const char *what, const ls_named *named, size_t n);

#endif
