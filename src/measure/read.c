/* Event files: every length is checked against what is there, every block against its checksum, before it is used.
 *
 * A file may grow or be truncated while it is read, so it is not mapped: blocks are read one by one into memory. */
#include "measure/read.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>
#include "record/event_file.h"
#include "base/status.h"
#include "base/text.h"

enum { MAX_RANKS = LS__EVENT_FILE_MAX_RANKS, MAX_NAMES = 1 << 20 };
#define LATEST (INT64_C(1) << 60) /* ns: 36 years after a machine's start; differences of such times are safe */

/* ---- The head. */

static int number_of(const json_t *head, const char *key, int low, int high, int otherwise)
{
    const json_t *v = json_object_get(head, key);
    json_int_t n = json_is_integer(v) ? json_integer_value(v) : otherwise;
    return n >= low && n <= high ? (int)n : otherwise;
}

/* A text for people to read. */
static void text_of(const json_t *head, const char *key, char *out, size_t bytes)
{
    const char *text = json_string_value(json_object_get(head, key));
    ls__printable(out, bytes, text ? text : "");
}

static ls_status read_head(ls_run_rank *r, const char *text, size_t bytes)
{
    json_error_t error;
    json_t *head = json_loadb(text, bytes, 0, &error);
    if (!json_is_object(head)) {
        json_decref(head);
        return ls__fail(LS_EFORMAT, "header is not a JSON object");
    }
    int ranks = number_of(head, "ranks", 1, MAX_RANKS, 0), rank = number_of(head, "rank", 0, ranks - 1, -1);
    if (rank < 0) {
        json_decref(head);
        return ls__fail(LS_EFORMAT, "header has no valid rank");
    }
    r->rank = rank;
    r->ranks = ranks;
    r->node = number_of(head, "node", 0, MAX_RANKS, 0);
    r->local = number_of(head, "local_rank", 0, MAX_RANKS, 0);
    r->pid = number_of(head, "pid", 0, 1 << 30, 0);
    r->threads = number_of(head, "threads", 0, 1 << 20, 0);
    text_of(head, "host", r->host, sizeof r->host);
    text_of(head, "cores", r->cores, sizeof r->cores);
    text_of(head, "transport", r->transport, sizeof r->transport);
    if (!r->present) {
        json_int_t start = json_integer_value(json_object_get(head, "start"));
        r->start = start > -LATEST && start < LATEST ? (int64_t)start : 0;
        r->start_time = json_number_value(json_object_get(head, "time"));
        json_int_t segment = json_integer_value(json_object_get(head, "segment")),
                   limit = json_integer_value(json_object_get(head, "segment_bytes"));
        r->lost_files = segment > 0 ? (uint64_t)segment : 0;
        r->segment_bytes = limit > 0 ? (uint64_t)limit : 0;
    }
    r->present = true;
    json_decref(head);
    return LS_OK;
}

/* ---- Payloads. */

typedef struct cursor {
    const uint8_t *at, *end;
    bool bad;
} cursor;

static uint64_t take(cursor *c)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (c->at >= c->end) break;
        uint8_t byte = *c->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return value;
    }
    c->bad = true;
    return 0;
}

static ls_status grow_events(ls_run_rank *r, size_t *room, size_t more)
{
    if (r->n_events + more <= *room) return LS_OK;
    size_t want = (r->n_events + more) * 3 / 2;
    ls_event *events = realloc(r->events, want * sizeof *events);
    if (!events) return ls__fail(LS_ENOMEM, "no memory for %zu events", want);
    r->events = events;
    *room = want;
    return LS_OK;
}

/* Keeps what holds for the rank as a whole. */
static void notice(ls_run_rank *r, const ls_event *e)
{
    if (e->kind == LS_EVENT_METADATA && e->a < LS_METADATA_MAX) {
        memcpy(&r->metadata[e->a], &e->b, sizeof r->metadata[0]);
    } else if (e->kind == LS_EVENT_CLOCK) {
        r->clock_ahead = (int64_t)e->a;
        r->clock_uncertainty = (int64_t)e->b;
    } else if (e->kind == LS_EVENT_LOST) {
        r->lost += e->a;
    }
    r->closed = e->kind == LS_EVENT_END;
}

static bool is_possible(int64_t time)
{
    return time >= -LATEST && time <= LATEST;
}

/* Events of one block. `standing`: only those that hold for the whole file. */
static ls_status read_events(ls_run_rank *r, const ls__event_file_block *b, cursor c, size_t *room, bool standing)
{
    int64_t time = b->time;
    ls_status status = grow_events(r, room, b->count);
    for (uint32_t i = 0; i < b->count && !status; i++) {
        ls_event e;
        e.kind = (uint32_t)take(&c);
        e.thread = (uint32_t)take(&c);
        uint64_t step = take(&c);
        time = (int64_t)((uint64_t)time + (step >> 1 ^ (0 - (step & 1))));
        e.time = time;
        e.a = take(&c);
        e.b = take(&c);
        if (c.bad) return ls__fail(LS_EFORMAT, "a block has fewer events than its header claims");
        /* Times are differences, so those of later events are right again. */
        if (!is_possible(time) || (e.kind == LS_EVENT_CLOCK && !is_possible((int64_t)e.a))) {
            r->invalid++;
            continue;
        }
        if (standing && e.kind != LS_EVENT_METADATA && e.kind != LS_EVENT_CLOCK) continue;
        notice(r, &e);
        r->events[r->n_events++] = e;
    }
    return status;
}

static ls_status keep_name(char ***list, size_t *count, uint64_t index, const uint8_t *text, size_t length)
{
    if (index >= MAX_NAMES) return LS_OK;
    if (index >= *count) {
        char **more = realloc(*list, (index + 1) * sizeof *more);
        if (!more) return ls__fail(LS_ENOMEM, "no memory for names");
        memset(more + *count, 0, (index + 1 - *count) * sizeof *more);
        *list = more;
        *count = index + 1;
    }
    free((*list)[index]);
    (*list)[index] = ls__printable_copy((const char *)text, length);
    return LS_OK;
}

static ls_status read_names(ls_run_rank *r, const ls__event_file_block *b, cursor c)
{
    ls_status status = LS_OK;
    for (uint32_t i = 0; i < b->count && !status; i++) {
        uint64_t kind = take(&c), index = take(&c), length = take(&c);
        if (c.bad || length > (size_t)(c.end - c.at)) return ls__fail(LS_EFORMAT, "a block of names is truncated");
        if (kind == LS_NAME_SPAN)
            status = keep_name(&r->span_names, &r->n_spans, index, c.at, length);
        else if (kind == LS_NAME_OPERATION)
            status = keep_name(&r->operation_names, &r->n_operations, index, c.at, length);
        else if (kind == LS_NAME_THREAD)
            status = keep_name(&r->thread_names, &r->n_thread_names, index, c.at, length);
        c.at += length;
    }
    return status;
}

/* ---- A file. */

enum { BUFFER = LS__EVENT_FILE_HEAD + LS__EVENT_FILE_BLOCK_BYTES }; /* a head, or a block, with what is around it */

typedef struct source {
    int fd;
    size_t bytes; /* when it was opened */
    uint8_t *buffer;
} source;

/* Reads n bytes at `at` into the buffer, from `to` on; false if the file has fewer. */
static bool fetch(const source *s, size_t at, size_t n, size_t to)
{
    if (at > s->bytes || n > s->bytes - at || n > BUFFER - to) return false;
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(s->fd, s->buffer + to + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

/* The block at `at`, or false if none is intact there. `skip`: its content is not read, unless it is names. */
static bool fetch_block(const source *s, size_t at, ls__event_file_block *b, bool skip)
{
    if (!fetch(s, at, sizeof *b, 0)) return false;
    memcpy(b, s->buffer, sizeof *b);
    if (b->magic != LS__EVENT_FILE_BLOCK_MAGIC || b->bytes > LS__EVENT_FILE_BLOCK_BYTES || b->count > b->bytes)
        return false;
    if (skip && b->content != LS__EVENT_FILE_NAMES) return b->bytes <= s->bytes - at - sizeof *b;
    if (!fetch(s, at + sizeof *b, b->bytes, sizeof *b)) return false;
    size_t summed = sizeof b->sum;
    return XXH3_64bits(s->buffer + summed, sizeof *b - summed + b->bytes) == b->sum;
}

/* Reads the head; *bytes: its length in the file. */
static ls_status fetch_head(ls_run_rank *r, const source *s, size_t *bytes)
{
    uint32_t numbers[2];
    uint64_t sum;
    if (!fetch(s, 0, 24, 0) || memcmp(s->buffer, LS__EVENT_FILE_MAGIC, 8) != 0)
        return ls__fail(LS_EFORMAT, "not an event file");
    memcpy(numbers, s->buffer + 8, sizeof numbers);
    if (numbers[0] != LS__EVENT_FILE_VERSION)
        return ls__fail(LS_EFORMAT,
                        "format version %u, but this program reads version %u: use the lockstep that wrote it",
                        numbers[0], LS__EVENT_FILE_VERSION);
    if (numbers[1] > LS__EVENT_FILE_HEAD || !fetch(s, 0, 24 + (size_t)numbers[1], 0))
        return ls__fail(LS_EFORMAT, "truncated within its header");
    memcpy(&sum, s->buffer + 16 + numbers[1], sizeof sum);
    if (XXH3_64bits(s->buffer, 16 + numbers[1]) != sum) return ls__fail(LS_EFORMAT, "wrong checksum of its header");
    *bytes = 24 + numbers[1];
    return read_head(r, (const char *)s->buffer + 16, numbers[1]);
}

static ls_status read_blocks(ls_run_rank *r, const source *s, size_t at, size_t newest_bytes)
{
    ls_status status = LS_OK;
    size_t room = r->n_events;
    ls__event_file_block b;
    r->cut = false;
    while (at < s->bytes && !status) {
        /* With newest_bytes, the beginning is read for what holds for all of the file, and the rest of what is old is skipped. */
        bool old = newest_bytes && s->bytes - at > newest_bytes, skip = old && at > 2 * LS__EVENT_FILE_BLOCK_BYTES;
        if (!fetch_block(s, at, &b, skip)) {
            r->cut = true;
            r->closed = false;
            break;
        }
        cursor c = { .at = s->buffer + sizeof b, .end = s->buffer + sizeof b + b.bytes };
        if (b.content == LS__EVENT_FILE_EVENTS && !skip)
            status = read_events(r, &b, c, &room, old);
        else if (b.content == LS__EVENT_FILE_NAMES)
            status = read_names(r, &b, c);
        at += sizeof b + b.bytes;
    }
    return status;
}

ls_status ls__events_read(ls_run_rank *r, int fd, size_t bytes, size_t newest_bytes)
{
    source s = { .fd = fd, .bytes = bytes, .buffer = malloc(BUFFER) };
    size_t at = 0;
    bool first = !r->present;
    ls_status status = s.buffer ? fetch_head(r, &s, &at) : ls__fail(LS_ENOMEM, "out of memory");
    if (!status && first)
        for (int i = 0; i < LS_METADATA_MAX; i++) r->metadata[i] = NAN;
    if (!status) status = read_blocks(r, &s, at, newest_bytes);
    free(s.buffer);
    return status;
}

static void free_names(char **list, size_t count)
{
    for (size_t i = 0; i < count; i++) free(list[i]);
    free(list);
}

void ls__events_free(ls_run_rank *r)
{
    free(r->events);
    free(r->intervals);
    free_names(r->span_names, r->n_spans);
    free_names(r->operation_names, r->n_operations);
    free_names(r->thread_names, r->n_thread_names);
    free(r->thread);
    *r = (ls_run_rank){ 0 };
}
