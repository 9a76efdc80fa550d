/* Files. Steps of writing: temporary file next to the target (same file system, so that rename is atomic) -> fsync -> rename ->
 * fsync of the folder. A crash leaves the old file, or the new one, and perhaps a ".NAME.tmp-RANDOM" next to it. The name is random
 * and the file is created exclusively, so no link of another user is followed.
 *
 * A device, a pipe or /dev/stdout cannot be replaced, and must not be: if the user named it, it is written directly. Another user
 * may have made a link in its place, so links are followed one by one, each held open while its owner is checked. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "base/status.h"

struct ls__file_writer {
    int fd;
    size_t held;     /* bytes in `buffer` */
    char *path;      /* of the finished file */
    char *temporary; /* NULL: `path` is written directly */
    bool replaces;   /* the file existed before */
    uint8_t buffer[1 << 16];
};

/* Length of the folder part of a path, including its last slash; 0 if there is none. */
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

static ls_status sync_folder(const char *path)
{
    size_t n = folder_length(path);
    char *folder = n ? strndup(path, n) : strdup(".");
    if (!folder) return ls__fail(LS_ENOMEM, "%s: out of memory", path);
    ls_status status = LS_OK;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* A folder that is writable but not readable cannot be synced, and some file systems return EINVAL for folders. Both are
     * ignored. */
    if (fd < 0 && errno != EACCES) status = ls__fail_errno("%s: opening the folder", folder);
    if (fd >= 0 && fsync(fd) && errno != EINVAL) status = ls__fail_errno("%s: syncing the folder", folder);
    if (fd >= 0) close(fd);
    free(folder);
    return status;
}

/* ---- Links. */

static bool is_trusted(const struct stat *st)
{
    return st->st_uid == geteuid() || st->st_uid == 0;
}

/* The target of a link, relative to the working directory; NULL with errno. */
static char *read_link(int fd, const char *path)
{
    char target[4096], *out;
    ssize_t n = readlinkat(fd, "", target, sizeof target);
    if (n < 0) return NULL;
    if (n == sizeof target) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    int folder = *target == '/' ? 0 : (int)folder_length(path);
    return asprintf(&out, "%.*s%.*s", folder, path, (int)n, target) < 0 ? NULL : out;
}

/* An O_PATH descriptor of what a path refers to. In its last component only links of this user or root are followed; a link of another
 * user fails with ELOOP. *descriptor, if not NULL, is N if the path resolves to /proc/.../fd/N, else -1. */
static int resolve(const char *path, int *descriptor)
{
    enum { LINKS = 40 }; /* as many as the kernel follows */
    struct stat st;
    struct statfs fs;
    char *at = strdup(path);
    int fd = -1;
    if (descriptor) *descriptor = -1;
    for (int i = 0; at && i <= LINKS; i++) {
        fd = open(at, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) || !S_ISLNK(st.st_mode)) break;
        char *next = NULL;
        errno = ELOOP;
        if (is_trusted(&st) && i < LINKS && !fstatfs(fd, &fs)) {
            const char *name = at + folder_length(at);
            bool kernels = fs.f_type == PROC_SUPER_MAGIC && *name >= '0' && *name <= '9';
            next = kernels ? NULL : read_link(fd, at);
            if (kernels) { /* its text is not a path; no user can change it */
                if (descriptor) *descriptor = atoi(name);
                close(fd);
                fd = open(at, O_PATH | O_CLOEXEC);
                break;
            }
        }
        int error = errno;
        close(fd);
        fd = -1;
        free(at);
        at = next;
        errno = error;
    }
    int error = errno;
    free(at);
    errno = error;
    return fd;
}

/* A descriptor for writing to a path that cannot be replaced by renaming: a device, a pipe or one of our own descriptors, such as
 * /dev/stdout. -1: it is a regular file, or does not exist. Nothing is truncated. */
static ls_status open_stream(const char *path, int *out)
{
    struct stat st, own;
    char name[64];
    int number, fd = resolve(path, &number);
    ls_status status = LS_OK;
    *out = -1;
    if (fd < 0) return LS_OK;
    if (fstat(fd, &st)) goto done;
    if (number >= 0 && !fstat(number, &own) && own.st_ino == st.st_ino && own.st_dev == st.st_dev) {
        *out = fcntl(number, F_DUPFD_CLOEXEC, 3);
    } else if (S_ISCHR(st.st_mode) || (S_ISFIFO(st.st_mode) && is_trusted(&st))) {
        /* By its number, so that it is the one that was checked. Opening a pipe waits for its reader, as usual. */
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        *out = open(name, O_WRONLY | O_NOCTTY | O_CLOEXEC | (S_ISCHR(st.st_mode) ? O_NONBLOCK : 0));
        if (*out >= 0) fcntl(*out, F_SETFL, fcntl(*out, F_GETFL) & ~O_NONBLOCK);
    } else {
        goto done;
    }
    if (*out < 0) status = ls__fail_errno("%s: cannot be written", path);
done:
    close(fd);
    return status;
}

/* ---- Writing. */

/* An unpredictable name next to `path`, so that no other user can have created it. */
static ls_status name_temporary(const char *path, char **out)
{
    enum { LONGEST = 200 }; /* of the 255 bytes of a name */
    uint64_t number;
    size_t folder = folder_length(path);
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return ls__fail_errno("%s: cannot generate a temporary name", path);
    if (asprintf(out, "%.*s.%.*s" LS__FILE_TEMPORARY "%016llx", (int)folder, path, LONGEST, path + folder,
                 (unsigned long long)number) >= 0)
        return LS_OK;
    *out = NULL;
    return ls__fail(LS_ENOMEM, "%s: out of memory", path);
}

static void free_writer(ls__file_writer **pw)
{
    ls__file_writer *w = *pw;
    if (w->fd >= 0) close(w->fd);
    free(w->path);
    free(w->temporary);
    free(w);
    *pw = NULL;
}

/* `fd`: a stream, or -1 for a temporary file. The writer owns it, also on failure. */
static ls_status open_writer(ls__file_writer **out, const char *path, int fd)
{
    struct stat st;
    ls_status status = LS_OK;
    ls__file_writer *w = calloc(1, sizeof *w);
    if (!w) {
        if (fd >= 0) close(fd);
        return ls__fail(LS_ENOMEM, "%s: out of memory", path);
    }
    w->fd = fd;
    w->path = strdup(path);
    if (!w->path) status = ls__fail(LS_ENOMEM, "%s: out of memory", path);
    if (!status && fd < 0) {
        w->replaces = !lstat(path, &st);
        /* A user who may write to /dev must not replace a device. */
        if (w->replaces && (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode)))
            status = ls__fail(LS_EINVAL, "%s: is a device, not a regular file", path);
        if (!status) status = name_temporary(path, &w->temporary);
        if (!status) w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (!status && w->fd < 0) status = ls__fail_errno("%s: cannot be written", path);
    }
    if (status)
        free_writer(&w);
    else
        *out = w;
    return status;
}

ls_status ls__file_writer_open(ls__file_writer **out, const char *path)
{
    *out = NULL;
    if (!*path) return ls__fail(LS_EINVAL, "the output file name is empty");
    return open_writer(out, path, -1);
}

ls_status ls__file_writer_open_named(ls__file_writer **out, const char *path)
{
    int fd;
    *out = NULL;
    struct stat st;
    if (!*path) return ls__fail(LS_EINVAL, "the output file name is empty");
    if (!stat(path, &st) && S_ISDIR(st.st_mode)) return ls__fail(LS_EINVAL, "%s: is a folder; name a file in it", path);
    ls_status status = open_stream(path, &fd);
    return status ? status : open_writer(out, path, fd);
}

/* For the message of a failed write: the state of the file that was to be replaced. */
static const char *unchanged(const ls__file_writer *w)
{
    return w->replaces ? " (the file at that place is unchanged)" : "";
}

static ls_status write_all(const ls__file_writer *w, const uint8_t *data, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(w->fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ls__fail_errno("%s: writing%s", w->path, unchanged(w));
        data += n;
        bytes -= (size_t)n;
    }
    return LS_OK;
}

static ls_status flush(ls__file_writer *w)
{
    size_t held = w->held;
    w->held = 0;
    return write_all(w, w->buffer, held);
}

ls_status ls__file_writer_add(ls__file_writer *w, const void *data, size_t bytes)
{
    if (!bytes) return LS_OK;
    if (bytes > sizeof w->buffer - w->held) {
        ls_status status = flush(w);
        if (status) return status;
    }
    if (bytes >= sizeof w->buffer) return write_all(w, data, bytes);
    memcpy(w->buffer + w->held, data, bytes);
    w->held += bytes;
    return LS_OK;
}

ls_status ls__file_writer_sync(ls__file_writer *w)
{
    ls_status status = flush(w);
    if (!status && w->temporary && fsync(w->fd)) status = ls__fail_errno("%s: syncing%s", w->path, unchanged(w));
    return status;
}

ls_status ls__file_writer_commit(ls__file_writer **pw)
{
    ls__file_writer *w = *pw;
    ls_status status = ls__file_writer_sync(w);
    if (w->temporary) {
        if (!status && rename(w->temporary, w->path)) status = ls__fail_errno("%s: renaming into place", w->path);
        if (status) unlink(w->temporary);
        if (!status) status = sync_folder(w->path);
    }
    free_writer(pw);
    return status;
}

void ls__file_writer_cancel(ls__file_writer **pw)
{
    ls__file_writer *w = *pw;
    if (!w) return;
    if (w->temporary) unlink(w->temporary);
    free_writer(pw);
}

/* Writes everything and frees the writer. */
static ls_status write_whole(ls__file_writer *w, const void *data, size_t bytes)
{
    ls_status status = ls__file_writer_add(w, data, bytes);
    if (!status) return ls__file_writer_commit(&w);
    ls__file_writer_cancel(&w);
    return status;
}

ls_status ls__file_write(const char *path, const void *data, size_t bytes)
{
    ls__file_writer *w;
    ls_status status = ls__file_writer_open(&w, path);
    return status ? status : write_whole(w, data, bytes);
}

ls_status ls__file_write_named(const char *path, const void *data, size_t bytes)
{
    ls__file_writer *w;
    ls_status status = ls__file_writer_open_named(&w, path);
    return status ? status : write_whole(w, data, bytes);
}

/* ---- Reading. */

/* O_NONBLOCK: opening a FIFO must fail, not wait. */
ls_status ls__file_open(const char *path, int *fd, size_t *bytes)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return ls__fail_errno("%s: cannot be opened", path);
    ls_status status = LS_OK;
    if (fstat(*fd, &st))
        status = ls__fail_errno("%s: cannot stat", path);
    else if (S_ISDIR(st.st_mode))
        status = ls__fail(LS_EINVAL, "%s: is a folder; name a file in it", path);
    else if (!S_ISREG(st.st_mode))
        status = ls__fail(LS_EINVAL, "%s: is not a regular file", path);
    if (status) {
        close(*fd);
        *fd = -1;
        return status;
    }
    *bytes = (size_t)st.st_size;
    return LS_OK;
}

ls_status ls__file_read(const char *path, size_t limit, char **out, size_t *bytes)
{
    int fd;
    size_t size = 0, got = 0;
    *out = NULL;
    *bytes = 0;
    ls_status status = ls__file_open(path, &fd, &size);
    if (status) return status;
    char *text = NULL;
    if (size > limit) {
        status = ls__fail(LS_EFORMAT, "%s: %zu bytes; at most %zu are allowed", path, size, limit);
        goto done;
    }
    text = malloc(size + 1);
    if (!text) {
        status = ls__fail(LS_ENOMEM, "%s: out of memory for its %zu bytes", path, size);
        goto done;
    }
    while (got < size) {
        ssize_t n = read(fd, text + got, size - got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            status = ls__fail_errno("%s: reading at byte %zu", path, got);
            goto done;
        }
        if (n == 0) break; /* it was truncated while we read */
        got += (size_t)n;
    }
    text[got] = 0;
    *out = text;
    *bytes = got;
    text = NULL;
done:
    free(text);
    close(fd);
    return status;
}

ls_status ls__file_read_at(int fd, const char *path, void *to, size_t bytes, size_t at)
{
    while (bytes) {
        ssize_t n = pread(fd, to, bytes, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ls__fail_errno("%s: reading at byte %zu", path, at);
        if (n == 0) return ls__fail(LS_EFORMAT, "%s: was truncated at byte %zu while it was read", path, at);
        to = (char *)to + n;
        at += (size_t)n;
        bytes -= (size_t)n;
    }
    return LS_OK;
}

ls_status ls__file_create(const char *path, int flags, int *fd)
{
    *fd = -1;
    if (unlink(path) && errno != ENOENT) return ls__fail_errno("%s: cannot be replaced", path);
    *fd = open(path, flags | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    return *fd < 0 ? ls__fail_errno("%s: cannot be created", path) : LS_OK;
}

/* ---- Folders. */

static DIR *open_own_dir(const char *path)
{
    int at = resolve(path, NULL), fd = at >= 0 ? openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (at >= 0) close(at);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d && fd >= 0) close(fd);
    return d;
}

void ls__file_remove(const char *folder, const char *begin, const char *contains)
{
    DIR *d = open_own_dir(folder);
    if (!d) return;
    for (const struct dirent *e; (e = readdir(d));)
        if (!strncmp(e->d_name, begin, strlen(begin)) && strstr(e->d_name, contains)) unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
}

void ls__file_remove_temporaries(const char *folder, const char *begin)
{
    char name[256];
    snprintf(name, sizeof name, ".%s", begin);
    ls__file_remove(folder, name, LS__FILE_TEMPORARY);
}

ls_status ls__file_make_dir(const char *path)
{
    if (!*path) return ls__fail(LS_EINVAL, "the folder name is empty");
    char *copy = strdup(path);
    if (!copy) return ls__fail(LS_ENOMEM, "%s: out of memory", path);
    ls_status status = LS_OK;
    for (char *p = copy + 1;; p++) {
        if (*p && *p != '/') continue;
        char kept = *p;
        *p = 0;
        struct stat st;
        if (mkdir(copy, 0777) && (errno != EEXIST || stat(copy, &st) || !S_ISDIR(st.st_mode))) {
            if (errno == EEXIST) errno = ENOTDIR;
            status = ls__fail_errno("%s: the folder '%s' cannot be created", path, copy);
            break;
        }
        *p = kept;
        if (!kept) break;
    }
    free(copy);
    return status;
}

ls_status ls__file_check_own_dir(const char *path)
{
    struct stat st;
    if (lstat(path, &st)) return errno == ENOENT ? LS_OK : ls__fail_errno("%s: cannot stat", path);
    if (S_ISLNK(st.st_mode) && !is_trusted(&st))
        return ls__fail(LS_EINVAL, "%s: is a link of another user and is not followed", path);
    DIR *d = S_ISDIR(st.st_mode) ? NULL : open_own_dir(path);
    if (!S_ISDIR(st.st_mode) && !d) return ls__fail(LS_EINVAL, "%s: is not a folder", path);
    if (d) closedir(d);
    return LS_OK;
}

ls_status ls__file_make_own_dir(const char *path)
{
    ls_status status = ls__file_make_dir(path);
    return status ? status : ls__file_check_own_dir(path);
}
