/* Files. Writing goes: temporary file beside the target (same file system, so that rename is atomic) -> fsync -> rename
 * -> fsync of the folder. A crash leaves the old file, or the new one, and perhaps a ".NAME.tmp-RANDOM" beside it. Nobody
 * can guess that name, and it is made new, so a link that someone put there is never written through.
 *
 * A device, a pipe or /dev/stdout cannot be replaced, and must not be: it is written to directly. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/status.h"

struct ls__file_writer {
    int fd;
    size_t held;     /* bytes waiting in `buffer` */
    char *path;      /* final place */
    char *temporary; /* NULL: what is at that place is written to directly */
    uint8_t buffer[1 << 16];
};

/* Length of the folder part of a path, its last slash included; 0 if there is none. */
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
    /* A folder that may be written but not read cannot be synced, and on some file systems none can, which say EINVAL: then
     * there is nothing more to be done. */
    if (fd < 0 && errno != EACCES) status = ls__fail_errno("%s: opening the folder", folder);
    if (fd >= 0 && fsync(fd) && errno != EINVAL) status = ls__fail_errno("%s: syncing the folder", folder);
    if (fd >= 0) close(fd);
    free(folder);
    return status;
}

/* True for what cannot be replaced by renaming: devices, pipes, and links into /proc, as /dev/stdout is one. */
static bool is_stream(const char *path)
{
    struct stat st;
    char link[8];
    if (stat(path, &st)) return false;
    if (!S_ISREG(st.st_mode)) return !S_ISDIR(st.st_mode);
    if (!strncmp(path, "/proc/", 6) || !strncmp(path, "/dev/fd/", 8)) return true;
    return readlink(path, link, sizeof link) >= 6 && !strncmp(link, "/proc/", 6);
}

/* A name beside `path` that nobody can guess, so that nobody can have put something there. */
static ls_status name_temporary(const char *path, char **out)
{
    enum { LONGEST = 200 }; /* of a name's 255 bytes */
    uint64_t number;
    size_t folder = folder_length(path);
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return ls__fail_errno("%s: no random number for a temporary name", path);
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

ls_status ls__file_writer_open(ls__file_writer **out, const char *path)
{
    *out = NULL;
    if (!*path) return ls__fail(LS_EINVAL, "the name of the file to write is empty");
    ls__file_writer *w = calloc(1, sizeof *w);
    if (!w) return ls__fail(LS_ENOMEM, "%s: out of memory", path);
    w->fd = -1;
    w->path = strdup(path);
    bool stream = is_stream(path);
    ls_status status = w->path ? LS_OK : ls__fail(LS_ENOMEM, "%s: out of memory", path);
    if (!status && !stream) status = name_temporary(path, &w->temporary);
    if (!status) {
        w->fd = stream ? open(path, O_WRONLY | O_TRUNC | O_CLOEXEC)
                       : open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (w->fd < 0) status = ls__fail_errno("%s: cannot be written", path);
    }
    if (status)
        free_writer(&w);
    else
        *out = w;
    return status;
}

static ls_status write_all(const ls__file_writer *w, const uint8_t *data, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(w->fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return ls__fail_errno("%s: writing%s", w->path,
                                  w->temporary ? " (the file at that place is unchanged)" : "");
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

ls_status ls__file_writer_commit(ls__file_writer **pw)
{
    ls__file_writer *w = *pw;
    ls_status status = flush(w);
    if (w->temporary) {
        if (!status && fsync(w->fd))
            status = ls__fail_errno("%s: syncing (the file at that place is unchanged)", w->path);
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

ls_status ls__file_write(const char *path, const void *data, size_t bytes)
{
    ls__file_writer *w;
    ls_status status = ls__file_writer_open(&w, path);
    if (status) return status;
    status = ls__file_writer_add(w, data, bytes);
    if (status) {
        ls__file_writer_cancel(&w);
        return status;
    }
    return ls__file_writer_commit(&w);
}

/* O_NONBLOCK: a FIFO must be refused, not waited for. */
ls_status ls__file_open(const char *path, int *fd, size_t *bytes)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return ls__fail_errno("%s: cannot be opened", path);
    ls_status status = LS_OK;
    if (fstat(*fd, &st))
        status = ls__fail_errno("%s: cannot be examined", path);
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
        status = ls__fail(LS_EFORMAT, "%s: %zu bytes, more than the %zu that such a file may have", path, size, limit);
        goto done;
    }
    text = malloc(size + 1);
    if (!text) {
        status = ls__fail(LS_ENOMEM, "%s: no memory for its %zu bytes", path, size);
        goto done;
    }
    while (got < size) {
        ssize_t n = read(fd, text + got, size - got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            status = ls__fail_errno("%s: reading at byte %zu", path, got);
            goto done;
        }
        if (n == 0) break; /* it was cut while we read; what is there is what it holds */
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

ls_status ls__file_map_open(ls__file_map *out, const char *path)
{
    int fd;
    size_t size = 0;
    *out = (ls__file_map){ 0 };
    ls_status status = ls__file_open(path, &fd, &size);
    if (status) return status;
    if (size) {
        void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            status = ls__fail_errno("%s: mapping %zu bytes", path, size);
        else
            *out = (ls__file_map){ .data = p, .bytes = size };
    }
    close(fd);
    return status;
}

void ls__file_map_close(ls__file_map *m)
{
    if (m->data) munmap((void *)(uintptr_t)m->data, m->bytes);
    *m = (ls__file_map){ 0 };
}

ls_status ls__file_create(const char *path, int flags, int *fd)
{
    *fd = -1;
    if (unlink(path) && errno != ENOENT) return ls__fail_errno("%s: cannot be replaced", path);
    *fd = open(path, flags | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    return *fd < 0 ? ls__fail_errno("%s: cannot be made", path) : LS_OK;
}

void ls__file_remove_temporaries(const char *folder, const char *begin)
{
    DIR *d = opendir(folder);
    if (!d) return;
    for (const struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] == '.' && !strncmp(e->d_name + 1, begin, strlen(begin)) &&
            strstr(e->d_name, LS__FILE_TEMPORARY))
            unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
}

ls_status ls__file_make_dir(const char *path)
{
    if (!*path) return ls__fail(LS_EINVAL, "the name of the folder is empty");
    char *copy = strdup(path);
    if (!copy) return ls__fail(LS_ENOMEM, "%s: out of memory", path);
    ls_status status = LS_OK;
    for (char *p = copy + 1;; p++) {
        if (*p && *p != '/') continue;
        char kept = *p;
        *p = 0;
        struct stat st;
        if (mkdir(copy, 0777) && (errno != EEXIST || stat(copy, &st) || !S_ISDIR(st.st_mode))) {
            status = ls__fail_errno("%s: the folder '%s' cannot be made", path, copy);
            break;
        }
        *p = kept;
        if (!kept) break;
    }
    free(copy);
    return status;
}

ls_status ls__file_make_own_dir(const char *path)
{
    struct stat st;
    ls_status status = ls__file_make_dir(path);
    if (status) return status;
    if (lstat(path, &st)) return ls__fail_errno("%s: cannot be examined", path);
    if (S_ISLNK(st.st_mode) && st.st_uid != geteuid() && st.st_uid != 0)
        return ls__fail(LS_EINVAL, "%s: is a link that another user made; it is not followed", path);
    return LS_OK;
}
