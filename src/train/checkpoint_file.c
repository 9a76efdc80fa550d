/* See checkpoint_file.h. */
#include "train/checkpoint_file.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/file.h"
#include "base/status.h"
#include "lockstep/train.h"

static const char MAGIC[] = "lockstep checkpoint 1\n";
enum {
    MAGIC_BYTES = sizeof MAGIC - 1,
    BEGIN = MAGIC_BYTES + 8, /* of the head */
    HASH_BYTES = 16,
    HEAD_LIMIT = 1 << 20,
    PART = 1 << 20, /* bytes hashed and read or written at a time, while they are in the cache */
};

/* ---- Writing. */

typedef struct sink {
    ls__file_writer *file;
    XXH3_state_t *hash;
} sink;

static ls_status put(sink *s, const void *data, size_t bytes)
{
    ls_status status = LS_OK;
    for (size_t at = 0; at < bytes && !status; at += PART) {
        size_t n = bytes - at < PART ? bytes - at : PART;
        XXH3_128bits_update(s->hash, (const char *)data + at, n);
        status = ls__file_writer_add(s->file, (const char *)data + at, n);
    }
    return status;
}

ls_status ls__checkpoint_file_write(const char *path, const char *head, const float *const *blocks, int n_blocks,
                                    size_t elements, const float *buffers, size_t n_buffers)
{
    sink s = { .hash = XXH3_createState() };
    uint64_t length = strlen(head);
    if (!s.hash) return ls__fail(LS_ENOMEM, "%s: out of memory", path);
    XXH3_128bits_reset(s.hash);
    ls_status status = ls__file_writer_open(&s.file, path);
    if (!status) status = put(&s, MAGIC, MAGIC_BYTES);
    if (!status) status = put(&s, &length, sizeof length);
    if (!status) status = put(&s, head, length);
    for (int i = 0; i < n_blocks && !status; i++) status = put(&s, blocks[i], elements * sizeof(float));
    if (!status && n_buffers) status = put(&s, buffers, n_buffers * sizeof(float));
    if (!status) {
        XXH128_hash_t hash = XXH3_128bits_digest(s.hash);
        uint64_t words[2] = { hash.low64, hash.high64 };
        status = ls__file_writer_add(s.file, words, sizeof words);
    }
    if (!status)
        status = ls__file_writer_commit(&s.file);
    else
        ls__file_writer_cancel(&s.file);
    XXH3_freeState(s.hash);
    return status;
}

/* ---- Reading. */

static ls_status read_at(const ls__checkpoint_file *f, void *to, size_t bytes, size_t at)
{
    return ls__file_read_at(f->fd, f->path, to, bytes, at);
}

/* `length` bytes of JSON. */
static ls_status read_head(ls__checkpoint_file *f, size_t length)
{
    json_error_t error;
    json_int_t step, epoch, data_step, data_print, elements, buffers = 0;
    char *text = malloc(length + 1);
    if (!text) return ls__fail(LS_ENOMEM, "%s: out of memory", f->path);
    ls_status status = read_at(f, text, length, BEGIN);
    if (!status && !(f->head = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error)))
        status = ls__fail(LS_EFORMAT, "%s: header is not valid JSON: %s", f->path, error.text);
    free(text);
    if (status) return status;
    if (json_unpack(f->head, "{s:I, s:I, s:I, s:I, s:I, s:i, s?I}", "step", &step, "epoch", &epoch, "data_step",
                    &data_step, "data_print", &data_print, "elements", &elements, "blocks", &f->n_blocks, "buffers",
                    &buffers) ||
        step < 0 || epoch < 0 || data_step < 0 || elements < 0 || f->n_blocks < 1 ||
        f->n_blocks > LS__CHECKPOINT_BLOCKS || buffers < 0 || buffers > elements)
        return ls__fail(LS_EFORMAT, "%s: header has missing or invalid numbers", f->path);
    f->step = step;
    f->elements = (size_t)elements;
    f->buffers = (size_t)buffers;
    f->data =
        (ls_loader_state){ .epoch = (uint64_t)epoch, .step = (uint64_t)data_step, .fingerprint = (uint64_t)data_print };
    size_t bytes, left = f->bytes - HASH_BYTES - BEGIN - length;
    if (__builtin_mul_overflow(f->elements, sizeof(float) * (size_t)f->n_blocks, &bytes) ||
        __builtin_add_overflow(bytes, f->buffers * sizeof(float), &bytes) || bytes != left)
        return ls__fail(LS_EFORMAT, "%s: has %zu bytes of data; the header expects %zu times %d", f->path, left,
                        f->elements, f->n_blocks);
    return LS_OK;
}

ls_status ls__checkpoint_file_open(ls__checkpoint_file *f, const char *path)
{
    char begin[BEGIN];
    uint64_t length = 0;
    *f = (ls__checkpoint_file){ .path = path, .fd = -1 };
    ls_status status = ls__file_open(path, &f->fd, &f->bytes);
    if (status) return status;
    if (f->bytes < BEGIN + HASH_BYTES)
        status = ls__fail(LS_EFORMAT, "%s: not a checkpoint: it has %zu bytes", path, f->bytes);
    if (!status) status = read_at(f, begin, sizeof begin, 0);
    if (!status && memcmp(begin, MAGIC, MAGIC_BYTES) != 0)
        status = ls__fail(LS_EFORMAT, "%s: not a checkpoint of this version", path);
    if (!status) {
        memcpy(&length, begin + MAGIC_BYTES, sizeof length);
        if (length > HEAD_LIMIT || length > f->bytes - HASH_BYTES - BEGIN)
            status = ls__fail(LS_EFORMAT, "%s: the header length of %llu bytes exceeds the file", path,
                              (unsigned long long)length);
    }
    if (!status) status = read_head(f, (size_t)length);
    if (status) ls__checkpoint_file_close(f);
    return status;
}

/* Reads and hashes [begin, end) of the file; to `to`, or only through `part`. */
static ls_status read_range(const ls__checkpoint_file *f, XXH3_state_t *hash, size_t begin, size_t end, void *to,
                            char *part)
{
    ls_status status = LS_OK;
    for (size_t at = begin; at < end && !status; at += PART) {
        size_t n = end - at < PART ? end - at : PART;
        char *here = to ? (char *)to + (at - begin) : part;
        status = read_at(f, here, n, at);
        if (!status) XXH3_128bits_update(hash, here, n);
    }
    return status;
}

ls_status ls__checkpoint_file_read(const ls__checkpoint_file *f, float *const *blocks, float *buffers)
{
    char *part = malloc(PART);
    XXH3_state_t *hash = XXH3_createState();
    uint64_t words[2];
    size_t block = f->elements * sizeof(float), end = f->bytes - HASH_BYTES, rest = f->buffers * sizeof(float);
    size_t at = end - rest - (size_t)f->n_blocks * block;
    ls_status status = part && hash ? LS_OK : ls__fail(LS_ENOMEM, "%s: out of memory", f->path);
    if (!status) {
        XXH3_128bits_reset(hash);
        status = read_range(f, hash, 0, at, NULL, part);
    }
    for (int i = 0; i < f->n_blocks && !status; i++, at += block)
        status = read_range(f, hash, at, at + block, blocks ? blocks[i] : NULL, part);
    if (!status) status = read_range(f, hash, at, end, buffers, part);
    if (!status) status = read_at(f, words, sizeof words, end);
    if (!status) {
        XXH128_hash_t found = XXH3_128bits_digest(hash);
        if (found.low64 != words[0] || found.high64 != words[1])
            status = ls__fail(LS_EFORMAT, "%s: the contents do not match the checksum", f->path);
    }
    XXH3_freeState(hash);
    free(part);
    return status;
}

void ls__checkpoint_file_close(ls__checkpoint_file *f)
{
    json_decref(f->head);
    if (f->fd >= 0) close(f->fd);
    *f = (ls__checkpoint_file){ .fd = -1 };
}

ls_status ls_checkpoint_verify(const char *path, ls_checkpoint_info *info)
{
    LS__NEED(path, "path");
    LS__NEED(info, "info");
    ls__checkpoint_file f;
    *info = (ls_checkpoint_info){ 0 };
    ls_status status = ls__checkpoint_file_open(&f, path);
    if (status) return status;
    status = ls__checkpoint_file_read(&f, NULL, NULL);
    if (!status) *info = (ls_checkpoint_info){ .step = f.step, .elements = f.elements, .bytes = f.bytes };
    ls__checkpoint_file_close(&f);
    return status;
}

/* ---- The folder. */

char *ls__checkpoint_path(const char *folder, int64_t step)
{
    char *path;
    return asprintf(&path, "%s/step-%09lld.ckpt", folder, (long long)step) < 0 ? NULL : path;
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Whether a name is exactly that of a step's file. */
static bool is_name(const char *name, int64_t *step)
{
    char again[64];
    if (sscanf(name, "step-%" SCNd64, step) != 1 || *step < 1) return false;
    snprintf(again, sizeof again, "step-%09lld.ckpt", (long long)*step);
    return !strcmp(name, again);
}

ls_status ls__checkpoint_list(const char *folder, int64_t **steps, size_t *count)
{
    size_t room = 0;
    ls_status status = LS_OK;
    *steps = NULL;
    *count = 0;
    DIR *d = opendir(folder);
    if (!d) return errno == ENOENT ? LS_OK : ls__fail_errno("cannot read %s", folder);
    for (const struct dirent *e; (e = readdir(d));) {
        int64_t step;
        if (!is_name(e->d_name, &step)) continue;
        if (*count == room) {
            room = room ? 2 * room : 64;
            int64_t *more = realloc(*steps, room * sizeof *more);
            if (!more) {
                status = ls__fail(LS_ENOMEM, "%s: out of memory", folder);
                break;
            }
            *steps = more;
        }
        (*steps)[(*count)++] = step;
    }
    closedir(d);
    if (status) {
        free(*steps);
        *steps = NULL;
        *count = 0;
    } else if (*count) {
        qsort(*steps, *count, sizeof **steps, newest_first);
    }
    return status;
}
