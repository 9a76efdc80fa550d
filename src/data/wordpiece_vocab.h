/* vocab.txt of a BERT as a tokenizer.json. */
#ifndef LS_DATA_WORDPIECE_VOCAB_H
#define LS_DATA_WORDPIECE_VOCAB_H

#include <jansson.h>
#include <stdbool.h>
#include "lockstep/base.h"

/* The text of a tokenizer.json for the text of a vocab.txt, whose name is for messages; the caller frees it. config: the folder's
 * tokenizer_config.json, or NULL. */
LS_MUST_CHECK ls_status ls__wordpiece_json(const char *path, const char *text, size_t bytes, const json_t *config,
                                           char **out);

#endif
