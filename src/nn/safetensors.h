/* safetensors files: a JSON header with shapes and offsets, then the tensors' bytes.
 *
 * Opening reads the header and checks everything: sizes, types, and offsets, which must be contiguous and end with the file. The tensors
 * are read when they are asked for.
 * Files are replaced atomically. */
#ifndef LS_NN_SAFETENSORS_H
#define LS_NN_SAFETENSORS_H

#include "lockstep/base.h"

/* Element types of the format: name in the file, bytes of an element. */
#define LS__ST_TYPE_LIST(X)         \
    X(LS__ST_BOOL, "BOOL", 1)       \
    X(LS__ST_U8, "U8", 1)           \
    X(LS__ST_I8, "I8", 1)           \
    X(LS__ST_F8_E5M2, "F8_E5M2", 1) \
    X(LS__ST_F8_E4M3, "F8_E4M3", 1) \
    X(LS__ST_I16, "I16", 2)         \
    X(LS__ST_U16, "U16", 2)         \
    X(LS__ST_F16, "F16", 2)         \
    X(LS__ST_BF16, "BF16", 2)       \
    X(LS__ST_I32, "I32", 4)         \
    X(LS__ST_U32, "U32", 4)         \
    X(LS__ST_F32, "F32", 4)         \
    X(LS__ST_F64, "F64", 8)         \
    X(LS__ST_I64, "I64", 8)         \
    X(LS__ST_U64, "U64", 8)         \
    X(LS__ST_C64, "C64", 8)

typedef enum ls__st_type {
#define X(name, text, bytes) name,
    LS__ST_TYPE_LIST(X)
#undef X
} ls__st_type;

const char *ls__st_type_name(ls__st_type type);
size_t ls__st_type_size(ls__st_type type);

typedef struct ls__st_reader ls__st_reader;

/* One tensor of a file. Its pointers belong to the reader, or, when writing, to the caller. */
typedef struct ls__st_tensor {
    const char *name;
    ls__st_type type;
    size_t rank;
    const size_t *shape; /* [rank]; empty: a scalar; with a 0: an empty tensor */
    const void *data;    /* little-endian, not aligned; NULL: in the reader's file */
    size_t bytes;        /* product of the shape times the element's size; a writer computes it */
    size_t offset;       /* in the file, from the end of its header; when writing, unused, like the next */
    const ls__st_reader *reader;
} ls__st_tensor;

/* Opens and checks a file. A file that violates the format is LS_EFORMAT with the tensor's name. On failure *out
 * is NULL. */
LS_MUST_CHECK ls_status ls__st_open(ls__st_reader **out, const char *path);
/* The same for a file in memory, which must outlive the reader; `name` is its name in messages. */
LS_MUST_CHECK ls_status ls__st_parse(ls__st_reader **out, const char *name, const void *data, size_t bytes);
void ls__st_free(ls__st_reader **reader);

size_t ls__st_count(const ls__st_reader *reader);
/* In the order of the file. */
const ls__st_tensor *ls__st_get(const ls__st_reader *reader, size_t i);
/* NULL if there is no tensor of that name. */
const ls__st_tensor *ls__st_find(const ls__st_reader *reader, const char *name);
/* A value of the file's metadata; NULL if there is none. */
const char *ls__st_metadata(const ls__st_reader *reader, const char *key);

/* Copies `bytes` bytes from byte `from` of the tensor. LS_EFORMAT if the file was truncated since it was opened. */
LS_MUST_CHECK ls_status ls__st_read(const ls__st_tensor *tensor, size_t from, size_t bytes, void *out);
/* Copies elements [from, from + count) as float32. Types other than F32, F64, F16 and BF16 are LS_EUNSUPPORTED. */
LS_MUST_CHECK ls_status ls__st_to_f32(const ls__st_tensor *tensor, size_t from, size_t count, float *out);

/* "[2,3]", truncated with "..." if it does not fit; returns `out`. */
const char *ls__st_shape_text(size_t rank, const size_t *shape, char *out, size_t bytes);

/* Writes all tensors to `path`, in the order of the format's reference implementation (alignment descending, then name), with
 * metadata "format": "pt" and n_pairs more pairs of key and value. A duplicate name is LS_EINVAL. */
LS_MUST_CHECK ls_status ls__st_write(const char *path, const ls__st_tensor *tensors, size_t count,
                                     const char *const (*pairs)[2], size_t n_pairs);

#endif
