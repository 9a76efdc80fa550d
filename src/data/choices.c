/* HellaSwag's questions. See choices.h.
 *
 * A part of them comes from WikiHow, with marks in brackets, such as [title], which are removed. */
#include "data/choices.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "data/jinja.h"
#include "data/normalize.h"
#include "data/unicode.h"

/* The text with `from` replaced by `to`. Takes `value`. */
static json_t *replace(json_t *value, const char *from, const char *to)
{
    json_t *list = json_pack("[s, s]", from, to);
    json_t *out = value && list ? ls__jinja_method("replace", value, &(ls__jinja_args){ .list = list }) : NULL;
    json_decref(list);
    json_decref(value);
    return out;
}

/* Removes "[...]" within a line. Takes `value`. */
static json_t *remove_brackets(json_t *value)
{
    const char *p = json_string_value(value);
    char *out = p ? malloc(strlen(p) + 1) : NULL, *to = out;
    while (out && *p) {
        size_t inside = *p == '[' ? strcspn(p, "]\n") : 0;
        if (inside && p[inside] == ']')
            p += inside + 1;
        else
            *to++ = *p++;
    }
    json_t *text = out ? json_stringn(out, (size_t)(to - out)) : NULL;
    free(out);
    json_decref(value);
    return text;
}

/* Cleaned as the harness does it. NULL: out of memory. */
static json_t *clean(json_t *value)
{
    json_t *text = json_is_string(value) ? ls__jinja_filter("trim", value, NULL) : NULL;
    return replace(remove_brackets(replace(text, " [title]", ". ")), "  ", " ");
}

/* The capital of a letter; of several, the first. Letters with a capital of two characters (ß) stay as they are. */
static int32_t capital_of(int32_t letter)
{
    if (letter < 0x80) return letter >= 'a' && letter <= 'z' ? letter - 32 : letter;
    for (size_t i = 0; i < ls__lowered_count; i++)
        if (ls__lowered[i][1] == letter && !ls__lowered[i][2] && letter != 0xdf) return ls__lowered[i][0];
    return letter;
}

/* Python's capitalize(). */
static json_t *capitalize(const char *text)
{
    if (!*text) return json_string(text);
    ls__normalizer n = { 0 };
    ls__steps lower = { .step = { { .kind = LS__STEP_LOWERCASE } }, .count = 1 };
    const uint8_t *rest = (const uint8_t *)text;
    size_t bytes = strlen(text), first_bytes;
    int32_t first = ls__utf8_get(rest, rest + bytes, &first_bytes); /* valid: jansson has read it */
    json_t *out = NULL;
    uint8_t *whole = NULL;
    rest += first_bytes;
    bytes -= first_bytes;
    if (!ls__normalize(&n, &lower, &rest, &bytes) && (whole = malloc(bytes + 4))) {
        size_t at = ls__utf8_put(whole, capital_of(first));
        memcpy(whole + at, rest, bytes);
        out = json_stringn((char *)whole, at + bytes);
    }
    free(whole);
    ls__normalizer_free(&n);
    return out;
}

static json_t *make_context(const json_t *line)
{
    const char *label = json_string_value(json_object_get(line, "activity_label"));
    const char *a = json_string_value(json_object_get(line, "ctx_a")),
               *b = json_string_value(json_object_get(line, "ctx_b"));
    if (!a || !b) return clean(json_object_get(line, "ctx"));
    json_t *end = capitalize(b);
    json_t *all =
        end ? json_sprintf("%s%s%s %s", label ? label : "", label ? ": " : "", a, json_string_value(end)) : NULL;
    json_t *out = clean(all);
    json_decref(end);
    json_decref(all);
    return out;
}

/* "label": a number, or the text of one. -1: neither. */
static int label_of(const json_t *value)
{
    char *end;
    const char *text = json_string_value(value);
    if (text && *text) {
        long number = strtol(text, &end, 10);
        return *end || number < 0 || number >= LS__CHOICES_MAX ? -1 : (int)number;
    }
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    return number < 0 || number >= LS__CHOICES_MAX ? -1 : (int)number;
}

/* *problem: what is wrong with the line; NULL after LS_EFORMAT: out of memory. */
static ls_status make_question(const json_t *line, ls__question *q, const char **problem)
{
    const json_t *endings = json_object_get(line, "endings");
    json_t *item;
    size_t i, count = json_array_size(endings);
    *q = (ls__question){ .count = (int)count, .right = label_of(json_object_get(line, "label")) };
    *problem = count < 2 || count > LS__CHOICES_MAX        ? "no 'endings', a list of 2 to 16 texts"
               : q->right < 0 || (size_t)q->right >= count ? "no 'label', the number of the right ending from 0"
               : !json_is_string(json_object_get(line, "ctx")) && !json_is_string(json_object_get(line, "ctx_a"))
                   ? "no text in 'ctx', or in 'ctx_a' and 'ctx_b'"
                   : NULL;
    json_array_foreach(endings, i, item) if (!json_string_length(item)) *problem =
        "an ending is not a text, or it is empty";
    if (*problem) return LS_EFORMAT;
    q->context = make_context(line);
    q->endings = json_array();
    bool good = q->context && q->endings;
    json_array_foreach(endings, i, item) good = good && !json_array_append_new(q->endings, clean(item));
    return good ? LS_OK : LS_EFORMAT;
}

void ls__questions_free(ls__questions *q)
{
    for (size_t i = 0; i < q->count; i++) {
        json_decref(q->items[i].context);
        json_decref(q->items[i].endings);
    }
    free(q->items);
    free(q->tokens);
    *q = (ls__questions){ 0 };
}

static ls_status add_line(ls__questions *out, const char *path, size_t number, const char *text, size_t bytes)
{
    json_error_t error;
    const char *problem = NULL;
    if (out->count == out->room) {
        size_t room = 2 * out->room + 64;
        ls__question *more = realloc(out->items, room * sizeof *more);
        if (!more) return ls__fail(LS_ENOMEM, "%s: no memory for %zu questions", path, room);
        out->items = more;
        out->room = room;
    }
    json_t *line = json_loadb(text, bytes, 0, &error);
    if (!json_is_object(line)) {
        const char *what = line ? "not an object" : error.text;
        ls_status status = ls__fail(LS_EFORMAT, "%s: line %zu: not a JSON object: %s", path, number, what);
        json_decref(line);
        return status;
    }
    ls_status status = make_question(line, &out->items[out->count++], &problem);
    json_decref(line);
    return status ? ls__fail(status, "%s: line %zu: %s", path, number, problem ? problem : "out of memory") : LS_OK;
}

ls_status ls__questions_parse(ls__questions *out, const char *path, const char *text, size_t bytes)
{
    const char *end = text + bytes;
    int32_t magic = 0;
    ls_status status = LS_OK;
    if (bytes >= sizeof magic) memcpy(&magic, text, sizeof magic);
    if (magic == LS__CHOICES_MAGIC) return ls__questions_parse_llmc(out, path, text, bytes);
    *out = (ls__questions){ 0 };
    for (size_t number = 1; text < end && !status; number++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((stop ? stop : end) - text), blank = 0;
        while (blank < n && strchr(" \t\r", text[blank]) && text[blank]) blank++;
        if (blank < n) status = add_line(out, path, number, text, n);
        text += n + (stop != NULL);
    }
    if (!status && !out->count) status = ls__fail(LS_EFORMAT, "%s: has no questions", path);
    if (status) ls__questions_free(out);
    return status;
}
