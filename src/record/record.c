/* See record.h. Events are encoded as they are taken from the ring, into one block's buffer; a full block is one write. */
#include "record/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"

enum {
    ROOM = 64,   /* bytes that an event needs at most: five numbers of ten bytes */
    BATCH = 256, /* events taken from the ring at a time */
    MAX_NAME = 200
};

typedef struct name {
    uint32_t kind, index;
    char *text;
} name;

struct ls__record {
    const ls__ring *ring;
    uint64_t position, missed, missed_noted;
    char *path, *old_path, *head;
    int fd; /* -1: stopped */
    size_t written, limit;
    uint8_t *buffer; /* the block being filled */
    ls__record_block block;
    int64_t last_time;
    double facts[LS_FACTS];
    uint32_t has_fact;
    int64_t clock_ahead, clock_uncertainty;
    bool has_clock;
    name *names;
    size_t n_names;
};

/* ---- Writing. */

static void stop(ls__record *r, const char *why)
{
    if (r->fd < 0) return;
    ls__log(LS_LOG_WARNING, "%s: %s; events are not recorded any more", r->path, why);
    close(r->fd);
    r->fd = -1;
}

static void write_all(ls__record *r, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes && r->fd >= 0) {
        ssize_t n = write(r->fd, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            stop(r, n < 0 ? strerror(errno) : "the disk is full");
            return;
        }
        at += n;
        bytes -= (size_t)n;
        r->written += (size_t)n;
    }
}

static void write_block(ls__record *r)
{
    if (!r->block.count || r->fd < 0) return;
    uint8_t *start = r->buffer;
    r->block.magic = LS__RECORD_BLOCK_MAGIC;
    memcpy(start, &r->block, sizeof r->block);
    r->block.sum = XXH3_64bits(start + sizeof r->block.sum, sizeof r->block - sizeof r->block.sum + r->block.bytes);
    memcpy(start, &r->block.sum, sizeof r->block.sum);
    write_all(r, start, sizeof r->block + r->block.bytes);
    r->block.bytes = r->block.count = 0;
}

static void put(ls__record *r, uint64_t value)
{
    uint8_t *at = r->buffer + sizeof r->block + r->block.bytes;
    uint32_t n = 0;
    for (; value >= 0x80; value >>= 7) at[n++] = (uint8_t)(value | 0x80);
    at[n++] = (uint8_t)value;
    r->block.bytes += n;
}

/* Makes room for one more entry of this kind. */
static void need(ls__record *r, ls__record_content content, size_t bytes)
{
    if (r->block.count && (r->block.content != (uint32_t)content || r->block.bytes + bytes > LS__RECORD_BLOCK_BYTES))
        write_block(r);
    r->block.content = content;
}

static void add_event(ls__record *r, const ls__event *e)
{
    need(r, LS__RECORD_EVENTS, ROOM);
    if (!r->block.count) r->block.time = r->last_time = e->time;
    int64_t step = (int64_t)((uint64_t)e->time - (uint64_t)r->last_time);
    r->last_time = e->time;
    put(r, e->kind);
    put(r, e->thread);
    put(r, (uint64_t)step << 1 ^ (uint64_t)(step >> 63));
    put(r, e->a);
    put(r, e->b);
    r->block.count++;
}

static void add_own(ls__record *r, ls__event_kind kind, uint64_t a, uint64_t b)
{
    add_event(r, &(ls__event){ .time = ls_now(), .kind = kind, .a = a, .b = b });
}

static void add_name(ls__record *r, const name *n)
{
    size_t length = strlen(n->text);
    need(r, LS__RECORD_NAMES, ROOM + length);
    put(r, n->kind);
    put(r, n->index);
    put(r, length);
    memcpy(r->buffer + sizeof r->block + r->block.bytes, n->text, length);
    r->block.bytes += (uint32_t)length;
    r->block.count++;
}

static void add_fact(ls__record *r, int fact)
{
    uint64_t bits;
    memcpy(&bits, &r->facts[fact], sizeof bits);
    add_own(r, LS_EVENT_FACT, (uint64_t)fact, bits);
}

/* ---- Segments. */

static ls_status begin_segment(ls__record *r)
{
    uint32_t numbers[2] = { LS__RECORD_VERSION, (uint32_t)strlen(r->head) };
    uint64_t sum;
    ls_status status = ls__file_create(r->path, O_WRONLY, &r->fd);
    if (status) return status;
    r->written = 0;
    char *text = malloc(16 + (size_t)numbers[1]);
    if (!text) return ls__fail(LS_ENOMEM, "record: out of memory");
    memcpy(text, LS__RECORD_MAGIC, 8);
    memcpy(text + 8, numbers, sizeof numbers);
    memcpy(text + 16, r->head, numbers[1]);
    sum = XXH3_64bits(text, 16 + (size_t)numbers[1]);
    write_all(r, text, 16 + (size_t)numbers[1]);
    write_all(r, &sum, sizeof sum);
    free(text);
    for (int i = 0; i < LS_FACTS; i++)
        if (r->has_fact >> i & 1) add_fact(r, i);
    if (r->has_clock) add_own(r, LS_EVENT_CLOCK, (uint64_t)r->clock_ahead, (uint64_t)r->clock_uncertainty);
    for (size_t i = 0; i < r->n_names; i++) add_name(r, &r->names[i]);
    write_block(r);
    return r->fd >= 0 ? LS_OK : ls__fail(LS_EIO, "%s: cannot be written", r->path);
}

/* Starts a new segment between two blocks. */
static void rotate(ls__record *r)
{
    close(r->fd);
    r->fd = -1;
    if (rename(r->path, r->old_path) == 0 && !begin_segment(r)) return;
    ls__log(LS_LOG_WARNING, "%s: no new segment could be started; events are not recorded any more", r->path);
    if (r->fd >= 0) close(r->fd);
    r->fd = -1;
}

ls_status ls__record_open(ls__record **out, const char *folder, int rank, const char *head, const ls__ring *ring,
                          size_t segment_bytes)
{
    *out = NULL;
    if (strlen(head) > LS__RECORD_HEAD)
        return ls__fail(LS_EINVAL, "record: a head of %zu bytes is too long", strlen(head));
    ls_status status = ls__file_make_own_dir(folder);
    if (status) return status;
    ls__record *r = calloc(1, sizeof *r);
    if (!r) return ls__fail(LS_ENOMEM, "record: out of memory");
    r->fd = -1;
    r->ring = ring;
    r->limit = segment_bytes ? segment_bytes : LS__RECORD_SEGMENT;
    r->head = strdup(head);
    r->buffer = malloc(sizeof r->block + LS__RECORD_BLOCK_BYTES + ROOM);
    if (asprintf(&r->path, "%s/rank-%d.bin", folder, rank) < 0) r->path = NULL;
    if (asprintf(&r->old_path, "%s/rank-%d.old.bin", folder, rank) < 0) r->old_path = NULL;
    if (!r->head || !r->buffer || !r->path || !r->old_path) status = ls__fail(LS_ENOMEM, "record: out of memory");
    if (!status && unlink(r->old_path) && errno != ENOENT)
        status = ls__fail_errno("%s: cannot be removed", r->old_path);
    if (!status) status = begin_segment(r);
    if (status) ls__record_close(&r);
    *out = r;
    return status;
}

void ls__record_close(ls__record **pr)
{
    ls__record *r = *pr;
    if (!r) return;
    if (r->fd >= 0) {
        ls__record_drain(r, 1);
        add_own(r, LS_EVENT_END, 0, 0);
        write_block(r);
        if (r->fd >= 0) close(r->fd);
    }
    for (size_t i = 0; i < r->n_names; i++) free(r->names[i].text);
    free(r->names);
    free(r->path);
    free(r->old_path);
    free(r->head);
    free(r->buffer);
    free(r);
    *pr = NULL;
}

/* ---- What comes in. */

/* Says that events were lost before `time`. */
static void note_missed(ls__record *r, int64_t time)
{
    if (r->missed == r->missed_noted) return;
    add_event(r, &(ls__event){ .time = time, .kind = LS_EVENT_LOST, .a = r->missed - r->missed_noted });
    r->missed_noted = r->missed;
}

void ls__record_drain(ls__record *r, int now)
{
    ls__event batch[BATCH];
    size_t n;
    if (!r || r->fd < 0) return;
    while ((n = ls__ring_read(r->ring, &r->position, batch, BATCH, &r->missed))) {
        note_missed(r, batch[0].time);
        for (size_t i = 0; i < n; i++) add_event(r, &batch[i]);
    }
    note_missed(r, ls_now());
    if (now) write_block(r);
    if (r->fd >= 0 && r->written >= r->limit) rotate(r);
}

void ls__record_relieve(ls__record *r)
{
    if (r && ls__ring_head(r->ring) - r->position > ls__ring_capacity(r->ring) / 4) ls__record_drain(r, 0);
}

void ls__record_skip(ls__record *r)
{
    if (r) r->position = ls__ring_head(r->ring);
}

void ls__record_fact(ls__record *r, ls__fact_kind fact, double value)
{
    if (!r || (unsigned)fact >= LS_FACTS) return;
    r->facts[fact] = value;
    r->has_fact |= 1u << fact;
    add_fact(r, (int)fact);
}

void ls__record_clock(ls__record *r, int64_t ahead, int64_t uncertainty)
{
    if (!r) return;
    r->clock_ahead = ahead;
    r->clock_uncertainty = uncertainty;
    r->has_clock = true;
    add_own(r, LS_EVENT_CLOCK, (uint64_t)ahead, (uint64_t)uncertainty);
}

void ls__record_name(ls__record *r, ls__name_kind kind, uint32_t index, const char *text)
{
    if (!r) return;
    name *more = realloc(r->names, (r->n_names + 1) * sizeof *more);
    if (!more) return; /* a name less in a report */
    r->names = more;
    char *copy = strndup(text, MAX_NAME);
    if (!copy) return;
    r->names[r->n_names] = (name){ .kind = kind, .index = index, .text = copy };
    add_name(r, &r->names[r->n_names++]);
}
