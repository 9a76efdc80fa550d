/* See event_file.h. Events from the ring are encoded into the buffer of one block; a full block is one write. */
#include "record/event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"

enum {
    ROOM = 64,   /* largest size of an event in bytes: five numbers of ten bytes */
    BATCH = 256, /* events read from the ring at a time */
    MAX_NAME = 200,
    MORE_HEAD = 80, /* bytes that the number of a segment adds to a head, at most */
    NAME_KINDS = LS_NAME_THREAD + 1,
    MAX_INDEX = 1 << 20
};

/* By index; entries may be NULL. */
typedef struct names {
    char **text;
    uint32_t count;
} names;

struct ls__event_file {
    const ls__ring *ring;
    uint64_t position, missed, missed_noted;
    char *path, *old_path, *head;
    int fd; /* -1: no file */
    size_t written, limit;
    size_t begun;            /* bytes of this segment that are its beginning: head, metadata, names */
    unsigned segment;        /* its number, from 0 */
    uint8_t *buffer, *spare; /* the block being filled; and for the beginning of a segment */
    ls__event_file_block block;
    int64_t last_time;
    int64_t own_time; /* of the file's own events; 0: now */
    double metadata[LS_METADATA_COUNT];
    uint32_t has_metadata;
    int64_t clock_ahead, clock_uncertainty;
    bool has_clock;
    names names[NAME_KINDS];
};

/* ---- Writing. */

static void give_up(ls__event_file *f, const char *why)
{
    if (f->fd < 0) return;
    ls__log(LS_LOG_WARNING, "%s: %s; recording stopped", f->path, why);
    close(f->fd);
    f->fd = -1;
}

static void write_all(ls__event_file *f, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes && f->fd >= 0) {
        ssize_t n = write(f->fd, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            give_up(f, n < 0 ? strerror(errno) : "the disk is full");
            return;
        }
        at += n;
        bytes -= (size_t)n;
        f->written += (size_t)n;
    }
}

static void rotate(ls__event_file *f);

static void write_block(ls__event_file *f)
{
    struct stat s;
    size_t bytes = sizeof f->block + f->block.bytes;
    if (f->block.count && f->fd >= 0 && !fstat(f->fd, &s) && !s.st_nlink)
        give_up(f, "was removed, or replaced by another record of the same rank");
    /* What does not come from a ring is finite, and is kept as a whole. */
    if (f->block.count && f->fd >= 0 && f->ring && f->begun && f->written > f->begun && f->written + bytes > f->limit)
        rotate(f);
    uint8_t *start = f->buffer;
    if (f->block.count && f->fd >= 0) {
        f->block.magic = LS__EVENT_FILE_BLOCK_MAGIC;
        memcpy(start, &f->block, sizeof f->block);
        f->block.sum = XXH3_64bits(start + sizeof f->block.sum, sizeof f->block - sizeof f->block.sum + f->block.bytes);
        memcpy(start, &f->block.sum, sizeof f->block.sum);
        write_all(f, start, bytes);
    }
    /* Also after a failed write: the buffer must not overflow. */
    f->block.bytes = f->block.count = 0;
}

static void put(ls__event_file *f, uint64_t value)
{
    uint8_t *at = f->buffer + sizeof f->block + f->block.bytes;
    uint32_t n = 0;
    for (; value >= 0x80; value >>= 7) at[n++] = (uint8_t)(value | 0x80);
    at[n++] = (uint8_t)value;
    f->block.bytes += n;
}

/* Makes room for one more entry of this kind. */
static void need(ls__event_file *f, ls__event_file_content content, size_t bytes)
{
    if (f->block.count &&
        (f->block.content != (uint32_t)content || f->block.bytes + bytes > LS__EVENT_FILE_BLOCK_BYTES))
        write_block(f);
    f->block.content = content;
}

static void add_event(ls__event_file *f, const ls_event *e)
{
    need(f, LS__EVENT_FILE_EVENTS, ROOM);
    if (!f->block.count) f->block.time = f->last_time = e->time;
    int64_t step = (int64_t)((uint64_t)e->time - (uint64_t)f->last_time);
    f->last_time = e->time;
    put(f, e->kind);
    put(f, e->thread);
    put(f, (uint64_t)step << 1 ^ (uint64_t)(step >> 63));
    put(f, e->a);
    put(f, e->b);
    f->block.count++;
}

static void add_own(ls__event_file *f, ls_event_kind kind, uint64_t a, uint64_t b)
{
    add_event(f, &(ls_event){ .time = f->own_time ? f->own_time : ls_now(), .kind = kind, .a = a, .b = b });
}

static void add_name(ls__event_file *f, ls_name_kind kind, uint32_t index)
{
    const char *text = f->names[kind].text[index];
    size_t length = strlen(text);
    need(f, LS__EVENT_FILE_NAMES, ROOM + length);
    put(f, kind);
    put(f, index);
    put(f, length);
    memcpy(f->buffer + sizeof f->block + f->block.bytes, text, length);
    f->block.bytes += (uint32_t)length;
    f->block.count++;
}

static void add_metadata(ls__event_file *f, int kind)
{
    uint64_t bits;
    memcpy(&bits, &f->metadata[kind], sizeof bits);
    add_own(f, LS_EVENT_METADATA, (uint64_t)kind, bits);
}

/* ---- Segments. */

/* The head's JSON object, with which segment this is. */
static ls_status write_head(ls__event_file *f)
{
    char more[MORE_HEAD] = "}";
    size_t length = strlen(f->head);
    if (f->ring && length > 2 && f->head[length - 1] == '}')
        snprintf(more, sizeof more, ",\"segment\":%u,\"segment_bytes\":%zu}", f->segment, f->limit);
    uint32_t numbers[2] = { LS__EVENT_FILE_VERSION, (uint32_t)(length ? length - 1 + strlen(more) : 0) };
    size_t bytes = 16 + (size_t)numbers[1];
    char *text = malloc(bytes + 1);
    if (!text) return ls__fail(LS_ENOMEM, "record: out of memory");
    memcpy(text, LS__EVENT_FILE_MAGIC, 8);
    memcpy(text + 8, numbers, sizeof numbers);
    snprintf(text + 16, (size_t)numbers[1] + 1, "%.*s%s", (int)length - 1, f->head, more);
    uint64_t sum = XXH3_64bits(text, bytes);
    write_all(f, text, bytes);
    write_all(f, &sum, sizeof sum);
    free(text);
    return LS_OK;
}

static ls_status begin_segment(ls__event_file *f)
{
    ls_status status = ls__file_create(f->path, O_WRONLY, &f->fd);
    if (status) return status;
    f->written = f->begun = 0;
    status = write_head(f);
    if (status) return status;
    for (int i = 0; i < LS_METADATA_COUNT; i++)
        if (f->has_metadata >> i & 1) add_metadata(f, i);
    if (f->has_clock) add_own(f, LS_EVENT_CLOCK, (uint64_t)f->clock_ahead, (uint64_t)f->clock_uncertainty);
    for (int kind = 0; kind < NAME_KINDS; kind++)
        for (uint32_t i = 0; i < f->names[kind].count; i++)
            if (f->names[kind].text[i]) add_name(f, (ls_name_kind)kind, i);
    write_block(f);
    f->begun = f->written;
    return f->fd >= 0 ? LS_OK : ls__fail(LS_EIO, "%s: cannot write", f->path);
}

/* Starts a new segment, which the block in the buffer will be part of. */
static void rotate(ls__event_file *f)
{
    ls__event_file_block block = f->block;
    uint8_t *buffer = f->buffer;
    f->buffer = f->spare;
    f->block.bytes = f->block.count = 0;
    close(f->fd);
    f->fd = -1;
    f->segment++;
    if (rename(f->path, f->old_path) || begin_segment(f)) {
        ls__log(LS_LOG_WARNING, "%s: cannot start a new segment; recording stopped", f->path);
        if (f->fd >= 0) close(f->fd);
        f->fd = -1;
    }
    f->buffer = buffer;
    f->block = block;
}

ls__event_file *ls__event_file_new(const ls__ring *ring)
{
    ls__event_file *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    f->fd = -1;
    f->ring = ring;
    f->buffer = malloc(sizeof f->block + LS__EVENT_FILE_BLOCK_BYTES + ROOM);
    f->spare = malloc(sizeof f->block + LS__EVENT_FILE_BLOCK_BYTES + ROOM);
    if (!f->buffer || !f->spare) ls__event_file_free(&f);
    return f;
}

static void free_texts(ls__event_file *f)
{
    free(f->path);
    free(f->old_path);
    free(f->head);
    f->path = f->old_path = f->head = NULL;
}

/* Events that were overwritten before the file was started do not count as lost. */
static void find_first(ls__event_file *f)
{
    if (!f->ring) return;
    uint64_t head = ls__ring_head(f->ring), capacity = ls__ring_capacity(f->ring);
    if (head > capacity && f->position < head - capacity) f->position = head - capacity;
    f->missed = f->missed_noted = 0;
}

ls_status ls__event_file_start(ls__event_file *f, const char *folder, int rank, const char *head, size_t segment_bytes)
{
    if (strlen(head) + MORE_HEAD > LS__EVENT_FILE_HEAD)
        return ls__fail(LS_EINVAL, "record: a header of %zu bytes is too long", strlen(head));
    ls_status status = ls__file_make_own_dir(folder);
    if (status) return status;
    free_texts(f);
    f->limit = segment_bytes ? segment_bytes : LS__EVENT_FILE_SEGMENT;
    f->block.bytes = f->block.count = f->segment = 0;
    f->head = strdup(head);
    if (asprintf(&f->path, "%s/rank-%d.bin", folder, rank) < 0) f->path = NULL;
    if (asprintf(&f->old_path, "%s/rank-%d.old.bin", folder, rank) < 0) f->old_path = NULL;
    if (!f->head || !f->path || !f->old_path) status = ls__fail(LS_ENOMEM, "record: out of memory");
    if (!status && unlink(f->old_path) && errno != ENOENT) status = ls__fail_errno("%s: cannot remove", f->old_path);
    if (!status) find_first(f);
    if (!status) status = begin_segment(f);
    if (!status) ls__event_file_drain(f, false); /* before more events are overwritten */
    if (status && f->fd >= 0) {
        close(f->fd);
        f->fd = -1;
    }
    return status;
}

bool ls__event_file_is_open(const ls__event_file *f)
{
    return f->fd >= 0;
}

bool ls__event_file_stop(ls__event_file *f)
{
    if (f->fd < 0) return false;
    ls__event_file_drain(f, true);
    add_own(f, LS_EVENT_END, 0, 0);
    write_block(f);
    bool ok = f->fd >= 0 && !close(f->fd);
    f->fd = -1;
    return ok;
}

void ls__event_file_free(ls__event_file **pf)
{
    ls__event_file *f = *pf;
    if (!f) return;
    ls__event_file_stop(f);
    for (int kind = 0; kind < NAME_KINDS; kind++) {
        for (uint32_t i = 0; i < f->names[kind].count; i++) free(f->names[kind].text[i]);
        free(f->names[kind].text);
    }
    free_texts(f);
    free(f->buffer);
    free(f->spare);
    free(f);
    *pf = NULL;
}

/* ---- Input. */

/* Adds an event: events were lost before `time`. */
static void note_missed(ls__event_file *f, int64_t time)
{
    if (f->missed == f->missed_noted) return;
    add_event(f, &(ls_event){ .time = time, .kind = LS_EVENT_LOST, .a = f->missed - f->missed_noted });
    f->missed_noted = f->missed;
}

void ls__event_file_drain(ls__event_file *f, bool now)
{
    ls_event batch[BATCH];
    size_t n;
    if (f->fd < 0 || !f->ring) return;
    while ((n = ls__ring_read(f->ring, &f->position, batch, BATCH, &f->missed))) {
        note_missed(f, batch[0].time);
        for (size_t i = 0; i < n; i++) add_event(f, &batch[i]);
    }
    note_missed(f, ls_now());
    if (now) write_block(f);
}

void ls__event_file_add(ls__event_file *f, const ls_event *e)
{
    f->own_time = e->time;
    if (f->fd >= 0) add_event(f, e);
}

void ls__event_file_drain_if_full(ls__event_file *f)
{
    if (ls__ring_head(f->ring) - f->position > ls__ring_capacity(f->ring) / 4) ls__event_file_drain(f, false);
}

void ls__event_file_skip(ls__event_file *f)
{
    f->position = ls__ring_head(f->ring);
}

void ls__event_file_metadata(ls__event_file *f, ls_metadata_kind kind, double value)
{
    if ((unsigned)kind >= LS_METADATA_COUNT) return;
    f->metadata[kind] = value;
    f->has_metadata |= 1u << kind;
    if (f->fd >= 0) add_metadata(f, (int)kind);
}

void ls__event_file_clock(ls__event_file *f, int64_t ahead, int64_t uncertainty)
{
    f->clock_ahead = ahead;
    f->clock_uncertainty = uncertainty;
    f->has_clock = true;
    if (f->fd >= 0) add_own(f, LS_EVENT_CLOCK, (uint64_t)ahead, (uint64_t)uncertainty);
}

/* If memory runs out, the name is missing in reports. */
void ls__event_file_name(ls__event_file *f, ls_name_kind kind, uint32_t index, const char *text)
{
    if ((unsigned)kind >= NAME_KINDS || index >= MAX_INDEX) return;
    names *n = &f->names[kind];
    if (index >= n->count) {
        uint32_t room = n->count < 64 ? 64 : 2 * n->count;
        if (room <= index) room = index + 1;
        char **more = reallocarray(n->text, room, sizeof *more);
        if (!more) return;
        memset(more + n->count, 0, (room - n->count) * sizeof *more);
        n->text = more;
        n->count = room;
    }
    char *copy = strndup(text, MAX_NAME);
    if (!copy) return;
    free(n->text[index]);
    n->text[index] = copy;
    if (f->fd >= 0) add_name(f, kind, index);
}
