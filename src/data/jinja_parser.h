/* The parser of templates: what jinja_tokens.c, jinja_expressions.c and jinja_parse.c share.
 *
 * After a failure `status` is set, and functions do nothing and return NULL or false. Nodes belong to the template, also those of a
 * part that failed. */
#ifndef LS_DATA_JINJA_PARSER_H
#define LS_DATA_JINJA_PARSER_H

#include "data/jinja.h"

enum { LS__JINJA_MAX_DEPTH = 300, LS__JINJA_NAME_BYTES = 64 };

typedef enum ls__jinja_token { TOKEN_END, TOKEN_NAME, TOKEN_STRING, TOKEN_NUMBER, TOKEN_SIGN } ls__jinja_token;

typedef struct ls__jinja_parser {
    ls__jinja *out;
    const char *begin, *p, *end; /* the template; the cursor */
    /* the current token, inside of a tag: */
    ls__jinja_token kind;
    const char *at; /* where it begins */
    size_t count;
    bool trim;    /* the last tag removes white space after it */
    bool newline; /* the last tag removes a line feed after it */
    int depth, loops;
    ls_status status; /* once it fails */
} ls__jinja_parser;

/* ---- Nodes: jinja_tokens.c */

/* Fails with "NAME: line N: what 'about'"; without `about` if count is 0. Returns NULL. */
ls__jinja_node *ls__jinja_fails(ls__jinja_parser *q, ls_status status, const char *what, const char *about,
                                size_t count);
/* Fails at the current token. */
ls__jinja_node *ls__jinja_unexpected(ls__jinja_parser *q);
ls__jinja_node *ls__jinja_add(ls__jinja_parser *q, ls__jinja_kind kind);
/* Takes the reference to `value`. */
ls__jinja_node *ls__jinja_add_constant(ls__jinja_parser *q, json_t *value);
bool ls__jinja_copy_name(ls__jinja_parser *q, char **to, const char *text, size_t count);

/* ---- Tokens inside of a tag: jinja_tokens.c */

bool ls__jinja_is_name(char c, bool first);
/* The bytes of the tag's end at `p`, "-%}" for example; 0: it does not end there. */
size_t ls__jinja_tag_end(const ls__jinja_parser *q, const char *p, char mark);
/* What closes the current tag: '%' or '}'. */
char ls__jinja_closing(const ls__jinja_parser *q);
/* Goes to the next token. */
void ls__jinja_next(ls__jinja_parser *q);
/* Whether the current token is this name or sign; `take`: and goes to the next one if it is; `need`: fails if it is not. */
bool ls__jinja_is(const ls__jinja_parser *q, const char *text);
bool ls__jinja_take(ls__jinja_parser *q, const char *text);
bool ls__jinja_need(ls__jinja_parser *q, const char *text);

/* ---- Expressions: jinja_expressions.c */

ls__jinja_node *ls__jinja_expression(ls__jinja_parser *q);
/* An expression without "a if b else c" at its top. */
ls__jinja_node *ls__jinja_condition(ls__jinja_parser *q);
/* Elements up to `end`, separated by commas, each made by `parse`. */
ls__jinja_node *ls__jinja_list(ls__jinja_parser *q, const char *end, ls__jinja_node *(*parse)(ls__jinja_parser *q));

#endif
