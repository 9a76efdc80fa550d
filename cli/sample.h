/* Text from a model, as it comes. */
#ifndef LS_CLI_SAMPLE_H
#define LS_CLI_SAMPLE_H

#include <stdio.h>
#include "lockstep/data.h"
#include "lockstep/nn.h"

/* Writes the prompt and up to `count` more tokens, each as soon as it is chosen; the token that ends a text ends it. */
ls_status sample_text(ls_model *model, const ls_tokenizer *tokenizer, const ls_generator_options *options,
                      const char *prompt, int count, FILE *to);

#endif
