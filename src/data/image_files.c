/* Files of many pictures: the binary versions of CIFAR-10 and CIFAR-100, and MNIST's idx.
 *
 * CIFAR: records of one or two labels (coarse, fine; the last one is used) and 3 planes of 32 x 32 bytes, without a header.
 * idx: a magic number whose last byte is the number of dimensions, the dimensions as 32-bit big-endian numbers, the bytes.
 * Labels are in a file of their own, in the same format with one dimension. */
#include "data/images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "base/text.h"
#include "data/unpack.h"

enum { CIFAR_SIZE = 32, CIFAR_PLANE = CIFAR_SIZE * CIFAR_SIZE, CIFAR_BYTES = 3 * CIFAR_PLANE };
enum { IDX_U8 = 8, IDX_MOST_SIDE = 4096 };

/* starts[] from the number of pictures of each file, which `count` finds. */
static ls_status count_all(ls__images *m, ls_status (*count)(ls__images *m, size_t file, uint64_t *pictures))
{
    m->starts = calloc(m->sources.count + 1, sizeof *m->starts);
    if (!m->starts) return ls__fail(LS_ENOMEM, "no memory for a list of %zu files", m->sources.count);
    for (size_t i = 0; i < m->sources.count; i++) {
        uint64_t pictures = 0;
        ls_status status = count(m, i, &pictures);
        if (status) return status;
        m->starts[i + 1] = m->starts[i] + pictures;
    }
    m->dataset.count = m->starts[m->sources.count];
    return LS_OK;
}

/* ---- CIFAR */

static size_t cifar_labels(const ls__images *m)
{
    return m->table == &ls__images_cifar100 ? 2 : 1;
}

static ls_status count_cifar(ls__images *m, size_t file, uint64_t *pictures)
{
    const ls__source *f = &m->sources.files[file];
    size_t record = CIFAR_BYTES + cifar_labels(m);
    *pictures = f->bytes / record;
    if (f->bytes % record == 0) return LS_OK;
    return ls__fail(LS_EFORMAT,
                    "%s: byte %llu: the file ends inside a picture: its %llu bytes are not a multiple of the %zu of a "
                    "record of %s (binary version)",
                    f->path, (unsigned long long)f->bytes, (unsigned long long)f->bytes, record, m->table->name);
}

static ls_status open_cifar(ls__images *m, const ls_images_options *o)
{
    ls_status status = ls__sources_open(&m->sources, o->paths, o->n_paths);
    if (status) return status;
    ls__sources_warn(&m->sources);
    m->info.height = m->info.width = CIFAR_SIZE;
    m->info.channels = 3;
    m->info.classes = cifar_labels(m) == 2 ? 100 : 10;
    return count_all(m, count_cifar);
}

static ls_status get_cifar(const ls__images *m, uint64_t sample, uint8_t *pixels, int32_t *label)
{
    uint8_t record[CIFAR_BYTES + 2];
    uint64_t number;
    const ls__source *f = &m->sources.files[ls__images_file_of(m, sample, &number)];
    size_t labels = cifar_labels(m), bytes = CIFAR_BYTES + labels;
    ls_status status = ls__source_read(f, record, bytes, number * bytes);
    if (status) return status;
    *label = record[labels - 1];
    if (*label >= m->info.classes)
        return ls__fail(LS_EFORMAT, "%s: picture %llu (byte %llu): label %d; %s has labels from 0 to %d", f->path,
                        (unsigned long long)number, (unsigned long long)(number * bytes + labels - 1), *label,
                        m->table->name, m->info.classes - 1);
    const uint8_t *planes = record + labels;
    for (size_t i = 0; i < CIFAR_PLANE; i++)
        for (size_t c = 0; c < 3; c++) pixels[3 * i + c] = planes[c * CIFAR_PLANE + i];
    return LS_OK;
}

/* By its size: records of 3,073 or 3,074 bytes; a folder, by a name in it that everybody has. */
static bool detect_cifar(const char *path, size_t record, const char *member)
{
    struct stat st;
    char *inside = NULL;
    bool found = !stat(path, &st) && S_ISREG(st.st_mode) && st.st_size > 0 && (size_t)st.st_size % record == 0;
    if (!found && ls__image_is_folder(path) && asprintf(&inside, "%s/%s", path, member) >= 0)
        found = ls__image_is_file(inside);
    free(inside);
    return found;
}

static bool detect_cifar10(const char *path)
{
    return detect_cifar(path, CIFAR_BYTES + 1, "data_batch_1.bin");
}

static bool detect_cifar100(const char *path)
{
    return detect_cifar(path, CIFAR_BYTES + 2, "train.bin");
}

const ls__image_table ls__images_cifar10 = {
    .name = "cifar10", .detect = detect_cifar10, .open = open_cifar, .get = get_cifar
};
const ls__image_table ls__images_cifar100 = {
    .name = "cifar100", .detect = detect_cifar100, .open = open_cifar, .get = get_cifar
};

/* ---- idx */

static uint32_t big_endian(const uint8_t *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* The dimensions of an idx file of bytes, and that it has as many bytes as they say. */
static ls_status idx_header(const ls__source *f, uint32_t *shape, int dims)
{
    uint8_t head[16];
    size_t bytes = 4 + 4 * (size_t)dims;
    if (f->bytes < bytes)
        return ls__fail(LS_EFORMAT, "%s: byte %llu: the file ends inside its idx header of %zu bytes", f->path,
                        (unsigned long long)f->bytes, bytes);
    ls_status status = ls__source_read(f, head, bytes, 0);
    if (status) return status;
    if (head[0] || head[1] || head[2] != IDX_U8 || head[3] != dims)
        return ls__fail(LS_EFORMAT,
                        "%s: byte 0: begins with %02x %02x %02x %02x; an idx file of bytes with %d dimension%s (%s) "
                        "begins with 00 00 08 %02x",
                        f->path, head[0], head[1], head[2], head[3], dims, ls__s(dims), dims == 1 ? "labels" : "images",
                        (unsigned)dims);
    uint64_t size = 1;
    for (int i = 0; i < dims; i++) {
        shape[i] = big_endian(head + 4 + 4 * i);
        if (__builtin_mul_overflow(size, (uint64_t)shape[i], &size)) size = UINT64_MAX / 2;
    }
    if (size > UINT64_MAX / 2 || f->bytes - bytes != size)
        return ls__fail(LS_EFORMAT, "%s: byte 4: the header says %llu elements, the file has %llu", f->path,
                        (unsigned long long)size, (unsigned long long)(f->bytes - bytes));
    return LS_OK;
}

static ls_status count_idx(ls__images *m, size_t file, uint64_t *pictures)
{
    const ls__source *f = &m->sources.files[file];
    uint32_t shape[3] = { 0 };
    ls_status status = idx_header(f, shape, 3);
    if (status) return status;
    if (!shape[0] || !shape[1] || !shape[2] || shape[1] > IDX_MOST_SIDE || shape[2] > IDX_MOST_SIDE)
        return ls__fail(LS_EFORMAT, "%s: byte 4: %u images of %u x %u; each must be from 1 x 1 to %d x %d", f->path,
                        shape[0], shape[1], shape[2], IDX_MOST_SIDE, IDX_MOST_SIDE);
    if (file && (shape[1] != (uint32_t)m->info.height || shape[2] != (uint32_t)m->info.width))
        return ls__fail(LS_EFORMAT, "%s: byte 8: images of %u x %u, but those of %s are %d x %d", f->path, shape[1],
                        shape[2], m->sources.files[0].path, m->info.height, m->info.width);
    m->info.height = (int)shape[1];
    m->info.width = (int)shape[2];
    m->info.channels = 1;
    *pictures = shape[0];
    return LS_OK;
}

/* "train-images-idx3-ubyte" -> "train-labels-idx1-ubyte", in the last part of the path. */
static char *labels_path(const char *path)
{
    char *out = strdup(path), *name = out ? strrchr(out, '/') : NULL;
    name = name ? name + 1 : out;
    char *images = name ? strstr(name, "images") : NULL, *idx = name ? strstr(name, "idx3") : NULL;
    if (images) memcpy(images, "labels", 6);
    if (idx) memcpy(idx, "idx1", 4);
    if (out && !images) {
        ls__fail(LS_EINVAL,
                 "%s: the name of a file of images must contain 'images', for which that of its labels has 'labels'",
                 path);
        free(out);
        out = NULL;
    }
    return out;
}

static ls_status mark_packed(ls__sources *sources)
{
    bool any = false;
    for (size_t i = 0; i < sources->count; i++) {
        uint8_t head[2];
        ls__source *f = &sources->files[i];
        ls_status status = f->bytes < sizeof head ? LS_OK : ls__source_read(f, head, sizeof head, 0);
        if (status) return status;
        if (f->bytes >= sizeof head && head[0] == 0x1f && head[1] == 0x8b) f->packing = LS__PACKED_GZIP, any = true;
    }
    return any ? ls__sources_unpack(sources) : LS_OK;
}

static ls_status read_labels(ls__images *m, size_t file, int classes)
{
    uint64_t count = m->starts[file + 1] - m->starts[file];
    uint8_t *labels = m->labels + m->starts[file];
    char *path = labels_path(m->sources.files[file].path);
    if (!path) return LS_EINVAL;
    ls__sources list = { .unpacked_fd = -1 };
    ls_status status = ls__sources_open(&list, (const char *const *)&path, 1);
    uint32_t said = 0;
    if (!status) status = mark_packed(&list);
    if (!status) status = idx_header(&list.files[0], &said, 1);
    if (!status && said != count)
        status = ls__fail(LS_EFORMAT, "%s: byte 4: %u labels, but %s has %llu images", path, said,
                          m->sources.files[file].path, (unsigned long long)count);
    if (!status) status = ls__source_read(&list.files[0], labels, count, 8);
    for (uint64_t i = 0; i < count && !status; i++) {
        if (classes && labels[i] >= classes)
            status = ls__fail(LS_EFORMAT, "%s: byte %llu: label %d of image %llu; there are only %d classes", path,
                              (unsigned long long)(8 + i), labels[i], (unsigned long long)i, classes);
        if (labels[i] >= m->info.classes) m->info.classes = labels[i] + 1;
    }
    ls__sources_close(&list);
    free(path);
    return status;
}

static ls_status open_idx(ls__images *m, const ls_images_options *o)
{
    ls_status status = ls__sources_open(&m->sources, o->paths, o->n_paths);
    if (!status) status = mark_packed(&m->sources);
    if (!status) status = count_all(m, count_idx);
    if (status) return status;
    m->header = 16;
    m->labels = malloc(m->dataset.count);
    if (!m->labels) return ls__fail(LS_ENOMEM, "no memory for %llu labels", (unsigned long long)m->dataset.count);
    for (size_t i = 0; i < m->sources.count && !status; i++) status = read_labels(m, i, o->classes);
    return status;
}

static ls_status get_idx(const ls__images *m, uint64_t sample, uint8_t *pixels, int32_t *label)
{
    uint64_t number;
    const ls__source *f = &m->sources.files[ls__images_file_of(m, sample, &number)];
    size_t bytes = (size_t)m->info.height * (size_t)m->info.width;
    *label = m->labels[sample];
    return ls__source_read(f, pixels, bytes, m->header + number * bytes);
}

static bool detect_idx(const char *path)
{
    uint8_t head[4] = { 0 };
    const char *name = strrchr(path, '/');
    int fd;
    size_t bytes;
    if (!ls__image_is_file(path) || ls__file_open(path, &fd, &bytes)) return false;
    bool read = bytes >= sizeof head && !ls__file_read_at(fd, path, head, sizeof head, 0);
    close(fd);
    if (!read) return false;
    if (head[0] == 0x1f && head[1] == 0x8b) return strstr(name ? name : path, "images") != NULL;
    return !head[0] && !head[1] && head[2] == IDX_U8 && head[3] == 3;
}

const ls__image_table ls__images_idx = { .name = "idx", .detect = detect_idx, .open = open_idx, .get = get_idx };
