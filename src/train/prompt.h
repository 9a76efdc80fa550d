/* The prompt of a text that a model continues. */
#ifndef LS_TRAIN_PROMPT_H
#define LS_TRAIN_PROMPT_H

#include "lockstep/data.h"
#include "lockstep/nn.h"

/* What a sequence reads first: the tokens that the tokenizer's template puts before a text, as in transformers, and those of
 * the prompt. If there are none: the token that ends the text before. *count: how many; may be NULL. */
LS_MUST_CHECK ls_status ls__prompt_feed(ls_generator *g, int sequence, const ls_tokenizer *tokenizer,
                                        const char *prompt, size_t *count);

#endif
