/* lockstep generate: text from a trained model, streamed to the terminal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/last_run.h"
#include "cli/machine.h"
#include "cli/model_folder.h"
#include "cli/options.h"
#include "cli/sampling.h"

static const char intro[] = "usage: lockstep generate [RUN] [OPTIONS]\n"
                            "\n"
                            "Continues a prompt with the model in the folder RUN (runs/last).\n\n";

typedef struct generate_arguments {
    const char *run, *prompt, *prompts, *tokenizer;
    sampling sampling;
    int samples;
    bool stats;
    option_list stops;
    sample_options sample;
} generate_arguments;

static int read_arguments(generate_arguments *a, int argc, char **argv)
{
    enum { SAMPLING_AT = 4 };
    const option_row later = { .kind = OPTION_FLAG }; /* of sampling_rows() */
    *a = (generate_arguments){ .sample = { .max_tokens = 300 } };
    ls_generator_options *o = &a->sample.generator;
    option_row rows[] = {
        { OPTION_TEXT, "--prompt", &a->prompt, "TEXT", "text to continue (a line feed)", 0, 0, NULL },
        { OPTION_TEXT, "--prompts", &a->prompts, "FILE", "a prompt per line, continued side by side; prints JSON lines",
          0, 0, NULL },
        { OPTION_INT, "--samples", &a->samples, "N", "N texts per prompt, side by side; prints JSON lines", 1, 4096,
          NULL },
        { OPTION_TEXT, "--tokenizer", &a->tokenizer, "NAME", "bytes, tokenizer.json, or a folder (the run's)", 0, 0,
          NULL },
        later,
        later,
        later,
        later,
        later,
        { OPTION_LIST, "--stop", &a->stops, "TEXTS", "end before one of these texts", 0, 0, NULL },
        { OPTION_INT, "--max-tokens", &a->sample.max_tokens, "N", "number of tokens (300)", 1, 2147483647, NULL },
        { OPTION_SEED, "--seed", &o->seed, "N", "random seed (0)", 0, 0, NULL },
        { OPTION_INT, "--threads", &o->threads, "N", "number of threads (all cores)", 1, 4096, NULL },
        { OPTION_FLAG, "--stats", &a->stats, NULL, "print tokens per second, also if not on a terminal", 0, 0, NULL },
        { OPTION_FLAG, "--no-cache", &o->no_cache, NULL, "recompute the whole sequence for each token", 0, 0, NULL },
        { OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, NULL },
    };
    sampling_rows(&a->sampling, rows + SAMPLING_AT);
    int code = options_read("generate", intro, rows, &a->run, argc, argv);
    if (code >= 0) return code;
    if (a->prompt && a->prompts) {
        fprintf(stderr, "lockstep generate: --prompt and --prompts exclude each other\n");
        return EXIT_USAGE;
    }
    if (!(a->run = last_run_or(a->run, "generate"))) return EXIT_USAGE;
    if (!o->threads) o->threads = machine_threads();
    a->sample.stops = (const char *const *)a->stops.items;
    a->sample.n_stops = a->stops.count;
    return -1;
}

/* The lines of a text, in place; each `each` times. NULL: out of memory. */
static const char **split_lines(char *text, int each, size_t *count)
{
    size_t lines = 1;
    for (const char *p = text; *p; p++) lines += *p == '\n';
    const char **out = calloc(lines * (size_t)each, sizeof *out);
    *count = 0;
    for (char *p = text, *end; out && *p; p = end) {
        end = p + strcspn(p, "\n");
        if (*end) *end++ = 0;
        for (int i = 0; i < each; i++) out[(*count)++] = p;
    }
    return out;
}

static ls_status generate_many(const generate_arguments *a, ls_model *model, const ls_tokenizer *tokenizer,
                               sample_cost *cost)
{
    enum { MAX_PROMPTS = 16 << 20 };
    char *text = NULL;
    const char **prompts = NULL;
    size_t bytes, count = 0;
    int each = a->samples ? a->samples : 1;
    ls_status status = LS_OK;
    if (a->prompts) status = ls__file_read(a->prompts, MAX_PROMPTS, &text, &bytes);
    if (!status && a->prompts && !(prompts = split_lines(text, each, &count)))
        status = ls__fail(LS_ENOMEM, "generate: out of memory");
    if (!status && a->prompts && !count) status = ls__fail(LS_EINVAL, "%s: no prompts", a->prompts);
    if (!status && !a->prompts) {
        count = (size_t)each;
        if (!(prompts = calloc(count, sizeof *prompts))) status = ls__fail(LS_ENOMEM, "generate: out of memory");
        for (size_t i = 0; prompts && i < count; i++) prompts[i] = a->prompt ? a->prompt : "\n";
    }
    if (!status) status = sample_many(model, tokenizer, &a->sample, prompts, count, stdout, cost);
    free(prompts);
    free(text);
    return status;
}

int generate_command(int argc, char **argv)
{
    generate_arguments a;
    ls_generation generation;
    ls_model *model;
    ls_tokenizer *tokenizer = NULL;
    sample_cost cost = { 0 };
    int code = read_arguments(&a, argc, argv);
    if (code >= 0) return code;
    ls_status status = model_folder_load(&model, a.run);
    if (!status && (status = sampling_choose(&a.sampling, a.run, &generation, &a.sample))) ls_model_free(&model);
    if (status) return exit_failure("generate", status);
    code = model_folder_open_tokenizer("generate", &tokenizer, a.tokenizer, NULL, a.run,
                                       ls_model_get_options(model).lm.vocab_size);
    if (code < 0) {
        bool many = a.samples || a.prompts;
        status = many ? generate_many(&a, model, tokenizer, &cost)
                      : sample_text(model, tokenizer, &a.sample, a.prompt ? a.prompt : "\n", stdout, &cost);
        if (!many) printf("\n");
        if (!status && (a.stats || isatty(fileno(stderr)) == 1)) sample_print_cost(&cost);
        code = status ? exit_failure("generate", status) : EXIT_DONE;
    }
    ls_tokenizer_free(&tokenizer);
    ls_model_free(&model);
    return code;
}
