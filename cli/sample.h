/* Text from a model, as it comes. */
#ifndef LS_CLI_SAMPLE_H
#define LS_CLI_SAMPLE_H

#include <stdio.h>
#include "lockstep/nn.h"

/* Writes the prompt and `count` more tokens, each as soon as it is chosen. Tokens are bytes. */
ls_status sample_bytes(ls_model *model, const ls_generator_options *options, const char *prompt, int count, FILE *to);

#endif
