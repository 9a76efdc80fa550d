/* Weights in safetensors files. Our parameters have the names and layouts of the files (GPT-2's c_ weights are stored
 * [in,out]), so reading is a search by name, a comparison of shapes and one copy; nothing is transposed. */
#include "nn/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "nn/safetensors.h"

static const char *without_prefix(const char *name, const ls__weight_names *names)
{
    size_t length = names && names->prefix ? strlen(names->prefix) : 0;
    return length && strncmp(name, names->prefix, length) == 0 ? name + length : name;
}

/* A place and its values, in the flat list of all sets. */
typedef struct target {
    const ls_place *place;
    float *data;
    bool seen;
} target;

static target *make_targets(const ls__weights *sets, size_t n_sets, size_t *count)
{
    *count = 0;
    for (size_t s = 0; s < n_sets; s++) *count += sets[s].count;
    target *list = calloc(*count + 1, sizeof *list), *t = list;
    for (size_t s = 0; list && s < n_sets; s++)
        for (size_t i = 0; i < sets[s].count; i++, t++)
            *t = (target){ .place = &sets[s].places[i], .data = sets[s].data + sets[s].places[i].offset };
    if (!list) ls__fail(LS_ENOMEM, "out of memory");
    return list;
}

static target *find_target(target *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].place->name, name) == 0) return &list[i];
    return NULL;
}

static void sizes_of(const ls_place *p, size_t shape[LS_MAX_DIMS])
{
    for (int i = 0; i < LS_MAX_DIMS; i++) shape[i] = (size_t)p->shape[i];
}

static ls_status check_shape(const char *path, const ls__st_tensor *t, const ls_place *p)
{
    size_t shape[LS_MAX_DIMS];
    sizes_of(p, shape);
    if (t->rank == (size_t)p->dims && (!t->rank || memcmp(t->shape, shape, t->rank * sizeof *shape) == 0)) return LS_OK;
    char theirs[100], ours[100];
    return ls__fail(LS_EFORMAT, "%s: tensor '%.100s' has shape %s, but the configuration expects %s", path, t->name,
                    ls__st_shape_text(t->rank, t->shape, theirs, sizeof theirs),
                    ls__st_shape_text((size_t)p->dims, shape, ours, sizeof ours));
}

/* A tied tensor that was saved too must be equal: different weights would be lost silently. */
static ls_status check_tied(const char *path, const ls__st_reader *reader, const ls__st_tensor *copy,
                            const ls__weight_names *names)
{
    char full[200];
    snprintf(full, sizeof full, "%s%s", names->prefix ? names->prefix : "", names->tied_to);
    const ls__st_tensor *t = ls__st_find(reader, full);
    if (!t) t = ls__st_find(reader, names->tied_to);
    bool equal = t && t->type == copy->type && t->bytes == copy->bytes;
    for (size_t at = 0, n; equal && at < t->bytes; at += n) {
        uint8_t a[4096], b[sizeof a];
        n = t->bytes - at < sizeof a ? t->bytes - at : sizeof a;
        ls_status status = ls__st_read(t, at, n, a);
        if (!status) status = ls__st_read(copy, at, n, b);
        if (status) return status;
        equal = memcmp(a, b, n) == 0;
    }
    if (equal) return LS_OK;
    return ls__fail(
        LS_EUNSUPPORTED,
        "%s: tensor '%s' is not equal to '%s'; a model whose output projection is not tied is not supported", path,
        names->tied, names->tied_to);
}

static ls_status read_tensor(const char *path, const ls__st_reader *reader, const ls__st_tensor *t, target *list,
                             size_t count, const ls__weight_names *names)
{
    const char *name = without_prefix(t->name, names);
    target *to = find_target(list, count, name);
    if (!to && names && names->is_ignored && names->is_ignored(name)) return LS_OK;
    if (!to && names && names->tied && strcmp(name, names->tied) == 0) return check_tied(path, reader, t, names);
    if (!to)
        return ls__fail(LS_EFORMAT, "%s: tensor '%.100s' is not part of the model that the configuration describes",
                        path, t->name);
    if (to->seen)
        return ls__fail(LS_EFORMAT, "%s: tensor '%s' is there twice, with and without '%s'", path, name,
                        names && names->prefix ? names->prefix : "");
    to->seen = true;
    ls_status status = check_shape(path, t, to->place);
    if (status) return status;
    status = ls__st_to_f32(t, 0, to->place->count, to->data);
    return status ? ls__fail_within(status, "%s", path) : LS_OK;
}

static ls_status find_missing(const char *path, const target *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t shape[LS_MAX_DIMS];
        char text[100];
        if (list[i].seen) continue;
        sizes_of(list[i].place, shape);
        return ls__fail(LS_EFORMAT, "%s: tensor '%s' of shape %s is missing", path, list[i].place->name,
                        ls__st_shape_text((size_t)list[i].place->dims, shape, text, sizeof text));
    }
    return LS_OK;
}

ls_status ls__weights_read(const char *path, const ls__weights *sets, size_t n_sets, const ls__weight_names *names)
{
    size_t count;
    ls__st_reader *reader = NULL;
    target *list = make_targets(sets, n_sets, &count);
    if (!list) return ls__fail_within(LS_ENOMEM, "%s", path);
    ls_status status = ls__st_open(&reader, path);
    for (size_t i = 0; !status && i < ls__st_count(reader); i++)
        status = read_tensor(path, reader, ls__st_get(reader, i), list, count, names);
    if (!status) status = find_missing(path, list, count);
    ls__st_free(&reader);
    free(list);
    return status;
}

ls_status ls__weights_write(const char *path, const ls__weights *sets, size_t n_sets)
{
    size_t count;
    target *list = make_targets(sets, n_sets, &count);
    if (!list) return ls__fail_within(LS_ENOMEM, "%s", path);
    ls__st_tensor *tensors = calloc(count + 1, sizeof *tensors);
    size_t(*shapes)[LS_MAX_DIMS] = calloc(count + 1, sizeof *shapes);
    ls_status status = LS_OK;
    if (!tensors || !shapes) {
        status = ls__fail(LS_ENOMEM, "%s: out of memory", path);
        goto done;
    }
    for (size_t i = 0; i < count; i++) {
        sizes_of(list[i].place, shapes[i]);
        tensors[i] = (ls__st_tensor){ .name = list[i].place->name,
                                      .type = LS__ST_F32,
                                      .rank = (size_t)list[i].place->dims,
                                      .shape = shapes[i],
                                      .data = list[i].data };
    }
    status = ls__st_write(path, tensors, count, NULL, 0);
done:
    free(shapes);
    free(tensors);
    free(list);
    return status;
}
