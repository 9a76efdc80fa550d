/* A model as a folder of files. */
#include "nn/files.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/file.h"
#include "base/status.h"
#include "nn/model.h"

static char *join(const char *folder, const char *name)
{
    char *path;
    if (asprintf(&path, "%s/%s", folder, name) >= 0) return path;
    ls__fail(LS_ENOMEM, "%s/%s: out of memory", folder, name);
    return NULL;
}

static void list_weights(const ls_model *m, ls__weights sets[2])
{
    sets[0] = (ls__weights){ .places = m->places.list, .count = m->places.count, .data = m->values };
    sets[1] = (ls__weights){ .places = m->buffer_places.list, .count = m->buffer_places.count, .data = m->buffers };
}

static ls_status check_bound(const ls_model *m)
{
    if (m->values) return LS_OK;
    return ls__fail(LS_ESTATE, "%s: the model has no memory yet; call ls_model_bind() first", m->kind);
}

ls_status ls_model_save(const ls_model *m, const char *folder)
{
    ls__weights sets[2];
    char *config = join(folder, "config.json"), *weights = join(folder, "model.safetensors");
    ls_status status = config && weights ? check_bound(m) : LS_ENOMEM;
    if (!status) status = ls__file_make_dir(folder);
    if (!status && ls_model_gpt2(m)) status = ls__hf_config_write(config, &m->gpt2);
    list_weights(m, sets);
    if (!status) status = ls__weights_write(weights, sets, 2);
    free(weights);
    free(config);
    return status;
}

ls_status ls_model_load(ls_model *m, const char *folder)
{
    ls__weights sets[2];
    char *weights = join(folder, "model.safetensors");
    ls_status status = weights ? check_bound(m) : LS_ENOMEM;
    list_weights(m, sets);
    if (!status) status = ls__weights_read(weights, sets, 2);
    free(weights);
    return status;
}

ls_status ls_gpt2_options_read(const char *folder, ls_gpt2_options *out)
{
    char *config = join(folder, "config.json");
    ls_status status = config ? ls__hf_config_read(config, out) : LS_ENOMEM;
    free(config);
    return status;
}
