/* Shards that are written together. Files in a folder can be renamed only one by one, so this has two stages:
 *
 *   .NAME.tmp-XXXXXX/00000.bin...   the shards are written here
 *   .NAME.shards/                   when all are complete the folder is renamed to this. From here on the new set is valid
 *   NAME-00000.bin...               old shards beyond the new ones are removed, the new ones moved into place, the folder removed
 *
 * A process that is killed before the folder is renamed leaves the old set and a folder that the next run removes; after that, the
 * next process that reads or writes the set completes the replacement. Shards are moved from the first to the last, so the highest
 * number that is still in the folder shows how many there are.
 *
 * The process that works on the folder holds an flock on it, which the kernel releases when the process dies. Only a folder
 * that belongs to this user, or to the owner of the folder that the shards are in, is trusted. */
#include "data/shard_set.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"

struct ls__shard_set {
    char *folder; /* that the shards are in */
    char *name;   /* what they begin with */
    int folder_fd;
    char *work; /* name of the folder that they are written to; NULL: there is none */
    int work_fd;
    bool replace;
};

/* Digits of a shard's number at `text`, at least 5, followed by ".bin": the number, or -1. */
static int64_t number_at(const char *text)
{
    char *end;
    if (strspn(text, "0123456789") < 5) return -1;
    long long number = strtoll(text, &end, 10);
    return strcmp(end, ".bin") || number < 0 ? -1 : number;
}

/* The number of a shard of that name, or -1. */
static int64_t shard_number(const char *file, const char *name)
{
    size_t n = strlen(name);
    return strncmp(file, name, n) || file[n] != '-' ? -1 : number_at(file + n + 1);
}

/* Calls `each` for the entries of a folder, until it fails. The folder's position is its descriptor's, so a new one is used. */
static ls_status for_entries(int fd, const char *folder, ls_status (*each)(void *user, int fd, const char *entry),
                             void *user)
{
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = own >= 0 ? fdopendir(own) : NULL;
    if (!d) {
        ls_status status = ls__fail_errno("%s: cannot be listed", folder);
        if (own >= 0) close(own);
        return status;
    }
    ls_status status = LS_OK;
    for (struct dirent *e; !status && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) status = each(user, fd, e->d_name);
    closedir(d);
    return status;
}

/* ---- Completing a set. */

typedef struct pending {
    const char *folder, *name;
    int64_t count; /* shards of the new set */
} pending;

static ls_status find_highest(void *user, int fd, const char *entry)
{
    (void)fd;
    pending *p = user;
    int64_t number = number_at(entry);
    if (number >= p->count) p->count = number + 1;
    return LS_OK;
}

static ls_status remove_beyond(void *user, int fd, const char *entry)
{
    const pending *p = user;
    int64_t number = shard_number(entry, p->name);
    if (number < p->count || !unlinkat(fd, entry, 0) || errno == ENOENT) return LS_OK;
    return ls__fail_errno("%s/%s: cannot remove this old shard", p->folder, entry);
}

static ls_status move_into_place(int folder_fd, int work_fd, const pending *p)
{
    for (int64_t i = 0; i < p->count; i++) {
        char from[32], *to;
        snprintf(from, sizeof from, "%05" PRId64 ".bin", i);
        if (asprintf(&to, "%s-%05" PRId64 ".bin", p->name, i) < 0) return ls__fail(LS_ENOMEM, "out of memory");
        ls_status status = LS_OK;
        /* One that is not there was moved before. */
        if (renameat(work_fd, from, folder_fd, to) && errno != ENOENT)
            status = ls__fail_errno("%s/%s: cannot move a new shard here", p->folder, to);
        free(to);
        if (status) return status;
    }
    return LS_OK;
}

static ls_status remove_entry(void *user, int fd, const char *entry)
{
    (void)user;
    unlinkat(fd, entry, 0); /* what cannot be removed stays, and so does its folder */
    return LS_OK;
}

/* Removes the folder open as `fd` with all that is in it; if another one has its name by now, only what is in it. */
static void remove_folder(int folder_fd, const char *name, int fd)
{
    if (for_entries(fd, name, remove_entry, NULL) == LS_OK) unlinkat(folder_fd, name, AT_REMOVEDIR);
}

/* The shards of a folder `committed` (open as work_fd, and locked) get their names. */
static ls_status complete(int folder_fd, const char *folder, const char *name, const char *committed, int work_fd)
{
    pending p = { .folder = folder, .name = name };
    ls_status status = for_entries(work_fd, committed, find_highest, &p);
    if (!status && p.count) status = for_entries(folder_fd, folder, remove_beyond, &p);
    if (!status) status = move_into_place(folder_fd, work_fd, &p);
    if (!status) {
        fsync(folder_fd); /* if this fails, a crash may leave work for the next run */
        remove_folder(folder_fd, committed, work_fd);
        return LS_OK;
    }
    return ls__fail_within(status, "replacing the shards %s/%s-*.bin is not complete", folder, name);
}

/* Whether a folder can be trusted. */
static bool is_ours(int folder_fd, int work_fd)
{
    struct stat folder, work;
    return !fstat(folder_fd, &folder) && !fstat(work_fd, &work) &&
           (work.st_uid == geteuid() || work.st_uid == folder.st_uid);
}

/* Waits for the lock of a folder, if the file system has locks. */
static void wait_for_lock(int fd)
{
    while (flock(fd, LOCK_EX) && errno == EINTR) {
    }
}

/* Completes what an interrupted run has committed, if there is such. */
static ls_status complete_pending(int folder_fd, const char *folder, const char *name, bool *changed)
{
    char *committed;
    struct stat named, opened;
    *changed = false;
    if (asprintf(&committed, ".%s.shards", name) < 0) return ls__fail(LS_ENOMEM, "out of memory");
    int fd = openat(folder_fd, committed, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    ls_status status = LS_OK;
    if (fd < 0 && errno == EACCES && !fstatat(folder_fd, committed, &named, AT_SYMLINK_NOFOLLOW) &&
        !fstat(folder_fd, &opened) && named.st_uid == opened.st_uid)
        status = ls__fail_errno("%s/%s: an interrupted replacement of these shards must be completed by their owner",
                                folder, name);
    if (fd >= 0 && is_ours(folder_fd, fd)) {
        *changed = true;
        wait_for_lock(fd);
        /* Another process may have completed it meanwhile. */
        if (!fstatat(folder_fd, committed, &named, AT_SYMLINK_NOFOLLOW) && !fstat(fd, &opened) &&
            named.st_ino == opened.st_ino && named.st_dev == opened.st_dev)
            status = complete(folder_fd, folder, name, committed, fd);
    }
    if (fd >= 0) close(fd);
    free(committed);
    return status;
}

/* ---- Writing a set. */

/* A folder of a process that was killed: its lock is free. */
static ls_status remove_leftover(void *user, int fd, const char *entry)
{
    const char *name = user;
    size_t n = strlen(name);
    if (entry[0] != '.' || strncmp(entry + 1, name, n) != 0 ||
        strncmp(entry + 1 + n, LS__FILE_TEMPORARY, strlen(LS__FILE_TEMPORARY)) != 0)
        return LS_OK;
    int work = openat(fd, entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (work < 0) return LS_OK;
    if (is_ours(fd, work) && !flock(work, LOCK_EX | LOCK_NB)) remove_folder(fd, entry, work);
    close(work);
    return LS_OK;
}

static ls_status refuse_old(void *user, int fd, const char *entry)
{
    (void)fd;
    const ls__shard_set *s = user;
    if (shard_number(entry, s->name) < 0) return LS_OK;
    return ls__fail(LS_EINVAL,
                    "%s/%s: already exists and would be read together with the new shards; remove or replace the old "
                    "ones, or use another output",
                    s->folder, entry);
}

static ls_status make_work(ls__shard_set *s)
{
    char *path;
    struct stat st;
    if (asprintf(&path, "%s/.%s" LS__FILE_TEMPORARY "XXXXXX", s->folder, s->name) < 0)
        return ls__fail(LS_ENOMEM, "out of memory");
    ls_status status = mkdtemp(path) ? LS_OK : ls__fail_errno("%s: cannot write shards here", s->folder);
    if (!status && !(s->work = strdup(strrchr(path, '/') + 1))) status = ls__fail(LS_ENOMEM, "out of memory");
    if (!status) s->work_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (!status && s->work_fd < 0) status = ls__fail_errno("%s: cannot be opened", path);
    if (!status) wait_for_lock(s->work_fd);
    if (!status && (fstat(s->work_fd, &st) || !st.st_nlink))
        status = ls__fail(LS_EIO, "%s: another process that writes the same shards removed it; start again", path);
    free(path);
    return status;
}

ls_status ls__shard_set_open(ls__shard_set **out, const char *output, bool replace)
{
    *out = NULL;
    ls__shard_set *s = calloc(1, sizeof *s);
    if (!s) return ls__fail(LS_ENOMEM, "no memory for a set of shards");
    const char *slash = strrchr(output, '/');
    bool changed;
    s->folder_fd = s->work_fd = -1;
    s->replace = replace;
    s->folder = !slash ? strdup(".") : slash == output ? strdup("/") : strndup(output, (size_t)(slash - output));
    s->name = strdup(slash ? slash + 1 : output);
    ls_status status =
        s->folder && s->name ? ls__file_make_dir(s->folder) : ls__fail(LS_ENOMEM, "no memory for a name");
    if (!status) s->folder_fd = open(s->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!status && s->folder_fd < 0) status = ls__fail_errno("%s: cannot be opened", s->folder);
    if (!status) status = complete_pending(s->folder_fd, s->folder, s->name, &changed);
    if (!status && !replace) status = for_entries(s->folder_fd, s->folder, refuse_old, s);
    if (!status) status = for_entries(s->folder_fd, s->folder, remove_leftover, s->name);
    if (!status) status = make_work(s);
    if (status)
        ls__shard_set_cancel(&s);
    else
        *out = s;
    return status;
}

char *ls__shard_set_path(const ls__shard_set *s, uint64_t number)
{
    char *path;
    return asprintf(&path, "%s/%s/%05" PRIu64 ".bin", s->folder, s->work, number) < 0 ? NULL : path;
}

ls_status ls__shard_set_commit(ls__shard_set **set)
{
    ls__shard_set *s = *set;
    char *committed;
    ls_status status = s->replace ? LS_OK : for_entries(s->folder_fd, s->folder, refuse_old, s);
    if (asprintf(&committed, ".%s.shards", s->name) < 0) {
        committed = NULL;
        status = ls__fail(LS_ENOMEM, "out of memory");
    }
    if (!status && fsync(s->work_fd) && errno != EINVAL) status = ls__fail_errno("%s: syncing the folder", s->folder);
    while (!status && renameat(s->folder_fd, s->work, s->folder_fd, committed)) {
        bool changed = false;
        int error = errno;
        /* Another run was faster, and was perhaps killed: its set comes first, then ours. */
        if (error == ENOTEMPTY || error == EEXIST)
            status = complete_pending(s->folder_fd, s->folder, s->name, &changed);
        errno = error;
        if (!status && !changed) status = ls__fail_errno("%s/%s: cannot be created", s->folder, committed);
    }
    if (!status) {
        free(s->work);
        s->work = NULL; /* it counts now, and is not removed */
        if (fsync(s->folder_fd) && errno != EINVAL) status = ls__fail_errno("%s: syncing the folder", s->folder);
    }
    if (!status) status = complete(s->folder_fd, s->folder, s->name, committed, s->work_fd);
    free(committed);
    ls__shard_set_cancel(set);
    return status;
}

void ls__shard_set_cancel(ls__shard_set **set)
{
    ls__shard_set *s = *set;
    if (!s) return;
    if (s->work && s->work_fd >= 0) remove_folder(s->folder_fd, s->work, s->work_fd);
    if (s->work_fd >= 0) close(s->work_fd);
    if (s->folder_fd >= 0) close(s->folder_fd);
    free(s->work);
    free(s->folder);
    free(s->name);
    free(s);
    *set = NULL;
}

ls_status ls__shard_set_complete(const char *path, bool *changed)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dash = strrchr(base, '-');
    *changed = false;
    if (!dash || number_at(dash + 1) < 0) return LS_OK;
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup("."), *committed = NULL;
    char *name = strndup(base, (size_t)(dash - base));
    struct stat st;
    if (name && folder && asprintf(&committed, "%s/.%s.shards", folder, name) < 0) committed = NULL;
    ls_status status = committed ? LS_OK : ls__fail(LS_ENOMEM, "%s: out of memory", path);
    if (!status && !lstat(committed, &st)) { /* hardly ever */
        int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            status = ls__fail_errno("%s: cannot be opened", folder);
        else
            status = complete_pending(fd, folder, name, changed);
        if (fd >= 0) close(fd);
    }
    free(committed);
    free(folder);
    free(name);
    return status;
}
