/* Prompts. See prompt.h. */
#include "train/prompt.h"

#include <string.h>
#include "data/template.h"

ls_status ls__prompt_feed(ls_generator *g, int sequence, const ls_tokenizer *tokenizer, const char *prompt,
                          size_t *count)
{
    ls_encoder *encoder;
    const int32_t *tokens;
    int32_t first[LS__TEMPLATE_MAX], end = ls_tokenizer_end_token(tokenizer);
    size_t before = ls__template_begin(tokenizer, first), n = 0;
    ls_status status = ls_encoder_open(&encoder, tokenizer);
    if (status) return status;
    status = ls_encode(encoder, prompt, strlen(prompt), &tokens, &n);
    if (!before && !n && end >= 0) first[before++] = end;
    if (!status && (before || !n)) status = ls_generator_feed(g, sequence, first, before);
    if (!status && n) status = ls_generator_feed(g, sequence, tokens, n);
    if (count) *count = before + n;
    ls_encoder_free(&encoder);
    return status;
}
