/* Weights in several files: model.safetensors.index.json names the file of each tensor. */
#include "nn/files.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"

enum { MAX_INDEX = 64 << 20, MAX_SHARDS = 10000 };

/* Adds the path of a shard unless it is there already. */
static ls_status add_shard(const char *index, const char *folder, const char *tensor, const json_t *value,
                           ls__shards *out)
{
    const char *file = json_string_value(value);
    char *path;
    if (!file || !*file || strchr(file, '/') || *file == '.')
        return ls__fail(LS_EFORMAT, "%s: 'weight_map': the file of tensor '%.100s' must be a name in the same folder",
                        index, tensor);
    if (asprintf(&path, "%s/%s", folder, file) < 0) return ls__fail(LS_ENOMEM, "%s: out of memory", index);
    for (size_t i = 0; i < out->count; i++)
        if (strcmp(out->paths[i], path) == 0) {
            free(path);
            return LS_OK;
        }
    ls_status status = LS_OK;
    char **more = NULL;
    if (access(path, F_OK))
        status =
            ls__fail(LS_ENOENT, "%s: the file '%.100s', which has tensor '%.100s', is missing", index, file, tensor);
    else if (out->count == MAX_SHARDS)
        status = ls__fail(LS_EFORMAT, "%s: more than %d files", index, MAX_SHARDS);
    else if (!(more = realloc(out->paths, (out->count + 1) * sizeof *more)))
        status = ls__fail(LS_ENOMEM, "%s: out of memory", index);
    if (status) {
        free(path);
        return status;
    }
    out->paths = more;
    out->paths[out->count++] = path;
    return LS_OK;
}

ls_status ls__shards_parse(const char *index, const char *folder, const char *text, size_t bytes, ls__shards *out)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_DECODE_INT_AS_REAL, &error), *map, *value;
    const char *tensor;
    ls_status status = LS_OK;
    *out = (ls__shards){ 0 };
    if (!root) return ls__fail(LS_EFORMAT, "%s: line %d, column %d: %s", index, error.line, error.column, error.text);
    map = json_object_get(root, "weight_map");
    if (!json_is_object(map) || !json_object_size(map))
        status = ls__fail(LS_EFORMAT, "%s: 'weight_map' must be an object with the file of each tensor", index);
    else
        json_object_foreach(map, tensor, value)
        {
            if ((status = add_shard(index, folder, tensor, value, out))) break;
        }
    json_decref(root);
    if (status) ls__shards_free(out);
    return status;
}

ls_status ls__shards_read(const char *index, const char *folder, ls__shards *out)
{
    char *text;
    size_t bytes;
    *out = (ls__shards){ 0 };
    ls_status status = ls__file_read(index, MAX_INDEX, &text, &bytes);
    if (status) return status;
    status = ls__shards_parse(index, folder, text, bytes, out);
    free(text);
    return status;
}

void ls__shards_free(ls__shards *s)
{
    for (size_t i = 0; i < s->count; i++) free(s->paths[i]);
    free(s->paths);
    *s = (ls__shards){ 0 };
}
