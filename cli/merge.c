/* lockstep merge: adds an adapter to the weights of its base model, and saves the result as a model of its own. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/status.h"
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/last_run.h"
#include "cli/model_folder.h"
#include "cli/options.h"

static const char intro[] =
    "usage: lockstep merge [FOLDER] -o DIR\n"
    "\n"
    "Adds the adapter in FOLDER (runs/last), by 'lockstep train --lora' or PEFT, to its base model, and writes the\n"
    "result as a Hugging Face folder: config.json, model.safetensors, tokenizer.\n";

/* A model that is there already is not replaced. */
static int check_output(const char *folder, bool overwrite)
{
    char path[4200];
    struct stat st;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (overwrite || lstat(path, &st)) return -1;
    fprintf(stderr, "lockstep merge: %s: exists; choose another folder, or add --overwrite\n", printable(path));
    return EXIT_USAGE;
}

static ls_status save_tokenizer(const char *from, const char *to)
{
    char found[4096];
    ls_tokenizer *tokenizer = NULL;
    ls_status status = model_folder_find_tokenizer(from, found, sizeof found);
    if (status || !*found) return status;
    status = ls_tokenizer_open(&tokenizer, found, NULL);
    if (!status) status = ls_tokenizer_save(tokenizer, to);
    ls_tokenizer_free(&tokenizer);
    return status;
}

int merge_command(int argc, char **argv)
{
    const char *folder = NULL, *output = NULL;
    bool overwrite = false;
    const option_row rows[] = {
        { OPTION_TEXT, "-o", &output, "DIR", "folder of the new model", 0, 0, NULL },
        { OPTION_FLAG, "--overwrite", &overwrite, NULL, "replace a model that is in DIR", 0, 0, NULL },
        { OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, NULL },
    };
    ls_model_options read;
    ls_model *model = NULL;
    int code = options_read("merge", intro, rows, &folder, argc, argv);
    if (code >= 0) return code;
    if (!output || !*output) {
        fprintf(stderr, "lockstep merge: -o DIR is missing: the folder of the new model\n");
        return EXIT_USAGE;
    }
    if (!(folder = last_run_or(folder, "merge"))) return EXIT_USAGE;
    if ((code = check_output(output, overwrite)) >= 0) return code;
    ls_status status = ls_model_options_read(folder, &read);
    if (!status && !read.lora.r) status = ls__fail(LS_ENOENT, "%s: has no adapter_config.json", folder);
    if (!status) status = model_folder_load(&model, folder);
    if (!status) status = ls_model_save(model, output);
    if (!status) status = save_tokenizer(folder, output);
    if (!status)
        printf("merged an adapter of rank %d into %.2fM parameters; the model is in %s\n", read.lora.r,
               (double)ls_model_param_count(model) / 1e6, printable(output));
    ls_model_free(&model);
    return status ? exit_failure("merge", status) : EXIT_DONE;
}
