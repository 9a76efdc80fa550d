/* Reading safetensors. jansson parses the header and rejects duplicate keys and invalid UTF-8; the tensors stay in the file. All
 * checks are made when the file is opened: the bytes of every tensor are inside the file and as many as its shape requires. */
#include "nn/safetensors.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"

enum { MAX_HEADER = 100000000 }; /* limit of the format */

struct ls__st_reader {
    int fd;         /* -1 if the bytes are user-owned */
    size_t begin;   /* of the tensors in the file */
    char *name;     /* file name in messages */
    json_t *header; /* owns the tensors' names */
    size_t count;
    ls__st_tensor *tensors; /* [count], by offset */
    size_t *shapes;         /* all shapes, concatenated */
};

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
#define X(name, text, bytes) [name] = { text, bytes },
    LS__ST_TYPE_LIST(X)
#undef X
};
enum { TYPES = sizeof types / sizeof *types };

const char *ls__st_type_name(ls__st_type type)
{
    return types[type].name;
}

size_t ls__st_type_size(ls__st_type type)
{
    return types[type].bytes;
}

const char *ls__st_shape_text(size_t rank, const size_t *shape, char *out, size_t bytes)
{
    size_t used = 0;
    used += (size_t)snprintf(out, bytes, "[");
    for (size_t i = 0; i < rank && used < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%zu", i ? "," : "", shape[i]);
    if (used < bytes) used += (size_t)snprintf(out + used, bytes - used, "]");
    if (used >= bytes && bytes > 4) memcpy(out + bytes - 4, "...", 4);
    return out;
}

/* A JSON integer >= 0 as a size. */
static int get_size(const json_t *value, size_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) return 0;
    *out = (size_t)json_integer_value(value);
    return 1;
}

static ls_status read_type(const ls__st_reader *r, const char *name, const json_t *value, ls__st_type *out)
{
    if (!json_is_string(value))
        return ls__fail(LS_EFORMAT, "%s: tensor '%.100s': 'dtype' is missing or not a string", r->name, name);
    for (int i = 0; i < TYPES; i++) {
        if (strcmp(json_string_value(value), types[i].name) == 0) {
            *out = (ls__st_type)i;
            return LS_OK;
        }
    }
    return ls__fail(LS_EFORMAT, "%s: tensor '%.100s': unknown dtype '%.40s'", r->name, name, json_string_value(value));
}

/* One entry of the header. `shape` receives its shape. `buffer` is NULL if the tensors are in a file. */
static ls_status read_tensor(ls__st_reader *r, const char *name, const json_t *entry, size_t buffer_bytes,
                             const uint8_t *buffer, size_t *shape, ls__st_tensor *out)
{
    const json_t *dims = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
    *out = (ls__st_tensor){ .name = name, .rank = json_array_size(dims), .shape = shape, .reader = r };
    ls_status status = read_type(r, name, json_object_get(entry, "dtype"), &out->type);
    if (status) return status;
    if (!json_is_array(dims))
        return ls__fail(LS_EFORMAT, "%s: tensor '%.100s': 'shape' is missing or not a list", r->name, name);
    size_t bytes = types[out->type].bytes, begin, end;
    int overflow = 0;
    for (size_t i = 0; i < out->rank; i++) {
        if (!get_size(json_array_get(dims, i), &shape[i]))
            return ls__fail(LS_EFORMAT, "%s: tensor '%.100s': dimension %zu of its shape is not an integer >= 0",
                            r->name, name, i);
        overflow |= __builtin_mul_overflow(bytes, shape[i], &bytes);
    }
    if (overflow) return ls__fail(LS_EFORMAT, "%s: tensor '%.100s': the product of its shape overflows", r->name, name);
    if (json_array_size(offsets) != 2 || !get_size(json_array_get(offsets, 0), &begin) ||
        !get_size(json_array_get(offsets, 1), &end))
        return ls__fail(LS_EFORMAT, "%s: tensor '%.100s': 'data_offsets' is missing or not two integers >= 0", r->name,
                        name);
    if (begin > end || end > buffer_bytes)
        return ls__fail(LS_EFORMAT, "%s: tensor '%.100s': bytes %zu to %zu are outside of the file's %zu bytes of data",
                        r->name, name, begin, end, buffer_bytes);
    if (end - begin != bytes) {
        char text[100];
        return ls__fail(LS_EFORMAT, "%s: tensor '%.100s': %s %s needs %zu bytes, but its offsets span %zu", r->name,
                        name, types[out->type].name, ls__st_shape_text(out->rank, shape, text, sizeof text), bytes,
                        end - begin);
    }
    out->data = buffer ? buffer + begin : NULL;
    out->offset = begin;
    out->bytes = bytes;
    return LS_OK;
}

static int by_place(const void *pa, const void *pb)
{
    const ls__st_tensor *a = pa, *b = pb;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

static ls_status read_metadata(const ls__st_reader *r, json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata)) return ls__fail(LS_EFORMAT, "%s: '__metadata__' is not an object", r->name);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return ls__fail(LS_EFORMAT, "%s: '__metadata__' key '%.100s' has a value that is not a string", r->name,
                            key);
    }
    return LS_OK;
}

/* Tensors must not overlap, and together they must fill the buffer. */
static ls_status check_layout(const ls__st_reader *r, size_t buffer_bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < r->count; i++) {
        const ls__st_tensor *t = &r->tensors[i];
        if (t->offset != at)
            return ls__fail(LS_EFORMAT, "%s: tensor '%.100s' begins at byte %zu where %zu was expected: %s", r->name,
                            t->name, t->offset, at, t->offset < at ? "tensors overlap" : "there is a gap");
        at += t->bytes;
    }
    if (at != buffer_bytes)
        return ls__fail(LS_EFORMAT, "%s: the tensors end at byte %zu, but the file has %zu bytes of data", r->name, at,
                        buffer_bytes);
    return LS_OK;
}

static ls_status read_header(ls__st_reader *r, const uint8_t *buffer, size_t buffer_bytes)
{
    const char *key;
    json_t *value;
    size_t dims = 0;
    json_object_foreach(r->header, key, value)
    {
        dims += json_array_size(json_object_get(value, "shape"));
    }
    r->tensors = calloc(json_object_size(r->header) + 1, sizeof *r->tensors);
    r->shapes = calloc(dims + 1, sizeof *r->shapes);
    if (!r->tensors || !r->shapes) return ls__fail(LS_ENOMEM, "%s: out of memory for its header", r->name);
    size_t *shape = r->shapes;
    json_object_foreach(r->header, key, value)
    {
        ls_status status = LS_OK;
        if (strcmp(key, "__metadata__") == 0) {
            status = read_metadata(r, value);
        } else if (!json_is_object(value)) {
            status = ls__fail(LS_EFORMAT, "%s: tensor '%.100s': its entry is not an object", r->name, key);
        } else {
            ls__st_tensor *t = &r->tensors[r->count++];
            status = read_tensor(r, key, value, buffer_bytes, buffer, shape, t);
            shape += t->rank;
        }
        if (status) return status;
    }
    qsort(r->tensors, r->count, sizeof *r->tensors, by_place);
    return check_layout(r, buffer_bytes);
}

/* The length of the header, from the first 8 of the file's `bytes` bytes. */
static ls_status header_length(const ls__st_reader *r, const uint8_t *data, size_t bytes, size_t *out)
{
    uint64_t length = 0;
    if (bytes < 8)
        return ls__fail(LS_EFORMAT,
                        "%s: %zu bytes are too few for a safetensors file; it is truncated, or another kind of file",
                        r->name, bytes);
    for (int i = 0; i < 8; i++) length |= (uint64_t)data[i] << (8 * i);
    if (length > MAX_HEADER)
        return ls__fail(LS_EFORMAT,
                        "%s: has a header of %llu bytes, but the format allows at most %d; is it a "
                        "safetensors file?",
                        r->name, (unsigned long long)length, (int)MAX_HEADER);
    if (length > bytes - 8)
        return ls__fail(LS_EFORMAT, "%s: has a header of %llu bytes, but only %zu follow; the file is truncated",
                        r->name, (unsigned long long)length, bytes - 8);
    *out = (size_t)length;
    return LS_OK;
}

/* `text`: the header. `buffer`: what follows it; NULL if that is in the file. */
static ls_status parse(ls__st_reader *r, const char *text, size_t length, const uint8_t *buffer, size_t buffer_bytes)
{
    json_error_t error;
    if (length == 0 || *text != '{')
        return ls__fail(LS_EFORMAT, "%s: the header does not begin with '{'; is it a safetensors file?", r->name);
    r->header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!r->header) return ls__fail(LS_EFORMAT, "%s: header, byte %d: %s", r->name, error.position, error.text);
    return read_header(r, buffer, buffer_bytes);
}

static ls_status make(ls__st_reader **out, const char *name)
{
    *out = calloc(1, sizeof **out);
    if (*out) (*out)->fd = -1;
    if (*out) (*out)->name = strdup(name);
    if (*out && (*out)->name) return LS_OK;
    ls__st_free(out);
    return ls__fail(LS_ENOMEM, "%s: out of memory", name);
}

ls_status ls__st_parse(ls__st_reader **out, const char *name, const void *data, size_t bytes)
{
    const uint8_t *text = data;
    size_t length = 0;
    ls_status status = make(out, name);
    if (!status) status = header_length(*out, text, bytes, &length);
    if (!status) status = parse(*out, (const char *)text + 8, length, text + 8 + length, bytes - 8 - length);
    if (status) ls__st_free(out);
    return status;
}

static ls_status open_file(ls__st_reader *r)
{
    uint8_t begin[8];
    size_t bytes = 0, length = 0;
    ls_status status = ls__file_open(r->name, &r->fd, &bytes);
    if (!status) status = ls__file_read_at(r->fd, r->name, begin, bytes < 8 ? bytes : 8, 0);
    if (!status) status = header_length(r, begin, bytes, &length);
    if (status) return status;
    char *text = malloc(length + 1);
    if (!text) return ls__fail(LS_ENOMEM, "%s: out of memory for its header", r->name);
    r->begin = 8 + length;
    status = ls__file_read_at(r->fd, r->name, text, length, 8);
    if (!status) status = parse(r, text, length, NULL, bytes - r->begin);
    free(text);
    return status;
}

ls_status ls__st_open(ls__st_reader **out, const char *path)
{
    ls_status status = make(out, path);
    if (!status) status = open_file(*out);
    if (status) ls__st_free(out);
    return status;
}

void ls__st_free(ls__st_reader **reader)
{
    ls__st_reader *r = *reader;
    if (!r) return;
    free(r->shapes);
    free(r->tensors);
    json_decref(r->header);
    if (r->fd >= 0) close(r->fd);
    free(r->name);
    free(r);
    *reader = NULL;
}

size_t ls__st_count(const ls__st_reader *reader)
{
    return reader->count;
}

const ls__st_tensor *ls__st_get(const ls__st_reader *reader, size_t i)
{
    return &reader->tensors[i];
}

const ls__st_tensor *ls__st_find(const ls__st_reader *reader, const char *name)
{
    for (size_t i = 0; i < reader->count; i++)
        if (strcmp(reader->tensors[i].name, name) == 0) return &reader->tensors[i];
    return NULL;
}

const char *ls__st_metadata(const ls__st_reader *reader, const char *key)
{
    return json_string_value(json_object_get(json_object_get(reader->header, "__metadata__"), key));
}

/* Half precision: 1 bit sign, 5 exponent, 10 fraction. */
static float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 0x3ff, bits;
    float value;
    if (exponent == 0) { /* zero, or subnormal: fraction * 2^-24, which is exact in float32 */
        value = (float)fraction * 0x1p-24f;
        memcpy(&bits, &value, 4);
        bits |= sign;
    } else {
        bits = sign | (exponent == 31 ? 0x7f800000 : (exponent + 112) << 23) | fraction << 13;
    }
    memcpy(&value, &bits, 4);
    return value;
}

ls_status ls__st_read(const ls__st_tensor *t, size_t from, size_t bytes, void *out)
{
    if (t->data || !bytes) {
        if (bytes) memcpy(out, (const uint8_t *)t->data + from, bytes);
        return LS_OK;
    }
    const ls__st_reader *r = t->reader;
    return ls__file_read_at(r->fd, r->name, out, bytes, r->begin + t->offset + from);
}

/* `count` elements of a type that is converted. */
static void convert(ls__st_type type, const uint8_t *in, size_t count, float *out)
{
    if (type == LS__ST_BF16) {
        for (size_t i = 0; i < count; i++) {
            uint32_t bits = (uint32_t)in[2 * i] << 16 | (uint32_t)in[2 * i + 1] << 24;
            memcpy(&out[i], &bits, 4);
        }
    } else if (type == LS__ST_F16) {
        for (size_t i = 0; i < count; i++) out[i] = f16_to_f32((uint16_t)(in[2 * i] | in[2 * i + 1] << 8));
    } else {
        for (size_t i = 0; i < count; i++) {
            double value;
            memcpy(&value, in + 8 * i, 8);
            out[i] = (float)value;
        }
    }
}

ls_status ls__st_to_f32(const ls__st_tensor *t, size_t from, size_t count, float *out)
{
    enum { PART = 1 << 13 }; /* bytes that are converted at a time */
    uint8_t part[PART];
    size_t size = ls__st_type_size(t->type), most = PART / size;
    if (t->type == LS__ST_F32) return ls__st_read(t, from * 4, count * 4, out);
    if (t->type != LS__ST_BF16 && t->type != LS__ST_F16 && t->type != LS__ST_F64)
        return ls__fail(LS_EUNSUPPORTED,
                        "tensor '%.100s': %s cannot be converted to float32; F32, F64, F16 and BF16 can", t->name,
                        types[t->type].name);
    for (size_t done = 0, n; done < count; done += n) {
        n = count - done < most ? count - done : most;
        ls_status status = ls__st_read(t, (from + done) * size, n * size, part);
        if (status) return status;
        convert(t->type, part, n, out + done);
    }
    return LS_OK;
}
