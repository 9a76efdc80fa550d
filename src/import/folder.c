/* See folder.h.
 *
 * An import into a new or an empty folder is written there. One that replaces an earlier import is written to a folder beside it, and the
 * two are exchanged when it is complete: until then, and if it fails or is killed, the earlier one is there as it was. */
#include "import/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"

#define TEMPORARY ".import.json.tmp-" /* what ls__file_write() leaves of it when it is killed */

typedef enum earlier { NONE, INTERRUPTED, COMPLETE } earlier;

/* Whether import.json is an import's, and not another program's file of that name. */
static earlier earlier_import(const char *folder)
{
    char *path, *text = NULL;
    size_t bytes;
    if (asprintf(&path, "%s/import.json", folder) < 0) return NONE;
    json_t *root = ls__file_read(path, (size_t)1 << 30, &text, &bytes) ? NULL : json_loadb(text, bytes, 0, NULL);
    earlier found = !json_is_array(json_object_get(root, "notes")) ? NONE
                    : json_object_get(root, "source")              ? COMPLETE
                                                                   : INTERRUPTED;
    json_decref(root);
    free(text);
    free(path);
    return found;
}

/* Removes the files of rank-* in the folder OUT/NAME. */
static void clear(const char *out, const char *name, const char *contains)
{
    char *path;
    if (asprintf(&path, "%s/%s", out, name) < 0) return;
    ls__file_remove(path, "rank-", contains);
    ls__file_remove(path, ".rank-", ".tmp-");
    free(path);
}

/* Removes what is in it of a run. */
static void clear_run(const char *out)
{
    clear(out, "events", ".bin");
    clear(out, "profile", ".json");
    ls__file_remove(out, TEMPORARY, "");
}

/* And what marks it as an import. */
static void undo(const char *out)
{
    static const char *const names[] = { "import.json", "events", "profile" };
    char *path;
    clear_run(out);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (asprintf(&path, "%s/%s", out, names[i]) < 0) continue;
        if (i)
            rmdir(path); /* what is not empty stays */
        else
            unlink(path);
        free(path);
    }
}

/* Makes the folder, without what an import that was interrupted left. */
static ls_status make(const char *out)
{
    /* What an import leaves that is interrupted can be imported over, and its report says what it is. */
    static const char begun[] = "{\"notes\": [\"this import was interrupted; import the files again\"]}\n";
    char *path = NULL;
    ls_status status = ls__file_make_own_dir(out);
    if (!status && asprintf(&path, "%s/import.json", out) < 0) {
        path = NULL;
        status = ls__fail(LS_ENOMEM, "%s: out of memory", out);
    }
    if (!status) status = ls__file_write(path, begun, strlen(begun));
    free(path);
    if (!status) clear_run(out);
    return status;
}

/* ---- Replacing an earlier import. */

/* The place of the last name in a path that realpath() made. */
static size_t last_name(const char *path)
{
    return (size_t)(strrchr(path, '/') - path) + 1;
}

/* Whether a new folder can take the place of this one. Found out before anything is read. */
static ls_status check_replaceable(const char *out)
{
    static const char *const names[] = { "events", "profile" };
    struct stat own, other;
    char *real = realpath(out, NULL), *path;
    ls_status status = real ? ls__file_check_own_dir(out) : ls__fail_errno("%s: cannot be resolved", out);
    for (size_t i = 0; i < sizeof names / sizeof *names && !status; i++) {
        if (asprintf(&path, "%s/%s", out, names[i]) < 0) {
            status = ls__fail(LS_ENOMEM, "%s: out of memory", out);
            break;
        }
        if (!lstat(path, &other) && !S_ISDIR(other.st_mode))
            status = ls__fail(LS_EINVAL, "%s: is not a folder of an import; choose another run folder", path);
        free(path);
    }
    if (!status && !stat(".", &other) && !stat(real, &own) && own.st_ino == other.st_ino && own.st_dev == other.st_dev)
        status =
            ls__fail(LS_EINVAL,
                     "%s: is the current folder, and the earlier import in it is replaced together with it; import "
                     "from another folder",
                     out);
    if (!status) {
        real[last_name(real)] = 0;
        bool mounted = !stat(out, &own) && !stat(real, &other) && own.st_dev != other.st_dev;
        if (mounted || access(real, W_OK | X_OK))
            status =
                ls__fail(LS_EINVAL,
                         "%s: holds an earlier import, and a new one cannot take its place, since %s; choose another "
                         "folder, or remove that import first",
                         out, mounted ? "it is a mount point" : "the folder that it is in is not writable");
    }
    free(real);
    return status;
}

ls_status ls__folder_check(const char *out)
{
    struct stat s;
    if (!out || !*out) return ls__fail(LS_EINVAL, "no run folder given");
    if (stat(out, &s)) return LS_OK;
    if (!S_ISDIR(s.st_mode)) return ls__fail(LS_EINVAL, "%s: is a file; give the name of a run folder", out);
    earlier import = earlier_import(out);
    if (import) return import == COMPLETE ? check_replaceable(out) : LS_OK;
    DIR *d = opendir(out);
    bool empty = true;
    if (!d) return ls__fail_errno("%s: cannot be read", out);
    for (const struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strncmp(e->d_name, TEMPORARY, strlen(TEMPORARY)))
            empty = false;
    closedir(d);
    return empty ? LS_OK
                 : ls__fail(LS_EINVAL, "%s: exists and was not written by an import; choose another folder", out);
}

/* Moves what is not an import's from a folder to another. What is there by that name already stays where it is. */
static void move_others(const char *from, const char *to, const char *sub, const char *end)
{
    char *source = NULL, *target = NULL, *a, *b;
    if (asprintf(&source, "%s%s", from, sub) < 0) source = NULL;
    if (asprintf(&target, "%s%s", to, sub) < 0) target = NULL;
    DIR *d = source && target ? opendir(source) : NULL;
    for (const struct dirent *e; d && (e = readdir(d));) {
        const char *n = e->d_name;
        bool own = !strcmp(n, ".") || !strcmp(n, "..") || !strcmp(n, "import.json") || !strcmp(n, "events") ||
                   !strcmp(n, "profile") || !strncmp(n, TEMPORARY, strlen(TEMPORARY));
        if (*sub)
            own = (*n == '.' && (!n[1] || strstr(n, LS__FILE_TEMPORARY) || !strcmp(n, ".."))) ||
                  (!strncmp(n, "rank-", 5) && strstr(n, end));
        if (own || asprintf(&a, "%s/%s", source, n) < 0) continue;
        if (asprintf(&b, "%s/%s", target, n) >= 0) {
            if (*sub) mkdir(target, 0777); /* it is there mostly */
            renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_NOREPLACE);
            free(b);
        }
        free(a);
    }
    if (d) closedir(d);
    free(source);
    free(target);
}

/* Removes an import that another one has replaced, or that was killed before it could replace one. */
static void remove_old(const char *old, const char *out)
{
    move_others(old, out, "", "");
    move_others(old, out, "/events", ".bin");
    move_others(old, out, "/profile", ".json");
    undo(old);
    rmdir(old); /* what is not empty stays */
}

/* What imports that were killed left beside `real`. Those at work hold a lock. */
static void remove_leftovers(const char *real)
{
    enum { RANDOM = 6 }; /* letters of mkdtemp() */
    size_t name = last_name(real);
    char *begin = NULL, *folder = strndup(real, name), *path;
    struct stat s;
    if (asprintf(&begin, ".%s.import-", real + name) < 0) begin = NULL;
    DIR *d = begin && folder ? opendir(folder) : NULL;
    for (const struct dirent *e; d && (e = readdir(d));) {
        size_t n = strlen(begin);
        if (strncmp(e->d_name, begin, n) || strlen(e->d_name) != n + RANDOM) continue;
        int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && !fstat(fd, &s) && s.st_uid == geteuid() && !flock(fd, LOCK_EX | LOCK_NB) &&
            asprintf(&path, "%s%s", folder, e->d_name) >= 0) {
            remove_old(path, real);
            free(path);
        }
        if (fd >= 0) close(fd);
    }
    if (d) closedir(d);
    free(begin);
    free(folder);
}

/* A folder beside `real` to write to, locked. */
static ls_status make_beside(ls__folder *f)
{
    size_t name = last_name(f->real);
    struct stat s;
    if (asprintf(&f->at, "%.*s.%s.import-XXXXXX", (int)name, f->real, f->real + name) < 0) {
        f->at = NULL;
        return ls__fail(LS_ENOMEM, "%s: out of memory", f->real);
    }
    remove_leftovers(f->real);
    if (!mkdtemp(f->at)) {
        ls_status status = ls__fail_errno("%s: a new import cannot be written beside it", f->real);
        free(f->at);
        f->at = NULL;
        return status;
    }
    f->lock = open(f->at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->lock >= 0) flock(f->lock, LOCK_EX | LOCK_NB);
    if (!stat(f->real, &s) && chmod(f->at, s.st_mode & 0777)) return ls__fail_errno("%s: cannot be changed", f->at);
    return LS_OK;
}

ls_status ls__folder_begin(ls__folder *f, const char *out)
{
    *f = (ls__folder){ .lock = -1 };
    bool replaces = earlier_import(out) == COMPLETE;
    ls_status status = replaces ? check_replaceable(out) : make(out);
    f->made = !replaces && !status;
    if (!status && !(f->real = realpath(out, NULL))) status = ls__fail_errno("%s: cannot be resolved", out);
    if (!status && replaces) {
        status = make_beside(f);
    } else if (!status) {
        remove_leftovers(f->real);
        if (!(f->at = strdup(out))) status = ls__fail(LS_ENOMEM, "%s: out of memory", out);
    }
    if (status) ls__folder_end(f, status);
    return status;
}

/* Event files are not synced while they are written. */
static ls_status sync_events(const char *at)
{
    char *folder;
    ls_status status = LS_OK;
    if (asprintf(&folder, "%s/events", at) < 0) return ls__fail(LS_ENOMEM, "%s: out of memory", at);
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && !status && (e = readdir(d));) {
        int fd = *e->d_name == '.' ? -1 : openat(dirfd(d), e->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && fsync(fd)) status = ls__fail_errno("%s/%s: cannot be written", folder, e->d_name);
        if (fd >= 0) close(fd);
    }
    if (d) closedir(d);
    free(folder);
    return status;
}

ls_status ls__folder_end(ls__folder *f, ls_status status)
{
    bool beside = f->at && !f->made;
    if (!status && beside) status = sync_events(f->at);
    if (!status && beside && renameat2(AT_FDCWD, f->at, AT_FDCWD, f->real, RENAME_EXCHANGE))
        status = ls__fail_errno("%s: the earlier import there cannot be replaced; choose another folder", f->real);
    if (!status && beside) {
        remove_old(f->at, f->real);
    } else if (status && f->at) {
        undo(f->at);
        if (beside) rmdir(f->at);
    }
    if (f->lock >= 0) close(f->lock);
    free(f->at);
    free(f->real);
    *f = (ls__folder){ .lock = -1 };
    return status;
}

ls_status ls__folder_finish(const char *out, const char *source, const ls__remarks *remarks, json_t *content)
{
    char *path = NULL, *text = NULL;
    json_t *notes = json_array(),
           *root = json_pack("{s:s, s:s, s:o}", "lockstep", ls_version(), "source", source, "notes", notes);
    if (root && json_object_update(root, content)) {
        json_decref(root);
        root = NULL;
    }
    for (size_t i = 0; i < remarks->count && root; i++) json_array_append_new(notes, json_string(remarks->text[i]));
    if (remarks->left_out && root)
        json_array_append_new(notes, json_sprintf("%llu more notes omitted", (unsigned long long)remarks->left_out));
    if (root) text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    ls_status status = text && asprintf(&path, "%s/import.json", out) >= 0
                           ? ls__file_write(path, text, strlen(text))
                           : ls__fail(LS_ENOMEM, "%s: out of memory", out);
    json_decref(root);
    free(text);
    free(path);
    return status;
}
