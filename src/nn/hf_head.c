/* The head of an encoder in config.json: "architectures" names a class like BertForMaskedLM, and "id2label" and "label2id" the classes of a
 * classifier. transformers counts the classes by "id2label", and leaves it out if there are two without names. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/status.h"
#include "nn/hf_config.h"
#include "nn/json_text.h"

enum { MAX_CONFIG = 1 << 20, DEFAULT_CLASSES = 2, MAX_CLASSES = 1 << 16 };

static const char classifier[] = "ForSequenceClassification", masked[] = "ForMaskedLM";

/* Whether `class` is the family's class for one of these. */
static bool is_for(const char *class, const char *family, const char *what)
{
    size_t n = strlen(family);
    return !strncmp(class, family, n) && !strcmp(class + n, what);
}

/* ---- Reading. */

static ls_status count_classes(const char *name, const json_t *root, int *classes)
{
    const json_t *labels = json_object_get(root, "id2label"), *count = json_object_get(root, "num_labels");
    *classes = DEFAULT_CLASSES;
    if (labels && !json_is_null(labels)) {
        *classes = (int)json_object_size(labels);
        if (!json_is_object(labels) || *classes < 1 || *classes > MAX_CLASSES)
            return ls__fail(LS_EFORMAT, "%s: 'id2label' must be an object with 1 to %d classes", name, MAX_CLASSES);
        for (int i = 0; i < *classes; i++) {
            char key[16];
            snprintf(key, sizeof key, "%d", i);
            if (!json_is_string(json_object_get(labels, key)))
                return ls__fail(LS_EFORMAT, "%s: 'id2label' has %d classes, but no name for class %d", name, *classes,
                                i);
        }
    }
    double number = json_number_value(count);
    if (!count || json_is_null(count)) return LS_OK;
    if (!(number >= 1 && number <= MAX_CLASSES && number == (int)number))
        return ls__fail(LS_EFORMAT, "%s: 'num_labels' must be an integer from 1 to %d", name, MAX_CLASSES);
    if (labels && !json_is_null(labels) && (int)number != *classes)
        return ls__fail(LS_EFORMAT, "%s: 'num_labels' is %d, but 'id2label' has %d classes", name, (int)number,
                        *classes);
    *classes = (int)number;
    return LS_OK;
}

ls_status ls__hf_head_read(const char *name, const json_t *root, const ls__config_key *key, ls_lm_options *o)
{
    static const char *const others[] = { masked, "Model", "ForPreTraining" };
    const json_t *list = json_object_get(root, key->key);
    o->classes = 0;
    if (!list || json_is_null(list)) return LS_OK;
    const char *class = json_string_value(json_array_get(list, 0));
    if (!class) return ls__fail(LS_EFORMAT, "%s: '%s' must be a list with the name of a class", name, key->key);
    if (is_for(class, key->text, classifier)) return count_classes(name, root, &o->classes);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (is_for(class, key->text, others[i])) return LS_OK;
    return ls__fail(LS_EUNSUPPORTED, "%s: '%s' is %.60s; supported are %s%s, %s%s, %sForPreTraining and %sModel", name,
                    key->key, class, key->text, masked, key->text, classifier, key->text, key->text);
}

ls_status ls__hf_labels_read(const char *folder, char **out)
{
    char *path = NULL, *text = NULL, *joined = NULL;
    size_t bytes, room = 1;
    *out = NULL;
    if (asprintf(&path, "%s/config.json", folder) < 0) return ls__fail(LS_ENOMEM, "%s: out of memory", folder);
    ls_status status = ls__file_read(path, MAX_CONFIG, &text, &bytes);
    free(path);
    if (status) return status;
    json_t *root = json_loadb(text, bytes, JSON_DECODE_INT_AS_REAL, NULL);
    const json_t *labels = json_object_get(root, "id2label"), *value;
    size_t n = json_object_size(labels);
    bool named = false;
    for (int pass = 0; pass < 2 && !(pass && (!named || !(joined = calloc(1, room)))); pass++)
        for (size_t i = 0; i < n; i++) {
            char key[24], plain[32];
            snprintf(key, sizeof key, "%zu", i);
            snprintf(plain, sizeof plain, "LABEL_%zu", i);
            const char *label = (value = json_object_get(labels, key)) ? json_string_value(value) : NULL;
            if (!label || strchr(label, ',')) label = plain;
            named = named || strcmp(label, plain) != 0;
            if (pass && i) strcat(joined, ",");
            if (pass) strcat(joined, label);
            room += strlen(label) + 1;
        }
    if (named && !joined) status = ls__fail(LS_ENOMEM, "%s: out of memory", folder);
    json_decref(root);
    free(text);
    *out = joined;
    return status;
}

/* ---- Writing. */

/* Names of classes: those of `labels`, as far as there are some. */
static json_t *labels_json(const char *labels, int classes, bool by_name)
{
    json_t *out = json_object();
    const char *at = labels;
    bool failed = !out;
    for (int i = 0; i < classes && !failed; i++) {
        char key[16], plain[24];
        const char *end = at ? strchrnul(at, ',') : NULL;
        snprintf(key, sizeof key, "%d", i);
        snprintf(plain, sizeof plain, "LABEL_%d", i);
        char *label = at ? strndup(at, (size_t)(end - at)) : strdup(plain);
        failed = !label || (by_name ? json_object_set_new(out, label, json_integer(i))
                                    : json_object_set_new(out, key, json_string(label)));
        free(label);
        at = at && *end ? end + 1 : NULL;
    }
    if (!failed) return out;
    json_decref(out);
    return NULL;
}

json_t *ls__hf_head_value(const ls__config_key *key, const ls_lm_options *o)
{
    if (key->kind == LS__CONFIG_HEAD) {
        json_t *name = json_sprintf("%s%s", key->text, o->classes ? classifier : masked);
        return json_pack("[o]", name);
    }
    return o->classes ? labels_json(NULL, o->classes, !strcmp(key->key, "label2id")) : NULL;
}

static ls_status set(char **text, const char *key, json_t *value)
{
    char *dumped = value ? json_dumps(value, JSON_COMPACT) : NULL;
    ls_status status =
        dumped ? ls__json_text_set(text, key, dumped) : ls__fail(LS_ENOMEM, "config.json: out of memory");
    json_decref(value);
    free(dumped);
    return status;
}

ls_status ls__hf_head_update(char **text, const ls__config_key *keys, const ls_lm_options *o)
{
    ls_status status = LS_OK;
    for (const ls__config_key *k = keys; k->key && !status; k++) {
        bool ours = k->kind == LS__CONFIG_HEAD || (k->kind == LS__CONFIG_LABELS && o->classes);
        if (ours) status = set(text, k->key, ls__hf_head_value(k, o));
    }
    return status;
}

ls_status ls__hf_labels_set(char **text, const char *labels)
{
    int classes = 1;
    for (const char *p = labels; *p; p++) classes += *p == ',';
    ls_status status = set(text, "id2label", labels_json(labels, classes, false));
    return status ? status : set(text, "label2id", labels_json(labels, classes, true));
}
