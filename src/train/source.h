/* Where a run's samples come from: files of text or tokens, or the built-in corpus, as datasets of windows. */
#ifndef LS_TRAIN_SOURCE_H
#define LS_TRAIN_SOURCE_H

#include "lockstep/data.h"
#include "lockstep/train.h"

/* Opens files according to the options: one sequence of tokens cut into samples of seq_len, or padded documents. Text is
 * tokenized; the tokenizer must outlive the dataset. No files: the built-in corpus, whose bytes are the tokens. A token beyond the
 * vocabulary in a shard is an error when it is read. `hold_out` is for text; NULL: all documents. On failure *out is
 * NULL. */
LS_MUST_CHECK ls_status ls__source_open(ls_dataset **out, const char *const *paths, size_t n_paths,
                                        const ls_tokenizer *tokenizer, const ls_train_options *o,
                                        const ls_hold_out *hold_out);
/* Whether the files are text, by the options or by the files; all must be of one kind. No files: true. */
LS_MUST_CHECK ls_status ls__source_is_text(const char *const *paths, size_t n_paths, const ls_train_options *o,
                                           bool *text);

#endif
