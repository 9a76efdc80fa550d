/* The folder of an imported run: what may be replaced, and import.json, which is written last. */
#ifndef LS_IMPORT_FOLDER_H
#define LS_IMPORT_FOLDER_H

#include <jansson.h>
#include <stdbool.h>
#include "import/join.h"

typedef struct ls__folder {
    char *at;   /* to write to */
    char *real; /* where it will be */
    int lock;   /* held on `at` if that is beside `real`; -1: none */
    bool made;  /* `at` is `real` */
} ls__folder;

/* LS_EINVAL if the folder has something else than an earlier import in it, or one that cannot be replaced. */
LS_MUST_CHECK ls_status ls__folder_check(const char *out);
/* Makes the folder to write to. On failure there is nothing to end. */
LS_MUST_CHECK ls_status ls__folder_begin(ls__folder *f, const char *out);
/* With LS_OK the import takes its place, and an earlier one is removed, but not what else is in its folder. With an error, it is removed
 * itself, and an earlier one is left as it was. Returns `status`, or why that failed. Frees what *f holds. */
ls_status ls__folder_end(ls__folder *f, ls_status status);
/* Writes import.json, with the members of the object `content`, which stays the caller's. */
LS_MUST_CHECK ls_status ls__folder_finish(const char *out, const char *source, const ls__remarks *remarks,
                                          json_t *content);

#endif
