/* What commands open of the folder of a model. */
#ifndef LS_CLI_MODEL_FOLDER_H
#define LS_CLI_MODEL_FOLDER_H

#include "lockstep/data.h"
#include "lockstep/nn.h"

/* The model, for inference; an adapter is merged into its base. On failure *out is NULL. */
LS_MUST_CHECK ls_status model_folder_load(ls_model **out, const char *folder);

/* The folder that has a tokenizer: this one, or that of an adapter's base. "": none has. */
LS_MUST_CHECK ls_status model_folder_find_tokenizer(const char *folder, char *out, size_t bytes);

/* The tokenizer `option` (NULL: not given), that of the folder, or bytes if the vocabulary allows no other. chat_template: see
 * ls_tokenizer_options. Returns -1, or an exit code if a message was printed. */
int model_folder_open_tokenizer(const char *command, ls_tokenizer **out, const char *option, const char *chat_template,
                                const char *folder, int vocab);

#endif
