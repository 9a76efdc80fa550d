/* TensorBoard's event files, written by hand: records framed with masked CRC-32C, protocol buffers inside. */
#ifndef LS_TRAIN_TENSORBOARD_H
#define LS_TRAIN_TENSORBOARD_H

#include "train/task.h"

/* Starts a new file in RUN/tensorboard; *fd is -1 on failure. `step`: the steps before. TensorBoard ignores later steps
 * in older files of the folder, which will be repeated. */
LS_MUST_CHECK ls_status ls__tensorboard_open(int *fd, const char *run_dir, int64_t step);
/* Appends a step's numbers, with one write. */
LS_MUST_CHECK ls_status ls__tensorboard_add(int fd, const ls__task_type *task, const ls_train_metrics *metrics);

/* CRC-32C (Castagnoli), as TensorBoard stores it: rotated, and a constant added. */
uint32_t ls__masked_crc32c(const void *data, size_t bytes);

#endif
