/* See input.h. Compressed files are recognized by their first bytes, never by their name. */
#include "import/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include "base/status.h"

enum {
    BLOCK = 1 << 16,
    MAX_WINDOW_LOG = 27,
    FRAME_HEAD = 18
}; /* FRAME_HEAD: bytes of a zstd frame's header, at most */

typedef enum packing { PLAIN, GZIP, ZSTD } packing;

struct ls__input {
    int fd;
    const char *path;
    uint8_t *block; /* as it was read */
    size_t at, end; /* of the block */
    bool over;      /* the file's end was read */
    bool cut;
    bool begun; /* a gzip member or zstd frame is under way */
    packing packing;
    _Atomic uint64_t position; /* read by the thread that shows progress */
    uint64_t size;
    z_stream gzip;
    ZSTD_DStream *zstd;
    /* bytes of text that the zstd frame under way has yet to give; UINT64_MAX: it does not state its size */
    uint64_t frame_left;
};

/* Reads on. What is left of the block comes first. */
static ls_status fill(ls__input *in)
{
    memmove(in->block, in->block + in->at, in->end - in->at);
    in->end -= in->at;
    in->at = 0;
    while (!in->over && in->end < BLOCK) {
        ssize_t n = in->fd < 0 ? 0 : read(in->fd, in->block + in->end, BLOCK - in->end);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ls__fail_errno("%s: cannot be read", in->path);
        in->over = n == 0;
        in->end += (size_t)n;
        atomic_fetch_add_explicit(&in->position, (uint64_t)n, memory_order_relaxed);
        if (n > 0) break; /* what is there; a pipe may be slow */
    }
    return LS_OK;
}

/* Whether a frame of zstd begins here, or one to be skipped, with which files of pzstd begin. libzstd would also read the formats
 * from before version 1, with code that is less careful. */
static bool is_zstd_frame(const ls__input *in)
{
    uint32_t mark = 0;
    if (in->end - in->at < sizeof mark) return false;
    memcpy(&mark, in->block + in->at, sizeof mark);
    return mark == ZSTD_MAGICNUMBER || (mark & ZSTD_MAGIC_SKIPPABLE_MASK) == ZSTD_MAGIC_SKIPPABLE_START;
}

/* The first bytes of what is next, enough to tell what it is, as far as there are that many. */
static ls_status fill_head(ls__input *in)
{
    ls_status status = LS_OK;
    while (!status && !in->over && in->end - in->at < FRAME_HEAD) status = fill(in);
    return status;
}

static ls_status recognize(ls__input *in)
{
    ls_status status = fill_head(in);
    if (status) return status;
    const uint8_t *b = in->block;
    if (in->end >= 2 && b[0] == 0x1f && b[1] == 0x8b) in->packing = GZIP;
    if (is_zstd_frame(in)) in->packing = ZSTD;
    if (in->packing == GZIP && inflateInit2(&in->gzip, 15 + 16) != Z_OK) {
        in->packing = PLAIN; /* nothing to free */
        return ls__fail(LS_ENOMEM, "%s: no memory to decompress it", in->path);
    }
    if (in->packing == ZSTD) {
        in->zstd = ZSTD_createDStream();
        if (!in->zstd) return ls__fail(LS_ENOMEM, "%s: no memory to decompress it", in->path);
        ZSTD_DCtx_setParameter(in->zstd, ZSTD_d_windowLogMax, MAX_WINDOW_LOG);
    }
    return LS_OK;
}

static ls_status open_input(ls__input **out, const char *path, int fd, const void *data, size_t bytes)
{
    ls__input *in = calloc(1, sizeof *in);
    *out = NULL;
    if (!in) {
        if (fd > 0) close(fd);
        return ls__fail(LS_ENOMEM, "%s: out of memory", path);
    }
    in->fd = fd;
    in->path = path;
    in->block = malloc(bytes > BLOCK ? bytes : BLOCK);
    ls_status status = in->block ? LS_OK : ls__fail(LS_ENOMEM, "%s: out of memory", path);
    if (!status && fd < 0) {
        memcpy(in->block, data, bytes);
        in->end = bytes;
        in->over = true;
    }
    struct stat s;
    if (fd >= 0 && !fstat(fd, &s) && S_ISREG(s.st_mode)) in->size = (uint64_t)s.st_size;
    if (fd >= 0 && !fstat(fd, &s) && S_ISDIR(s.st_mode)) status = ls__fail(LS_EINVAL, "%s: is a folder", path);
    if (!status) status = recognize(in);
    if (status) ls__input_free(&in);
    *out = in;
    return status;
}

ls_status ls__input_open(ls__input **out, const char *path)
{
    bool standard = !strcmp(path, "-");
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    *out = NULL;
    if (fd < 0) return ls__fail_errno("%s: cannot be opened", path);
    return open_input(out, standard ? "standard input" : path, fd, NULL, 0);
}

ls_status ls__input_open_memory(ls__input **out, const void *data, size_t bytes)
{
    return open_input(out, "memory", -1, data, bytes);
}

void ls__input_free(ls__input **pin)
{
    ls__input *in = *pin;
    if (!in) return;
    if (in->packing == GZIP) inflateEnd(&in->gzip);
    ZSTD_freeDStream(in->zstd);
    if (in->fd > STDIN_FILENO) close(in->fd);
    free(in->block);
    free(in);
    *pin = NULL;
}

/* Several members in a row are one text, as gzip has it; what follows the last member must be padding. */
static ls_status read_gzip(ls__input *in, void *out, size_t bytes, size_t *got)
{
    z_stream *z = &in->gzip;
    z->next_out = out;
    z->avail_out = (uInt)bytes;
    while (z->avail_out == bytes && !in->cut) {
        if (in->at == in->end) {
            ls_status status = in->over ? LS_OK : fill(in);
            if (status) return status;
        }
        bool none = in->at == in->end;
        if (!in->begun && (none || in->block[in->at] != 0x1f)) {
            if (!none && in->block[in->at]) in->cut = true;
            break;
        }
        in->begun = true;
        z->next_in = in->block + in->at;
        z->avail_in = (uInt)(in->end - in->at);
        int code = inflate(z, Z_NO_FLUSH);
        in->at = in->end - z->avail_in;
        if (code == Z_STREAM_END) {
            in->begun = false;
            inflateReset(z);
        } else if ((code != Z_OK && code != Z_BUF_ERROR) || (none && z->avail_out == bytes)) {
            in->cut = true; /* corrupt; or what was read before has given all that it can */
        }
    }
    *got = bytes - z->avail_out;
    return LS_OK;
}

/* The size of the text that a frame states; UINT64_MAX: it does not. */
static uint64_t frame_size(const ls__input *in)
{
    unsigned long long size = ZSTD_getFrameContentSize(in->block + in->at, in->end - in->at);
    return size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR ? UINT64_MAX : size;
}

/* The memory that a frame needs for what it refers back to: the whole text if it is one segment; else as its window descriptor
 * states, an exponent and eighths. 0: its header is not complete. libzstd checks this only for frames that it does not decompress
 * at once. */
static uint64_t frame_window(const ls__input *in)
{
    const uint8_t *head = in->block + in->at;
    if (in->end - in->at < 6 || head[3] != 0xfd) return 0; /* or it is one to be skipped */
    if (head[4] & 0x20) return frame_size(in) == UINT64_MAX ? 0 : frame_size(in);
    return (UINT64_C(1) << (10 + (head[5] >> 3))) / 8 * (8 + (head[5] & 7));
}

static ls_status begin_frame(ls__input *in)
{
    in->frame_left = frame_size(in);
    if (frame_window(in) <= UINT64_C(1) << MAX_WINDOW_LOG) return LS_OK;
    return ls__fail(
        LS_EFORMAT,
        "its zstd frame needs %llu MiB of memory, and at most %d are given (zstd --long): decompress it first, with "
        "zstd -d --long=31",
        (unsigned long long)(frame_window(in) >> 20), 1 << (MAX_WINDOW_LOG - 20));
}

static ls_status read_zstd(ls__input *in, void *out, size_t bytes, size_t *got)
{
    ZSTD_outBuffer to = { .dst = out, .size = bytes };
    while (!to.pos && !in->cut) {
        ls_status status = !in->begun ? fill_head(in) : in->at == in->end && !in->over ? fill(in) : LS_OK;
        if (status) return status;
        if (in->at == in->end && !in->begun) break;
        if (!in->begun && !is_zstd_frame(in)) {
            in->cut = true; /* what follows the last frame is none */
            break;
        }
        if (!in->begun && (status = begin_frame(in))) return status;
        ZSTD_inBuffer from = { .src = in->block, .size = in->end, .pos = in->at };
        size_t code = ZSTD_decompressStream(in->zstd, &to, &from);
        bool idle = from.pos == in->at && !to.pos;
        in->at = from.pos;
        in->begun = code != 0;
        if (in->frame_left != UINT64_MAX) in->frame_left -= to.pos < in->frame_left ? to.pos : in->frame_left;
        if (ZSTD_isError(code) || (idle && in->at == in->end && in->begun)) in->cut = true;
        /* libzstd checks this for frames that it decompresses at once, but not if the last block of others is empty. */
        if (!code && in->frame_left && in->frame_left != UINT64_MAX) in->cut = true;
    }
    *got = to.pos;
    return LS_OK;
}

ls_status ls__input_read(ls__input *in, void *out, size_t bytes, size_t *got)
{
    if (bytes > 1u << 30) bytes = 1u << 30;
    if (in->packing == GZIP) return read_gzip(in, out, bytes, got);
    if (in->packing == ZSTD) return read_zstd(in, out, bytes, got);
    ls_status status = in->at == in->end && !in->over ? fill(in) : LS_OK;
    *got = in->end - in->at < bytes ? in->end - in->at : bytes;
    memcpy(out, in->block + in->at, *got);
    in->at += *got;
    return status;
}

bool ls__input_is_cut(const ls__input *in)
{
    return in->cut;
}

uint64_t ls__input_position(const ls__input *in)
{
    return atomic_load_explicit(&in->position, memory_order_relaxed);
}

uint64_t ls__input_size(const ls__input *in)
{
    return in->size;
}
