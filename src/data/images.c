/* Datasets of pictures: choosing the format, and what all formats share. */
#include "data/images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/status.h"
#include "data/datasets.h"

static const ls__image_table ls__images_auto = { .name = "auto" };
#define X(name, value, text) [name] = &ls__images_##text,
static const ls__image_table *const tables[LS_IMAGE_FORMAT_COUNT] = { LS_IMAGE_FORMAT_LIST(X) };
#undef X

bool ls__image_is_file(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode);
}

bool ls__image_is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

void ls__images_free(void *self)
{
    ls__images *m = self;
    if (!m) return;
    ls__sources_close(&m->sources);
    for (size_t i = 0; i < m->n_files; i++) free(m->files[i]);
    for (size_t i = 0; i < m->n_names; i++) free(m->names[i]);
    free(m->files);
    free(m->file_labels);
    free(m->names);
    free(m->starts);
    free(m->labels);
    free(m);
}

size_t ls__images_file_of(const ls__images *m, uint64_t sample, uint64_t *number)
{
    size_t low = 0, high = m->sources.count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (m->starts[middle] <= sample)
            low = middle;
        else
            high = middle;
    }
    *number = sample - m->starts[low];
    return low;
}

static ls_status images_get(void *self, void *worker, uint64_t sample, ls_row *row)
{
    const ls__images *m = self;
    int32_t *label = row->fields[LS_FIELD_LABELS];
    ls_status status = ls__sample_check(&m->dataset, worker, sample);
    if (!status) status = m->table->get(m, sample, row->fields[LS_FIELD_PIXELS], label);
    row->tokens = row->length = 1;
    return status;
}

static ls_status images_redirect(void *self, size_t file, const char *path)
{
    ls__images *m = self;
    if (file >= m->sources.count)
        return ls__fail(LS_EINVAL, "file %zu is out of range; there are %zu", file, m->sources.count);
    return ls__source_redirect(&m->sources.files[file], path);
}

static ls_status choose(const ls_images_options *o, ls_image_format *format)
{
    *format = o->format;
    if ((int)o->format < 0 || (int)o->format >= LS_IMAGE_FORMAT_COUNT)
        return ls__fail(LS_EINVAL, "unknown image format %d", (int)o->format);
    if (!o->n_paths && (*format == LS_IMAGES_AUTO || *format == LS_IMAGES_BUILT_IN)) {
        *format = LS_IMAGES_BUILT_IN;
        return LS_OK;
    }
    if (!o->n_paths) return ls__fail(LS_EINVAL, "images in format %s need files", tables[*format]->name);
    for (size_t i = 0; i < o->n_paths; i++)
        if (!o->paths || !o->paths[i])
            return ls__fail(LS_EINVAL, "path %zu of %zu is NULL; it must be the name of a data file", i, o->n_paths);
    if (*format == LS_IMAGES_BUILT_IN) return ls__fail(LS_EINVAL, "%s: the built-in images need no files", o->paths[0]);
    for (int i = 0; i < LS_IMAGE_FORMAT_COUNT && *format == LS_IMAGES_AUTO; i++)
        if (tables[i]->detect && tables[i]->detect(o->paths[0])) *format = (ls_image_format)i;
    if (*format != LS_IMAGES_AUTO) return LS_OK;
    return ls__fail(
        LS_EFORMAT,
        "%s: not recognized as images; known are files of CIFAR-10 and CIFAR-100 (binary version), files in "
        "MNIST's idx format, and a folder that has a folder of PNG or JPEG files for each class",
        o->paths[0]);
}

ls_status ls_images_open(ls_dataset **out, const ls_images_options *options)
{
    LS__NEED(out, "out");
    ls_images_options o = options ? *options : (ls_images_options){ 0 };
    *out = NULL;
    ls_image_format format;
    ls_status status = choose(&o, &format);
    if (status) return status;
    if (o.size < 0 || o.size > 4096 || o.classes < 0)
        return ls__fail(LS_EINVAL, "size=%d, classes=%d: size must be from 1 to 4096, classes at least 1", o.size,
                        o.classes);
    ls__images *m = calloc(1, sizeof *m);
    if (!m) return ls__fail(LS_ENOMEM, "images: out of memory");
    m->sources.unpacked_fd = -1;
    m->table = tables[format];
    m->info.format = format;
    status = m->table->open(m, &o);
    if (!status && o.classes && m->info.classes > o.classes)
        status = ls__fail(LS_EINVAL, "%s: the images have %d classes, the model only %d",
                          o.n_paths ? o.paths[0] : "built-in images", m->info.classes, o.classes);
    if (status) {
        ls__images_free(m);
        return status;
    }
    m->info.names = (const char *const *)m->names;
    size_t pixels = (size_t)m->info.height * (size_t)m->info.width * (size_t)m->info.channels;
    m->dataset.n_fields = 2;
    m->dataset.fields[LS_FIELD_PIXELS] = (ls_field){ "pixels", LS_U8, pixels };
    m->dataset.fields[LS_FIELD_LABELS] = (ls_field){ "labels", LS_I32, 1 };
    m->dataset.self = m;
    m->dataset.get = images_get;
    if (m->sources.count && m->sources.unpacked_fd < 0) m->dataset.redirect = images_redirect;
    m->dataset.free = ls__images_free;
    *out = &m->dataset;
    return LS_OK;
}

ls_images_info ls_images_get_info(const ls_dataset *images)
{
    const ls__images *m = images->self;
    return m->info;
}
