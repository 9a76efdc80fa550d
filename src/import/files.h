/* Which files are meant, and of which ranks they are. */
#ifndef LS_IMPORT_FILES_H
#define LS_IMPORT_FILES_H

#include <stdbool.h>
#include "lockstep/base.h"

typedef struct ls__file_list {
    char **path;
    bool *named; /* the user named it; otherwise it was found in a folder, where other files may be, too */
    size_t count;
} ls__file_list;

/* Files as they are; of folders the files whose names end in `ends` (NULL after the last; an empty one: any), in order of names. */
LS_MUST_CHECK ls_status ls__files_find(ls__file_list *out, const char *const *names, size_t count,
                                       const char *const *ends);
void ls__files_free(ls__file_list *l);

/* The rank in a file's name: "rank3.json", "rank-3.Apr_03.json", "trace_r3.json.gz", "nccl_trace_3"; -1: none. `files`: how many there are
 * of its kind; a mere number far above that is not taken for a rank. */
int ls__files_rank(const char *path, size_t files);

#endif
