/* Nodes of a template's tree, and the tokens inside of its tags. See jinja_parser.h. */
#include "data/jinja_parser.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "base/text.h"

typedef ls__jinja_node node;
typedef ls__jinja_parser parser;

static int line_of(const parser *q, const char *at)
{
    int line = 1;
    for (const char *p = q->begin; p < at && p < q->end; p++) line += *p == '\n';
    return line;
}

node *ls__jinja_fails(parser *q, ls_status status, const char *what, const char *about, size_t count)
{
    if (q->status) return NULL;
    char *text = strndup(about, count < LS__JINJA_NAME_BYTES ? count : LS__JINJA_NAME_BYTES);
    char shown[4 * LS__JINJA_NAME_BYTES + 4];
    ls__printable(shown, sizeof shown, text ? text : "");
    q->status = ls__fail(status, "%s: line %d: %s%s%s%s", q->out->name, line_of(q, q->at), what, count ? " '" : "",
                         count ? shown : "", count ? "'" : "");
    free(text);
    return NULL;
}

node *ls__jinja_unexpected(parser *q)
{
    if (q->kind == TOKEN_END) return ls__jinja_fails(q, LS_EFORMAT, "unexpected end of a tag", "", 0);
    return ls__jinja_fails(q, LS_EFORMAT, "unexpected", q->at, q->count);
}

node *ls__jinja_add(parser *q, ls__jinja_kind kind)
{
    if (q->status) return NULL;
    node *n = calloc(1, sizeof *n);
    if (!n) {
        q->status = ls__fail(LS_ENOMEM, "%s: out of memory", q->out->name);
        return NULL;
    }
    *n = (node){ .kind = kind, .line = line_of(q, q->at), .older = q->out->all };
    return q->out->all = n;
}

node *ls__jinja_add_constant(parser *q, json_t *value)
{
    node *n = ls__jinja_add(q, LS__JINJA_CONST);
    if (n && value) {
        n->value = value;
        return n;
    }
    json_decref(value);
    return n ? ls__jinja_fails(q, LS_EFORMAT, "invalid UTF-8", "", 0) : NULL;
}

bool ls__jinja_copy_name(parser *q, char **to, const char *text, size_t count)
{
    if (!q->status && !(*to = strndup(text, count))) q->status = ls__fail(LS_ENOMEM, "%s: out of memory", q->out->name);
    return !q->status;
}

/* ---- Tokens inside of a tag. */

bool ls__jinja_is_name(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Whether the tag ends at `p`: its end has how many bytes. */
size_t ls__jinja_tag_end(const parser *q, const char *p, char mark)
{
    size_t left = (size_t)(q->end - p), sign = left && (*p == '-' || *p == '+');
    return left >= sign + 2 && p[sign] == mark && p[sign + 1] == '}' ? sign + 2 : 0;
}

char ls__jinja_closing(const parser *q)
{
    return q->newline ? '%' : '}'; /* in a tag: whether it is a block */
}

void ls__jinja_next(parser *q)
{
    static const char *const signs[] = { "==", "!=", "<=", ">=", "//", "**" };
    while (q->p < q->end && strchr(" \t\n\r", *q->p) && *q->p) q->p++;
    q->at = q->p;
    q->count = 0;
    q->kind = TOKEN_END;
    if (q->p >= q->end) return;
    /* In an expression, "}}" may also be two objects that end. */
    if (ls__jinja_tag_end(q, q->p, ls__jinja_closing(q)) && q->depth == 0) return;
    char c = *q->p;
    if (ls__jinja_is_name(c, true)) {
        q->kind = TOKEN_NAME;
        while (q->p < q->end && ls__jinja_is_name(*q->p, false)) q->p++;
    } else if (is_digit(c)) {
        q->kind = TOKEN_NUMBER;
        while (q->p < q->end && (is_digit(*q->p) || *q->p == '_')) q->p++;
        if (q->end - q->p >= 2 && *q->p == '.' && is_digit(q->p[1]))
            for (q->p++; q->p < q->end && is_digit(*q->p);) q->p++;
        const char *e = q->p < q->end && (*q->p == 'e' || *q->p == 'E') ? q->p + 1 : NULL;
        if (e && e < q->end && (*e == '-' || *e == '+')) e++;
        if (e && e < q->end && is_digit(*e))
            for (q->p = e; q->p < q->end && is_digit(*q->p);) q->p++;
    } else if (c == '\'' || c == '"') {
        q->kind = TOKEN_STRING;
        for (q->p++; q->p < q->end && *q->p != c; q->p++)
            if (*q->p == '\\' && q->p + 1 < q->end) q->p++;
        if (q->p < q->end) q->p++;
    } else {
        q->kind = TOKEN_SIGN;
        size_t n = 1;
        for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
            if (q->end - q->p >= 2 && !memcmp(q->p, signs[i], 2)) n = 2;
        q->p += n;
    }
    q->count = (size_t)(q->p - q->at);
}

bool ls__jinja_is(const parser *q, const char *text)
{
    return (q->kind == TOKEN_NAME || q->kind == TOKEN_SIGN) && q->count == strlen(text) &&
           !memcmp(q->at, text, q->count);
}

bool ls__jinja_take(parser *q, const char *text)
{
    if (!ls__jinja_is(q, text)) return false;
    ls__jinja_next(q);
    return true;
}

bool ls__jinja_need(parser *q, const char *text)
{
    if (ls__jinja_take(q, text)) return true;
    if (q->kind != TOKEN_END) ls__jinja_unexpected(q);
    ls__jinja_fails(q, LS_EFORMAT, "missing", text, strlen(text));
    return false;
}
