/* Folders of pictures: a folder for each class, with PNG and JPEG files in it. Classes are numbered in the order of their names,
 * pictures by class and name; both by bytes. Files are read and decoded when they are asked for. */
#include "data/images.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"

enum { DEFAULT_SIZE = 256, MOST_CLASSES = 1 << 20 };
static const size_t MOST_BYTES = (size_t)256 << 20; /* of a file */

static bool is_picture(const char *name)
{
    static const char *const suffixes[] = { ".png", ".jpg", ".jpeg" };
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof suffixes / sizeof *suffixes; i++)
        if (strcasecmp(dot, suffixes[i]) == 0) return true;
    return false;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names in a folder that `keep` wants, sorted; names that begin with a dot never. *others counts the rest. */
static ls_status list_folder(const char *path, bool (*keep)(const char *folder, const char *name), char ***out,
                             size_t *count, size_t *others)
{
    size_t room = 0;
    ls_status status = LS_OK;
    *out = NULL;
    *count = 0;
    DIR *dir = opendir(path);
    if (!dir) return ls__fail(LS_EIO, "%s: cannot be opened as a folder: %s", path, strerror(errno));
    for (struct dirent *e; !status && (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        if (!keep(path, e->d_name)) {
            ++*others;
            continue;
        }
        if (*count == room) {
            room = room ? 2 * room : 64;
            char **more = realloc(*out, room * sizeof **out);
            if (more) *out = more;
            if (!more) status = ls__fail(LS_ENOMEM, "%s: no memory for its list of files", path);
        }
        if (!status && !((*out)[*count] = strdup(e->d_name)))
            status = ls__fail(LS_ENOMEM, "%s: no memory for its list of files", path);
        if (!status) ++*count;
    }
    closedir(dir);
    if (*count) qsort(*out, *count, sizeof **out, by_bytes);
    return status;
}

static bool keep_folder(const char *folder, const char *name)
{
    char *path = NULL;
    bool keep = asprintf(&path, "%s/%s", folder, name) >= 0 && ls__image_is_folder(path);
    free(path);
    return keep;
}

static bool keep_picture(const char *folder, const char *name)
{
    (void)folder;
    return is_picture(name);
}

static void free_names(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++) free(names[i]);
    free(names);
}

/* Adds the pictures of one class. */
static ls_status add_class(ls__images *m, const char *root, size_t class, size_t *others)
{
    char *folder = NULL, **names = NULL;
    size_t count = 0;
    if (asprintf(&folder, "%s/%s", root, m->names[class]) < 0) return ls__fail(LS_ENOMEM, "%s: out of memory", root);
    ls_status status = list_folder(folder, keep_picture, &names, &count, others);
    if (!status && !count)
        status = ls__fail(LS_EFORMAT, "%s: the class has no PNG or JPEG files (.png, .jpg, .jpeg)", folder);
    if (!status) {
        char **files = realloc(m->files, (m->n_files + count) * sizeof *files);
        if (files) m->files = files;
        int32_t *labels = realloc(m->file_labels, (m->n_files + count) * sizeof *labels);
        if (labels) m->file_labels = labels;
        if (!files || !labels) status = ls__fail(LS_ENOMEM, "%s: no memory for its list of files", folder);
    }
    for (size_t i = 0; i < count && !status; i++) {
        if (asprintf(&m->files[m->n_files], "%s/%s", folder, names[i]) < 0) {
            status = ls__fail(LS_ENOMEM, "%s: out of memory", folder);
            break;
        }
        m->file_labels[m->n_files++] = (int32_t) class;
    }
    free_names(names, count);
    free(folder);
    return status;
}

static ls_status open_folder(ls__images *m, const ls_images_options *o)
{
    const char *root = o->paths[0];
    size_t others = 0;
    if (o->n_paths != 1)
        return ls__fail(LS_EINVAL, "%s: pictures in folders are given as one folder, not %zu", root, o->n_paths);
    ls_status status = list_folder(root, keep_folder, &m->names, &m->n_names, &others);
    if (!status && (!m->n_names || m->n_names > MOST_CLASSES))
        status = ls__fail(LS_EFORMAT, "%s: has %zu folders; there must be one for each class, with its pictures", root,
                          m->n_names);
    for (size_t i = 0; i < m->n_names && !status; i++) status = add_class(m, root, i, &others);
    if (status) return status;
    if (others)
        ls__log(LS_LOG_WARNING, "%s: %zu file%s that are not .png, .jpg or .jpeg are not used", root, others,
                ls__s((int64_t)others));
    m->info.height = m->info.width = o->size ? o->size : DEFAULT_SIZE;
    m->info.channels = 3;
    m->info.classes = (int)m->n_names;
    m->dataset.count = m->n_files;
    return LS_OK;
}

static ls_status get_picture(const ls__images *m, uint64_t sample, uint8_t *pixels, int32_t *label)
{
    const char *path = m->files[sample];
    char *data;
    size_t bytes;
    ls__picture picture = { 0 };
    ls_status status = ls__file_read(path, MOST_BYTES, &data, &bytes);
    if (status) return status;
    status = ls__picture_decode(path, (const uint8_t *)data, bytes, m->info.height, &picture);
    if (!status) status = ls__picture_fit(&picture, m->info.height, pixels);
    free(picture.pixels);
    free(data);
    *label = m->file_labels[sample];
    return status;
}

/* A folder that has folders. */
static bool detect_folder(const char *path)
{
    char **names = NULL;
    size_t count = 0, others = 0;
    if (!ls__image_is_folder(path)) return false;
    bool found = !list_folder(path, keep_folder, &names, &count, &others) && count > 0;
    free_names(names, count);
    return found;
}

const ls__image_table ls__images_folder = {
    .name = "folder", .detect = detect_folder, .open = open_folder, .get = get_picture
};
