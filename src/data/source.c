/* Files are read with pread into the caller's memory and not mapped: a mapping of a file that is truncated, or whose network disk
 * fails, kills the process with SIGBUS, while a read returns an error that can be reported with file and position. From the page
 * cache a read of a few KiB costs less than the first access to a mapped page.
 *
 * Descriptors are kept open as long as they are at most a quarter of the process's limit; the files beyond are opened for each
 * read, and must then be the same file (inode, size) as at the start.
 *
 * redirect() replaces the file of a descriptor with dup2, which is atomic: readers need no lock. */
#include "data/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "data/names.h"

static int64_t ns_of(struct timespec t)
{
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

ls__identity ls__identity_of(const struct stat *st)
{
    return (ls__identity){ .inode = st->st_ino,
                           .bytes = (uint64_t)st->st_size,
                           .modified = ns_of(st->st_mtim),
                           .changed = ns_of(st->st_ctim) };
}

bool ls__identity_same(const ls__identity *a, const ls__identity *b)
{
    return a->inode == b->inode && a->bytes == b->bytes && a->modified == b->modified && a->changed == b->changed;
}

size_t ls__sources_keep(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == RLIM_INFINITY) return 256;
    return limit.rlim_cur / 4;
}

static ls_status open_one(ls__source *s, const char *path, bool keep)
{
    int fd;
    size_t bytes;
    struct stat st;
    ls_status status = ls__file_open(path, &fd, &bytes);
    if (status) return status;
    if (fstat(fd, &st)) {
        status = ls__fail_errno("%s: cannot be examined", path);
        close(fd);
        return status;
    }
    s->bytes = bytes;
    s->identity = ls__identity_of(&st);
    s->fd = keep ? fd : -1;
    if (!keep) close(fd);
    return LS_OK;
}

void ls__sources_rest(ls__sources *sources)
{
    for (size_t i = 0; i < sources->count; i++) {
        if (sources->files[i].fd >= 0) close(sources->files[i].fd);
        sources->files[i].fd = -1;
    }
}

/* Files that hold nothing have no place in the list. All of them empty: LS_EFORMAT. */
static ls_status drop_empty(ls__sources *sources)
{
    size_t kept = 0;
    for (size_t i = 0; i < sources->count; i++) {
        ls__source *s = &sources->files[i];
        if (s->bytes) {
            ls__source *to = &sources->files[kept++];
            to->path = s->path;
            to->fd = (int)s->fd;
            to->bytes = s->bytes;
            to->identity = s->identity;
            continue;
        }
        if (s->fd >= 0) close(s->fd);
        if (!sources->empty++)
            sources->first_empty = s->path;
        else
            free(s->path);
    }
    sources->count = kept;
    return kept ? LS_OK : ls__fail(LS_EFORMAT, "%s: byte 0: the file is empty", sources->first_empty);
}

ls_status ls__sources_open(ls__sources *out, const char *const *paths, size_t n_paths)
{
    ls__names list;
    ls__sources made = { .unpacked_fd = -1 };
    ls_status status = ls__names_find(&list, paths, n_paths);
    if (status) goto done;
    made.files = calloc(list.count, sizeof *made.files);
    if (!made.files) {
        status = ls__fail(LS_ENOMEM, "no memory for a list of %zu files", list.count);
        goto done;
    }
    made.left_out = list.left_out;
    made.first_left_out = list.example;
    list.example = NULL;
    size_t keep = ls__sources_keep();
    for (size_t i = 0; !status && i < list.count; i++) {
        made.files[i].path = list.items[i];
        made.files[i].fd = -1;
        list.items[i] = NULL;
        made.count = i + 1;
        status = open_one(&made.files[i], made.files[i].path, i < keep);
    }
    if (!status) status = drop_empty(&made);
done:
    ls__names_free(&list);
    if (status) ls__sources_close(&made);
    *out = made;
    return status;
}

void ls__sources_warn(const ls__sources *s)
{
    if (s->empty == 1) ls__log(LS_LOG_WARNING, "%s: empty file, skipped", s->first_empty);
    if (s->empty > 1) ls__log(LS_LOG_WARNING, "%zu empty files skipped; the first is %s", s->empty, s->first_empty);
    if (s->left_out)
        ls__log(LS_LOG_WARNING,
                "%zu file%s with an unknown suffix skipped, like %s; to read such a file, give its name", s->left_out,
                ls__s((int64_t)s->left_out), s->first_left_out);
}

void ls__sources_close(ls__sources *sources)
{
    for (size_t i = 0; i < sources->count; i++) {
        if (sources->files[i].fd >= 0 && !sources->files[i].unpacked) close(sources->files[i].fd);
        free(sources->files[i].path);
    }
    if (sources->files && sources->unpacked_fd >= 0) close(sources->unpacked_fd);
    free(sources->first_empty);
    free(sources->first_left_out);
    free(sources->files);
    *sources = (ls__sources){ .unpacked_fd = -1 };
}

/* Opens a file that is not kept open, for one read. */
static ls_status open_again(const ls__source *s, int *fd)
{
    ls__source now = { .fd = -1 };
    ls_status status = open_one(&now, s->path, true);
    if (status) return status;
    *fd = now.fd;
    if (now.identity.inode == s->identity.inode && now.bytes == s->bytes) return LS_OK;
    close(now.fd);
    return ls__fail(LS_EIO, "%s: the file was replaced while it was being read (%zu bytes, then %zu); start again",
                    s->path, (size_t)now.bytes, (size_t)s->bytes);
}

ls_status ls__source_read(const ls__source *s, void *out, size_t bytes, uint64_t offset)
{
    int fd = s->fd, delay = atomic_load_explicit(&s->delay_us, memory_order_relaxed);
    bool opened = fd < 0;
    if (delay) nanosleep(&(struct timespec){ .tv_sec = delay / 1000000, .tv_nsec = delay % 1000000 * 1000L }, NULL);
    ls_status status = opened ? open_again(s, &fd) : LS_OK;
    if (status) return ls__fail_within(status, "reading at byte %zu", (size_t)offset);
    size_t got = 0;
    while (got < bytes) {
        ssize_t n = pread(fd, (char *)out + got, bytes - got, (off_t)(s->base + offset + got));
        if (n < 0 && errno == EINTR) continue;
        if (n > 0) {
            got += (size_t)n;
            continue;
        }
        if (n < 0)
            status = ls__fail_errno("%s: reading at byte %zu", s->path, (size_t)offset + got);
        else
            status = ls__fail(LS_EIO, "%s: ends at byte %zu; it had %zu bytes when reading began", s->path,
                              (size_t)offset + got, (size_t)s->bytes);
        break;
    }
    if (opened) close(fd);
    return status;
}

ls_status ls__source_redirect(ls__source *s, const char *path)
{
    ls__source copy = { .fd = -1 };
    struct stat st;
    ls__identity now = { 0 };
    if (s->unpacked) return LS_OK; /* it is read from this machine's disk already */
    if (!stat(s->path, &st)) now = ls__identity_of(&st);
    if (!ls__identity_same(&now, &s->identity))
        return ls__fail(LS_EIO, "%s: the file was changed after it was opened, so its copy cannot be used", s->path);
    ls_status status = open_one(&copy, path, true);
    if (status) return status;
    /* Others may be able to exchange the folder that it is in, but they cannot make a file that is ours. */
    if (fstat(copy.fd, &st) || (st.st_uid != geteuid() && st.st_uid != 0)) {
        close(copy.fd);
        return ls__fail(LS_EINVAL, "%s: belongs to another user; a copy of %s must be yours or root's", path, s->path);
    }
    if (copy.bytes != s->bytes) {
        close(copy.fd);
        return ls__fail(LS_EIO, "%s: has %zu bytes, but it is a copy of %s with %zu", path, (size_t)copy.bytes, s->path,
                        (size_t)s->bytes);
    }
    if (s->fd < 0) {
        s->fd = copy.fd;
        s->delay_us = 0;
        return LS_OK;
    }
    if (dup3(copy.fd, s->fd, O_CLOEXEC) < 0) status = ls__fail_errno("%s: cannot replace %s", path, s->path);
    if (!status) s->delay_us = 0;
    close(copy.fd);
    return status;
}
