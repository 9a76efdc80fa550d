/* What lies beside a tokenizer: files that say more about it and are kept when it is saved, and the name of the token that ends a
 * text, which every library writes somewhere else. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "data/tokenizer.h"

enum { FILE_LIMIT = 1 << 24 };

/* As ls_tokenizer.kept has them; tokenizer.json is read by whoever parses it. */
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

/* In the order in which they are believed: the tokenizer's own settings, then those of the model beside it. */
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

ls_status ls__tokenizer_read_folder(ls_tokenizer *t, const char *folder)
{
    ls_status status = LS_OK;
    t->end = -1;
    for (int i = 1; i < LS__KEPT_FILES && folder && !status; i++)
        status = read_file(folder, names[i], &t->kept[i].text, &t->kept[i].bytes);
    if (!status && folder) status = find_end(t, folder);
    uint32_t usual = ls__bpe_find(t->bpe, LS__END_OF_TEXT, sizeof LS__END_OF_TEXT - 1);
    if (t->end < 0 && usual != LS__BPE_NONE) t->end = (int32_t)usual;
    return status;
}

ls_status ls__tokenizer_write_kept(const ls_tokenizer *t, const char *folder)
{
    ls_status status = LS_OK;
    for (int i = 0; i < LS__KEPT_FILES && !status; i++) {
        char *path;
        if (!t->kept[i].text) continue;
        if (asprintf(&path, "%s/%s", folder, names[i]) < 0) return ls__fail(LS_ENOMEM, "%s: out of memory", folder);
        status = ls__file_write(path, t->kept[i].text, t->kept[i].bytes);
        free(path);
    }
    return status;
}
