/* See files.h. */
#include "import/files.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/status.h"

static ls_status add(ls__file_list *l, const char *path, bool named)
{
    char **more = reallocarray(l->path, l->count + 1, sizeof *more);
    if (more) l->path = more;
    bool *flags = reallocarray(l->named, l->count + 1, sizeof *flags);
    if (flags) l->named = flags;
    char *copy = more && flags ? strdup(path) : NULL;
    if (!copy) return ls__fail(LS_ENOMEM, "%s: out of memory", path);
    l->named[l->count] = named;
    l->path[l->count++] = copy;
    return LS_OK;
}

static bool ends_in(const char *name, const char *const *ends)
{
    size_t n = strlen(name);
    for (; *ends; ends++) {
        size_t k = strlen(*ends);
        if (n >= k && !strcmp(name + n - k, *ends)) return true;
    }
    return false;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strverscmp((*a)->d_name, (*b)->d_name);
}

static ls_status add_folder(ls__file_list *l, const char *folder, const char *const *ends)
{
    struct dirent **entries;
    ls_status status = LS_OK;
    int n = scandir(folder, &entries, NULL, by_name);
    if (n < 0) return ls__fail_errno("%s: cannot be read", folder);
    for (int i = 0; i < n; i++) {
        char *path = NULL;
        struct stat s;
        if (!status && *entries[i]->d_name != '.' && ends_in(entries[i]->d_name, ends)) {
            if (asprintf(&path, "%s/%s", folder, entries[i]->d_name) < 0)
                status = ls__fail(LS_ENOMEM, "%s: out of memory", folder);
            else if (!stat(path, &s) && S_ISREG(s.st_mode))
                status = add(l, path, false);
        }
        free(path);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static ls_status no_files(const char *folder, const char *const *ends)
{
    char list[64] = "";
    size_t n = 0;
    for (size_t i = 0; ends[i] && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", ends[i]);
    return *list ? ls__fail(LS_ENOENT, "%s: this folder has no file whose name ends in one of: %s", folder, list)
                 : ls__fail(LS_ENOENT, "%s: this folder has no files", folder);
}

ls_status ls__files_find(ls__file_list *out, const char *const *names, size_t count, const char *const *ends)
{
    ls_status status = LS_OK;
    *out = (ls__file_list){ 0 };
    bool input = false;
    for (size_t i = 0; i < count && !status; i++) {
        struct stat s;
        size_t before = out->count;
        if (!names || !names[i]) {
            status =
                ls__fail(LS_EINVAL, "file %zu of %zu is NULL; it must be the name of a file or a folder", i, count);
            break;
        }
        bool twice = input && !strcmp(names[i], "-");
        input = input || !strcmp(names[i], "-");
        if (twice)
            status = ls__fail(LS_EINVAL, "-: standard input can be read once");
        else if (strcmp(names[i], "-") && stat(names[i], &s))
            status = ls__fail_errno("%s: cannot be opened", names[i]);
        else if (!strcmp(names[i], "-") || !S_ISDIR(s.st_mode))
            status = add(out, names[i], true);
        else if (!(status = add_folder(out, names[i], ends)) && out->count == before)
            status = no_files(names[i], ends);
    }
    if (!status && !out->count) status = ls__fail(LS_EINVAL, "no file was given");
    if (status) ls__files_free(out);
    return status;
}

void ls__files_free(ls__file_list *l)
{
    for (size_t i = 0; i < l->count; i++) free(l->path[i]);
    free(l->path);
    free(l->named);
    *l = (ls__file_list){ 0 };
}

/* The number after `word`, perhaps with a separator between. */
static int behind(const char *name, const char *word)
{
    int found = -1;
    for (const char *p = name; (p = strcasestr(p, word)); p++) {
        const char *q = p + strlen(word);
        if (*q == '-' || *q == '_' || *q == '=') q++;
        bool begins = p == name || !isalnum((unsigned char)p[-1]) || strlen(word) > 1;
        if (begins && isdigit((unsigned char)*q) && strspn(q, "0123456789") < 6) found = atoi(q);
    }
    return found;
}

int ls__files_rank(const char *path, size_t files)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int rank = behind(name, "rank");
    if (rank < 0) rank = behind(name, "r");
    if (rank < 0) { /* a number at the name's end, before the suffix of the format */
        size_t n = strcspn(name, ".");
        size_t first = n;
        while (first && isdigit((unsigned char)name[first - 1])) first--;
        if (first < n && n - first < 6 && first && (name[first - 1] == '_' || name[first - 1] == '-'))
            rank = atoi(name + first);
        if (rank >= 0 && (size_t)rank >= 16 + 4 * files)
            rank = -1; /* "host_12345.json": a process rather than a rank */
    }
    return rank;
}
