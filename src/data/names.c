/* Names of data files. See names.h.
 *
 * Subfolders are not searched: they often contain another part of a dataset (train, validation), and mixing those by accident is worse
 * than having to name them. For the same reason a folder with files of both kinds is refused. */
#include "data/names.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include "base/status.h"
#include "base/text.h"
#include "data/format.h"
#include "data/shard_set.h"

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool ends_with(const char *name, size_t length, const char *end)
{
    size_t n = strlen(end);
    return length > n && !strncasecmp(name + length - n, end, n);
}

/* Length of a name without .gz, .zst or .zstd at its end. */
static size_t unpacked_length(const char *name)
{
    static const char *const ends[] = { ".gz", ".zst", ".zstd" };
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, n, ends[i])) return n - strlen(ends[i]);
    return n;
}

ls__suffix ls__suffix_of(const char *path)
{
    const char *name = base_of(path);
    size_t n = unpacked_length(name);
    ls__suffix out = { .is_json = ends_with(name, n, ".json"), .compressed = n < strlen(name) };
    for (int i = 0; i < LS_FORMAT_COUNT; i++) {
        const char *const *suffixes = ls__format_of((ls_data_format)i)->suffixes;
        for (int k = 0; k < LS__MAX_SUFFIXES && suffixes[k]; k++)
            if (ends_with(name, n, suffixes[k])) out.format = (ls_data_format)i;
    }
    return out;
}

static ls_status add_name(ls__names *list, const char *name)
{
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 16;
        char **items = realloc(list->items, room * sizeof *items);
        if (!items) return ls__fail(LS_ENOMEM, "%s: no memory for the list of files", name);
        list->items = items;
        list->room = room;
    }
    list->items[list->count] = strdup(name);
    if (!list->items[list->count]) return ls__fail(LS_ENOMEM, "%s: no memory for the list of files", name);
    list->count++;
    return LS_OK;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* ---- Folders. */

/* Whether one of the words of a name (runs of letters) is among `words`. */
static bool has_word(const char *path, const char *const *words)
{
    for (const char *p = base_of(path); *p;) {
        size_t n = 0;
        while (isalpha((unsigned char)p[n])) n++;
        for (int i = 0; n && words[i]; i++)
            if (strlen(words[i]) == n && !strncasecmp(p, words[i], n)) return true;
        p += n ? n : 1;
    }
    return false;
}

/* The first of the names with one of these words; NULL: there is none. */
static const char *first_with(const ls__names *list, size_t from, const char *const *words)
{
    for (size_t i = from; i < list->count; i++)
        if (has_word(list->items[i], words)) return list->items[i];
    return NULL;
}

static ls_status check_parts(const ls__names *list, size_t from, const char *folder)
{
    static const char *const train[] = { "train", "training", NULL };
    static const char *const other[] = { "val", "valid", "validation", "test", "dev", "eval", NULL };
    const char *one = first_with(list, from, train), *two = first_with(list, from, other);
    if (!one || !two) return LS_OK;
    return ls__fail(LS_EINVAL,
                    "%s: has both training files (%s) and validation files (%s), which must not be mixed; give the "
                    "files, for example by a quoted glob",
                    folder, base_of(one), base_of(two));
}

static bool is_data(const char *name)
{
    ls__suffix s = ls__suffix_of(name);
    /* A .json next to the data usually describes them; compressed, it is data. Shards are not read compressed. */
    if (s.is_json) return s.compressed;
    return ls__format_of(s.format)->is_text || (s.format != LS_FORMAT_AUTO && !s.compressed);
}

static ls_status add_entry(ls__names *list, const char *folder, const char *name)
{
    struct stat st;
    char *path;
    if (*name == '.') return LS_OK;
    if (asprintf(&path, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", name) < 0)
        return ls__fail(LS_ENOMEM, "%s: no memory for the list of files", folder);
    ls_status status = LS_OK;
    bool is_folder = !stat(path, &st) && S_ISDIR(st.st_mode);
    if (is_data(name) && !is_folder) {
        status = add_name(list, path);
    } else if (!is_folder) {
        char *before = list->example;
        list->left_out++;
        list->example = path;
        path = before;
    }
    free(path);
    return status;
}

/* A folder without data files; `left_out` others were found before. */
static ls_status no_data(const ls__names *list, size_t left_out, const char *folder)
{
    char suffixes[200] = "";
    for (int i = 0; i < LS_FORMAT_COUNT; i++) {
        const ls__format *f = ls__format_of((ls_data_format)i);
        for (int k = 0; k < LS__MAX_SUFFIXES && f->suffixes[k]; k++) {
            size_t n = strlen(suffixes);
            const char *end = strcmp(f->suffixes[k], ".json") ? "" : ".gz"; /* see is_data() */
            snprintf(suffixes + n, sizeof suffixes - n, "%s%s%s", n ? ", " : "", f->suffixes[k], end);
        }
    }
    size_t others = list->left_out - left_out;
    if (!others)
        return ls__fail(LS_ENOENT, "%s: no data files in this folder: it has no files; subfolders are not searched",
                        folder);
    return ls__fail(
        LS_ENOENT,
        "%s: no data files in this folder: %zu file%s, like %s, %s no known suffix (%s; text also with .gz or "
        ".zst); subfolders are not searched",
        folder, others, ls__s((int64_t)others), base_of(list->example), others == 1 ? "has" : "have", suffixes);
}

static ls_status add_folder(ls__names *list, const char *folder)
{
    DIR *d = opendir(folder);
    if (!d) return ls__fail_errno("%s: cannot be listed", folder);
    size_t from = list->count, left_out = list->left_out;
    ls_status status = LS_OK;
    for (struct dirent *e; !status;) {
        errno = 0;
        e = readdir(d);
        if (!e && errno) status = ls__fail_errno("%s: cannot be listed", folder);
        if (!e) break;
        status = add_entry(list, folder, e->d_name);
    }
    closedir(d);
    if (status) return status;
    if (list->count == from) return no_data(list, left_out, folder);
    qsort(list->items + from, list->count - from, sizeof *list->items, by_bytes);
    return check_parts(list, from, folder);
}

/* ---- All. */

/* A name is a glob only if no file has it, so that "data[1].bin" can be read. glob() would sort by locale; we do not. */
static ls_status expand(ls__names *list, const char *path)
{
    struct stat st;
    if (!*path) return ls__fail(LS_EINVAL, "the name of a data file is empty");
    if (!stat(path, &st) && S_ISDIR(st.st_mode)) return add_folder(list, path);
    if (!strpbrk(path, "*?[") || lstat(path, &st) == 0) return add_name(list, path);
    glob_t found;
    int error = glob(path, GLOB_NOSORT, NULL, &found);
    if (error == GLOB_NOMATCH) return ls__fail(LS_ENOENT, "%s: no file matches", path);
    if (error == GLOB_NOSPACE) return ls__fail(LS_ENOMEM, "%s: no memory for the list of files", path);
    if (error) return ls__fail_errno("%s: cannot be searched", path);
    qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, by_bytes);
    ls_status status = LS_OK;
    for (size_t i = 0; !status && i < found.gl_pathc; i++) status = add_name(list, found.gl_pathv[i]);
    globfree(&found);
    return status;
}

/* Shards whose replacement was interrupted must not be read as they are. Most files of a list belong to one set. */
static ls_status complete_shards(const ls__names *list, bool *changed)
{
    ls_status status = LS_OK;
    const char *before = NULL;
    *changed = false;
    for (size_t i = 0; !status && !*changed && i < list->count; i++) {
        const char *name = list->items[i], *dash = strrchr(name, '-');
        size_t n = dash ? (size_t)(dash - name) + 1 : 0;
        if (n && (!before || strncmp(before, name, n) != 0 || strrchr(before, '-') != before + n - 1))
            status = ls__shard_set_complete(name, changed);
        before = n ? name : NULL;
    }
    return status;
}

ls_status ls__names_find(ls__names *out, const char *const *paths, size_t n_paths)
{
    enum { TRIES = 5 }; /* for shards that are replaced again and again */
    bool changed = true;
    *out = (ls__names){ 0 };
    ls_status status = n_paths ? LS_OK : ls__fail(LS_EINVAL, "no data files given");
    for (size_t k = 0; !status && k < n_paths; k++)
        if (!paths || !paths[k])
            status = ls__fail(LS_EINVAL, "path %zu of %zu is NULL; it must be the name of a data file", k, n_paths);
    for (int i = 0; !status && changed && i < TRIES; i++) {
        ls__names_free(out);
        for (size_t k = 0; !status && k < n_paths; k++) status = expand(out, paths[k]);
        if (!status) status = complete_shards(out, &changed);
    }
    if (status) ls__names_free(out);
    return status;
}

void ls__names_free(ls__names *names)
{
    for (size_t i = 0; i < names->count; i++) free(names->items[i]);
    free(names->items);
    free(names->example);
    *names = (ls__names){ 0 };
}
