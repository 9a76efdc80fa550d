/* A model as a folder of files. */
#include "nn/files.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "nn/lora.h"

enum {
    MAX_JSON = 1 << 20,
    MAX_DEPTH = 8, /* adapters of adapters */
};

static char *join(const char *folder, const char *name)
{
    char *path;
    if (asprintf(&path, "%s/%s", folder, name) >= 0) return path;
    ls__fail(LS_ENOMEM, "%s/%s: out of memory", folder, name);
    return NULL;
}

static void list_weights(const ls_model *m, ls__weights sets[2])
{
    bool adapted = m->frozen_places.count;
    const ls__places *own = adapted ? &m->frozen_places : &m->places;
    sets[0] = (ls__weights){ .places = own->list, .count = own->count, .data = adapted ? m->frozen : m->values };
    if (m->frozen_at) sets[0].frozen = m;
    sets[1] = (ls__weights){ .places = m->buffer_places.list, .count = m->buffer_places.count, .data = m->buffers };
}

static ls_status check_bound(const ls_model *m)
{
    if (m->values) return LS_OK;
    return ls__fail(LS_ESTATE, "%s: the model has no memory; call ls_model_bind() first", m->type->name);
}

static ls_status write_config(const ls_model *m, const char *path)
{
    char *text = NULL;
    ls_status status =
        m->type->lm ? ls__hf_config_text(m->config, &m->lm, m->end, &text) : m->type->config_text(m, &text);
    if (!status && m->labels) status = ls__hf_labels_set(&text, m->labels);
    if (!status) status = ls__file_write(path, text, strlen(text));
    free(text);
    return status;
}

static ls_status write_generation(const ls_model *m, const char *folder)
{
    char *path = join(folder, "generation_config.json");
    ls_status status = path ? ls__file_write(path, m->generation, strlen(m->generation)) : LS_ENOMEM;
    free(path);
    return status;
}

/* Keeps the text of a JSON file, if the file exists. */
static ls_status keep_json(char **kept, const char *folder, const char *name)
{
    char *path = join(folder, name), *text = NULL;
    size_t bytes;
    json_error_t error;
    ls_status status = !path                ? LS_ENOMEM
                       : access(path, F_OK) ? LS_ENOENT
                                            : ls__file_read(path, MAX_JSON, &text, &bytes);
    if (!status) {
        json_t *root = json_loadb(text, bytes, JSON_DECODE_INT_AS_REAL, &error);
        if (!json_is_object(root))
            status = ls__fail(LS_EFORMAT, "%s: line %d, column %d: %s", path, root ? 1 : error.line,
                              root ? 1 : error.column, root ? "must be a JSON object" : error.text);
        json_decref(root);
    }
    if (!status) {
        free(*kept);
        *kept = text;
        text = NULL;
    }
    free(text);
    free(path);
    return status == LS_ENOENT ? LS_OK : status;
}

ls_status ls_model_save(const ls_model *m, const char *folder)
{
    LS__NEED(m, "model");
    LS__NEED(folder, "folder");
    ls__weights sets[2];
    char *config = join(folder, "config.json"), *weights = join(folder, "model.safetensors");
    ls_status status = config && weights ? check_bound(m) : LS_ENOMEM;
    if (!status) status = ls__file_make_dir(folder);
    if (!status && m->lora.options.r) {
        free(weights);
        free(config);
        return ls__lora_save(m, folder);
    }
    if (!status && (m->type->lm || m->type->config_text)) status = write_config(m, config);
    if (!status && m->generation) status = write_generation(m, folder);
    list_weights(m, sets);
    if (!status) status = ls__weights_write(weights, sets, 2);
    free(weights);
    free(config);
    return status;
}

/* An explicit message for weights in another format. */
static ls_status check_format(const char *folder)
{
    static const char *const others[] = { "pytorch_model.bin", "pytorch_model.bin.index.json" };
    ls_status status = LS_OK;
    for (size_t i = 0; i < sizeof others / sizeof *others && !status; i++) {
        char *other = join(folder, others[i]);
        if (!other) return LS_ENOMEM;
        if (!access(other, F_OK))
            status = ls__fail(LS_EUNSUPPORTED,
                              "%s: its weights are in torch files, which is not supported; save the model again as "
                              "safetensors, in transformers with save_pretrained(DIR)",
                              folder);
        free(other);
    }
    return status;
}

/* The weights of one file, or of several that an index names. As in transformers, the one file is preferred. */
static ls_status read_weights(ls_model *m, const char *folder, bool new_head)
{
    const ls__weight_names *names = m->type->lm ? &m->type->lm->weights : m->type->weights;
    ls__weight_names own = names ? *names : (ls__weight_names){ 0 };
    if (names) names = &own;
    own.new_head = new_head && own.is_head;
    char *one = join(folder, "model.safetensors"), *index = join(folder, "model.safetensors.index.json");
    ls__weights sets[2];
    ls__shards shards = { 0 };
    ls_status status = one && index ? LS_OK : LS_ENOMEM;
    list_weights(m, sets);
    if (!status && access(one, F_OK) && !access(index, F_OK)) {
        status = ls__shards_read(index, folder, &shards);
        if (!status) status = ls__weights_read(index, (const char *const *)shards.paths, shards.count, sets, 2, names);
    } else if (!status) {
        if (access(one, F_OK)) status = check_format(folder);
        if (!status) status = ls__weights_read(one, (const char *const *)&one, 1, sets, 2, names);
    }
    ls__shards_free(&shards);
    free(index);
    free(one);
    return status;
}

/* The weights and texts of a folder that holds no adapter. */
static ls_status load_whole(ls_model *m, const char *folder, bool new_head)
{
    ls_status status = read_weights(m, folder, new_head);
    if (!status && m->type->lm) status = keep_json(&m->config, folder, "config.json");
    if (!status && m->type->lm) status = keep_json(&m->generation, folder, "generation_config.json");
    return status;
}

/* An adapter's base may be an adapter again, which is then merged into its own base. */
static ls_status load_folder(ls_model *m, const char *folder, int depth)
{
    char *base = NULL;
    ls_status status = m->type->lm ? ls__lora_find_base(folder, &base) : LS_OK;
    if (!status && !base) return load_whole(m, folder, false);
    if (!status && depth == MAX_DEPTH)
        status = ls__fail(LS_EFORMAT, "%s: more than %d adapters on top of each other", folder, MAX_DEPTH);
    if (!status) status = load_folder(m, base, depth + 1);
    if (!status) status = ls__lora_merge(m, folder);
    free(base);
    return status;
}

/* The frozen weights are loaded as a model of their own, in the same memory. `values`: also those of the adapter, if the folder
 * has it. */
static ls_status load_frozen(ls_model *m, const char *folder, bool values)
{
    ls_lora_options own;
    char *base = NULL;
    ls_model *whole = NULL;
    ls_status status = ls__lora_find_base(folder, &base);
    bool same = !status && base && !ls__lora_read(folder, &own) && ls__lora_is_same(&own, &m->lora.options);
    if (m->frozen_at && !status) {
        if (base && !same)
            status = ls__fail(LS_EUNSUPPORTED, "%s: holds an adapter; with base=bf16 merge it first: lockstep merge",
                              folder);
        if (!status) status = load_whole(m, same ? base : folder, false);
    } else {
        if (!status) status = ls__lm_open(&whole, &m->lm);
        if (!status) status = ls_model_bind(whole, m->frozen, NULL, false);
        if (!status) status = load_folder(whole, same ? base : folder, 0);
    }
    if (!status && same && values) status = ls__lora_load(m, folder);
    free(m->lora.base);
    m->lora.base = status ? NULL : realpath(same ? base : folder, NULL);
    ls_model_free(&whole);
    free(base);
    return status;
}

ls_status ls__model_load_weights(ls_model *m, const char *folder, bool new_head)
{
    ls_status status = check_bound(m);
    if (status) return status;
    if (new_head) return load_whole(m, folder, true);
    return m->lora.options.r ? load_frozen(m, folder, true) : load_folder(m, folder, 0);
}

ls_status ls__model_load_rest(ls_model *m, const char *folder)
{
    char *whole = NULL;
    if (m->lora.options.r) return load_frozen(m, folder, false);
    if (!m->type->lm) return LS_OK;
    ls_status status = ls__model_find_whole(folder, &whole);
    if (!status) status = keep_json(&m->config, whole, "config.json");
    if (!status) status = keep_json(&m->generation, whole, "generation_config.json");
    free(whole);
    return status;
}

ls_status ls_model_load(ls_model *m, const char *folder)
{
    LS__NEED(m, "model");
    LS__NEED(folder, "folder");
    return ls__model_load_weights(m, folder, false);
}
