/* The expressions of templates, by recursive descent: from choices ("a if b else c") down to strings and numbers. See jinja_parser.h. */
#include "data/jinja_parser.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"

typedef ls__jinja_node node;
typedef ls__jinja_parser parser;

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
        } else if (digits && last == hex + digits && ls__jinja_is_name(hex[0] | 0x20, false)) {
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
    for (; q->kind == TOKEN_STRING && !q->status; ls__jinja_next(q)) { /* neighbours are one string */
        char *more = realloc(text, count + q->count + 1);
        if (!more) break;
        text = more;
        if (q->count < 2 || q->at[q->count - 1] != *q->at)
            ls__jinja_fails(q, LS_EFORMAT, "unterminated string", "", 0);
        else
            count += unescape(q->at + 1, q->at + q->count - 1, text + count);
    }
    node *n = q->status ? NULL : ls__jinja_add_constant(q, text ? json_stringn(text, count) : NULL);
    free(text);
    return n;
}

static node *parse_number(parser *q)
{
    char digits[LS__JINJA_NAME_BYTES], *to = digits, *end;
    if (q->count >= sizeof digits)
        return ls__jinja_fails(q, LS_EFORMAT, "number with too many digits", q->at, q->count);
    for (size_t i = 0; i < q->count; i++)
        if (q->at[i] != '_') *to++ = q->at[i];
    *to = 0;
    node *n = strpbrk(digits, ".eE") ? ls__jinja_add_constant(q, json_real(strtod(digits, &end)))
              : strlen(digits) < 19  ? ls__jinja_add_constant(q, json_integer(strtoll(digits, &end, 10)))
                                     : ls__jinja_fails(q, LS_EFORMAT, "number is too large:", q->at, q->count);
    ls__jinja_next(q);
    return n;
}

/* Elements up to `end`, each made by `parse`. */
node *ls__jinja_list(parser *q, const char *end, node *(*parse)(parser *q))
{
    node *first = NULL, **last = &first;
    while (!q->status && !ls__jinja_is(q, end)) {
        node *n = parse(q);
        if (!n) return NULL;
        *last = n;
        last = &n->next;
        if (!ls__jinja_is(q, end) && !ls__jinja_need(q, ",")) return NULL;
    }
    ls__jinja_need(q, end);
    return first;
}

static node *parse_pair(parser *q)
{
    node *pair = ls__jinja_add(q, LS__JINJA_ARG);
    if (!pair || !(pair->a = ls__jinja_expression(q)) || !ls__jinja_need(q, ":")) return NULL;
    pair->b = ls__jinja_expression(q);
    return q->status ? NULL : pair;
}

static node *parse_argument(parser *q)
{
    node *n = ls__jinja_add(q, LS__JINJA_ARG);
    if (ls__jinja_is(q, "*") || ls__jinja_is(q, "**"))
        return ls__jinja_fails(q, LS_EUNSUPPORTED, "unsupported: arguments with", q->at, q->count);
    if (!n) return NULL;
    parser before = *q;
    if (q->kind == TOKEN_NAME && ls__jinja_copy_name(q, &n->name, q->at, q->count)) {
        ls__jinja_next(q);
        if (ls__jinja_take(q, "=")) {
            n->a = ls__jinja_expression(q);
            return q->status ? NULL : n;
        }
        free(n->name);
        n->name = NULL;
        before.out = q->out;
        before.status = q->status;
        *q = before;
    }
    n->a = ls__jinja_expression(q);
    return q->status ? NULL : n;
}

static node *parse_parenthesis(parser *q)
{
    if (ls__jinja_take(q, ")")) return ls__jinja_add(q, LS__JINJA_LIST);
    node *n = ls__jinja_expression(q);
    if (n && ls__jinja_is(q, ",")) { /* a tuple */
        node *list = ls__jinja_add(q, LS__JINJA_LIST);
        ls__jinja_next(q);
        if (list) list->list = n, n->next = ls__jinja_list(q, ")", ls__jinja_expression);
        return q->status ? NULL : list;
    }
    return n && ls__jinja_need(q, ")") ? n : NULL;
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
        if (ls__jinja_take(q, words[i].name))
            return ls__jinja_add_constant(q, words[i].value == 2 ? json_null() : json_boolean(words[i].value));
    if (q->kind == TOKEN_NAME) {
        node *n = ls__jinja_add(q, LS__JINJA_NAME);
        if (n && !ls__jinja_copy_name(q, &n->name, q->at, q->count)) return NULL;
        ls__jinja_next(q);
        return n;
    }
    /* Inside of brackets, "}}" is not the tag's end. */
    q->depth++;
    node *n = NULL;
    if (ls__jinja_take(q, "(")) {
        n = parse_parenthesis(q);
    } else if (ls__jinja_is(q, "[") || ls__jinja_is(q, "{")) {
        bool dict = ls__jinja_is(q, "{");
        n = ls__jinja_add(q, dict ? LS__JINJA_DICT : LS__JINJA_LIST);
        ls__jinja_next(q);
        node *list = ls__jinja_list(q, dict ? "}" : "]", dict ? parse_pair : ls__jinja_expression);
        if (n) n->list = list;
    } else {
        ls__jinja_unexpected(q);
    }
    q->depth--;
    /* The token after it was read as one inside. */
    if (n && q->depth == 0) q->p = q->at, ls__jinja_next(q);
    return q->status ? NULL : n;
}

/* a[b], or a[b:c:d]. */
static node *parse_subscript(parser *q, node *of)
{
    node *n = ls__jinja_add(q, LS__JINJA_ITEM), *parts[3] = { NULL };
    int i = 0;
    for (bool more = true; more && i < 3 && !q->status; i++) {
        if (!ls__jinja_is(q, ":") && !ls__jinja_is(q, "]")) parts[i] = ls__jinja_expression(q);
        more = ls__jinja_take(q, ":");
    }
    if (!n || !ls__jinja_need(q, "]")) return NULL;
    n->a = of;
    n->b = parts[0];
    n->c = parts[1];
    n->d = parts[2];
    if (i > 1) n->kind = LS__JINJA_SLICE;
    if (i == 1 && !n->b) return ls__jinja_unexpected(q);
    return n;
}

static node *parse_call(parser *q, ls__jinja_kind kind, node *of)
{
    node *n = ls__jinja_add(q, kind);
    q->depth++;
    ls__jinja_next(q);
    node *list = ls__jinja_list(q, ")", parse_argument);
    q->depth--;
    if (q->depth == 0) q->p = q->at, ls__jinja_next(q);
    if (!n || q->status) return NULL;
    n->a = of;
    n->list = list;
    return n;
}

static node *parse_postfix(parser *q, node *n)
{
    while (n && !q->status) {
        if (ls__jinja_is(q, "(")) {
            n = parse_call(q, LS__JINJA_CALL, n);
        } else if (ls__jinja_is(q, "[")) {
            q->depth++;
            ls__jinja_next(q);
            n = parse_subscript(q, n);
            q->depth--;
            if (q->depth == 0) q->p = q->at, ls__jinja_next(q);
        } else if (ls__jinja_take(q, ".")) {
            node *of = n;
            n = ls__jinja_add(q, LS__JINJA_ATTR);
            if (q->kind != TOKEN_NAME) return ls__jinja_unexpected(q);
            if (!n || !ls__jinja_copy_name(q, &n->name, q->at, q->count)) return NULL;
            n->a = of;
            ls__jinja_next(q);
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
        if (ls__jinja_is(q, words[i])) return false;
    return q->kind == TOKEN_NAME || q->kind == TOKEN_STRING || q->kind == TOKEN_NUMBER || ls__jinja_is(q, "[") ||
           ls__jinja_is(q, "{");
}

static node *parse_filters(parser *q, node *n)
{
    while (n && !q->status && (ls__jinja_is(q, "|") || ls__jinja_is(q, "is"))) {
        bool test = ls__jinja_is(q, "is");
        ls__jinja_next(q);
        bool negated = test && ls__jinja_take(q, "not");
        const char *name = q->at;
        size_t count = q->count;
        if (q->kind != TOKEN_NAME) return ls__jinja_unexpected(q);
        ls__jinja_next(q);
        node *of = n;
        if (ls__jinja_is(q, "(")) {
            n = parse_call(q, test ? LS__JINJA_TEST : LS__JINJA_FILTER, of);
        } else {
            n = ls__jinja_add(q, test ? LS__JINJA_TEST : LS__JINJA_FILTER);
            if (n) n->a = of;
            if (n && test && begins_argument(q)) {
                node *argument = n->list = ls__jinja_add(q, LS__JINJA_ARG);
                if (argument) argument->a = parse_postfix(q, parse_primary(q));
            }
        }
        if (!n || !ls__jinja_copy_name(q, &n->name, name, count)) return NULL;
        if (negated) {
            node *opposite = ls__jinja_add(q, LS__JINJA_NOT);
            if (opposite) opposite->a = n;
            n = opposite;
        }
    }
    return q->status ? NULL : n;
}

static node *parse_unary(parser *q, bool filters)
{
    node *n;
    if (++q->loops > LS__JINJA_MAX_DEPTH) return ls__jinja_fails(q, LS_EFORMAT, "nested too deeply", "", 0);
    if (ls__jinja_take(q, "-")) {
        n = ls__jinja_add(q, LS__JINJA_NEGATE);
        node *a = parse_unary(q, false);
        if (n) n->a = a;
    } else if (ls__jinja_take(q, "+")) {
        n = parse_unary(q, false);
    } else {
        n = parse_primary(q);
    }
    n = parse_postfix(q, n);
    q->loops--;
    if (ls__jinja_is(q, "**")) return ls__jinja_fails(q, LS_EUNSUPPORTED, "unsupported: operator", q->at, q->count);
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
            if (ls__jinja_is(q, o->text)) found = o;
        if (!found) break;
        ls__jinja_next(q);
        node *binary = ls__jinja_add(q, LS__JINJA_BINARY);
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
        if (ls__jinja_take(q, all[i].text)) {
            *op = all[i].op;
            return true;
        }
    if (!ls__jinja_is(q, "not")) return false;
    parser before = *q;
    ls__jinja_next(q);
    *op = LS__JINJA_NOT_IN;
    if (ls__jinja_take(q, "in")) return true;
    *q = before;
    return false;
}

static node *parse_comparison(parser *q)
{
    node *n = parse_level(q, 0);
    ls__jinja_op op;
    for (int count = 0; n && !q->status && take_comparison(q, &op); count++) {
        if (count) return ls__jinja_fails(q, LS_EUNSUPPORTED, "unsupported: chained comparisons; use 'and'", "", 0);
        node *binary = ls__jinja_add(q, LS__JINJA_BINARY);
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
    if (!ls__jinja_is(q, "not")) return parse_comparison(q);
    node *n = ls__jinja_add(q, LS__JINJA_NOT);
    ls__jinja_next(q);
    if (++q->loops > LS__JINJA_MAX_DEPTH) return ls__jinja_fails(q, LS_EFORMAT, "nested too deeply", "", 0);
    node *a = parse_not(q);
    q->loops--;
    if (n) n->a = a;
    return q->status ? NULL : n;
}

static node *parse_joined(parser *q, ls__jinja_kind kind)
{
    bool either = kind == LS__JINJA_OR;
    node *n = either ? parse_joined(q, LS__JINJA_AND) : parse_not(q);
    while (n && !q->status && ls__jinja_take(q, either ? "or" : "and")) {
        node *both = ls__jinja_add(q, kind);
        if (!both) return NULL;
        both->a = n;
        both->b = either ? parse_joined(q, LS__JINJA_AND) : parse_not(q);
        n = both;
    }
    return q->status ? NULL : n;
}

node *ls__jinja_condition(parser *q)
{
    return parse_joined(q, LS__JINJA_OR);
}

node *ls__jinja_expression(parser *q)
{
    if (++q->loops > LS__JINJA_MAX_DEPTH) return ls__jinja_fails(q, LS_EFORMAT, "nested too deeply", "", 0);
    node *n = ls__jinja_condition(q);
    while (n && !q->status && ls__jinja_take(q, "if")) {
        node *choice = ls__jinja_add(q, LS__JINJA_CHOOSE);
        if (!choice) return NULL;
        choice->a = n;
        choice->b = ls__jinja_condition(q);
        if (ls__jinja_take(q, "else")) choice->c = ls__jinja_expression(q);
        n = choice;
    }
    q->loops--;
    return q->status ? NULL : n;
}
