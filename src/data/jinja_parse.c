/* From the text of a template to its tree. See jinja.h.
 *
 * White space is what transformers makes of it: a line feed after a block is dropped (trim_blocks), and so are spaces before a block at
 * the beginning of a line (lstrip_blocks). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "base/text.h"
#include "data/jinja.h"

typedef ls__jinja_node node;

enum { MAX_DEPTH = 300, NAME_BYTES = 64 };

typedef enum token_kind { TOKEN_END, TOKEN_NAME, TOKEN_STRING, TOKEN_NUMBER, TOKEN_SIGN } token_kind;

typedef struct parser {
    ls__jinja *out;
    const char *begin, *p, *end; /* the template; the cursor */
    /* the current token, inside of a tag: */
    token_kind kind;
    const char *at; /* where it begins */
    size_t count;
    bool trim;    /* the last tag removes white space after it */
    bool newline; /* the last tag removes a line feed after it */
    int depth, loops;
    ls_status status; /* once it fails */
} parser;

static int line_of(const parser *q, const char *at)
{
    int line = 1;
    for (const char *p = q->begin; p < at && p < q->end; p++) line += *p == '\n';
    return line;
}

static node *fails(parser *q, ls_status status, const char *what, const char *about, size_t count)
{
    if (q->status) return NULL;
    char *text = strndup(about, count < NAME_BYTES ? count : NAME_BYTES);
    char shown[4 * NAME_BYTES + 4];
    ls__printable(shown, sizeof shown, text ? text : "");
    q->status = ls__fail(status, "%s: line %d: %s%s%s%s", q->out->name, line_of(q, q->at), what, count ? " '" : "",
                         count ? shown : "", count ? "'" : "");
    free(text);
    return NULL;
}

static node *unexpected(parser *q)
{
    if (q->kind == TOKEN_END) return fails(q, LS_EFORMAT, "unexpected end of a tag", "", 0);
    return fails(q, LS_EFORMAT, "unexpected", q->at, q->count);
}

static node *add(parser *q, ls__jinja_kind kind)
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

static node *add_constant(parser *q, json_t *value)
{
    node *n = add(q, LS__JINJA_CONST);
    if (n && value) {
        n->value = value;
        return n;
    }
    json_decref(value);
    return n ? fails(q, LS_EFORMAT, "invalid UTF-8", "", 0) : NULL;
}

static bool copy_name(parser *q, char **to, const char *text, size_t count)
{
    if (!q->status && !(*to = strndup(text, count))) q->status = ls__fail(LS_ENOMEM, "%s: out of memory", q->out->name);
    return !q->status;
}

/* ---- Tokens inside of a tag. */

static bool is_name(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Whether the tag ends at `p`: its end has how many bytes. */
static size_t tag_end(const parser *q, const char *p, char mark)
{
    size_t left = (size_t)(q->end - p), sign = left && (*p == '-' || *p == '+');
    return left >= sign + 2 && p[sign] == mark && p[sign + 1] == '}' ? sign + 2 : 0;
}

static char closing(const parser *q)
{
    return q->newline ? '%' : '}'; /* in a tag: whether it is a block */
}

static void next(parser *q)
{
    static const char *const signs[] = { "==", "!=", "<=", ">=", "//", "**" };
    while (q->p < q->end && strchr(" \t\n\r", *q->p) && *q->p) q->p++;
    q->at = q->p;
    q->count = 0;
    q->kind = TOKEN_END;
    if (q->p >= q->end) return;
    /* In an expression, "}}" may also be two objects that end. */
    if (tag_end(q, q->p, closing(q)) && q->depth == 0) return;
    char c = *q->p;
    if (is_name(c, true)) {
        q->kind = TOKEN_NAME;
        while (q->p < q->end && is_name(*q->p, false)) q->p++;
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

static bool is(const parser *q, const char *text)
{
    return (q->kind == TOKEN_NAME || q->kind == TOKEN_SIGN) && q->count == strlen(text) &&
           !memcmp(q->at, text, q->count);
}

static bool take(parser *q, const char *text)
{
    if (!is(q, text)) return false;
    next(q);
    return true;
}

static bool need(parser *q, const char *text)
{
    if (take(q, text)) return true;
    if (q->kind != TOKEN_END) unexpected(q);
    fails(q, LS_EFORMAT, "missing", text, strlen(text));
    return false;
}

/* ---- Expressions. */

static node *parse_expression(parser *q);
static node *parse_or(parser *q);
static node *parse_unary(parser *q, bool filters);

static char *put_utf8(char *to, uint32_t c)
{
    if (c >= 0x10000) *to++ = (char)(0xf0 | c >> 18), *to++ = (char)(0x80 | (c >> 12 & 0x3f));
    if (c >= 0x800 && c < 0x10000) *to++ = (char)(0xe0 | c >> 12);
    if (c >= 0x800) *to++ = (char)(0x80 | (c >> 6 & 0x3f));
    if (c >= 0x80 && c < 0x800) *to++ = (char)(0xc0 | c >> 6);
    *to++ = c >= 0x80 ? (char)(0x80 | (c & 0x3f)) : (char)c;
    return to;
}

/* The text of a string, as Python reads it. */
static size_t unescape(const char *p, const char *end, char *out)
{
    static const char letters[] = "abfnrtv'\"\\", values[] = "\a\b\f\n\r\t\v'\"\\";
    char *to = out;
    while (p < end) {
        const char *letter = *p == '\\' && p + 1 < end && p[1] ? strchr(letters, p[1]) : NULL;
        size_t digits = *p == '\\' && p + 1 < end ? p[1] == 'x' ? 2 : p[1] == 'u' ? 4 : 0 : 0;
        char hex[5] = "", *last = hex;
        if (digits && (size_t)(end - p) >= digits + 2) memcpy(hex, p + 2, digits);
        uint32_t c = (uint32_t)strtoul(hex, &last, 16);
        if (letter) {
            *to++ = values[letter - letters];
            p += 2;
        } else if (digits && last == hex + digits && is_name(hex[0] | 0x20, false)) {
            to = put_utf8(to, c);
            p += digits + 2;
        } else if (*p == '\\' && p + 1 < end && p[1] == '\n') {
            p += 2;
        } else {
            *to++ = *p++;
        }
    }
    return (size_t)(to - out);
}

static node *parse_string(parser *q)
{
    char *text = NULL;
    size_t count = 0;
    for (; q->kind == TOKEN_STRING && !q->status; next(q)) { /* neighbours are one string */
        char *more = realloc(text, count + q->count + 1);
        if (!more) break;
        text = more;
        if (q->count < 2 || q->at[q->count - 1] != *q->at)
            fails(q, LS_EFORMAT, "unterminated string", "", 0);
        else
            count += unescape(q->at + 1, q->at + q->count - 1, text + count);
    }
    node *n = q->status ? NULL : add_constant(q, text ? json_stringn(text, count) : NULL);
    free(text);
    return n;
}

static node *parse_number(parser *q)
{
    char digits[NAME_BYTES], *to = digits, *end;
    if (q->count >= sizeof digits) return fails(q, LS_EFORMAT, "number with too many digits", q->at, q->count);
    for (size_t i = 0; i < q->count; i++)
        if (q->at[i] != '_') *to++ = q->at[i];
    *to = 0;
    node *n = strpbrk(digits, ".eE") ? add_constant(q, json_real(strtod(digits, &end)))
              : strlen(digits) < 19  ? add_constant(q, json_integer(strtoll(digits, &end, 10)))
                                     : fails(q, LS_EFORMAT, "number is too large:", q->at, q->count);
    next(q);
    return n;
}

/* Elements up to `end`, each made by `parse`. */
static node *parse_list(parser *q, const char *end, node *(*parse)(parser *q))
{
    node *first = NULL, **last = &first;
    while (!q->status && !is(q, end)) {
        node *n = parse(q);
        if (!n) return NULL;
        *last = n;
        last = &n->next;
        if (!is(q, end) && !need(q, ",")) return NULL;
    }
    need(q, end);
    return first;
}

static node *parse_pair(parser *q)
{
    node *pair = add(q, LS__JINJA_ARG);
    if (!pair || !(pair->a = parse_expression(q)) || !need(q, ":")) return NULL;
    pair->b = parse_expression(q);
    return q->status ? NULL : pair;
}

static node *parse_argument(parser *q)
{
    node *n = add(q, LS__JINJA_ARG);
    if (is(q, "*") || is(q, "**")) return fails(q, LS_EUNSUPPORTED, "unsupported: arguments with", q->at, q->count);
    if (!n) return NULL;
    parser before = *q;
    if (q->kind == TOKEN_NAME && copy_name(q, &n->name, q->at, q->count)) {
        next(q);
        if (take(q, "=")) {
            n->a = parse_expression(q);
            return q->status ? NULL : n;
        }
        free(n->name);
        n->name = NULL;
        before.out = q->out;
        before.status = q->status;
        *q = before;
    }
    n->a = parse_expression(q);
    return q->status ? NULL : n;
}

static node *parse_parenthesis(parser *q)
{
    if (take(q, ")")) return add(q, LS__JINJA_LIST);
    node *n = parse_expression(q);
    if (n && is(q, ",")) { /* a tuple */
        node *list = add(q, LS__JINJA_LIST);
        next(q);
        if (list) list->list = n, n->next = parse_list(q, ")", parse_expression);
        return q->status ? NULL : list;
    }
    return n && need(q, ")") ? n : NULL;
}

static node *parse_primary(parser *q)
{
    static const struct {
        const char *name;
        int value;
    } words[] = { { "true", 1 }, { "True", 1 }, { "false", 0 }, { "False", 0 }, { "none", 2 }, { "None", 2 } };
    if (q->kind == TOKEN_STRING) return parse_string(q);
    if (q->kind == TOKEN_NUMBER) return parse_number(q);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (take(q, words[i].name))
            return add_constant(q, words[i].value == 2 ? json_null() : json_boolean(words[i].value));
    if (q->kind == TOKEN_NAME) {
        node *n = add(q, LS__JINJA_NAME);
        if (n && !copy_name(q, &n->name, q->at, q->count)) return NULL;
        next(q);
        return n;
    }
    /* Inside of brackets, "}}" is not the tag's end. */
    q->depth++;
    node *n = NULL;
    if (take(q, "(")) {
        n = parse_parenthesis(q);
    } else if (is(q, "[") || is(q, "{")) {
        bool dict = is(q, "{");
        n = add(q, dict ? LS__JINJA_DICT : LS__JINJA_LIST);
        next(q);
        node *list = parse_list(q, dict ? "}" : "]", dict ? parse_pair : parse_expression);
        if (n) n->list = list;
    } else {
        unexpected(q);
    }
    q->depth--;
    /* The token after it was read as one inside. */
    if (n && q->depth == 0) q->p = q->at, next(q);
    return q->status ? NULL : n;
}

/* a[b], or a[b:c:d]. */
static node *parse_subscript(parser *q, node *of)
{
    node *n = add(q, LS__JINJA_ITEM), *parts[3] = { NULL };
    int i = 0;
    for (bool more = true; more && i < 3 && !q->status; i++) {
        if (!is(q, ":") && !is(q, "]")) parts[i] = parse_expression(q);
        more = take(q, ":");
    }
    if (!n || !need(q, "]")) return NULL;
    n->a = of;
    n->b = parts[0];
    n->c = parts[1];
    n->d = parts[2];
    if (i > 1) n->kind = LS__JINJA_SLICE;
    if (i == 1 && !n->b) return unexpected(q);
    return n;
}

static node *parse_call(parser *q, ls__jinja_kind kind, node *of)
{
    node *n = add(q, kind);
    q->depth++;
    next(q);
    node *list = parse_list(q, ")", parse_argument);
    q->depth--;
    if (q->depth == 0) q->p = q->at, next(q);
    if (!n || q->status) return NULL;
    n->a = of;
    n->list = list;
    return n;
}

static node *parse_postfix(parser *q, node *n)
{
    while (n && !q->status) {
        if (is(q, "(")) {
            n = parse_call(q, LS__JINJA_CALL, n);
        } else if (is(q, "[")) {
            q->depth++;
            next(q);
            n = parse_subscript(q, n);
            q->depth--;
            if (q->depth == 0) q->p = q->at, next(q);
        } else if (take(q, ".")) {
            node *of = n;
            n = add(q, LS__JINJA_ATTR);
            if (q->kind != TOKEN_NAME) return unexpected(q);
            if (!n || !copy_name(q, &n->name, q->at, q->count)) return NULL;
            n->a = of;
            next(q);
        } else {
            break;
        }
    }
    return q->status ? NULL : n;
}

/* The argument of a test may stand without parentheses. */
static bool begins_argument(const parser *q)
{
    static const char *const words[] = { "else", "or", "and", "is", "if", "in", "not" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is(q, words[i])) return false;
    return q->kind == TOKEN_NAME || q->kind == TOKEN_STRING || q->kind == TOKEN_NUMBER || is(q, "[") || is(q, "{");
}

static node *parse_filters(parser *q, node *n)
{
    while (n && !q->status && (is(q, "|") || is(q, "is"))) {
        bool test = is(q, "is");
        next(q);
        bool negated = test && take(q, "not");
        const char *name = q->at;
        size_t count = q->count;
        if (q->kind != TOKEN_NAME) return unexpected(q);
        next(q);
        node *of = n;
        if (is(q, "(")) {
            n = parse_call(q, test ? LS__JINJA_TEST : LS__JINJA_FILTER, of);
        } else {
            n = add(q, test ? LS__JINJA_TEST : LS__JINJA_FILTER);
            if (n) n->a = of;
            if (n && test && begins_argument(q)) {
                node *argument = n->list = add(q, LS__JINJA_ARG);
                if (argument) argument->a = parse_postfix(q, parse_primary(q));
            }
        }
        if (!n || !copy_name(q, &n->name, name, count)) return NULL;
        if (negated) {
            node *opposite = add(q, LS__JINJA_NOT);
            if (opposite) opposite->a = n;
            n = opposite;
        }
    }
    return q->status ? NULL : n;
}

static node *parse_unary(parser *q, bool filters)
{
    node *n;
    if (++q->loops > MAX_DEPTH) return fails(q, LS_EFORMAT, "nested too deeply", "", 0);
    if (take(q, "-")) {
        n = add(q, LS__JINJA_NEGATE);
        node *a = parse_unary(q, false);
        if (n) n->a = a;
    } else if (take(q, "+")) {
        n = parse_unary(q, false);
    } else {
        n = parse_primary(q);
    }
    n = parse_postfix(q, n);
    q->loops--;
    if (is(q, "**")) return fails(q, LS_EUNSUPPORTED, "unsupported: operator", q->at, q->count);
    return filters ? parse_filters(q, n) : n;
}

/* The operators between two values, by precedence; each level is of those to its right. */
typedef struct operator
{
    const char *text;
    ls__jinja_op op;
}
operator;
static const operator levels[3][5] = {
    { { "+", LS__JINJA_ADD }, { "-", LS__JINJA_SUB } },
    { { "~", LS__JINJA_CONCAT } },
    { { "*", LS__JINJA_MUL }, { "//", LS__JINJA_FLOOR_DIV }, { "/", LS__JINJA_DIV }, { "%", LS__JINJA_MOD } },
};

static node *parse_level(parser *q, int level)
{
    node *n = level == 3 ? parse_unary(q, true) : parse_level(q, level + 1);
    while (n && !q->status && level < 3) {
        const operator* found = NULL;
        for (const operator* o = levels[level]; o->text && !found; o++)
            if (is(q, o->text)) found = o;
        if (!found) break;
        next(q);
        node *binary = add(q, LS__JINJA_BINARY);
        if (!binary) return NULL;
        binary->op = found->op;
        binary->a = n;
        binary->b = parse_level(q, level + 1);
        n = binary;
    }
    return q->status ? NULL : n;
}

static bool take_comparison(parser *q, ls__jinja_op *op)
{
    static const operator all[] = { { "==", LS__JINJA_EQ }, { "!=", LS__JINJA_NE }, { "<=", LS__JINJA_LE },
                                    { ">=", LS__JINJA_GE }, { "<", LS__JINJA_LT },  { ">", LS__JINJA_GT },
                                    { "in", LS__JINJA_IN } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (take(q, all[i].text)) {
            *op = all[i].op;
            return true;
        }
    if (!is(q, "not")) return false;
    parser before = *q;
    next(q);
    *op = LS__JINJA_NOT_IN;
    if (take(q, "in")) return true;
    *q = before;
    return false;
}

static node *parse_comparison(parser *q)
{
    node *n = parse_level(q, 0);
    ls__jinja_op op;
    for (int count = 0; n && !q->status && take_comparison(q, &op); count++) {
        if (count) return fails(q, LS_EUNSUPPORTED, "unsupported: chained comparisons; use 'and'", "", 0);
        node *binary = add(q, LS__JINJA_BINARY);
        if (!binary) return NULL;
        binary->op = op;
        binary->a = n;
        binary->b = parse_level(q, 0);
        n = binary;
    }
    return q->status ? NULL : n;
}

static node *parse_not(parser *q)
{
    if (!is(q, "not")) return parse_comparison(q);
    node *n = add(q, LS__JINJA_NOT);
    next(q);
    if (++q->loops > MAX_DEPTH) return fails(q, LS_EFORMAT, "nested too deeply", "", 0);
    node *a = parse_not(q);
    q->loops--;
    if (n) n->a = a;
    return q->status ? NULL : n;
}

static node *parse_joined(parser *q, ls__jinja_kind kind)
{
    bool either = kind == LS__JINJA_OR;
    node *n = either ? parse_joined(q, LS__JINJA_AND) : parse_not(q);
    while (n && !q->status && take(q, either ? "or" : "and")) {
        node *both = add(q, kind);
        if (!both) return NULL;
        both->a = n;
        both->b = either ? parse_joined(q, LS__JINJA_AND) : parse_not(q);
        n = both;
    }
    return q->status ? NULL : n;
}

static node *parse_or(parser *q)
{
    return parse_joined(q, LS__JINJA_OR);
}

static node *parse_expression(parser *q)
{
    if (++q->loops > MAX_DEPTH) return fails(q, LS_EFORMAT, "nested too deeply", "", 0);
    node *n = parse_or(q);
    while (n && !q->status && take(q, "if")) {
        node *choice = add(q, LS__JINJA_CHOOSE);
        if (!choice) return NULL;
        choice->a = n;
        choice->b = parse_or(q);
        if (take(q, "else")) choice->c = parse_expression(q);
        n = choice;
    }
    q->loops--;
    return q->status ? NULL : n;
}

/* ---- Text and tags. */

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
    node *n = add(q, LS__JINJA_TEXT);
    if (n && !(n->value = json_stringn(from, (size_t)(to - from)))) fails(q, LS_EFORMAT, "invalid UTF-8", "", 0);
    return q->status ? NULL : n;
}

/* Goes into a tag; `block`: it is not an expression. */
static void enter(parser *q, bool block)
{
    q->p += 2;
    if (q->p < q->end && (*q->p == '-' || *q->p == '+')) q->p++;
    q->newline = block;
    next(q);
}

static void leave(parser *q)
{
    if (q->status) return;
    size_t n = q->kind == TOKEN_END ? tag_end(q, q->p, closing(q)) : 0;
    if (!n && q->p >= q->end)
        fails(q, LS_EFORMAT, "a tag is not closed", "", 0);
    else if (!n)
        unexpected(q);
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
        fails(q, LS_EFORMAT, "a comment is not closed", "", 0);
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
    node *n = add(q, LS__JINJA_IF);
    if (!n) return NULL;
    n->a = parse_expression(q);
    leave(q);
    n->list = parse_body(q, "elif else endif");
    if (take(q, "elif")) {
        if (++q->loops > MAX_DEPTH) return fails(q, LS_EFORMAT, "nested too deeply", "", 0);
        n->otherwise = parse_if(q);
        q->loops--;
        return n;
    }
    if (take(q, "else")) {
        leave(q);
        n->otherwise = parse_body(q, "endif");
    }
    need(q, "endif");
    return n;
}

static bool take_name(parser *q, char **to)
{
    if (q->kind != TOKEN_NAME) unexpected(q);
    if (q->status || !copy_name(q, to, q->at, q->count)) return false;
    next(q);
    return true;
}

static node *parse_for(parser *q)
{
    node *n = add(q, LS__JINJA_FOR);
    if (!n || !take_name(q, &n->name) || (take(q, ",") && !take_name(q, &n->name2)) || !need(q, "in")) return NULL;
    n->a = parse_or(q);
    if (take(q, "if")) n->b = parse_expression(q);
    if (is(q, "recursive")) return fails(q, LS_EUNSUPPORTED, "unsupported:", q->at, q->count);
    leave(q);
    n->list = parse_body(q, "else endfor");
    if (take(q, "else")) {
        leave(q);
        n->otherwise = parse_body(q, "endfor");
    }
    need(q, "endfor");
    return n;
}

static node *parse_set(parser *q)
{
    node *n = add(q, LS__JINJA_SET);
    if (!n || !take_name(q, &n->name) || (take(q, ".") && !take_name(q, &n->name2))) return NULL;
    if (is(q, ",")) return fails(q, LS_EUNSUPPORTED, "unsupported: set of several names", "", 0);
    if (take(q, "=")) {
        n->a = parse_expression(q);
        return n;
    }
    leave(q);
    n->list = parse_body(q, "endset");
    need(q, "endset");
    return n;
}

static node *parse_parameter(parser *q)
{
    node *n = add(q, LS__JINJA_ARG);
    if (!n || !take_name(q, &n->name)) return NULL;
    if (take(q, "=")) n->a = parse_expression(q);
    return q->status ? NULL : n;
}

static node *parse_macro(parser *q)
{
    node *n = add(q, LS__JINJA_MACRO);
    if (!n || !take_name(q, &n->name) || !need(q, "(")) return NULL;
    n->b = parse_list(q, ")", parse_parameter);
    leave(q);
    n->list = parse_body(q, "endmacro");
    need(q, "endmacro");
    if (q->kind == TOKEN_NAME) next(q); /* its name, again */
    return n;
}

static node *parse_generation(parser *q)
{
    node *n = add(q, LS__JINJA_GENERATION);
    q->out->marks = true;
    leave(q);
    node *list = parse_body(q, "endgeneration");
    if (n) n->list = list;
    need(q, "endgeneration");
    return n;
}

static node *parse_block(parser *q)
{
    if (take(q, "if")) return parse_if(q);
    if (take(q, "for")) return parse_for(q);
    if (take(q, "set")) return parse_set(q);
    if (take(q, "macro")) return parse_macro(q);
    if (take(q, "generation")) return parse_generation(q);
    if (take(q, "break")) return add(q, LS__JINJA_BREAK);
    if (take(q, "continue")) return add(q, LS__JINJA_CONTINUE);
    if (q->kind == TOKEN_NAME) return fails(q, LS_EUNSUPPORTED, "unsupported: the block", q->at, q->count);
    return unexpected(q);
}

/* Statements up to a block whose name is one of `ends`, which is then the current token; "": up to the end. */
static node *parse_body(parser *q, const char *ends)
{
    node *first = NULL, **last = &first;
    if (++q->loops > MAX_DEPTH) return fails(q, LS_EFORMAT, "nested too deeply", "", 0);
    while (!q->status) {
        node *n = parse_text(q);
        if (n) *last = n, last = &n->next;
        if (q->status) break;
        if (q->p >= q->end) {
            if (*ends) fails(q, LS_EFORMAT, "missing", ends, strcspn(ends, " "));
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
        } else if ((n = add(q, LS__JINJA_PRINT))) {
            n->a = parse_expression(q);
            if (is(q, ",")) fails(q, LS_EUNSUPPORTED, "unsupported: a tuple that is printed", "", 0);
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
