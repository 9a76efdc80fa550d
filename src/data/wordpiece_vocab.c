/* A folder with vocab.txt alone, as BERT's first releases have it: a token per line. What tokenizer.json would say besides follows from
 * tokenizer_config.json, or is as in BERT; so a tokenizer.json is made of it, and read and saved as any other. */
#include "data/wordpiece_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"

static const char *const special[] = { "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]" };
enum { SPECIAL = sizeof special / sizeof *special, CLS = 2, SEP = 3 };

/* {"token": number of its line}. The last of equal lines counts, as in transformers. */
static ls_status read_lines(const char *path, const char *text, size_t bytes, json_t **out)
{
    json_t *vocab = json_object();
    json_int_t id = 0;
    bool failed = !vocab;
    for (const char *at = text, *end = text + bytes; at < end && !failed; id++) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((line ? line : end) - at);
        if (n && at[n - 1] == '\r') n--;
        char *token = strndup(at, n);
        failed = !token || strlen(token) != n || json_object_set_new(vocab, token, json_integer(id));
        free(token);
        at = line ? line + 1 : end;
    }
    *out = failed ? NULL : vocab;
    if (!failed) return LS_OK;
    json_decref(vocab);
    return ls__fail(LS_EFORMAT, "%s: line %lld: a token that is not valid UTF-8", path, (long long)id);
}

/* A setting of tokenizer_config.json; null or absent: `otherwise`. */
static json_t *setting(const json_t *config, const char *key, json_t *otherwise)
{
    const json_t *value = json_object_get(config, key);
    if (!json_is_boolean(value)) return otherwise;
    json_decref(otherwise);
    return json_boolean(json_is_true(value));
}

ls_status ls__wordpiece_json(const char *path, const char *text, size_t bytes, const json_t *config, char **out)
{
    json_t *vocab, *added = json_array(), *root = NULL;
    json_int_t ids[SPECIAL];
    *out = NULL;
    ls_status status = read_lines(path, text, bytes, &vocab);
    for (int i = 0; i < SPECIAL && !status; i++) {
        const json_t *id = json_object_get(vocab, special[i]);
        ids[i] = json_integer_value(id);
        if (!id && i) /* padding is only a number */
            status =
                ls__fail(LS_EFORMAT, "%s: token %s is missing; it must be the vocabulary of a BERT", path, special[i]);
        if (id && !status)
            json_array_append_new(added,
                                  json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", ids[i], "content", special[i],
                                            "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
    }
    if (!status)
        root = json_pack(
            "{s:s, s:n, s:n, s:O, s:{s:s, s:b, s:o, s:o, s:o}, s:{s:s}, s:{s:s, s:[s, I], s:[s, I]}, s:{s:s, s:s, "
            "s:b}, s:{s:s, s:s, s:s, s:i, s:O}}",
            "version", "1.0", "truncation", "padding", "added_tokens", added, "normalizer", "type", "BertNormalizer",
            "clean_text", 1, "handle_chinese_chars", setting(config, "tokenize_chinese_chars", json_true()),
            "strip_accents", setting(config, "strip_accents", json_null()), "lowercase",
            setting(config, "do_lower_case", json_true()), "pre_tokenizer", "type", "BertPreTokenizer",
            "post_processor", "type", "BertProcessing", "sep", special[SEP], ids[SEP], "cls", special[CLS], ids[CLS],
            "decoder", "type", "WordPiece", "prefix", "##", "cleanup", 1, "model", "type", "WordPiece", "unk_token",
            "[UNK]", "continuing_subword_prefix", "##", "max_input_chars_per_word", 100, "vocab", vocab);
    if (root) *out = json_dumps(root, JSON_INDENT(1));
    if (!status && !*out) status = ls__fail(LS_ENOMEM, "%s: out of memory", path);
    json_decref(root);
    json_decref(added);
    json_decref(vocab);
    return status;
}
