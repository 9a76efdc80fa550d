/* Event files: every length is checked against what is there, every block against its checksum, before it is believed. */
#include "measure/read.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "record/event_file.h"
#include "base/status.h"
#include "base/text.h"

enum { MAX_RANKS = 1 << 16, MAX_NAMES = 1 << 20 };
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
        return ls__fail(LS_EFORMAT, "its head is no JSON object");
    }
    int ranks = number_of(head, "ranks", 1, MAX_RANKS, 0), rank = number_of(head, "rank", 0, ranks - 1, -1);
    if (rank < 0) {
        json_decref(head);
        return ls__fail(LS_EFORMAT, "its head does not say which rank it is");
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

/* What is true of the rank as a whole is taken here; the event stays, too. */
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

/* Events of one block. `standing`: only those that hold for the whole segment. */
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
        if (time < -LATEST || time > LATEST ||
            (e.kind == LS_EVENT_CLOCK && ((int64_t)e.a < -LATEST || (int64_t)e.a > LATEST)))
            return ls__fail(LS_EFORMAT, "a time in it is impossible");
        if (c.bad) return ls__fail(LS_EFORMAT, "a block holds fewer events than it says");
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
        if (c.bad || length > (size_t)(c.end - c.at)) return ls__fail(LS_EFORMAT, "a block of names is too short");
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

/* ---- A segment. */

/* The block at `at`, or false if none is whole there. `pass_over`: its content will not be looked at, unless it is names. */
static bool block_at(const uint8_t *data, size_t bytes, size_t at, ls__event_file_block *b, bool pass_over)
{
    if (bytes - at < sizeof *b) return false;
    memcpy(b, data + at, sizeof *b);
    if (b->magic != LS__EVENT_FILE_BLOCK_MAGIC || b->bytes > LS__EVENT_FILE_BLOCK_BYTES ||
        b->bytes > bytes - at - sizeof *b || b->count > b->bytes)
        return false;
    if (pass_over && b->content != LS__EVENT_FILE_NAMES) return true;
    size_t skip = sizeof b->sum;
    return XXH3_64bits(data + at + skip, sizeof *b - skip + b->bytes) == b->sum;
}

ls_status ls__events_read(ls_run_rank *r, const uint8_t *data, size_t bytes, size_t newest_bytes)
{
    uint32_t numbers[2];
    uint64_t sum;
    if (bytes < 24 || memcmp(data, LS__EVENT_FILE_MAGIC, 8) != 0)
        return ls__fail(LS_EFORMAT, "it is no file of events");
    memcpy(numbers, data + 8, sizeof numbers);
    if (numbers[0] != LS__EVENT_FILE_VERSION)
        return ls__fail(
            LS_EFORMAT,
            "its format is version %u; this program reads version %u: read it with the lockstep that wrote it",
            numbers[0], LS__EVENT_FILE_VERSION);
    if (numbers[1] > LS__EVENT_FILE_HEAD || numbers[1] > bytes - 24)
        return ls__fail(LS_EFORMAT, "it was cut off within its head");
    memcpy(&sum, data + 16 + numbers[1], sizeof sum);
    if (XXH3_64bits(data, 16 + numbers[1]) != sum) return ls__fail(LS_EFORMAT, "the checksum of its head is wrong");
    bool first = !r->present;
    ls_status status = read_head(r, (const char *)data + 16, numbers[1]);
    if (status) return status;
    if (first)
        for (int i = 0; i < LS_METADATA_MAX; i++) r->metadata[i] = NAN;
    size_t at = 24 + numbers[1], room = r->n_events, wanted = bytes;
    ls__event_file_block b;
    r->cut = false;
    while (at < bytes && !status) {
        /* A quick look takes what holds for all of the segment from its beginning, and passes over the rest of what is old. */
        bool old = newest_bytes && wanted - at > newest_bytes, pass_over = old && at > 2 * LS__EVENT_FILE_BLOCK_BYTES;
        if (!block_at(data, bytes, at, &b, pass_over)) {
            r->cut = true;
            r->closed = false;
            break;
        }
        cursor c = { .at = data + at + sizeof b, .end = data + at + sizeof b + b.bytes };
        if (b.content == LS__EVENT_FILE_EVENTS && !pass_over)
            status = read_events(r, &b, c, &room, old);
        else if (b.content == LS__EVENT_FILE_NAMES)
            status = read_names(r, &b, c);
        at += sizeof b + b.bytes;
    }
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
