/* Text from a model. See sample.h. */
#include "cli/sample.h"

#include <string.h>
#include <unistd.h>
#include "cli/escape.h"

/* What a generator reads first: the prompt's tokens or, if that is empty, the token that ends the text before. */
static ls_status feed_prompt(ls_generator *g, const ls_tokenizer *tokenizer, const char *prompt)
{
    ls_encoder *encoder;
    const int32_t *tokens;
    size_t count = 0;
    int32_t end = ls_tokenizer_end_token(tokenizer);
    ls_status status = ls_encoder_open(&encoder, tokenizer);
    if (status) return status;
    status = ls_encode(encoder, prompt, strlen(prompt), &tokens, &count);
    if (!status && !count && end >= 0)
        status = ls_generator_feed(g, &end, 1);
    else if (!status)
        status = ls_generator_feed(g, tokens, count);
    ls_encoder_free(&encoder);
    return status;
}

ls_status sample_text(ls_model *model, const ls_tokenizer *tokenizer, const ls_generator_options *options,
                      const char *prompt, int count, FILE *to)
{
    ls_generator *g;
    ls_status status = ls_generator_open(&g, model, options);
    if (status) return status;
    status = feed_prompt(g, tokenizer, prompt);
    screen out = { .to = to, .terminal = isatty(fileno(to)) == 1 };
    if (!status) screen_put(&out, prompt, strlen(prompt));
    for (int i = 0; i < count && !status; i++) {
        int32_t token = 0;
        size_t bytes = 0;
        status = ls_generator_next(g, &token);
        if (status || token == ls_tokenizer_end_token(tokenizer)) break;
        const uint8_t *text = ls_tokenizer_token_bytes(tokenizer, token, &bytes);
        if (text) screen_put(&out, (const char *)text, bytes); /* a model may have more tokens than its tokenizer */
        fflush(to);
    }
    screen_end(&out);
    ls_generator_free(&g);
    return status;
}
