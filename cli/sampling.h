/* Options of how tokens are sampled, for the commands that generate text. */
#ifndef LS_CLI_SAMPLING_H
#define LS_CLI_SAMPLING_H

#include "cli/options.h"
#include "cli/sample.h"

/* As given; < 0, and 0 of top_k and repetition_penalty: not given. */
typedef struct sampling {
    double temperature;
    float top_p, min_p, repetition_penalty;
    int top_k;
} sampling;

enum { SAMPLING_ROWS = 5 };
/* Sets *s to "not given" and fills in its rows. */
void sampling_rows(sampling *s, option_row rows[SAMPLING_ROWS]);

/* Options that are not given come from the folder's generation_config.json, which also has the tokens that end a text: `generation` must
 * live as long as the options. */
LS_MUST_CHECK ls_status sampling_choose(const sampling *s, const char *folder, ls_generation *generation,
                                        sample_options *out);

#endif
