/* What the other layers need of the library's datasets beyond ls_dataset. */
#ifndef LS_DATA_DATASETS_H
#define LS_DATA_DATASETS_H

#include "lockstep/data.h"

/* Tokens in all files of a dataset of ls_tokens_open(). */
uint64_t ls__tokens_count(const ls_dataset *tokens);
/* For benchmarks: each read takes this much longer, until its file is staged. Before the dataset is used. */
void ls__tokens_set_read_delay(ls_dataset *tokens, int delay_us);

/* Documents of a dataset of ls_text_open(). */
uint64_t ls__text_documents(const ls_dataset *text);

/* For get(): LS_EINVAL unless the sample exists, and there is a worker if the dataset has a state for workers. */
ls_status ls__sample_check(const ls_dataset *dataset, const void *worker, uint64_t sample);

#endif
