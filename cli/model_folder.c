/* See model_folder.h. */
#include "cli/model_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/status.h"
#include "cli/commands.h"
#include "cli/escape.h"
#include "nn/lora.h"

enum { PATH_BYTES = 4096 };

ls_status model_folder_load(ls_model **out, const char *folder)
{
    ls_model_options options;
    *out = NULL;
    ls_status status = ls_model_options_read(folder, &options);
    options.lora.r = 0;
    if (!status && options.kind != LS_MODEL_LM)
        status = ls__fail(LS_EUNSUPPORTED, "%s: is a model of images; this needs a language model", folder);
    if (!status) status = ls_model_open(out, &options);
    if (!status) status = ls_model_bind(*out, NULL, NULL, false);
    if (!status) status = ls_model_load(*out, folder);
    if (status) ls_model_free(out);
    return status;
}

static bool has_tokenizer(const char *folder)
{
    static const char *const files[] = { "tokenizer.json", "vocab.json", "encoder.json" };
    for (int i = 0; i < 3; i++) {
        char path[PATH_BYTES + 32];
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        if (access(path, R_OK) == 0) return true;
    }
    return false;
}

ls_status model_folder_find_tokenizer(const char *folder, char *out, size_t bytes)
{
    ls_status status = LS_OK;
    snprintf(out, bytes, "%s", folder);
    while (!status && *out && !has_tokenizer(out)) {
        char *base = NULL;
        status = ls__lora_find_base(out, &base);
        snprintf(out, bytes, "%s", base ? base : "");
        free(base);
    }
    return status;
}

int model_folder_open_tokenizer(const char *command, ls_tokenizer **out, const char *option, const char *chat_template,
                                const char *folder, int vocab)
{
    char found[PATH_BYTES] = "";
    const char *name = option;
    *out = NULL;
    ls_status status = name ? LS_OK : model_folder_find_tokenizer(folder, found, sizeof found);
    if (status) return exit_failure(command, status);
    if (!name && *found) name = found;
    if (!name && vocab <= 257) name = "bytes";
    if (!name) {
        fprintf(stderr, "lockstep %s: %s: the model has no tokenizer; set one with --tokenizer\n", command,
                printable(folder));
        return EXIT_USAGE;
    }
    status = ls_tokenizer_open(out, name, &(ls_tokenizer_options){ .chat_template = chat_template });
    return status ? exit_failure(command, status) : -1;
}
