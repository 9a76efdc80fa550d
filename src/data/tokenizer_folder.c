/* The files next to a tokenizer: those that describe it and are kept when it is saved, and the name of the token that ends a text,
 * which every library writes to another file. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "data/tokenizer.h"

enum { FILE_LIMIT = 1 << 24 };

/* As in ls_tokenizer.kept; tokenizer.json is read by its parser. */
static const char *const names[LS__KEPT_FILES] = { "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                                   "added_tokens.json", "chat_template.jinja" };

/* Reads a file of the folder; *text is NULL if it is not there. */
static ls_status read_file(const char *folder, const char *name, char **text, size_t *bytes)
{
    char *path;
    *text = NULL;
    *bytes = 0;
    if (asprintf(&path, "%s/%s", folder, name) < 0) return ls__fail(LS_ENOMEM, "%s/%s: out of memory", folder, name);
    ls_status status = access(path, F_OK) == 0 ? ls__file_read(path, FILE_LIMIT, text, bytes) : LS_OK;
    free(path);
    return status;
}

static ls_status parse(const char *folder, const char *name, const char *text, size_t bytes, json_t **out)
{
    json_error_t error;
    /* transformers writes lengths without limit as 10^30, which no integer holds. */
    *out = text ? json_loadb(text, bytes, JSON_DECODE_INT_AS_REAL, &error) : NULL;
    if (*out || !text) return LS_OK;
    return ls__fail(LS_EFORMAT, "%s/%s: line %d, column %d: %s", folder, name, error.line, error.column, error.text);
}

/* The id of "eos_token", a text or an object with one; -1: none that the tokenizer has. */
static int32_t end_by_name(const ls_tokenizer *t, const json_t *root)
{
    const json_t *value = json_object_get(root, "eos_token");
    const char *text = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    if (!text) return -1;
    const ls__added_token *added = ls__added_find(&t->added, text, strlen(text));
    uint32_t id = added ? added->id : ls__bpe_find(t->bpe, text, strlen(text));
    return id == LS__BPE_NONE ? -1 : (int32_t)id;
}

static int32_t token_of(const ls_tokenizer *t, const json_t *value)
{
    double id = json_real_value(value);
    size_t count;
    bool there = json_is_real(value) && id >= 0 && id < LS__BPE_MAX_TOKENS && id == (uint32_t)id &&
                 ls__bpe_bytes(t->bpe, (uint32_t)id, &count);
    return there ? (int32_t)id : -1;
}

/* "eos_token_id", a number or a list of them. */
static int32_t end_by_id(const ls_tokenizer *t, const json_t *root)
{
    const json_t *value = json_object_get(root, "eos_token_id"), *item;
    if (!json_is_array(value)) return token_of(t, value);
    int32_t id = -1;
    size_t i;
    json_array_foreach(value, i, item) if (id < 0) id = token_of(t, item);
    return id;
}

/* In the order of precedence: the tokenizer's settings, then those of the model next to it. */
static ls_status find_end(ls_tokenizer *t, const char *folder)
{
    static const struct {
        const char *name;
        int kept; /* which of the kept files it is; 0: none of them */
        int32_t (*find)(const ls_tokenizer *t, const json_t *root);
    } places[] = { { "tokenizer_config.json", 1, end_by_name },
                   { "config.json", 0, end_by_id },
                   { "generation_config.json", 0, end_by_id },
                   { "special_tokens_map.json", 2, end_by_name } };
    ls_status status = LS_OK;
    for (size_t i = 0; i < sizeof places / sizeof *places && t->end < 0 && !status; i++) {
        char *read = NULL, *text = t->kept[places[i].kept].text;
        size_t bytes = t->kept[places[i].kept].bytes;
        json_t *root = NULL;
        if (!places[i].kept) {
            status = read_file(folder, places[i].name, &read, &bytes);
            text = read;
        }
        if (!status) status = parse(folder, places[i].name, text, bytes, &root);
        if (root) t->end = places[i].find(t, root);
        json_decref(root);
        free(read);
    }
    return status;
}

/* If no file defines it: the only special token with a common name; -1: none, or several. */
static int32_t only_usual_end(const ls_tokenizer *t)
{
    static const char *const usual[] = { "<|end_of_text|>", "</s>", "<eos>", "[EOS]", "<|im_end|>" };
    int32_t found = -1;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        const ls__added_token *token = ls__added_find(&t->added, usual[i], strlen(usual[i]));
        if (!token || !token->special) continue;
        if (found >= 0) return -1;
        found = (int32_t)token->id;
    }
    return found;
}

ls_status ls__tokenizer_read_folder(ls_tokenizer *t, const char *folder)
{
    ls_status status = LS_OK;
    t->end = -1;
    for (int i = 1; i < LS__KEPT_FILES && folder && !status; i++)
        status = read_file(folder, names[i], &t->kept[i].text, &t->kept[i].bytes);
    if (!status && folder) status = find_end(t, folder);
    uint32_t usual = ls__bpe_find(t->bpe, LS__END_OF_TEXT, sizeof LS__END_OF_TEXT - 1);
    if (t->end < 0 && usual != LS__BPE_NONE) t->end = (int32_t)usual;
    if (t->end < 0) t->end = only_usual_end(t);
    return status;
}

/* ---- Folders without a tokenizer.json. */

/* What a special token is, by special_tokens_map.json: a text or an object, or a list of those. True if it is the one. */
static bool is_special(const json_t *value, const char *text, json_t *flags)
{
    static const char *const names_of_flags[] = { "lstrip", "rstrip", "single_word" };
    const json_t *item;
    size_t i;
    bool found = false;
    json_array_foreach(value, i, item) found = found || is_special(item, text, flags);
    const char *own = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    if (!own || strcmp(own, text) != 0) return found;
    for (i = 0; i < 3; i++)
        if (json_is_true(json_object_get(value, names_of_flags[i])))
            json_object_set_new(flags, names_of_flags[i], json_true());
    return true;
}

/* added_tokens.json, {"text": id}: as transformers reads it. */
static ls_status add_by_text(json_t *list, const char *path, const json_t *tokens, json_t *special)
{
    const char *text, *key;
    json_t *id, *value;
    json_object_foreach((json_t *)(uintptr_t)tokens, text, id)
    {
        json_t *token = json_pack("{s:s, s:I}", "content", text, "id", (json_int_t)json_number_value(id));
        bool found = false;
        if (!json_is_number(id)) {
            json_decref(token);
            return ls__fail(LS_EFORMAT, "%s: the id of token '%s' is not a number", path, text);
        }
        json_object_foreach(special, key, value) found = is_special(value, text, token) || found;
        json_object_set_new(token, "special", json_boolean(found));
        json_object_set_new(token, "normalized", json_boolean(!found));
        if (json_array_append_new(list, token)) return ls__fail(LS_ENOMEM, "%s: out of memory", path);
    }
    return LS_OK;
}

/* tokenizer_config.json's added_tokens_decoder, {"id": {"content": ..., flags}}. */
static ls_status add_by_id(json_t *list, const char *path, json_t *tokens)
{
    const char *id;
    json_t *value;
    json_object_foreach(tokens, id, value)
    {
        json_t *token = json_copy(value);
        json_object_set_new(token, "id", json_integer(strtoll(id, NULL, 10)));
        if (!json_is_object(token) || json_array_append_new(list, token))
            return ls__fail(LS_EFORMAT, "%s: added_tokens_decoder: token %s is not an object", path, id);
    }
    return LS_OK;
}

ls_status ls__tokenizer_added_json(const char *folder, json_t **out)
{
    static const char *const files[] = { "added_tokens.json", "special_tokens_map.json", "tokenizer_config.json" };
    json_t *roots[3] = { NULL }, *list = json_array();
    ls_status status = LS_OK;
    for (int i = 0; i < 3 && !status; i++) {
        char *text;
        size_t bytes;
        status = read_file(folder, files[i], &text, &bytes);
        if (!status) status = parse(folder, files[i], text, bytes, &roots[i]);
        free(text);
    }
    /* The newer list contains the older one. */
    json_t *newer = json_object_get(roots[2], "added_tokens_decoder");
    if (!status && json_object_size(newer))
        status = add_by_id(list, files[2], newer);
    else if (!status)
        status = add_by_text(list, files[0], roots[0], roots[1]);
    for (int i = 0; i < 3; i++) json_decref(roots[i]);
    if (status) json_decref(list);
    *out = status ? NULL : list;
    return status;
}

/* ---- Saving. */

/* tokenizer_config.json with another end token than it had. */
static ls_status set_end(const ls_tokenizer *t, const char *text, char **out)
{
    json_error_t error;
    size_t count;
    const uint8_t *end = ls_tokenizer_token_bytes(t, t->end, &count);
    json_t *root = json_loads(text, JSON_DECODE_INT_AS_REAL, &error);
    if (root && !json_object_set_new(root, "eos_token", json_stringn((const char *)end, count)))
        *out = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(root);
    return *out ? LS_OK : ls__fail(LS_EFORMAT, "tokenizer_config.json: token %d cannot be its eos_token", t->end);
}

ls_status ls__tokenizer_write_kept(const ls_tokenizer *t, const char *folder)
{
    ls_status status = LS_OK;
    for (int i = 0; i < LS__KEPT_FILES && !status; i++) {
        char *path;
        if (!t->kept[i].text) continue;
        if (asprintf(&path, "%s/%s", folder, names[i]) < 0) return ls__fail(LS_ENOMEM, "%s: out of memory", folder);
        char *changed = NULL;
        if (i == LS__KEPT_CONFIG && t->end_given) status = set_end(t, t->kept[i].text, &changed);
        if (!status)
            status =
                ls__file_write(path, changed ? changed : t->kept[i].text, changed ? strlen(changed) : t->kept[i].bytes);
        free(changed);
        free(path);
    }
    return status;
}
