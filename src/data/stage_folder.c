/* The folder of copies: names, locks, and making space.
 *
 * The folder may be shared, so each user has a private subfolder, named by the user id: no copy is readable by more people than its
 * original, and copies of other users are never used.
 *
 * Each copy has a lock file, locked with flock: shared by processes that read the copy, exclusive by a process that makes or
 * removes it. The kernel releases a lock when its process dies. A lock file may be removed together with its copy; a process that was
 * waiting for it then holds a lock on a deleted file, notices that, and starts again.
 *
 * One process at a time makes space, under the lock of the folder. It never waits for a copy's lock: a copy whose lock is held is in
 * use. Leftovers of dead processes are recognized by their free lock. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "data/stage.h"

static int64_t ns_of(struct timespec t)
{
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void ls__copy_name(ls__copy *c, const char *real_path, const ls__identity *id)
{
    uint64_t seed = XXH3_64bits(id, sizeof *id);
    XXH128_hash_t h = XXH3_128bits_withSeed(real_path, strlen(real_path), seed);
    snprintf(c->key, sizeof c->key, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

/* Makes `folder` if it is not there: like /tmp, so that other users can have their folders in it, too. */
static ls_status make_shared(const char *folder)
{
    struct stat st;
    if (!stat(folder, &st) && S_ISDIR(st.st_mode)) return LS_OK;
    char *parent = strdup(folder);
    if (!parent) return ls__fail(LS_ENOMEM, "out of memory");
    size_t n = strlen(parent);
    while (n > 1 && parent[n - 1] == '/') parent[--n] = 0;
    char *slash = strrchr(parent, '/');
    ls_status status = LS_OK;
    if (slash && slash > parent) {
        *slash = 0;
        status = ls__file_make_dir(parent);
    }
    /* If another process was faster, it sets the mode. */
    if (!status && !mkdir(folder, 0700)) {
        if (chmod(folder, S_ISVTX | 0777))
            status = ls__fail_errno("%s: cannot be made accessible to other users", folder);
    } else if (!status && (errno != EEXIST || stat(folder, &st) || !S_ISDIR(st.st_mode))) {
        status = ls__fail_errno("%s: cannot create the folder", folder);
    }
    free(parent);
    return status;
}

ls_status ls__stage_folder(const char *folder, char **out)
{
    struct stat st;
    *out = NULL;
    ls_status status = make_shared(folder);
    char *real = status ? NULL : realpath(folder, NULL); /* paths that are handed out outlive a change of directory */
    char *own = NULL;
    if (!status && !real) status = ls__fail_errno("%s: cannot be found", folder);
    if (!status && asprintf(&own, "%s/%u", real, (unsigned)geteuid()) < 0) {
        own = NULL;
        status = ls__fail(LS_ENOMEM, "out of memory");
    }
    free(real);
    if (!status && mkdir(own, 0700) && errno != EEXIST) status = ls__fail_errno("%s: cannot create the folder", own);
    if (!status && lstat(own, &st)) status = ls__fail_errno("%s: cannot be examined", own);
    if (!status && (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077))
        status = ls__fail(
            LS_EINVAL,
            "%s: is not private to you, so its copies cannot be trusted; remove it, or stage in another folder", own);
    if (status)
        free(own);
    else
        *out = own;
    return status;
}

static char *path_in(const char *folder, const char *key, const char *suffix)
{
    char *path;
    return asprintf(&path, "%s/%s.%s", folder, key, suffix) < 0 ? NULL : path;
}

char *ls__copy_path(const ls__copy *c, const char *suffix)
{
    return path_in(c->folder, c->key, suffix);
}

/* How often a lock is asked for, and for how long those who read a copy are waited for. */
enum { POLL_NS = 10000000, READER_POLLS = 500 };

/* flock that can be given up. A process that makes a copy is waited for; one that reads a copy may take days. Which it is
 * shows by asking for a shared lock, which is given back at once: two who both want to make a copy must not take each
 * other for readers. */
static ls_status wait_for_lock(int fd, int operation, const _Atomic bool *stop)
{
    for (int readers = 0; flock(fd, operation | LOCK_NB);) {
        if (errno != EWOULDBLOCK && errno != EINTR) return ls__fail_errno("locking");
        if (stop && *stop) return ls__fail(LS_EABORTED, "waiting was cancelled");
        if (operation == LOCK_EX) {
            readers = flock(fd, LOCK_SH | LOCK_NB) ? 0 : readers + 1;
            flock(fd, LOCK_UN);
            if (readers > READER_POLLS) return ls__fail(LS_EIO, "the copy is corrupt, and another job is reading it");
        }
        nanosleep(&(struct timespec){ .tv_nsec = POLL_NS }, NULL);
    }
    return LS_OK;
}

/* Whether `path` still names the file of the descriptor. */
static bool still_named(int fd, const char *path)
{
    struct stat a, b;
    return !fstat(fd, &a) && !stat(path, &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

ls_status ls__copy_lock(ls__copy *c, bool exclusive)
{
    char *path = ls__copy_path(c, "lock");
    ls_status status = path ? LS_OK : ls__fail(LS_ENOMEM, "out of memory");
    while (!status) {
        if (c->lock < 0) c->lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (c->lock < 0) {
            status = ls__fail_errno("%s: cannot be opened", path);
            break;
        }
        status = wait_for_lock(c->lock, exclusive ? LOCK_EX : LOCK_SH, c->stop);
        if (status || still_named(c->lock, path)) break;
        ls__copy_unlock(c);
    }
    if (status) ls__copy_unlock(c);
    free(path);
    return status;
}

void ls__copy_unlock(ls__copy *c)
{
    if (c->lock >= 0) close(c->lock);
    c->lock = -1;
}

/* ---- Making room. */

/* A copy in the folder, for making space. */
typedef struct entry {
    char key[33];
    uint64_t bytes; /* of data and part */
    int64_t used;   /* when last */
    bool whole;     /* there is data */
} entry;

typedef struct listing {
    entry *entries;
    size_t count, room;
    uint64_t used; /* bytes of all */
} listing;

static void remove_file(const char *folder, const char *key, const char *suffix)
{
    char *path = path_in(folder, key, suffix);
    if (path) unlink(path);
    free(path);
}

/* Removes the files of a copy if its lock is free. */
static bool remove_copy(const char *folder, const char *key)
{
    char *path = path_in(folder, key, "lock");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    bool ours = fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB) && still_named(fd, path);
    if (ours) {
        remove_file(folder, key, "part");
        remove_file(folder, key, "data");
        remove_file(folder, key, "meta");
        unlink(path); /* last: a process that has it open can see that it was removed */
    }
    if (fd >= 0) close(fd);
    free(path);
    return ours;
}

static bool examine(const char *folder, const char *key, const char *suffix, struct stat *st)
{
    char *path = path_in(folder, key, suffix);
    bool there = path && !stat(path, st);
    free(path);
    return there;
}

/* A KEY.meta that was being written when its process died: ".KEY.meta.tmp-...", and a minute old. */
static void remove_stray_meta(const char *folder, const char *name)
{
    struct stat st;
    char *path;
    if (*name != '.' || !strstr(name, ".meta.tmp-") || asprintf(&path, "%s/%s", folder, name) < 0) return;
    if (!stat(path, &st) && st.st_mtime + 60 < time(NULL)) unlink(path);
    free(path);
}

/* Lists the copies; removes what processes that died have left. */
static ls_status list_folder(const char *folder, const char *own_key, listing *l)
{
    DIR *d = opendir(folder);
    if (!d) return ls__fail_errno("%s: cannot be listed", folder);
    ls_status status = LS_OK;
    for (struct dirent *e; !status && (e = readdir(d));) {
        entry n = { 0 };
        struct stat st;
        remove_stray_meta(folder, e->d_name);
        if (strlen(e->d_name) != 37 || strcmp(e->d_name + 32, ".lock")) continue;
        memcpy(n.key, e->d_name, 32);
        if (!strcmp(n.key, own_key)) continue;
        if (examine(folder, n.key, "data", &st)) n.whole = true, n.bytes += (uint64_t)st.st_size;
        if (examine(folder, n.key, "part", &st)) n.bytes += (uint64_t)st.st_size;
        if (examine(folder, n.key, "meta", &st)) n.used = ns_of(st.st_mtim);
        if (!n.whole && remove_copy(folder, n.key)) continue;
        if (l->count == l->room) {
            size_t room = 2 * l->room + 32;
            entry *grown = realloc(l->entries, room * sizeof *grown);
            if (!grown) status = ls__fail(LS_ENOMEM, "no memory to list '%s'", folder);
            if (!grown) break;
            l->entries = grown;
            l->room = room;
        }
        l->entries[l->count++] = n;
        l->used += n.bytes;
    }
    closedir(d);
    return status;
}

/* Removes the least recently used copy that is not in use; false if there is none. */
static bool evict(const char *folder, listing *l)
{
    for (;;) {
        entry *oldest = NULL;
        for (size_t i = 0; i < l->count; i++) {
            entry *e = &l->entries[i];
            if (e->whole && (!oldest || e->used < oldest->used)) oldest = e;
        }
        if (!oldest) return false;
        oldest->whole = false; /* looked at */
        if (!remove_copy(folder, oldest->key)) continue;
        ls__log(LS_LOG_INFO, "staging: %s/%s.data (%.1f MB) removed: the least recently used copy", folder, oldest->key,
                (double)oldest->bytes * 1e-6);
        l->used -= oldest->bytes;
        return true;
    }
}

static ls_status room_within(const ls__copy *c, listing *l, uint64_t bytes, uint64_t limit)
{
    for (;;) {
        uint64_t most = limit;
        struct statvfs fs;
        if (!limit) {
            if (statvfs(c->folder, &fs)) return ls__fail_errno("%s: the disk cannot be examined", c->folder);
            uint64_t available = (uint64_t)fs.f_bavail * fs.f_frsize;
            most = l->used + available - available / 20;
        }
        if (bytes <= most && l->used <= most - bytes) return LS_OK;
        if (!evict(c->folder, l))
            return ls__fail(LS_EIO, "%s: not enough space for %zu bytes: %zu of %zu are used by copies that are in use",
                            c->folder, (size_t)bytes, (size_t)l->used, (size_t)most);
    }
}

/* The space is allocated immediately, so that a full disk is noticed here, and other processes see how much is left. */
static ls_status open_part(ls__copy *c, listing *l, uint64_t bytes, int *part)
{
    char *path = ls__copy_path(c, "part");
    *part = path ? open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    ls_status status = *part < 0 ? ls__fail_errno("%s: cannot be written", c->folder) : LS_OK;
    while (!status && fallocate(*part, 0, 0, (off_t)bytes)) {
        int error = errno;
        if (error == EINTR || (error == ENOSPC && evict(c->folder, l))) continue;
        errno = error;
        if (error != EOPNOTSUPP || ftruncate(*part, (off_t)bytes))
            status = ls__fail_errno("%s: allocating %zu bytes", c->folder, (size_t)bytes);
        break;
    }
    if (status && *part >= 0) {
        close(*part);
        *part = -1;
        unlink(path);
    }
    free(path);
    return status;
}

ls_status ls__copy_make_room(ls__copy *c, uint64_t bytes, uint64_t limit, int *part)
{
    listing l = { 0 };
    *part = -1;
    char *path;
    if (asprintf(&path, "%s/lock", c->folder) < 0) return ls__fail(LS_ENOMEM, "out of memory");
    int lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    ls_status status = lock < 0 ? ls__fail_errno("%s: cannot be opened", path) : wait_for_lock(lock, LOCK_EX, c->stop);
    if (!status) {
        remove_file(c->folder, c->key, "data"); /* it was not valid, or it would have been used */
        remove_file(c->folder, c->key, "part");
        status = list_folder(c->folder, c->key, &l);
    }
    if (!status) status = room_within(c, &l, bytes, limit);
    if (!status) status = open_part(c, &l, bytes, part);
    if (lock >= 0) close(lock);
    free(l.entries);
    free(path);
    return status;
}
