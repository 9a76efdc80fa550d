/* See sampling.h. */
#include "cli/sampling.h"

#include <string.h>

void sampling_rows(sampling *s, option_row rows[SAMPLING_ROWS])
{
    const option_row own[SAMPLING_ROWS] = {
        { OPTION_DOUBLE, "--temperature", &s->temperature, "X",
          "sampling temperature; 0: greedy (generation_config.json's, or 0.8)", 0, 1e6, NULL },
        { OPTION_INT, "--top-k", &s->top_k, "K", "sample from the top-K tokens (generation_config.json's, or all)", 1,
          2147483647, NULL },
        { OPTION_FLOAT, "--top-p", &s->top_p, "X",
          "sample from the top tokens with this probability together (likewise)", 0, 1, NULL },
        { OPTION_FLOAT, "--min-p", &s->min_p, "X",
          "sample from tokens with this share of the top probability (likewise)", 0, 1, NULL },
        { OPTION_FLOAT, "--repetition-penalty", &s->repetition_penalty, "X",
          "divide logits of tokens in the context by X (likewise, or 1)", 1e-6, 1e6, NULL },
    };
    *s = (sampling){ .temperature = -1, .top_p = -1, .min_p = -1 };
    memcpy(rows, own, sizeof own);
}

ls_status sampling_choose(const sampling *s, const char *folder, ls_generation *g, sample_options *out)
{
    ls_generator_options *o = &out->generator;
    ls_status status = ls_generation_read(folder, g);
    if (status) return status;
    double temperature = s->temperature >= 0          ? s->temperature
                         : g->options.temperature > 0 ? (double)g->options.temperature
                                                      : 0.8;
    o->temperature = temperature > 0 ? (float)temperature : -1;
    o->top_k = s->top_k ? s->top_k : g->options.top_k;
    o->top_p = s->top_p >= 0 ? s->top_p : g->options.top_p;
    o->min_p = s->min_p >= 0 ? s->min_p : g->options.min_p;
    o->repetition_penalty = s->repetition_penalty > 0 ? s->repetition_penalty : g->options.repetition_penalty;
    out->ends = g->ends;
    out->n_ends = g->n_ends;
    return LS_OK;
}
