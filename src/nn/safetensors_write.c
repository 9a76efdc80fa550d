/* Writing safetensors, in the order of the format's reference implementation: tensors with large elements first, so that all are
 * aligned, then by name; the header is padded with spaces to a multiple of 8. */
#include "nn/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/status.h"

static int by_width_then_name(const void *pa, const void *pb)
{
    const ls__st_tensor *a = pa, *b = pb;
    size_t wa = ls__st_type_size(a->type), wb = ls__st_type_size(b->type);
    if (wa != wb) return wa > wb ? -1 : 1;
    return strcmp(a->name, b->name);
}

static ls_status count_bytes(const char *path, ls__st_tensor *t)
{
    t->bytes = ls__st_type_size(t->type);
    for (size_t i = 0; i < t->rank; i++)
        if (__builtin_mul_overflow(t->bytes, t->shape[i], &t->bytes))
            return ls__fail(LS_EINVAL, "%s: tensor '%s': the product of its shape overflows", path, t->name);
    return LS_OK;
}

/* {"dtype":...,"shape":[...],"data_offsets":[...]}; NULL if memory runs out. */
static json_t *make_entry(const ls__st_tensor *t, size_t begin)
{
    json_t *shape = json_array();
    for (size_t i = 0; shape && i < t->rank; i++) json_array_append_new(shape, json_integer((json_int_t)t->shape[i]));
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", ls__st_type_name(t->type), "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + t->bytes));
}

static ls_status make_header(const char *path, ls__st_tensor *tensors, size_t count, const char *const (*pairs)[2],
                             size_t n_pairs, char **out)
{
    ls_status status = LS_OK;
    json_t *header = json_object(), *metadata = json_pack("{s:s}", "format", "pt");
    int bad = json_object_set_new(header, "__metadata__", metadata);
    for (size_t i = 0; i < n_pairs; i++) bad |= json_object_set_new(metadata, pairs[i][0], json_string(pairs[i][1]));
    size_t at = 0;
    for (size_t i = 0; i < count && !bad; i++) {
        if (json_object_get(header, tensors[i].name)) {
            status = ls__fail(LS_EINVAL, "%s: two tensors have the name '%s'", path, tensors[i].name);
            goto done;
        }
        if ((status = count_bytes(path, &tensors[i]))) goto done;
        bad |= json_object_set_new(header, tensors[i].name, make_entry(&tensors[i], at));
        at += tensors[i].bytes;
    }
    *out = bad ? NULL : json_dumps(header, JSON_COMPACT | JSON_PRESERVE_ORDER);
    if (!*out)
        status = ls__fail(LS_EINVAL, "%s: cannot create the header: a name is not UTF-8, or memory ran out", path);
done:
    json_decref(header);
    return status;
}

static ls_status write_parts(const char *path, const char *header, const ls__st_tensor *tensors, size_t count)
{
    size_t length = strlen(header), padded = (length + 7) / 8 * 8;
    uint8_t prefix[8];
    for (int i = 0; i < 8; i++) prefix[i] = (uint8_t)((uint64_t)padded >> (8 * i));
    ls__file_writer *w;
    ls_status status = ls__file_writer_open(&w, path);
    if (status) return status;
    status = ls__file_writer_add(w, prefix, 8);
    if (!status) status = ls__file_writer_add(w, header, length);
    if (!status) status = ls__file_writer_add(w, "        ", padded - length);
    for (size_t i = 0; i < count && !status; i++) status = ls__file_writer_add(w, tensors[i].data, tensors[i].bytes);
    if (status) {
        ls__file_writer_cancel(&w);
        return status;
    }
    return ls__file_writer_commit(&w);
}

ls_status ls__st_write(const char *path, const ls__st_tensor *tensors, size_t count, const char *const (*pairs)[2],
                       size_t n_pairs)
{
    char *header = NULL;
    ls__st_tensor *sorted = malloc((count + 1) * sizeof *sorted);
    if (!sorted) return ls__fail(LS_ENOMEM, "%s: out of memory", path);
    if (count) memcpy(sorted, tensors, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, by_width_then_name);
    ls_status status = make_header(path, sorted, count, pairs, n_pairs, &header);
    if (!status) status = write_parts(path, header, sorted, count);
    free(header);
    free(sorted);
    return status;
}
