/* Chats inside the layer: messages as text, and which part of it the assistant answers. */
#ifndef LS_DATA_CHAT_H
#define LS_DATA_CHAT_H

#include "data/jinja.h"
#include "data/normalize.h"
#include "lockstep/data.h"

/* Templates by their names, in Jinja. NULL: there is no template of that name. */
const char *ls__chat_built_in(const char *name);
/* Their names, for messages. */
#define LS__CHAT_BUILT_IN "chatml, llama2, llama3, zephyr"

/* From now on the tokenizer's template: one of these, or a file. */
LS_MUST_CHECK ls_status ls__chat_set_template(ls_tokenizer *t, const char *name);

/* A list of messages of a JSON text. LS_EFORMAT: it is not one. */
LS_MUST_CHECK ls_status ls__chat_parse(const char *json, size_t bytes, json_t **out);

/* The text of messages, and as its spans the answers of the assistant, each with the end of its turn: the generation blocks of the
 * template or, if it has none, what the messages with and without each answer show. LS_EFORMAT: the template refuses them. */
LS_MUST_CHECK ls_status ls__chat_answers(const ls_chat_template *t, json_t *messages, ls__jinja_text *out);

/* Memory for encoding; all zero is empty. */
typedef struct ls__chat_encoder {
    ls__normalizer normalizer;
    ls__text_buffer text;   /* normalized */
    ls__text_buffer places; /* of the spans in it */
    ls__text_buffer mask;
} ls__chat_encoder;
void ls__chat_encoder_free(ls__chat_encoder *c);

/* The tokens of a text; mask[i] is 1 if token i is, at least partly, inside one of the spans, which are in order. `c` has the mask, and
 * the encoder the tokens, until their next calls. */
LS_MUST_CHECK ls_status ls__chat_encode(ls__chat_encoder *c, ls_encoder *encoder, const ls_tokenizer *tokenizer,
                                        const char *text, size_t bytes, const ls__text_span *spans, size_t n_spans,
                                        const int32_t **tokens, const uint8_t **mask, size_t *count);

#endif
