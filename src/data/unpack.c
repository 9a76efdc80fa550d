/* Compressed files: gzip by zlib, zstd by libzstd, both block by block, so memory does not depend on the size of the text.
 *
 * A file may be several concatenated ones, as `cat` and parallel compressors make them. The decompressed size is limited: text that
 * is compressed by more than a factor of 256 is a decompression bomb. (Prose is compressed by 3 or 4; gzip by at most 1,032.)
 *
 * Training needs random access to text, which compressed files do not allow, so they are decompressed to the disk. */
#include "data/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>
#include "base/status.h"

enum { INPUT = 1 << 17, BLOCK = 1 << 20, MAX_RATIO = 256, WINDOW_LOG = 27 };
static const uint64_t ratio_from = 64 << 20; /* bytes of text; below that any ratio will do */

struct ls__unpack {
    const ls__source *file;
    uint64_t read;       /* bytes of the file that went through `input` */
    uint64_t made;       /* bytes of text */
    size_t held, at;     /* bytes in `input`, and how many of them are used up */
    bool begun;          /* the first part of the file was begun */
    bool between, ended; /* between two parts; after the last */
    bool z_open;
    z_stream z;
    ZSTD_DCtx *zstd;
    uint8_t input[INPUT];
};

uint64_t ls__unpack_position(const ls__unpack *u)
{
    return u->read - (u->held - u->at);
}

ls_status ls__unpack_open(ls__unpack **out, const ls__source *file)
{
    *out = NULL;
    ls__unpack *u = calloc(1, sizeof *u);
    if (!u) return ls__fail(LS_ENOMEM, "%s: no memory to decompress it", file->path);
    u->file = file;
    u->between = true;
    if (file->packing == LS__PACKED_GZIP) {
        u->z_open = inflateInit2(&u->z, 15 + 16) == Z_OK; /* the largest window; gzip's header */
    } else {
        u->zstd = ZSTD_createDCtx();
        if (u->zstd) ZSTD_DCtx_setParameter(u->zstd, ZSTD_d_windowLogMax, WINDOW_LOG);
    }
    if (!u->z_open && !u->zstd) {
        ls__unpack_free(&u);
        return ls__fail(LS_ENOMEM, "%s: no memory to decompress it", file->path);
    }
    *out = u;
    return LS_OK;
}

void ls__unpack_free(ls__unpack **unpack)
{
    ls__unpack *u = *unpack;
    if (!u) return;
    if (u->z_open) inflateEnd(&u->z);
    ZSTD_freeDCtx(u->zstd);
    free(u);
    *unpack = NULL;
}

static ls_status corrupt(const ls__unpack *u, const char *what, const char *detail)
{
    return ls__fail(LS_EFORMAT, "%s: byte %zu: %s%s%s", u->file->path, (size_t)ls__unpack_position(u), what,
                    detail ? ": " : "", detail ? detail : "");
}

/* Makes sure that there are `least` bytes of input, if the file has that many left. */
static ls_status fill(ls__unpack *u, size_t least)
{
    size_t kept = u->held - u->at;
    if (kept >= least) return LS_OK;
    memmove(u->input, u->input + u->at, kept);
    u->held = kept;
    u->at = 0;
    uint64_t left = u->file->bytes - u->read;
    size_t n = left < INPUT - kept ? left : INPUT - kept;
    ls_status status = ls__source_read(u->file, u->input + kept, n, u->read);
    if (status) return status;
    u->held += n;
    u->read += n;
    return LS_OK;
}

/* gzip's files may be filled up with zeros, as tapes want it. */
static ls_status skip_zeros(ls__unpack *u)
{
    ls_status status = LS_OK;
    while (!status && !(status = fill(u, 1)) && u->at < u->held && !u->input[u->at]) u->at++;
    return status;
}

static ls_status step_gzip(ls__unpack *u, uint8_t *out, size_t bytes, size_t *made)
{
    if (u->between) {
        ls_status status = u->begun ? skip_zeros(u) : LS_OK;
        if (status) return status;
        if (u->at == u->held) {
            u->ended = true;
            return LS_OK;
        }
        inflateReset(&u->z);
        u->between = false;
        u->begun = true;
    }
    u->z.next_in = u->input + u->at;
    u->z.avail_in = (uInt)(u->held - u->at);
    u->z.next_out = out;
    u->z.avail_out = (uInt)bytes;
    int result = inflate(&u->z, Z_NO_FLUSH);
    u->at = u->held - u->z.avail_in;
    *made = bytes - u->z.avail_out;
    u->between = result == Z_STREAM_END;
    if (result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR) return LS_OK;
    if (result == Z_MEM_ERROR) return ls__fail(LS_ENOMEM, "%s: no memory to decompress it", u->file->path);
    return corrupt(u, "corrupt gzip data", u->z.msg);
}

/* A frame begins with zstd's mark, or is one to be skipped. libzstd would also read the formats from before version 1, with
 * code that is less careful. */
static ls_status check_frame(ls__unpack *u)
{
    uint32_t mark = 0;
    ls_status status = fill(u, sizeof mark);
    if (status || u->held - u->at < sizeof mark)
        return status; /* too short: the library reports that the file is truncated */
    memcpy(&mark, u->input + u->at, sizeof mark);
    if (mark == ZSTD_MAGICNUMBER || (mark & ZSTD_MAGIC_SKIPPABLE_MASK) == ZSTD_MAGIC_SKIPPABLE_START) return LS_OK;
    return corrupt(u, "corrupt zstd data", "not followed by a zstd frame");
}

static ls_status step_zstd(ls__unpack *u, uint8_t *out, size_t bytes, size_t *made)
{
    if (u->between && u->at == u->held) {
        u->ended = true;
        return LS_OK;
    }
    ls_status status = u->between ? check_frame(u) : LS_OK;
    if (status) return status;
    ZSTD_inBuffer in = { u->input, u->held, u->at };
    ZSTD_outBuffer to = { out, bytes, 0 };
    size_t result = ZSTD_decompressStream(u->zstd, &to, &in);
    if (!ZSTD_isError(result)) {
        u->at = in.pos;
        *made = to.pos;
        u->between = result == 0;
        return LS_OK;
    }
    ZSTD_ErrorCode code = ZSTD_getErrorCode(result);
    if (code == ZSTD_error_memory_allocation)
        return ls__fail(LS_ENOMEM, "%s: no memory to decompress it", u->file->path);
    if (code == ZSTD_error_frameParameter_windowTooLarge)
        return corrupt(u, "decompression needs more than the limit of 128 MiB of memory; compress it without --long",
                       NULL);
    return corrupt(u, "corrupt zstd data", ZSTD_getErrorName(result));
}

ls_status ls__unpack_read(ls__unpack *u, void *out, size_t bytes, size_t *got)
{
    ls_status status = LS_OK;
    *got = 0;
    while (!status && *got < bytes && !u->ended) {
        size_t made = 0, left = bytes - *got < BLOCK ? bytes - *got : BLOCK;
        uint64_t before = ls__unpack_position(u);
        bool was_between = u->between;
        status = fill(u, 1);
        if (status) break;
        status = u->zstd ? step_zstd(u, (uint8_t *)out + *got, left, &made)
                         : step_gzip(u, (uint8_t *)out + *got, left, &made);
        *got += made;
        u->made += made;
        if (status || u->ended) break;
        if (!made && ls__unpack_position(u) == before && !(u->between && !was_between))
            status = corrupt(u, "unexpected end of the compressed data; the file is truncated", NULL);
        else if (u->made > ratio_from && u->made / MAX_RATIO > ls__unpack_position(u))
            status = corrupt(u,
                             "decompresses to more than 256 times its size, like a decompression bomb; if that is "
                             "intended, decompress it first",
                             NULL);
    }
    return status;
}

/* ---- To the disk. */

/* A file without a name. */
static ls_status open_nameless(const char *folder, int *fd)
{
    *fd = open(folder, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    if (*fd >= 0) return LS_OK;
    if (errno != EOPNOTSUPP && errno != EISDIR &&
        errno != ENOENT) /* the latter: kernels and disks that know no such file */
        return ls__fail_errno("%s: cannot decompress files here; set TMPDIR to another folder", folder);
    char path[4096];
    if (snprintf(path, sizeof path, "%s/lockstep-unpacked-XXXXXX", folder) >= (int)sizeof path)
        return ls__fail(LS_EINVAL, "%s: folder name too long", folder);
    *fd = mkostemp(path, O_CLOEXEC);
    if (*fd < 0) return ls__fail_errno("%s: cannot decompress files here; set TMPDIR to another folder", folder);
    unlink(path);
    return LS_OK;
}

static ls_status write_all(int fd, const uint8_t *data, size_t bytes, uint64_t at, const char *folder)
{
    while (bytes) {
        ssize_t n = pwrite(fd, data, bytes, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ls__fail_errno("%s: writing decompressed text", folder);
        data += n;
        at += (size_t)n;
        bytes -= (size_t)n;
    }
    return LS_OK;
}

/* A twentieth of the disk stays free. */
static ls_status check_room(const ls__source *file, int fd, const char *folder, uint64_t used)
{
    struct statvfs fs;
    if (fstatvfs(fd, &fs) || fs.f_bavail > fs.f_blocks / 20) return LS_OK;
    return ls__fail(LS_EIO,
                    "%s: not enough space in %s to decompress it (%zu bytes so far); set TMPDIR to another folder, or "
                    "convert it to shards first: lockstep data tokenize",
                    file->path, folder, (size_t)used);
}

static ls_status unpack_one(ls__source *file, int fd, uint64_t base, uint8_t *block, const char *folder)
{
    ls__unpack *u;
    uint64_t bytes = 0;
    size_t got = BLOCK;
    ls_status status = ls__unpack_open(&u, file);
    while (!status && got == BLOCK) {
        status = ls__unpack_read(u, block, BLOCK, &got);
        if (!status) status = check_room(file, fd, folder, base + bytes);
        if (!status) status = write_all(fd, block, got, base + bytes, folder);
        bytes += got;
    }
    ls__unpack_free(&u);
    if (status) return status;
    if (file->fd >= 0) close(file->fd);
    file->fd = fd;
    file->base = base;
    file->bytes = bytes;
    file->packing = LS__PACKED_NOT;
    file->unpacked = true;
    return LS_OK;
}

ls_status ls__sources_unpack(ls__sources *s)
{
    const char *set = getenv("TMPDIR"), *folder = set && *set ? set : "/var/tmp";
    uint64_t base = 0;
    uint8_t *block = NULL;
    ls_status status = LS_OK;
    for (size_t i = 0; !status && i < s->count; i++) {
        if (s->files[i].packing == LS__PACKED_NOT) continue;
        if (!block && !(block = malloc(BLOCK))) status = ls__fail(LS_ENOMEM, "no memory to decompress files");
        if (!status && s->unpacked_fd < 0) status = open_nameless(folder, &s->unpacked_fd);
        if (!status) status = unpack_one(&s->files[i], s->unpacked_fd, base, block, folder);
        if (!status) base += s->files[i].bytes;
    }
    free(block);
    return status;
}
