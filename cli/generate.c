/* lockstep generate: text from a trained model, streamed to the terminal. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/last_run.h"
#include "cli/machine.h"
#include "cli/options.h"
#include "cli/sample.h"

static const char intro[] = "usage: lockstep generate [RUN] [OPTIONS]\n"
                            "\n"
                            "Continues a prompt with the model in the folder RUN (runs/last).\n\n";

typedef struct generate_arguments {
    const char *run, *prompt, *tokenizer;
    double temperature;
    int max_tokens;
    ls_generator_options options;
} generate_arguments;

static int read_arguments(generate_arguments *a, int argc, char **argv)
{
    *a = (generate_arguments){ .prompt = "\n", .temperature = 0.8, .max_tokens = 300 };
    const option_row rows[] = {
        { OPTION_TEXT, "--prompt", &a->prompt, "TEXT", "text to continue (a line feed)", 0, 0, NULL },
        { OPTION_TEXT, "--tokenizer", &a->tokenizer, "NAME", "bytes, tokenizer.json, or a folder (the run's)", 0, 0,
          NULL },
        { OPTION_DOUBLE, "--temperature", &a->temperature, "X", "sampling temperature; 0: greedy (0.8)", 0, 1e6, NULL },
        { OPTION_INT, "--top-k", &a->options.top_k, "K", "sample from the top-K tokens (all)", 1, 2147483647, NULL },
        { OPTION_INT, "--max-tokens", &a->max_tokens, "N", "number of tokens (300)", 1, 2147483647, NULL },
        { OPTION_SEED, "--seed", &a->options.seed, "N", "random seed (0)", 0, 0, NULL },
        { OPTION_INT, "--threads", &a->options.threads, "N", "number of threads (all cores)", 1, 4096, NULL },
        { OPTION_FLAG, "--no-cache", &a->options.no_cache, NULL, "recompute the whole sequence for each token", 0, 0,
          NULL },
        { OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, NULL },
    };
    int code = options_read("generate", intro, rows, &a->run, argc, argv);
    if (code >= 0) return code;
    if (!(a->run = last_run_or(a->run, "generate"))) return EXIT_USAGE;
    if (!a->options.threads) a->options.threads = machine_threads();
    a->options.temperature = a->temperature > 0 ? (float)a->temperature : -1;
    return -1;
}

static ls_status load_model(ls_model **out, const char *folder)
{
    ls_lm_options options;
    *out = NULL;
    ls_status status = ls_lm_options_read(folder, &options);
    if (!status) status = ls_lm_open(out, &options);
    if (!status) status = ls_model_bind(*out, NULL, NULL, false);
    if (!status) status = ls_model_load(*out, folder);
    if (status) ls_model_free(out);
    return status;
}

/* The tokenizer of the option, that of the folder, or bytes if the vocabulary allows no other. Returns -1, or an exit
 * code if a message was printed. */
static int open_tokenizer(ls_tokenizer **out, const generate_arguments *a, int vocab)
{
    static const char *const files[] = { "tokenizer.json", "vocab.json", "encoder.json" };
    const char *name = a->tokenizer;
    for (int i = 0; i < 3 && !name; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", a->run, files[i]);
        if (access(path, R_OK) == 0) name = a->run;
    }
    if (!name && vocab <= 257) name = "bytes";
    *out = NULL;
    if (!name)
        fprintf(stderr, "lockstep generate: %s: the model has no tokenizer; set one with --tokenizer\n",
                printable(a->run));
    ls_status status = name ? ls_tokenizer_open(out, name) : LS_EINVAL;
    if (status && name) return exit_failure("generate", status);
    return status ? EXIT_USAGE : -1;
}

int generate_command(int argc, char **argv)
{
    generate_arguments a;
    ls_model *model;
    ls_tokenizer *tokenizer = NULL;
    int code = read_arguments(&a, argc, argv);
    if (code >= 0) return code;
    ls_status status = load_model(&model, a.run);
    if (status) return exit_failure("generate", status);
    code = open_tokenizer(&tokenizer, &a, ls_model_lm(model)->vocab_size);
    if (code < 0) {
        status = sample_text(model, tokenizer, &a.options, a.prompt, a.max_tokens, stdout);
        printf("\n");
        code = status ? exit_failure("generate", status) : EXIT_DONE;
    }
    ls_tokenizer_free(&tokenizer);
    ls_model_free(&model);
    return code;
}
