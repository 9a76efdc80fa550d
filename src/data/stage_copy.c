/* Copies one file to the folder of copies. The bytes are hashed while they are copied; then the copy is synced, its cached pages
 * are dropped, and it is read back from the disk and hashed again. Only a copy with the same hash, of an original that has not
 * changed, gets its name. After an interruption a KEY.part remains, which is never read. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/file.h"
#include "base/status.h"
#include "data/stage.h"

enum { BLOCK = 4 << 20, META_LIMIT = 1 << 16 };

/* A file that was written to within the last moments may be written to again within the same tick of its clock, and its
 * time would not show it. So copying waits until the last change is this old. */
static const int64_t settled_ns = 1100000000;

static void hash_text(XXH3_state_t *state, char hash[33])
{
    XXH128_hash_t h = XXH3_128bits_digest(state);
    snprintf(hash, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

/* Reads up to `bytes`; fewer at the file's end. */
static ls_status read_block(int fd, uint8_t *out, size_t bytes, uint64_t offset, size_t *got)
{
    *got = 0;
    while (*got < bytes) {
        ssize_t n = pread(fd, out + *got, bytes - *got, (off_t)(offset + *got));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ls__fail_errno("reading at byte %zu", (size_t)offset + *got);
        if (!n) break;
        *got += (size_t)n;
    }
    return LS_OK;
}

static ls_status write_block(int fd, const uint8_t *data, size_t bytes, uint64_t offset)
{
    for (size_t put = 0; put < bytes;) {
        ssize_t n = pwrite(fd, data + put, bytes - put, (off_t)(offset + put));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ls__fail_errno("writing the copy at byte %zu", (size_t)offset + put);
        put += (size_t)n;
    }
    return LS_OK;
}

typedef struct pass {
    int from, to; /* to -1: only hash */
    uint64_t bytes;
    const _Atomic bool *stop;
    void (*done)(void *user, uint64_t bytes);
    void *user;
    int64_t read_ns; /* time in reads */
} pass;

static ls_status run_pass(pass *p, char hash[33])
{
    uint8_t *block = aligned_alloc(4096, BLOCK);
    XXH3_state_t *state = XXH3_createState();
    ls_status status = block && state ? LS_OK : ls__fail(LS_ENOMEM, "no memory to copy with");
    if (!status) XXH3_128bits_reset(state);
    for (uint64_t at = 0; !status && at < p->bytes;) {
        size_t want = p->bytes - at < BLOCK ? p->bytes - at : BLOCK, got;
        int64_t begin = ls_now();
        status = read_block(p->from, block, want, at, &got);
        p->read_ns += ls_now() - begin;
        if (!status && got < want)
            status = ls__fail(LS_EIO, "ends at byte %zu of %zu", (size_t)at + got, (size_t)p->bytes);
        if (!status) XXH3_128bits_update(state, block, got);
        if (!status && p->to >= 0) status = write_block(p->to, block, got, at);
        if (!status && p->stop && *p->stop) status = ls__fail(LS_EABORTED, "copying was cancelled");
        at += got;
        if (!status && p->done) p->done(p->user, got);
    }
    if (!status) hash_text(state, hash);
    XXH3_freeState(state);
    free(block);
    return status;
}

ls_status ls__copy_hash(int fd, uint64_t bytes, const _Atomic bool *stop, char hash[33])
{
    pass p = { .from = fd, .to = -1, .bytes = bytes, .stop = stop };
    return run_pass(&p, hash);
}

static void wait_until_settled(const ls__identity *id, const _Atomic bool *stop)
{
    for (;;) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        int64_t latest = id->modified > id->changed ? id->modified : id->changed;
        int64_t age = now.tv_sec * INT64_C(1000000000) + now.tv_nsec - latest;
        if (age < 0 || age > settled_ns || (stop && *stop)) return; /* from the future: its clock is not ours */
        nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    }
}

/* KEY.meta: what the copy is of. */
static ls_status write_meta(const ls__copy *c, const char *path, const ls__identity *id, const char *hash, int part)
{
    struct stat st = { 0 };
    char *name = ls__copy_path(c, "meta"), *text = NULL;
    ls_status status = fstat(part, &st) ? ls__fail_errno("examining the copy") : LS_OK;
    json_t *meta = json_pack("{s:s%, s:I, s:s, s:I}", "source", path, strlen(path), "bytes", (json_int_t)id->bytes,
                             "xxh3", hash, "written", (json_int_t)ls__identity_of(&st).modified);
    /* A path that is not valid UTF-8 is omitted; it is only for information. */
    if (!meta)
        meta = json_pack("{s:I, s:s, s:I}", "bytes", (json_int_t)id->bytes, "xxh3", hash, "written",
                         (json_int_t)ls__identity_of(&st).modified);
    if (meta) text = json_dumps(meta, JSON_INDENT(1));
    if (!status && (!name || !text)) status = ls__fail(LS_ENOMEM, "out of memory");
    if (!status) status = ls__file_write(name, text, strlen(text));
    json_decref(meta);
    free(text);
    free(name);
    return status;
}

/* Copies, and checks what arrived on the disk. */
static ls_status copy_and_check(ls__copy *c, int fd, const ls__identity *id, int part,
                                void (*done)(void *user, uint64_t bytes), void *user, ls__copy_times *times,
                                char hash[33])
{
    pass copy = { .from = fd, .to = part, .bytes = id->bytes, .stop = c->stop, .done = done, .user = user };
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    ls_status status = run_pass(&copy, hash);
    times->read_seconds = (double)copy.read_ns * 1e-9;
    if (status) return status;
    if (fsync(part)) return ls__fail_errno("syncing the copy");
    posix_fadvise(part, 0, 0, POSIX_FADV_DONTNEED);
    char again[33];
    pass check = { .from = part, .to = -1, .bytes = id->bytes, .stop = c->stop };
    status = run_pass(&check, again);
    times->verify_seconds = (double)check.read_ns * 1e-9;
    if (!status && strcmp(hash, again))
        status = ls__fail(LS_EIO, "the copy differs from what was written; the disk of '%s' may be faulty", c->folder);
    return status;
}

ls_status ls__copy_make(ls__copy *c, const char *path, int fd, const ls__identity *id, int part,
                        void (*done)(void *user, uint64_t bytes), void *user, ls__copy_times *times)
{
    char hash[33];
    struct stat now;
    char *part_name = ls__copy_path(c, "part"), *name = ls__copy_path(c, "data");
    ls_status status = part_name && name ? LS_OK : ls__fail(LS_ENOMEM, "out of memory");
    wait_until_settled(id, c->stop);
    if (!status) status = copy_and_check(c, fd, id, part, done, user, times, hash);
    /* The file that the name means now, not only the one that we hold open: it may have been replaced. */
    if (status != LS_EABORTED && status != LS_ENOMEM) {
        ls__identity later = { 0 };
        if (!stat(path, &now)) later = ls__identity_of(&now);
        if (!ls__identity_same(id, &later)) status = LS_PENDING;
    }
    if (!status) status = write_meta(c, path, id, hash, part);
    /* Never wider than the original's mode: only this user, who may read the original, can enter the folder. */
    if (!status && fchmod(part, 0400)) status = ls__fail_errno("protecting the copy");
    if (!status && rename(part_name, name)) status = ls__fail_errno("renaming the copy into place");
    if (status && part_name) unlink(part_name);
    close(part);
    if (!status) {
        int folder = open(c->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (folder >= 0) {
            fsync(folder); /* if this fails, the copy may be gone after a crash, and is made again */
            close(folder);
        }
    }
    free(part_name);
    free(name);
    return status;
}

bool ls__copy_valid(const ls__copy *c, const ls__identity *id, bool verify)
{
    char *name = ls__copy_path(c, "data"), *meta_name = ls__copy_path(c, "meta"), *text = NULL, hash[33];
    size_t bytes;
    struct stat st;
    json_t *meta = NULL;
    int fd = name ? open(name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    bool valid = fd >= 0 && meta_name && !fstat(fd, &st) && S_ISREG(st.st_mode) && (uint64_t)st.st_size == id->bytes &&
                 !ls__file_read(meta_name, META_LIMIT, &text, &bytes);
    if (valid) meta = json_loadb(text, bytes, 0, NULL);
    const char *expected = json_string_value(json_object_get(meta, "xxh3"));
    valid = valid && expected && json_integer_value(json_object_get(meta, "bytes")) == (json_int_t)id->bytes &&
            json_integer_value(json_object_get(meta, "written")) == (json_int_t)ls__identity_of(&st).modified;
    if (valid && verify) valid = !ls__copy_hash(fd, id->bytes, c->stop, hash) && !strcmp(hash, expected);
    if (valid) utimensat(AT_FDCWD, meta_name, NULL, 0); /* used now */
    json_decref(meta);
    if (fd >= 0) close(fd);
    free(text);
    free(name);
    free(meta_name);
    return valid;
}
