/* Weights in safetensors files. A place without dimensions is a counter: an int64 in files, which may lack it, and a float in memory, exact
 * up to 2^24. Our parameters have the names and layouts of the files (GPT-2's c_ weights are stored
 * [in,out]), so reading is a search by name, a comparison of shapes and one copy; nothing is transposed. */
#include "nn/files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/status.h"
#include "kern/vector.h"
#include "nn/lora.h"
#include "nn/safetensors.h"

enum { MAX_NAME = 300 };

static const char *without_prefix(const char *name, const ls__weight_names *names)
{
    size_t length = names && names->prefix ? strlen(names->prefix) : 0;
    return length && strncmp(name, names->prefix, length) == 0 ? name + length : name;
}

static void replace_end(char *name, const char *end, const char *by)
{
    size_t n = strlen(name), k = strlen(end);
    if (n > k && !strcmp(name + n - k, end)) snprintf(name + n - k, MAX_NAME - (n - k), "%s", by);
}

/* A place and its values, in the flat list of all sets. */
typedef struct target {
    const ls_place *place;
    float *data;
    uint16_t *half; /* in bfloat16, instead of data; NULL: none */
    bool seen;
} target;

static target *make_targets(const ls__weights *sets, size_t n_sets, size_t *count)
{
    *count = 0;
    for (size_t s = 0; s < n_sets; s++) *count += sets[s].count;
    target *list = calloc(*count + 1, sizeof *list), *t = list;
    for (size_t s = 0; list && s < n_sets; s++)
        for (size_t i = 0; i < sets[s].count; i++, t++) {
            const uint16_t *half = NULL;
            *t = (target){ .place = &sets[s].places[i] };
            if (sets[s].frozen)
                ls__frozen_at(sets[s].frozen, i, &t->data, &half);
            else
                t->data = sets[s].data + sets[s].places[i].offset;
            t->half = (uint16_t *)(uintptr_t)half;
        }
    if (!list) ls__fail(LS_ENOMEM, "out of memory");
    return list;
}

static target *find_target(target *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].place->name, name) == 0) return &list[i];
    return NULL;
}

/* The place that a tensor of a file is for; NULL: none. */
static target *find_place(target *list, size_t count, const char *name, const ls__weight_names *names)
{
    char other[MAX_NAME];
    target *to = find_target(list, count, name);
    if (to || !names || (!names->base && !names->gamma)) return to;
    snprintf(other, sizeof other, "%s", name);
    if (names->gamma) {
        replace_end(other, ".gamma", ".weight");
        replace_end(other, ".beta", ".bias");
        to = find_target(list, count, other);
    }
    if (to || !names->base) return to;
    size_t n = strlen(other), base = strlen(names->base);
    if (n + base >= sizeof other) return NULL;
    memmove(other + base, other, n + 1);
    memcpy(other, names->base, base);
    return find_target(list, count, other);
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

/* The files that are being read. */
typedef struct files {
    const char *const *paths;
    ls__st_reader **readers;
    size_t count;
} files;

static const ls__st_tensor *find_tensor(const files *f, const char *prefix, const char *name)
{
    char full[200];
    const ls__st_tensor *t = NULL;
    snprintf(full, sizeof full, "%s%s", prefix ? prefix : "", name);
    for (size_t i = 0; i < f->count && !t; i++) {
        t = ls__st_find(f->readers[i], full);
        if (!t) t = ls__st_find(f->readers[i], name);
    }
    return t;
}

/* A tied tensor that was saved too must be equal: different weights would be lost silently. */
static ls_status check_tied(const char *path, const files *f, const ls__st_tensor *copy, const ls__weight_names *names)
{
    const ls__st_tensor *t = find_tensor(f, names->prefix, names->tied_to);
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
        "%s: tensor '%s' is not equal to '%s', but the output projection is tied in this model; untie it in "
        "config.json (\"tie_word_embeddings\": false), where the model supports that",
        path, names->tied, names->tied_to);
}

static ls_status check_finite(const char *path, const char *name, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(x[i]))
            return ls__fail(LS_EFORMAT, "%s: tensor '%.100s' is not finite: element %zu is %g", path, name, i,
                            (double)x[i]);
    return LS_OK;
}

static ls_status read_counter(const char *path, const ls__st_tensor *t, float *out)
{
    int64_t value = 0;
    if (t->type != LS__ST_I64) return ls__st_to_f32(t, 0, 1, out);
    ls_status status = ls__st_read(t, 0, sizeof value, &value);
    if (!status && value < 0)
        status = ls__fail(LS_EFORMAT, "%s: tensor '%.100s' is %lld; a counter must not be negative", path, t->name,
                          (long long)value);
    *out = (float)value;
    return status;
}

/* Part by part, so that no tensor is in memory as float32. */
static ls_status read_half(const char *path, const ls__st_tensor *t, const target *to)
{
    enum { PART = 4096 };
    float part[PART];
    ls_status status = LS_OK;
    for (size_t at = 0; at < to->place->count && !status; at += PART) {
        size_t n = to->place->count - at < PART ? to->place->count - at : PART;
        status = ls__st_to_f32(t, at, n, part);
        if (status) return ls__fail_within(status, "%s", path);
        ls__f32_to_bf16(to->half + at, part, n);
        for (size_t i = 0; i < n && !status; i++)
            if (!isfinite(part[i]) || (to->half[at + i] & 0x7f80) == 0x7f80)
                status = ls__fail(LS_EFORMAT, "%s: tensor '%.100s' is not finite in bfloat16: element %zu is %g", path,
                                  t->name, at + i, (double)part[i]);
    }
    return status;
}

static ls_status read_tensor(const char *path, const files *f, const ls__st_tensor *t, target *list, size_t count,
                             const ls__weight_names *names)
{
    const char *name = without_prefix(t->name, names);
    target *to = find_place(list, count, name, names);
    if (!to && names && names->tied && strcmp(name, names->tied) == 0) return check_tied(path, f, t, names);
    if (!to && names && names->is_ignored && names->is_ignored(name)) return LS_OK;
    if (!to)
        return ls__fail(LS_EFORMAT, "%s: tensor '%.100s' is not part of the model that the configuration describes",
                        path, t->name);
    if (to->seen && f->count > 1) return ls__fail(LS_EFORMAT, "%s: tensor '%s' is also in another file", path, name);
    if (to->seen)
        return ls__fail(LS_EFORMAT, "%s: tensor '%s' occurs twice, with and without '%s'", path, name,
                        names && names->prefix ? names->prefix : "");
    ls_status status = check_shape(path, t, to->place);
    if (status && names && names->new_head && names->is_head(to->place->name)) return LS_OK;
    to->seen = true;
    if (status) return status;
    if (to->half) return read_half(path, t, to);
    status = to->place->dims ? ls__st_to_f32(t, 0, to->place->count, to->data) : read_counter(path, t, to->data);
    if (status) return ls__fail_within(status, "%s", path);
    return check_finite(path, t->name, to->data, to->place->count);
}

static ls_status find_missing(const char *path, const target *list, size_t count, const ls__weight_names *names)
{
    size_t fresh = 0, first = 0;
    for (size_t i = 0; i < count; i++) {
        size_t shape[LS_MAX_DIMS];
        char text[100];
        if (list[i].seen || !list[i].place->dims) continue;
        if (names && names->new_head && names->is_head(list[i].place->name)) {
            if (!fresh++) first = i;
            continue;
        }
        sizes_of(list[i].place, shape);
        return ls__fail(LS_EFORMAT, "%s: tensor '%s' of shape %s is missing", path, list[i].place->name,
                        ls__st_shape_text((size_t)list[i].place->dims, shape, text, sizeof text));
    }
    if (fresh)
        ls__log(LS_LOG_INFO, "%s: the model's head is new: '%s'%s random", path, list[first].place->name,
                fresh > 1 ? " and others are" : " is");
    return LS_OK;
}

ls_status ls__weights_read(const char *name, const char *const *paths, size_t n_paths, const ls__weights *sets,
                           size_t n_sets, const ls__weight_names *names)
{
    size_t count;
    files f = { .paths = paths, .readers = calloc(n_paths + 1, sizeof *f.readers), .count = n_paths };
    target *list = make_targets(sets, n_sets, &count);
    ls_status status = list && f.readers ? LS_OK : ls__fail(LS_ENOMEM, "%s: out of memory", name);
    for (size_t i = 0; !status && i < n_paths; i++) status = ls__st_open(&f.readers[i], paths[i]);
    for (size_t i = 0; !status && i < n_paths; i++)
        for (size_t k = 0; !status && k < ls__st_count(f.readers[i]); k++)
            status = read_tensor(paths[i], &f, ls__st_get(f.readers[i], k), list, count, names);
    if (!status) status = find_missing(name, list, count, names);
    for (size_t i = 0; f.readers && i < n_paths; i++) ls__st_free(&f.readers[i]);
    free(f.readers);
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
    int64_t *counters = calloc(count + 1, sizeof *counters);
    ls_status status = LS_OK;
    if (!tensors || !shapes || !counters) {
        status = ls__fail(LS_ENOMEM, "%s: out of memory", path);
        goto done;
    }
    for (size_t i = 0; i < count; i++) {
        bool counter = !list[i].place->dims;
        sizes_of(list[i].place, shapes[i]);
        if (counter) counters[i] = (int64_t)list[i].data[0];
        tensors[i] = (ls__st_tensor){ .name = list[i].place->name,
                                      .type = counter ? LS__ST_I64 : LS__ST_F32,
                                      .rank = (size_t)list[i].place->dims,
                                      .shape = shapes[i],
                                      .data = counter ? (const void *)&counters[i] : list[i].data };
    }
    status = ls__st_write(path, tensors, count, NULL, 0);
done:
    free(counters);
    free(shapes);
    free(tensors);
    free(list);
    return status;
}
