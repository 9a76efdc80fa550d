/* Text from a model, as it comes. */
#ifndef LS_CLI_SAMPLE_H
#define LS_CLI_SAMPLE_H

#include <signal.h>
#include <stdio.h>
#include "lockstep/data.h"
#include "lockstep/nn.h"

typedef struct sample_options {
    ls_generator_options generator;
    int max_tokens;
    const char *const *stops; /* texts that end the text; they are not written */
    size_t n_stops;
    const int32_t *ends; /* tokens that end it, besides the tokenizer's */
    int n_ends;
    const volatile sig_atomic_t *stop; /* ends it when set; NULL: nothing does */
} sample_options;

/* What it took. */
typedef struct sample_cost {
    int64_t prompt_tokens, tokens;
    int64_t prompt_ns, ns;
} sample_cost;

void sample_print_cost(const sample_cost *cost);

/* Continues what the generator's only sequence has read: writes text until it ends, and adds to *cost. tokens: [max_tokens]. *text
 * receives what was written, 0-terminated; free it. White space at its beginning is not written. */
ls_status sample_answer(ls_generator *g, const ls_tokenizer *tokenizer, const sample_options *options, FILE *to,
                        int32_t *tokens, char **text, sample_cost *cost);

/* Writes the prompt and more tokens, each as soon as it is chosen and cannot be part of a stop text. cost may be NULL. */
ls_status sample_text(ls_model *model, const ls_tokenizer *tokenizer, const sample_options *options, const char *prompt,
                      FILE *to, sample_cost *cost);
/* Generates for several prompts side by side and writes a JSON object per line: prompt, text, tokens (their number), ids (of
 * all of them, also of one that ended the text), end ("end", "stop" or "length"). */
ls_status sample_many(ls_model *model, const ls_tokenizer *tokenizer, const sample_options *options,
                      const char *const *prompts, size_t count, FILE *to, sample_cost *cost);

#endif
