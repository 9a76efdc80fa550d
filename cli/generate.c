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
#include "cli/sample.h"

static const char intro[] = "usage: lockstep generate [RUN] [OPTIONS]\n"
                            "\n"
                            "Continues a prompt with the model in the folder RUN (runs/last).\n\n";

typedef struct generate_arguments {
    const char *run, *prompt, *prompts, *tokenizer;
    double temperature;
    float top_p, min_p, repetition_penalty;
    int top_k, samples;
    bool stats;
    option_list stops;
    sample_options sample;
} generate_arguments;

static int read_arguments(generate_arguments *a, int argc, char **argv)
{
    *a = (generate_arguments){ .temperature = -1, .top_p = -1, .min_p = -1, .sample = { .max_tokens = 300 } };
    ls_generator_options *o = &a->sample.generator;
    const option_row rows[] = {
        { OPTION_TEXT, "--prompt", &a->prompt, "TEXT", "text to continue (a line feed)", 0, 0, NULL },
        { OPTION_TEXT, "--prompts", &a->prompts, "FILE", "a prompt per line, continued side by side; prints JSON lines",
          0, 0, NULL },
        { OPTION_INT, "--samples", &a->samples, "N", "N texts per prompt, side by side; prints JSON lines", 1, 4096,
          NULL },
        { OPTION_TEXT, "--tokenizer", &a->tokenizer, "NAME", "bytes, tokenizer.json, or a folder (the run's)", 0, 0,
          NULL },
        { OPTION_DOUBLE, "--temperature", &a->temperature, "X",
          "sampling temperature; 0: greedy (generation_config.json's, or 0.8)", 0, 1e6, NULL },
        { OPTION_INT, "--top-k", &a->top_k, "K", "sample from the top-K tokens (generation_config.json's, or all)", 1,
          2147483647, NULL },
        { OPTION_FLOAT, "--top-p", &a->top_p, "X",
          "sample from the top tokens with this probability together (likewise)", 0, 1, NULL },
        { OPTION_FLOAT, "--min-p", &a->min_p, "X",
          "sample from tokens with this share of the top probability (likewise)", 0, 1, NULL },
        { OPTION_FLOAT, "--repetition-penalty", &a->repetition_penalty, "X",
          "divide logits of tokens in the context by X (likewise, or 1)", 1e-6, 1e6, NULL },
        { OPTION_LIST, "--stop", &a->stops, "TEXTS", "end before one of these texts", 0, 0, NULL },
        { OPTION_INT, "--max-tokens", &a->sample.max_tokens, "N", "number of tokens (300)", 1, 2147483647, NULL },
        { OPTION_SEED, "--seed", &o->seed, "N", "random seed (0)", 0, 0, NULL },
        { OPTION_INT, "--threads", &o->threads, "N", "number of threads (all cores)", 1, 4096, NULL },
        { OPTION_FLAG, "--stats", &a->stats, NULL, "print tokens per second, also if not on a terminal", 0, 0, NULL },
        { OPTION_FLAG, "--no-cache", &o->no_cache, NULL, "recompute the whole sequence for each token", 0, 0, NULL },
        { OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, NULL },
    };
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

/* Options that are not given come from generation_config.json. */
static ls_status choose_options(generate_arguments *a, ls_generation *g)
{
    ls_generator_options *o = &a->sample.generator;
    ls_status status = ls_generation_read(a->run, g);
    if (status) return status;
    double temperature = a->temperature >= 0          ? a->temperature
                         : g->options.temperature > 0 ? (double)g->options.temperature
                                                      : 0.8;
    o->temperature = temperature > 0 ? (float)temperature : -1;
    o->top_k = a->top_k ? a->top_k : g->options.top_k;
    o->top_p = a->top_p >= 0 ? a->top_p : g->options.top_p;
    o->min_p = a->min_p >= 0 ? a->min_p : g->options.min_p;
    o->repetition_penalty = a->repetition_penalty > 0 ? a->repetition_penalty : g->options.repetition_penalty;
    a->sample.ends = g->ends;
    a->sample.n_ends = g->n_ends;
    return LS_OK;
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

static void print_cost(const sample_cost *c)
{
    double seconds = (double)c->ns * 1e-9, before = (double)c->prompt_ns * 1e-9;
    fprintf(stderr, "%lld tokens in %.2f s: %.1f tokens/s; prompt: %lld tokens in %.2f s\n", (long long)c->tokens,
            seconds, seconds > 0 ? (double)c->tokens / seconds : 0, (long long)c->prompt_tokens, before);
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
    if (!status && (status = choose_options(&a, &generation))) ls_model_free(&model);
    if (status) return exit_failure("generate", status);
    code = model_folder_open_tokenizer("generate", &tokenizer, a.tokenizer, a.run, ls_model_lm(model)->vocab_size);
    if (code < 0) {
        bool many = a.samples || a.prompts;
        status = many ? generate_many(&a, model, tokenizer, &cost)
                      : sample_text(model, tokenizer, &a.sample, a.prompt ? a.prompt : "\n", stdout, &cost);
        if (!many) printf("\n");
        if (!status && (a.stats || isatty(fileno(stderr)) == 1)) print_cost(&cost);
        code = status ? exit_failure("generate", status) : EXIT_DONE;
    }
    ls_tokenizer_free(&tokenizer);
    ls_model_free(&model);
    return code;
}
