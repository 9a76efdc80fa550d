/* See document.h. The text goes through one buffer. An event is read in place; one that is not whole yet is moved to the buffer's
 * begin and read again when more has come. */
#include "import/document.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"

enum { ROOM = 1 << 16, LARGEST = 1 << 26 }; /* bytes of the buffer at first; of an event, at most */

typedef struct buffer {
    ls__input *in;
    char *text;
    size_t at, end, room;
    uint64_t before; /* bytes of the text before the buffer */
    bool over;
} buffer;

/* Reads on after what is left from b->at. False: there is no more, or an event that is too long; or *status. */
static bool more(buffer *b, ls_status *status)
{
    if (b->over) return false;
    memmove(b->text, b->text + b->at, b->end - b->at);
    b->before += b->at;
    b->end -= b->at;
    b->at = 0;
    if (b->end == b->room) {
        if (b->room >= LARGEST) return false;
        char *text = realloc(b->text, 2 * b->room);
        if (!text) {
            *status = ls__fail(LS_ENOMEM, "no memory for an event of over %zu bytes", b->room);
            return false;
        }
        b->text = text;
        b->room *= 2;
    }
    size_t got = 0;
    *status = ls__input_read(b->in, b->text + b->end, b->room - b->end, &got);
    b->end += got;
    b->over = !got;
    return got && !*status;
}

static const char *begin_of(const buffer *b)
{
    return b->text + b->at;
}

static const char *end_of(const buffer *b)
{
    return b->text + b->end;
}

/* The next character that is not a space, which stays; 0: the text is over. */
static char peek(buffer *b, ls_status *status)
{
    for (;;) {
        b->at = (size_t)(ls__scan_space(begin_of(b), end_of(b)) - b->text);
        if (b->at < b->end) return b->text[b->at] ? b->text[b->at] : ' ';
        if (!more(b, status)) return 0;
    }
}

/* ---- One event. */

/* Fills *e from the object at p. Returns where it ends; NULL: it is broken, or continues after `end`, and then *whole is false. */
static const char *read_event(const ls__document_reader *r, const char *p, const char *end, ls__trace_event *e,
                              bool *whole)
{
    *e = (ls__trace_event){ .duration = -1 };
    *whole = false;
    p = ls__scan_space(p + 1, end);
    if (p < end && *p == '}') return p + 1;
    for (;;) {
        ls__text key, text;
        p = ls__scan_space(p, end);
        if (p >= end) return NULL;
        if (*p != '"') break;
        p = ls__scan_string(p + 1, end, &key);
        if (!p || (p = ls__scan_space(p, end)) >= end) return NULL;
        if (*p != ':') break;
        const char *value = ls__scan_space(p + 1, end);
        if (value >= end) return NULL;
        p = ls__scan_value(value, end);
        if (!p) {
            *whole = end - value > 0 && (*value == ',' || *value == '}' || *value == ']' || *value == ':');
            return NULL;
        }
        bool quoted = *value == '"';
        text = (ls__text){ value + quoted, (size_t)(p - value) - 2u * quoted };
        switch (key.bytes) {
        case 2:
            if (ls__text_is(key, "ph")) e->ph = text.bytes ? *text.at : 0;
            if (ls__text_is(key, "ts")) e->timed = ls__text_thousandths(text, &e->time);
            break;
        case 3:
            if (ls__text_is(key, "cat")) {
                e->cat = text;
                if (r->unwanted && r->unwanted(text)) {
                    e->ph = 0;
                    return ls__scan_out(p, end, 1);
                }
            }
            if (ls__text_is(key, "pid")) e->pid = text;
            if (ls__text_is(key, "tid")) e->tid = text;
            if (ls__text_is(key, "dur") && !ls__text_thousandths(text, &e->duration)) e->duration = -1;
            break;
        case 4:
            if (ls__text_is(key, "name")) e->name = text;
            if (ls__text_is(key, "args") && *value == '{') e->args = text;
            break;
        default: break;
        }
        p = ls__scan_space(p, end);
        if (p >= end) return NULL;
        if (*p == '}') return p + 1;
        if (*p != ',') break;
        p++;
    }
    *whole = true;
    return NULL;
}

/* Whether an object that begins at p is, by its first key, an event or another document; NULL text: not yet known. */
static bool first_key(const char *p, const char *end, ls__text *key)
{
    p = ls__scan_space(p + 1, end);
    if (p >= end || *p != '"') return false;
    return ls__scan_string(p + 1, end, key) != NULL;
}

static bool is_document_key(ls__text key)
{
    static const char *const words[] = { "schemaVersion", "traceEvents", "deviceProperties", "distributedInfo" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (ls__text_is(key, words[i])) return true;
    return false;
}

static bool is_event_key(ls__text key)
{
    static const char *const words[] = { "ph", "name", "cat", "ts", "pid", "tid" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (ls__text_is(key, words[i])) return true;
    return is_document_key(key);
}

/* From within a broken event to where the next may begin. */
static void skip_broken(ls__document_reader *r, buffer *b, ls_status *status)
{
    if (!r->broken++) r->first_broken = b->before + b->at;
    size_t from = b->at + 1;
    for (;;) {
        const char *p = b->text + from, *end = end_of(b);
        while (p < end && (p = memchr(p, '{', (size_t)(end - p)))) {
            ls__text key;
            if (end - p < 256 && !b->over) break; /* see more of it */
            if (first_key(p, end, &key) && is_event_key(key)) {
                r->skipped_bytes += (uint64_t)(p - begin_of(b));
                b->at = (size_t)(p - b->text);
                return;
            }
            p++;
        }
        size_t rest = p && p < end ? (size_t)(p - b->text) : b->end;
        r->skipped_bytes += rest - b->at;
        b->at = rest;
        bool over = b->over; /* what is there was searched to its end */
        if (!more(b, status) && (over || *status)) {
            r->skipped_bytes += b->end - b->at;
            b->at = b->end;
            r->cut = true;
            return;
        }
        from = b->at;
    }
}

/* Skips an element of the list that is a number, a text, a literal or an empty list; false: it is none. */
static bool skip_plain(ls__document_reader *r, buffer *b)
{
    const char *p = begin_of(b), *end = end_of(b), *behind = ls__scan_value(p, end);
    if (*p == '[' && behind && behind != ls__scan_space(p + 1, end) + 1) return false; /* perhaps a document */
    if (!behind || (behind = ls__scan_space(behind, end)) >= end || (*behind != ',' && *behind != ']')) return false;
    if (!r->broken++) r->first_broken = b->before + b->at;
    r->skipped_bytes += (uint64_t)(behind - p);
    b->at = (size_t)(behind - b->text);
    return true;
}

/* The list of events, from after its bracket. *another: a further document begins here, though this one is not over. */
static ls_status read_events(ls__document_reader *r, buffer *b, bool *another)
{
    ls_status status = LS_OK;
    *another = false;
    while (!status) {
        char c = peek(b, &status);
        if (!c) {
            r->cut = true;
            return status;
        }
        if (c == ']') {
            b->at++;
            return LS_OK;
        }
        if (c == ',') {
            b->at++;
            continue;
        }
        if (c != '{') {
            if (!skip_plain(r, b)) skip_broken(r, b, &status);
            continue;
        }
        ls__trace_event e;
        ls__text key;
        bool whole, again = true;
        const char *p = NULL;
        while (again && !status) {
            if (first_key(begin_of(b), end_of(b), &key) && is_document_key(key)) {
                *another = r->cut = true;
                return LS_OK;
            }
            p = read_event(r, begin_of(b), end_of(b), &e, &whole);
            again = !p && !whole && more(b, &status);
        }
        if (status) return status;
        if (!p) {
            bool last = b->over && !whole;
            uint64_t before = r->broken;
            skip_broken(r, b, &status);
            if (last && b->at == b->end) r->broken = before; /* it is not broken, it is cut */
            continue;
        }
        b->at = (size_t)(p - b->text);
        r->events++;
        if (e.ph) status = r->event(r->user, &e);
    }
    return status;
}

/* ---- A document. */

/* Skips a value however long it is. */
static ls_status skip_long(buffer *b)
{
    ls_status status = LS_OK;
    int depth = 0;
    bool quoted = false, escaped = false;
    for (;;) {
        while (b->at < b->end) {
            char c = b->text[b->at++];
            if (escaped)
                escaped = false;
            else if (quoted && c == '\\')
                escaped = true;
            else if (c == '"')
                quoted = !quoted;
            else if (!quoted && (c == '{' || c == '['))
                depth++;
            else if (!quoted && (c == '}' || c == ']'))
                depth--;
            if (depth <= 0 && !quoted && (c == '"' || c == '}' || c == ']')) return LS_OK;
        }
        if (!more(b, &status)) return status;
    }
}

/* The value at the buffer's place; passed on if it fits. */
static ls_status read_value(ls__document_reader *r, buffer *b, ls__text key)
{
    enum { LONG = 1 << 22 };
    ls_status status = LS_OK;
    char name[64];
    if (key.bytes > sizeof name) key.bytes = sizeof name;
    memcpy(name, key.at, key.bytes); /* the buffer moves */
    key.at = name;
    const char *p = NULL;
    while (!(p = ls__scan_value(begin_of(b), end_of(b))) && b->end - b->at < LONG && more(b, &status)) continue;
    if (status) return status;
    if (!p) return skip_long(b);
    if (r->value) {
        bool quoted = *begin_of(b) == '"';
        r->value(r->user, key, (ls__text){ begin_of(b) + quoted, (size_t)(p - begin_of(b)) - 2u * quoted });
    }
    b->at = (size_t)(p - b->text);
    return LS_OK;
}

/* From after the brace to after the closing one. */
static ls_status read_object(ls__document_reader *r, buffer *b, bool *another)
{
    ls_status status = LS_OK;
    bool events = false;
    *another = false;
    while (!status && !*another) {
        char c = peek(b, &status);
        if (status) return status;
        if (!c) r->cut = true;
        if (c == '}') b->at++;
        if (!c || c == '}') break;
        if (c == ',') {
            b->at++;
            continue;
        }
        ls__text key;
        const char *p = NULL;
        while (!(p = ls__scan_key(begin_of(b), end_of(b), &key)) && more(b, &status)) continue;
        if (status) return status;
        if (!p || p >= end_of(b)) { /* no key: on to what can be read again */
            if (!p && c == '"' && b->over) r->cut = true;
            skip_broken(r, b, &status);
            if (b->at < b->end) *another = true;
            break;
        }
        size_t at = (size_t)(p - b->text);
        if (ls__text_is(key, "traceEvents") && *p == '[') {
            b->at = at + 1;
            events = true;
            status = read_events(r, b, another);
        } else {
            b->at = at;
            status = read_value(r, b, key);
        }
    }
    r->without_events += !events;
    return status;
}

/* What a file is that does not begin like JSON. */
static ls_status refuse(const buffer *b)
{
    static const struct {
        const char *begin, *what;
    } kinds[] = { { "PK", "a zip archive" },
                  { "\xfd"
                    "7zXZ",
                    "compressed with xz" },
                  { "BZh", "compressed with bzip2" },
                  { "\x04\x22\x4d\x18", "compressed with lz4" },
                  { "\xff\xfe", "text in UTF-16" },
                  { "\xfe\xff", "text in UTF-16" },
                  { "\x80", "a pickle; dumps of the Flight Recorder need --flight-recorder" },
                  { "SQLite", "a database, perhaps of nsys; the PyTorch profiler's JSON is needed" } };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i].begin);
        if (b->end - b->at >= n && !memcmp(begin_of(b), kinds[i].begin, n))
            return ls__fail(LS_EFORMAT, "it is not JSON, but %s", kinds[i].what);
    }
    return ls__fail(LS_EFORMAT,
                    "not JSON (it begins with byte 0x%02x): what prof.export_chrome_trace() of the PyTorch profiler "
                    "writes is needed",
                    (unsigned char)*begin_of(b));
}

ls_status ls__document_read(ls__document_reader *r, ls__input *in)
{
    buffer b = { .in = in, .room = ROOM, .text = malloc(ROOM) };
    ls_status status = b.text ? LS_OK : ls__fail(LS_ENOMEM, "out of memory");
    while (!status) {
        bool another = false;
        char c = peek(&b, &status);
        if (status || !c) break;
        if (c != '{' && c != '[') {
            if (!r->documents) {
                if (!b.before && !b.at && b.end >= 3 && !memcmp(b.text, "\xef\xbb\xbf", 3)) {
                    b.at = 3; /* a byte order mark */
                    continue;
                }
                status = refuse(&b);
                break;
            }
            skip_broken(r, &b, &status); /* what another process wrote over the end */
            continue;
        }
        /* What remains of a document that another was written into: its events still count for the one before. */
        ls__text key;
        bool stray = r->documents && c == '{' && first_key(begin_of(&b), end_of(&b), &key) && !is_document_key(key) &&
                     is_event_key(key);
        if (!stray) {
            r->documents++;
            status = r->begin(r->user);
            b.at++;
        }
        if (!status) status = c == '[' || stray ? read_events(r, &b, &another) : read_object(r, &b, &another);
    }
    r->bytes = b.before + b.at;
    if (ls__input_is_cut(in)) r->cut = true;
    if (!status && !r->documents)
        status = ls__fail(LS_EFORMAT, r->cut ? "its compressed data are truncated or corrupt" : "the file is empty");
    free(b.text);
    return status;
}
