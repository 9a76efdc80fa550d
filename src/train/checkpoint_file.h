/* Checkpoint files: the format, and the folder.
 *
 *   "lockstep checkpoint 1\n"   22 bytes
 *   u64                         length of the head, little-endian
 *   head                        JSON: step, position in the data, number of elements and of blocks, settings
 *   blocks                      float32: weights, then the optimizer's state, each of `elements`
 *   buffers                     float32: of the model, `buffers` of them; not in models without batch norms
 *   u64, u64                    XXH3 (128 bits, low half first) of everything before
 *
 * A file is written under a temporary name, synced and renamed. It is read, not mapped: a file that is truncated meanwhile
 * is an error and not a SIGBUS. */
#ifndef LS_TRAIN_CHECKPOINT_FILE_H
#define LS_TRAIN_CHECKPOINT_FILE_H

#include <jansson.h>
#include "lockstep/data.h"

enum { LS__CHECKPOINT_BLOCKS = 3 }; /* weights and two of state */

/* An open file whose head was read and fits the file's length. Its contents are not known to be intact. */
typedef struct ls__checkpoint_file {
    const char *path; /* owned by the caller */
    int fd;
    size_t bytes;
    json_t *head;
    int64_t step;
    ls_loader_state data;
    size_t elements;
    int n_blocks;
    size_t buffers;
} ls__checkpoint_file;

/* LS_EFORMAT with the reason if it is not a checkpoint. On failure there is nothing to close. */
LS_MUST_CHECK ls_status ls__checkpoint_file_open(ls__checkpoint_file *f, const char *path);
/* Reads all of it and compares it with its checksum. blocks[i], of `elements`, gets block i, and `buffers` the
 * buffers; NULL: only the checksum is verified. */
LS_MUST_CHECK ls_status ls__checkpoint_file_read(const ls__checkpoint_file *f, float *const *blocks, float *buffers);
void ls__checkpoint_file_close(ls__checkpoint_file *f);

LS_MUST_CHECK ls_status ls__checkpoint_file_write(const char *path, const char *head, const float *const *blocks,
                                                  int n_blocks, size_t elements, const float *buffers,
                                                  size_t n_buffers);

/* The file of a step in a folder; the caller frees it. NULL: out of memory. */
char *ls__checkpoint_path(const char *folder, int64_t step);
/* The steps of all files in a folder, newest first; none if the folder does not exist. The caller frees *steps. */
LS_MUST_CHECK ls_status ls__checkpoint_list(const char *folder, int64_t **steps, size_t *count);

#endif
