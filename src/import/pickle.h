/* Pickles of plain data, read without executing anything: dicts, lists, tuples, texts, numbers, None and booleans. */
#ifndef LS_IMPORT_PICKLE_H
#define LS_IMPORT_PICKLE_H

#include <jansson.h>
#include <stdbool.h>
#include "lockstep/base.h"

/* Whether the data begins like a pickle of protocol 2 or later. */
bool ls__is_pickle(const void *data, size_t bytes);
/* Tuples become arrays, and keys texts. LS_EFORMAT with the byte where it is cut off, or holds something else than plain data. On failure
 * *out is NULL. */
LS_MUST_CHECK ls_status ls__pickle_read(json_t **out, const void *data, size_t bytes);

#endif
