/* Identifies the files that a run reads, in run.json, so that changed data are noticed when it is resumed. */
#ifndef LS_TRAIN_DATA_FILES_H
#define LS_TRAIN_DATA_FILES_H

#include <jansson.h>
#include "lockstep/base.h"

/* [{"name": ..., "bytes": ..., "xxh3": ...}, ...], a new reference, for the files of `paths`; no paths: an empty list. */
LS_MUST_CHECK ls_status ls__data_files_json(const char *const *paths, size_t n_paths, json_t **out);

/* LS_EINVAL, with the name of the first file that differs, unless `then` and `now` are files with the same contents in the same
 * order. Names may differ: files can be moved. `then` NULL: unknown, and nothing is compared. */
LS_MUST_CHECK ls_status ls__data_files_compare(const json_t *then, const json_t *now);

#endif
