/* Text from a model. See sample.h. */
#include "cli/sample.h"

#include <stdlib.h>
#include <string.h>

ls_status sample_bytes(ls_model *model, const ls_generator_options *options, const char *prompt, int count, FILE *to)
{
    ls_generator *g;
    ls_status status = ls_generator_open(&g, model, options);
    if (status) return status;
    size_t n = strlen(prompt);
    int32_t *tokens = malloc((n + 1) * sizeof *tokens);
    if (!tokens) {
        ls_generator_free(&g);
        return LS_ENOMEM;
    }
    for (size_t i = 0; i < n; i++) tokens[i] = (unsigned char)prompt[i];
    tokens[n] = '\n'; /* nothing to begin with: the start of a line */
    status = ls_generator_feed(g, tokens, n ? n : 1);
    free(tokens);
    if (!status) fputs(prompt, to);
    for (int i = 0; i < count && !status; i++) {
        int32_t token = 0;
        status = ls_generator_next(g, &token);
        if (status) break;
        putc(token & 0xff, to);
        fflush(to);
    }
    ls_generator_free(&g);
    return status;
}
