/* The folder of an imported run: what may be replaced, and import.json, which is written last. */
#ifndef LS_IMPORT_FOLDER_H
#define LS_IMPORT_FOLDER_H

#include <jansson.h>
#include "import/join.h"

/* LS_EINVAL if the folder holds something else than an earlier import. */
LS_MUST_CHECK ls_status ls__folder_check(const char *out);
/* Makes it, without what an earlier import left. */
LS_MUST_CHECK ls_status ls__folder_make(const char *out);
/* Removes what is in it of a run. */
void ls__folder_clear(const char *out);
/* And what marks it as an import: one that failed leaves nothing. */
void ls__folder_undo(const char *out);
/* Writes import.json, with the members of the object `content`, which stays the caller's. */
LS_MUST_CHECK ls_status ls__folder_finish(const char *out, const char *source, const ls__remarks *remarks,
                                          json_t *content);

#endif
