/* From the text of a template to its tree: text and tags. See jinja.h.
 *
 * White space is what transformers makes of it: a line feed after a block is dropped (trim_blocks), and so are spaces before a block at
 * the beginning of a line (lstrip_blocks). */
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "data/jinja_parser.h"

typedef ls__jinja_node node;
typedef ls__jinja_parser parser;

static const char *const blanks = " \t\n\r\v\f";

/* The text up to the next tag, without the white space that the tags on both sides remove. NULL: none, or it failed. */
static node *parse_text(parser *q)
{
    bool starts = q->p == q->begin || q->p[-1] == '\n';
    if (q->trim)
        while (q->p < q->end && *q->p && strchr(blanks, *q->p)) q->p++;
    else if (q->newline && q->p < q->end && *q->p == '\n')
        q->p++;
    starts = starts || (q->p > q->begin && q->p[-1] == '\n');
    const char *from = q->p, *p = from;
    while (p < q->end && !(*p == '{' && p + 1 < q->end && strchr("{%#", p[1]) && p[1])) p++;
    const char *to = p;
    q->p = q->at = p;
    if (p < q->end && p + 2 < q->end && p[2] == '-') {
        while (to > from && to[-1] && strchr(blanks, to[-1])) to--;
    } else if (p < q->end && p[1] != '{' && !(p + 2 < q->end && p[2] == '+')) {
        const char *line = to;
        while (line > from && (line[-1] == ' ' || line[-1] == '\t' || line[-1] == '\v' || line[-1] == '\f')) line--;
        if (line > from ? line[-1] == '\n' : starts) to = line;
    }
    if (to == from) return NULL;
    node *n = ls__jinja_add(q, LS__JINJA_TEXT);
    if (n && !(n->value = json_stringn(from, (size_t)(to - from))))
        ls__jinja_fails(q, LS_EFORMAT, "invalid UTF-8", "", 0);
    return q->status ? NULL : n;
}

/* Goes into a tag; `block`: it is not an expression. */
static void enter(parser *q, bool block)
{
    q->p += 2;
    if (q->p < q->end && (*q->p == '-' || *q->p == '+')) q->p++;
    q->newline = block;
    ls__jinja_next(q);
}

static void leave(parser *q)
{
    if (q->status) return;
    size_t n = q->kind == TOKEN_END ? ls__jinja_tag_end(q, q->p, ls__jinja_closing(q)) : 0;
    if (!n && q->p >= q->end)
        ls__jinja_fails(q, LS_EFORMAT, "a tag is not closed", "", 0);
    else if (!n)
        ls__jinja_unexpected(q);
    q->trim = n && *q->p == '-';
    if (n && *q->p == '+') q->newline = false;
    q->p += n;
}

static void skip_comment(parser *q)
{
    const char *end = NULL;
    for (const char *p = q->p + 2; p + 1 < q->end && !end; p++)
        if (p[0] == '#' && p[1] == '}') end = p;
    if (!end) {
        ls__jinja_fails(q, LS_EFORMAT, "a comment is not closed", "", 0);
        return;
    }
    q->trim = end[-1] == '-' && end - 1 >= q->p + 2;
    q->newline = end[-1] != '+';
    q->p = end + 2;
}

static node *parse_body(parser *q, const char *ends);

/* Whether the current name is one of those in `ends`, which are separated by spaces. */
static bool ends_body(const parser *q, const char *ends)
{
    for (const char *p = ends; *p;) {
        size_t n = strcspn(p, " ");
        if (q->kind == TOKEN_NAME && n == q->count && !memcmp(p, q->at, n)) return true;
        p += n + (p[n] == ' ');
    }
    return false;
}

/* The rest of "if" or "elif". */
static node *parse_if(parser *q)
{
    node *n = ls__jinja_add(q, LS__JINJA_IF);
    if (!n) return NULL;
    n->a = ls__jinja_expression(q);
    leave(q);
    n->list = parse_body(q, "elif else endif");
    if (ls__jinja_take(q, "elif")) {
        if (++q->loops > LS__JINJA_MAX_DEPTH) return ls__jinja_fails(q, LS_EFORMAT, "nested too deeply", "", 0);
        n->otherwise = parse_if(q);
        q->loops--;
        return n;
    }
    if (ls__jinja_take(q, "else")) {
        leave(q);
        n->otherwise = parse_body(q, "endif");
    }
    ls__jinja_need(q, "endif");
    return n;
}

static bool take_name(parser *q, char **to)
{
    if (q->kind != TOKEN_NAME) ls__jinja_unexpected(q);
    if (q->status || !ls__jinja_copy_name(q, to, q->at, q->count)) return false;
    ls__jinja_next(q);
    return true;
}

static node *parse_for(parser *q)
{
    node *n = ls__jinja_add(q, LS__JINJA_FOR);
    if (!n || !take_name(q, &n->name) || (ls__jinja_take(q, ",") && !take_name(q, &n->name2)) ||
        !ls__jinja_need(q, "in"))
        return NULL;
    n->a = ls__jinja_condition(q);
    if (ls__jinja_take(q, "if")) n->b = ls__jinja_expression(q);
    if (ls__jinja_is(q, "recursive")) return ls__jinja_fails(q, LS_EUNSUPPORTED, "unsupported:", q->at, q->count);
    leave(q);
    n->list = parse_body(q, "else endfor");
    if (ls__jinja_take(q, "else")) {
        leave(q);
        n->otherwise = parse_body(q, "endfor");
    }
    ls__jinja_need(q, "endfor");
    return n;
}

static node *parse_set(parser *q)
{
    node *n = ls__jinja_add(q, LS__JINJA_SET);
    if (!n || !take_name(q, &n->name) || (ls__jinja_take(q, ".") && !take_name(q, &n->name2))) return NULL;
    if (ls__jinja_is(q, ",")) return ls__jinja_fails(q, LS_EUNSUPPORTED, "unsupported: set of several names", "", 0);
    if (ls__jinja_take(q, "=")) {
        n->a = ls__jinja_expression(q);
        return n;
    }
    leave(q);
    n->list = parse_body(q, "endset");
    ls__jinja_need(q, "endset");
    return n;
}

static node *parse_parameter(parser *q)
{
    node *n = ls__jinja_add(q, LS__JINJA_ARG);
    if (!n || !take_name(q, &n->name)) return NULL;
    if (ls__jinja_take(q, "=")) n->a = ls__jinja_expression(q);
    return q->status ? NULL : n;
}

static node *parse_macro(parser *q)
{
    node *n = ls__jinja_add(q, LS__JINJA_MACRO);
    if (!n || !take_name(q, &n->name) || !ls__jinja_need(q, "(")) return NULL;
    n->b = ls__jinja_list(q, ")", parse_parameter);
    leave(q);
    n->list = parse_body(q, "endmacro");
    ls__jinja_need(q, "endmacro");
    if (q->kind == TOKEN_NAME) ls__jinja_next(q); /* its name, again */
    return n;
}

static node *parse_generation(parser *q)
{
    node *n = ls__jinja_add(q, LS__JINJA_GENERATION);
    q->out->marks = true;
    leave(q);
    node *list = parse_body(q, "endgeneration");
    if (n) n->list = list;
    ls__jinja_need(q, "endgeneration");
    return n;
}

static node *parse_block(parser *q)
{
    if (ls__jinja_take(q, "if")) return parse_if(q);
    if (ls__jinja_take(q, "for")) return parse_for(q);
    if (ls__jinja_take(q, "set")) return parse_set(q);
    if (ls__jinja_take(q, "macro")) return parse_macro(q);
    if (ls__jinja_take(q, "generation")) return parse_generation(q);
    if (ls__jinja_take(q, "break")) return ls__jinja_add(q, LS__JINJA_BREAK);
    if (ls__jinja_take(q, "continue")) return ls__jinja_add(q, LS__JINJA_CONTINUE);
    if (q->kind == TOKEN_NAME) return ls__jinja_fails(q, LS_EUNSUPPORTED, "unsupported: the block", q->at, q->count);
    return ls__jinja_unexpected(q);
}

/* Statements up to a block whose name is one of `ends`, which is then the current token; "": up to the end. */
static node *parse_body(parser *q, const char *ends)
{
    node *first = NULL, **last = &first;
    if (++q->loops > LS__JINJA_MAX_DEPTH) return ls__jinja_fails(q, LS_EFORMAT, "nested too deeply", "", 0);
    while (!q->status) {
        node *n = parse_text(q);
        if (n) *last = n, last = &n->next;
        if (q->status) break;
        if (q->p >= q->end) {
            if (*ends) ls__jinja_fails(q, LS_EFORMAT, "missing", ends, strcspn(ends, " "));
            break;
        }
        if (q->p[1] == '#') {
            skip_comment(q);
            continue;
        }
        bool block = q->p[1] == '%';
        enter(q, block);
        if (block && ends_body(q, ends)) break;
        if (block) {
            n = parse_block(q);
        } else if ((n = ls__jinja_add(q, LS__JINJA_PRINT))) {
            n->a = ls__jinja_expression(q);
            if (ls__jinja_is(q, ","))
                ls__jinja_fails(q, LS_EUNSUPPORTED, "unsupported: a tuple that is printed", "", 0);
        }
        leave(q);
        if (n) *last = n, last = &n->next;
    }
    q->loops--;
    return q->status ? NULL : first;
}

ls_status ls__jinja_parse(ls__jinja **out, const char *name, const char *text, size_t bytes)
{
    *out = NULL;
    ls__jinja *j = calloc(1, sizeof *j);
    /* Line feeds alone; the last one does not count. */
    char *clean = malloc(bytes + 1);
    if (j) j->name = strdup(name);
    if (!j || !clean || !j->name) {
        free(clean);
        ls__jinja_free(&j);
        return ls__fail(LS_ENOMEM, "%s: out of memory", name);
    }
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        bool both = text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n';
        if (!both) clean[count++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (count && clean[count - 1] == '\n') count--;
    clean[count] = 0;
    parser q = { .out = j, .begin = clean, .p = clean, .at = clean, .end = clean + count };
    j->body = parse_body(&q, "");
    free(clean);
    if (q.status) ls__jinja_free(&j);
    *out = j;
    return q.status;
}

void ls__jinja_free(ls__jinja **template)
{
    ls__jinja *j = template ? *template : NULL;
    if (!j) return;
    for (node *n = j->all, *older; n; n = older) {
        older = n->older;
        json_decref(n->value);
        free(n->name);
        free(n->name2);
        free(n);
    }
    free(j->name);
    free(j);
    *template = NULL;
}
