/* Chats: messages become text by the template of a model (jinja.h). See chat.h.
 *
 * Which part of the text is an answer is found without knowledge of the template: rendered once more with another text as the answer, what
 * comes before and after it is the same. The text that would ask for the answer (add_generation_prompt) ends where it begins, and the
 * end of the turn belongs to it, so that a model learns to stop. */
#include "data/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/status.h"
#include "data/tokenizer.h"

enum { TEMPLATE_LIMIT = 1 << 20, KEPT_MAP = 2, KEPT_TEMPLATE = 4 };

/* What stands for an answer; no template and no model has it. */
#define MARK "\xee\x80\x80lockstep\xee\x80\x81"

struct ls_chat_template {
    ls__jinja *jinja;
    json_t *tokens; /* {"bos_token": text, ...} */
    char *end;      /* of a turn of the assistant */
};

/* ---- Templates that lockstep has. */

static const struct {
    const char *name, *text;
} built_in[] = {
    { "chatml", "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
                "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}" },
    { "llama2", "{% set system = '' %}{% if messages[0].role == 'system' %}"
                "{% set system = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' %}"
                "{% set messages = messages[1:] %}{% endif %}"
                "{% for m in messages %}"
                "{% if m.role != ('user' if loop.index0 % 2 == 0 else 'assistant') %}"
                "{{ raise_exception('messages must be of user and assistant by turns') }}{% endif %}"
                "{% if m.role == 'user' %}"
                "{{ bos_token ~ '[INST] ' + ((system if loop.first else '') + m.content) | trim + ' [/INST]' }}"
                "{% else %}{{ ' ' + m.content | trim + ' ' ~ eos_token }}{% endif %}{% endfor %}" },
    { "llama3", "{{ bos_token }}{% for m in messages %}"
                "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}"
                "{% endfor %}{% if add_generation_prompt %}"
                "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}" },
    { "zephyr", "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content ~ eos_token + '\\n' }}{% endfor %}"
                "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}" },
};

const char *ls__chat_built_in(const char *name)
{
    for (size_t i = 0; i < sizeof built_in / sizeof *built_in; i++)
        if (!strcmp(name, built_in[i].name)) return built_in[i].text;
    return NULL;
}

ls_status ls__chat_set_template(ls_tokenizer *t, const char *name)
{
    const char *own = ls__chat_built_in(name);
    size_t length = strlen(name), bytes = own ? strlen(own) : 0;
    char *text = own ? strdup(own) : NULL;
    if (own && !text) return ls__fail(LS_ENOMEM, "no memory for a chat template");
    bool file = strchr(name, '/') || (length > 6 && !strcmp(name + length - 6, ".jinja"));
    if (!own && !file)
        return ls__fail(LS_EINVAL, "unknown chat template '%s'; must be one of " LS__CHAT_BUILT_IN ", or a .jinja file",
                        name);
    ls_status status = own ? LS_OK : ls__file_read(name, TEMPLATE_LIMIT, &text, &bytes);
    if (status) return status;
    free(t->kept[KEPT_TEMPLATE].text);
    t->kept[KEPT_TEMPLATE] = (ls__kept_file){ .text = text, .bytes = bytes };
    return LS_OK;
}

/* ---- Opening. */

/* "bos_token": text, or an object with one; and others. */
static void add_tokens(json_t *to, json_t *from)
{
    const char *key;
    json_t *value;
    json_object_foreach(from, key, value)
    {
        size_t n = strlen(key);
        json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
        bool token = n > 6 && !strcmp(key + n - 6, "_token") && json_is_string(text);
        if (token && !json_object_get(to, key)) json_object_set(to, key, text);
    }
}

static json_t *load(const ls_tokenizer *t, int kept)
{
    const ls__kept_file *file = &t->kept[kept];
    return file->text ? json_loadb(file->text, file->bytes, JSON_DECODE_INT_AS_REAL, NULL) : NULL;
}

static json_t *special_tokens(const ls_tokenizer *t, json_t *config)
{
    json_t *out = json_object(), *map = load(t, KEPT_MAP);
    size_t bytes;
    const uint8_t *end = ls_tokenizer_token_bytes(t, ls_tokenizer_end_token(t), &bytes);
    if (end && t->end_given) json_object_set_new(out, "eos_token", json_stringn((const char *)end, bytes));
    add_tokens(out, config);
    add_tokens(out, map);
    if (end && !json_object_get(out, "eos_token"))
        json_object_set_new(out, "eos_token", json_stringn((const char *)end, bytes));
    json_decref(map);
    return out;
}

/* "chat_template": a text, or a list of templates with names. */
static const char *template_of(const json_t *config)
{
    const json_t *value = json_object_get(config, "chat_template"), *item;
    size_t i;
    json_array_foreach(value, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && !strcmp(name, "default")) return json_string_value(json_object_get(item, "template"));
    }
    return json_string_value(value);
}

static ls_status render(const ls_chat_template *t, json_t *messages, bool prompt, ls__jinja_text *out)
{
    json_t *variables = json_copy(t->tokens);
    if (!variables || json_object_set(variables, "messages", messages) ||
        json_object_set_new(variables, "add_generation_prompt", json_boolean(prompt)) ||
        json_object_set_new(variables, "tools", json_null()) ||
        json_object_set_new(variables, "documents", json_null())) {
        json_decref(variables);
        return ls__fail(LS_ENOMEM, "no memory for messages");
    }
    ls_status status = ls__jinja_render(t->jinja, variables, out);
    json_decref(variables);
    return status;
}

/* What follows an answer: the token there, or the rest of its line. "": nothing, or it cannot be found. */
static char *find_end(const ls_chat_template *t, const ls_tokenizer *tokenizer)
{
    ls__jinja_text text = { 0 };
    json_t *messages =
        json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "a", "role", "assistant", "content", MARK);
    bool good = messages && !render(t, messages, false, &text);
    const char *at = good ? strstr(text.bytes, MARK) : NULL, *from = at ? at + strlen(MARK) : "";
    from += strspn(from, " \t\n");
    size_t count = strcspn(from, "\n"), longest = 0;
    for (size_t i = 0; i < tokenizer->added.count; i++) {
        const ls__added_token *token = &tokenizer->added.tokens[i];
        if (token->count > longest && !strncmp(from, (const char *)token->bytes, token->count)) longest = token->count;
    }
    char *end = strndup(from, longest ? longest : count);
    json_decref(messages);
    ls__jinja_text_free(&text);
    return end;
}

ls_status ls_chat_template_open(ls_chat_template **out, const ls_tokenizer *tokenizer)
{
    LS__NEED(out, "out");
    *out = NULL;
    LS__NEED(tokenizer, "tokenizer");
    const ls__kept_file *file = &tokenizer->kept[KEPT_TEMPLATE];
    json_t *config = load(tokenizer, LS__KEPT_CONFIG);
    const char *text = file->text ? file->text : template_of(config);
    const char *name = file->text ? "chat_template.jinja" : "tokenizer_config.json: chat_template";
    ls_chat_template *t = calloc(1, sizeof *t);
    ls_status status = t ? LS_OK : ls__fail(LS_ENOMEM, "no memory for a chat template");
    if (!status && !text)
        status = ls__fail(LS_EINVAL, "the tokenizer has no chat template: choose " LS__CHAT_BUILT_IN
                                     " or a .jinja file, or put chat_template.jinja into its folder");
    if (!status) status = ls__jinja_parse(&t->jinja, name, text, file->text ? file->bytes : strlen(text));
    if (!status && !(t->tokens = special_tokens(tokenizer, config)))
        status = ls__fail(LS_ENOMEM, "no memory for a chat template");
    if (!status && !(t->end = find_end(t, tokenizer))) status = ls__fail(LS_ENOMEM, "no memory for a chat template");
    json_decref(config);
    if (status) ls_chat_template_free(&t);
    *out = t;
    return status;
}

void ls_chat_template_free(ls_chat_template **template)
{
    ls_chat_template *t = template ? *template : NULL;
    if (!t) return;
    ls__jinja_free(&t->jinja);
    json_decref(t->tokens);
    free(t->end);
    free(t);
    *template = NULL;
}

const char *ls_chat_template_end(const ls_chat_template *t)
{
    return t->end;
}

/* ---- Messages. */

ls_status ls__chat_parse(const char *json, size_t bytes, json_t **out)
{
    json_error_t error;
    json_t *list = json_loadb(json, bytes, 0, &error), *item;
    size_t i;
    ls_status status = LS_OK;
    *out = NULL;
    if (!list) return ls__fail(LS_EFORMAT, "messages: column %d: %s", error.column, error.text);
    if (!json_is_array(list) || !json_array_size(list))
        status = ls__fail(LS_EFORMAT, "messages must be a list of {\"role\": ..., \"content\": ...}");
    json_array_foreach(list, i, item) if (!status && !json_is_string(json_object_get(item, "role"))) status =
        ls__fail(LS_EFORMAT, "message %zu has no role, such as \"user\"", i + 1);
    if (status)
        json_decref(list);
    else
        *out = list;
    return status;
}

ls_status ls_chat_render(const ls_chat_template *t, const char *messages, size_t bytes, bool prompt, char **out,
                         size_t *out_bytes)
{
    LS__NEED(t, "template");
    LS__NEED(messages, "messages");
    LS__NEED(out, "out");
    ls__jinja_text text = { 0 };
    json_t *list;
    *out = NULL;
    ls_status status = ls__chat_parse(messages, bytes, &list);
    if (status) return status;
    status = render(t, list, prompt, &text);
    json_decref(list);
    if (status) {
        ls__jinja_text_free(&text);
        return status;
    }
    free(text.spans);
    *out = text.bytes;
    if (out_bytes) *out_bytes = text.count;
    return LS_OK;
}

/* ---- Answers. */

static bool begins_with(const ls__jinja_text *text, size_t at, const char *with, size_t count)
{
    return at <= text->count && count <= text->count - at && !memcmp(text->bytes + at, with, count);
}

/* The first `n` of some messages. */
static json_t *first_messages(json_t *messages, size_t n)
{
    json_t *out = json_array();
    for (size_t i = 0; i < n && out; i++) json_array_append(out, json_array_get(messages, i));
    return out;
}

/* The same messages with a mark as the content of number `i`. */
static json_t *with_mark(json_t *messages, size_t i)
{
    json_t *out = json_copy(messages), *marked = json_copy(json_array_get(messages, i));
    if (marked) json_object_set_new(marked, "content", json_string(MARK));
    if (out && marked) json_array_set(out, i, marked);
    json_decref(marked);
    return out;
}

/* Where the content of answer `i` is. */
static ls_status find_content(const ls_chat_template *t, json_t *messages, size_t i, const ls__jinja_text *whole,
                              ls__jinja_text *other, ls__text_span *out)
{
    json_t *marked = with_mark(messages, i);
    ls_status status = marked ? render(t, marked, false, other) : ls__fail(LS_ENOMEM, "no memory for messages");
    json_decref(marked);
    if (status) return status;
    const char *mark = memmem(other->bytes, other->count, MARK, strlen(MARK));
    size_t before = mark ? (size_t)(mark - other->bytes) : 0, after = mark ? other->count - before - strlen(MARK) : 0;
    size_t same = 0;
    while (same < before && same < whole->count && whole->bytes[same] == other->bytes[same]) same++;
    if (!mark || after > whole->count || memcmp(mark + strlen(MARK), whole->bytes + whole->count - after, after) != 0)
        return ls__fail(LS_EFORMAT,
                        "message %zu: the chat template does not show which part of the text is the answer; it needs "
                        "generation blocks",
                        i + 1);
    *out = (ls__text_span){ same, whole->count - after };
    if (out->begin > out->end) out->begin = out->end;
    return LS_OK;
}

/* Answer `i` from where it is asked for to the end of its turn. */
static ls_status find_answer(const ls_chat_template *t, json_t *messages, size_t i, const ls__jinja_text *whole,
                             ls__jinja_text *other, ls__text_span *out)
{
    ls_status status = find_content(t, messages, i, whole, other, out);
    if (status) return status;
    json_t *before = first_messages(messages, i);
    if (i && !render(t, before, true, other) && other->count <= out->begin &&
        begins_with(whole, 0, other->bytes, other->count))
        out->begin = other->count;
    json_decref(before);
    size_t end = out->end;
    while (end < whole->count && strchr(" \t\n", whole->bytes[end])) end++;
    if (*t->end && begins_with(whole, end, t->end, strlen(t->end))) {
        out->end = end + strlen(t->end);
        return LS_OK;
    }
    /* More than the content, such as calls of tools. */
    json_t *with = first_messages(messages, i + 1);
    if (!render(t, with, false, other) && begins_with(whole, 0, other->bytes, other->count)) {
        end = other->count;
        while (end && strchr(" \t\n", whole->bytes[end - 1])) end--;
        if (end > out->end) out->end = end;
    }
    json_decref(with);
    return LS_OK;
}

ls_status ls__chat_answers(const ls_chat_template *t, json_t *messages, ls__jinja_text *out)
{
    ls_status status = render(t, messages, false, out);
    if (status || t->jinja->marks) return status;
    ls__jinja_text other = { 0 };
    size_t i, count = json_array_size(messages), last = 0;
    json_t *item;
    ls__text_span *spans = realloc(out->spans, count * sizeof *spans);
    if (!spans) return ls__fail(LS_ENOMEM, "no memory for messages");
    out->spans = spans;
    out->spans_room = count;
    json_array_foreach(messages, i, item)
    {
        ls__text_span span;
        if (strcmp(json_string_value(json_object_get(item, "role")), "assistant") != 0) continue;
        if ((status = find_answer(t, messages, i, out, &other, &span))) break;
        if (span.begin < last) span.begin = last;
        last = span.end > last ? span.end : last;
        if (span.end > span.begin) spans[out->n_spans++] = span;
    }
    ls__jinja_text_free(&other);
    return status;
}
