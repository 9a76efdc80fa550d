/* Tokenizer files of Hugging Face and OpenAI. In both, tokens are written in GPT-2's alphabet: each byte is one printable
 * character; bytes that are printable in Latin-1 are themselves, the others follow from U+0100 on.
 *
 * The rules of a tokenizer.json besides its vocabulary are read in rules.c. If its model is not of bytes, its tokens are written as
 * they are. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "data/normalize.h"
#include "data/tokenizer.h"

static bool printable(uint32_t byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

uint32_t ls__byte_to_char(uint8_t byte)
{
    if (printable(byte)) return byte;
    uint32_t c = 256;
    for (uint32_t b = 0; b < byte; b++) c += !printable(b);
    return c;
}

/* -1 if no byte is written as c. */
static int char_to_byte(uint32_t c)
{
    if (c < 256) return printable(c) ? (int)c : -1;
    for (int b = 0; b < 256; b++)
        if (!printable((uint32_t)b) && c-- == 256) return b;
    return -1;
}

/* Characters of the alphabet take one or two bytes of UTF-8, so the result is never longer. jansson has made sure that
 * the text is valid. */
bool ls__chars_to_bytes(char *text, size_t *count)
{
    size_t n = 0;
    for (size_t i = 0; i < *count;) {
        uint8_t a = (uint8_t)text[i++];
        uint32_t c = a;
        if (a >= 0x80) {
            if (a > 0xdf || i == *count) return false;
            c = (a & 0x1fu) << 6 | ((uint8_t)text[i++] & 0x3fu);
        }
        int byte = char_to_byte(c);
        if (byte < 0) return false;
        text[n++] = (char)byte;
    }
    *count = n;
    return true;
}

static ls_status parse_json(json_t **out, const char *path, const char *text, size_t bytes)
{
    json_error_t error;
    *out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (*out) return LS_OK;
    return ls__fail(LS_EFORMAT, "%s: byte %d (line %d): %s", path, error.position, error.line, error.text);
}

/* Adds a token of the vocabulary, which is written in the alphabet, unless it is an added token that cannot be, or `plain`. */
static ls_status add_token(ls__bpe *bpe, const char *path, uint32_t id, const char *text, const ls__added *added,
                           bool plain)
{
    size_t count = strlen(text);
    char *bytes = strdup(text);
    if (!bytes) return ls__fail(LS_ENOMEM, "%s: out of memory", path);
    ls_status status = LS_OK;
    if (!plain && !ls__chars_to_bytes(bytes, &count)) {
        count = strlen(text);
        memcpy(bytes, text, count);
        if (!ls__added_find(added, text, count))
            status = ls__fail(LS_EFORMAT, "%s: token '%s' is not in GPT-2's byte alphabet", path, text);
    }
    if (!status) {
        status = ls__bpe_add_token(bpe, id, bytes, count);
        if (status) status = ls__fail_within(status, "%s: '%s'", path, text);
    }
    free(bytes);
    return status;
}

static ls_status id_of(const json_t *value, const char *path, const char *text, uint32_t *id)
{
    json_int_t i = json_integer_value(value);
    if (!json_is_integer(value) || i < 0 || i >= LS__BPE_MAX_TOKENS)
        return ls__fail(LS_EFORMAT, "%s: the id of token '%s' must be an integer from 0 to %d", path, text,
                        LS__BPE_MAX_TOKENS - 1);
    *id = (uint32_t)i;
    return LS_OK;
}

static bool flag_of(const json_t *item, const char *name)
{
    return json_is_true(json_object_get(item, name));
}

/* tokenizer.json's added_tokens; there may be none. */
static ls_status read_added(ls__added *out, const char *path, const json_t *list)
{
    size_t index;
    const json_t *item;
    if (list && !json_is_null(list) && !json_is_array(list))
        return ls__fail(LS_EFORMAT, "%s: added_tokens is not a list", path);
    json_array_foreach(list, index, item)
    {
        const char *content = json_string_value(json_object_get(item, "content"));
        if (!content || !*content) return ls__fail(LS_EFORMAT, "%s: added token %zu has no content", path, index);
        ls__added_token t = { .bytes = (const uint8_t *)content,
                              .count = strlen(content),
                              .special = flag_of(item, "special"),
                              .normalized = flag_of(item, "normalized"),
                              .lstrip = flag_of(item, "lstrip"),
                              .rstrip = flag_of(item, "rstrip"),
                              .single_word = flag_of(item, "single_word") };
        ls_status status = id_of(json_object_get(item, "id"), path, content, &t.id);
        if (!status) status = ls__added_add(out, &t);
        if (status) return status;
    }
    return LS_OK;
}

/* What is searched for in text that is normalized is normalized, too. */
static ls_status normalize_added(ls__added *added, const ls__rules *rules)
{
    ls__normalizer n = { 0 };
    ls_status status = LS_OK;
    for (size_t i = 0; i < added->count && rules->normalize.count && !status; i++) {
        const uint8_t *text = added->tokens[i].bytes;
        size_t bytes = added->tokens[i].count;
        if (!added->tokens[i].normalized) continue;
        status = ls__normalize(&n, &rules->normalize, &text, &bytes);
        if (!status) status = ls__added_seek(added, i, text, bytes);
    }
    ls__normalizer_free(&n);
    return status;
}

/* The vocabulary and the added tokens, which may be listed in the vocabulary too. */
static ls_status read_vocabulary(ls__bpe **out, const char *path, json_t *vocab, const ls__added *added, bool plain)
{
    const char *text;
    json_t *value;
    uint32_t id = 0, most = 0;
    ls_status status = LS_OK;
    *out = NULL;
    if (!json_is_object(vocab) || !json_object_size(vocab))
        return ls__fail(LS_EFORMAT, "%s: no vocabulary (an object of tokens and their ids)", path);
    json_object_foreach(vocab, text, value)
    {
        status = id_of(value, path, text, &id);
        if (status) return status;
        if (id > most) most = id;
    }
    for (size_t i = 0; i < added->count; i++)
        if (added->tokens[i].id > most) most = added->tokens[i].id;
    status = ls__bpe_open(out, most + 1);
    json_object_foreach(vocab, text, value)
    {
        if (!status) status = id_of(value, path, text, &id);
        if (!status) status = add_token(*out, path, id, text, added, plain);
    }
    if (!status) ls__bpe_end_vocabulary(*out);
    /* After the others: a merge must not end in an added token that happens to have the same bytes. */
    for (size_t i = 0; !status && i < added->count; i++) {
        const ls__added_token *t = &added->tokens[i];
        const json_t *there = json_object_getn(vocab, (const char *)t->bytes, t->count);
        if (json_is_integer(there) && json_integer_value(there) == t->id) continue;
        /* As in tokenizers, its text is the normalized one. */
        const bool own = t->sought_count > 0;
        status = ls__bpe_add_token(*out, t->id, own ? t->sought : t->bytes, own ? t->sought_count : t->count);
        if (status) ls__fail_within(status, "%s: added token '%.*s'", path, (int)t->count, (const char *)t->bytes);
    }
    if (status) ls__bpe_free(out);
    return status;
}

/* One merge, as its two tokens are written. Neither needs to end in 0. */
static ls_status add_merge(ls__bpe *bpe, const char *left, size_t n_left, const char *right, size_t n_right, bool plain)
{
    const char *text[2] = { left, right };
    size_t count[2] = { n_left, n_right };
    uint32_t id[2];
    for (int i = 0; i < 2; i++) {
        char bytes[2 * LS__BPE_MAX_TOKEN_BYTES];
        if (count[i] > sizeof bytes) return ls__fail(LS_EFORMAT, "a token of %zu bytes is too long", count[i]);
        memcpy(bytes, text[i], count[i]);
        size_t n = count[i];
        id[i] = plain || ls__chars_to_bytes(bytes, &n) ? ls__bpe_find(bpe, bytes, n) : LS__BPE_NONE;
        if (id[i] == LS__BPE_NONE)
            return ls__fail(LS_EFORMAT, "'%.*s' is not in the vocabulary", (int)(count[i] < 100 ? count[i] : 100),
                            text[i]);
    }
    return ls__bpe_add_merge(bpe, id[0], id[1]);
}

/* "left right"; the alphabet has no blank, so there is exactly one. */
static ls_status add_merge_text(ls__bpe *bpe, const char *text, size_t count, bool plain)
{
    const char *blank = memchr(text, ' ', count);
    if (!blank || memchr(blank + 1, ' ', count - (size_t)(blank - text) - 1))
        return ls__fail(LS_EFORMAT, "a merge must be two tokens separated by one space");
    size_t left = (size_t)(blank - text);
    return add_merge(bpe, text, left, blank + 1, count - left - 1, plain);
}

static ls_status read_merges_json(ls__bpe *bpe, const char *path, json_t *merges, bool plain)
{
    if (!json_is_array(merges)) return ls__fail(LS_EFORMAT, "%s: the model has no list of merges", path);
    size_t index;
    json_t *item;
    json_array_foreach(merges, index, item)
    {
        const char *left = json_string_value(json_array_get(item, 0)),
                   *right = json_string_value(json_array_get(item, 1));
        ls_status status;
        if (json_is_string(item))
            status = add_merge_text(bpe, json_string_value(item), json_string_length(item), plain);
        else if (json_array_size(item) == 2 && left && right)
            status = add_merge(bpe, left, strlen(left), right, strlen(right), plain);
        else
            status = ls__fail(LS_EFORMAT, "must be a string or a pair of strings");
        if (status) return ls__fail_within(status, "%s: merge %zu", path, index);
    }
    return LS_OK;
}

/* Whether the mark, which stands for a space, is a token and comes only at the beginning of tokens. */
static bool mark_begins(const ls__bpe *bpe, const uint8_t *mark, size_t bytes)
{
    if (!bytes || ls__bpe_find(bpe, mark, bytes) == LS__BPE_NONE) return false;
    for (uint32_t id = 0; id < ls__bpe_tokens(bpe); id++) {
        size_t count = 0, at = 0;
        const uint8_t *text = ls__bpe_bytes(bpe, id, &count);
        while (count - at >= bytes && !memcmp(text + at, mark, bytes)) at += bytes;
        if (count > at && memmem(text + at, count - at, mark, bytes)) return false;
    }
    return true;
}

static ls_status seal(ls__bpe *bpe, ls__rules *r, const char *path)
{
    ls_status status;
    if (r->model == LS__MODEL_WORDPIECE)
        status = ls__bpe_seal_wordpiece(bpe, r->unknown, r->prefix, r->word_limit);
    else if (r->model == LS__MODEL_CHARS)
        status = ls__bpe_seal_chars(bpe, r->unknown, r->byte_fallback, r->fuse_unk);
    else
        status = ls__bpe_seal(bpe);
    if (r->ignore_merges) ls__bpe_ignore_merges(bpe);
    if (r->model != LS__MODEL_CHARS || r->ignore_merges || !mark_begins(bpe, r->mark, r->mark_bytes)) r->mark_bytes = 0;
    return status ? ls__fail_within(status, "%s: model", path) : LS_OK;
}

ls_status ls__tokenizer_parse(ls__bpe **out, ls__added *added, ls__rules *rules, const char *path, const char *text,
                              size_t bytes)
{
    json_t *root;
    *out = NULL;
    *added = (ls__added){ 0 };
    *rules = (ls__rules){ 0 };
    ls_status status = parse_json(&root, path, text, bytes);
    if (status) return status;
    json_t *model = json_object_get(root, "model");
    if (!json_is_object(model)) {
        status = ls__fail(LS_EFORMAT, "%s: has no model", path);
        goto done;
    }
    status = ls__rules_parse(rules, path, root);
    bool plain = rules->model != LS__MODEL_BYTES;
    if (!status) status = read_added(added, path, json_object_get(root, "added_tokens"));
    if (!status) status = normalize_added(added, rules);
    if (!status) status = read_vocabulary(out, path, json_object_get(model, "vocab"), added, plain);
    if (!status && rules->model != LS__MODEL_WORDPIECE)
        status = read_merges_json(*out, path, json_object_get(model, "merges"), plain);
    if (!status) status = seal(*out, rules, path);
    ls__added_seal(added);
done:
    if (status) ls__bpe_free(out);
    if (status) ls__added_free(added);
    if (status) ls__rules_free(rules);
    json_decref(root);
    return status;
}

/* merges.txt: a line each; the first may be "#version: ...". */
static ls_status read_merges_text(ls__bpe *bpe, const char *path, const char *text, size_t bytes)
{
    size_t line = 1;
    for (size_t at = 0; at < bytes; line++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t next = end ? (size_t)(end - text) + 1 : bytes, count = (end ? next - 1 : bytes) - at;
        if (count && text[at + count - 1] == '\r') count--;
        bool skip = !count || (line == 1 && count >= 8 && !memcmp(text, "#version", 8));
        ls_status status = skip ? LS_OK : add_merge_text(bpe, text + at, count, false);
        if (status) return ls__fail_within(status, "%s: byte %zu (line %zu)", path, at, line);
        at = next;
    }
    return LS_OK;
}

ls_status ls__vocabulary_parse(ls__bpe **out, ls__added *added, const char *vocab_path, const char *vocab,
                               size_t vocab_bytes, const char *merges_path, const char *merges, size_t merges_bytes,
                               const json_t *more)
{
    json_t *root;
    *out = NULL;
    *added = (ls__added){ 0 };
    ls_status status = parse_json(&root, vocab_path, vocab, vocab_bytes);
    if (status) return status;
    /* These files do not list added tokens, but every library that reads them adds GPT-2's. */
    const json_t *end = json_object_get(root, LS__END_OF_TEXT);
    ls__added_token token = { .bytes = (const uint8_t *)LS__END_OF_TEXT,
                              .count = sizeof LS__END_OF_TEXT - 1,
                              .special = true };
    if (end) status = id_of(end, vocab_path, LS__END_OF_TEXT, &token.id);
    if (!status) status = read_added(added, vocab_path, more);
    for (size_t i = 0; i < added->count && !status; i++) { /* what the vocabulary has keeps its id there */
        ls__added_token *t = &added->tokens[i];
        const json_t *there = json_object_getn(root, (const char *)t->bytes, t->count);
        if (there)
            status =
                id_of(there, vocab_path,
                      (const char *)json_string_value(json_object_get(json_array_get(more, i), "content")), &t->id);
    }
    if (end && !status && !ls__added_find(added, token.bytes, token.count)) status = ls__added_add(added, &token);
    if (!status) status = read_vocabulary(out, vocab_path, root, added, false);
    json_decref(root);
    if (!status) status = read_merges_text(*out, merges_path, merges, merges_bytes);
    if (!status) status = ls__bpe_seal(*out);
    ls__added_seal(added);
    if (status) ls__bpe_free(out);
    if (status) ls__added_free(added);
    return status;
}
