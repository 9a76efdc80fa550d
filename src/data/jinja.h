/* Templates of chats: the part of Jinja that they use. They are read once into a tree (jinja_parser.h), which is walked for each
 * text (jinja_run.c; jinja_values.h has its values). What is not supported is refused by its name.
 *
 * The values of the language are those of JSON, besides one for what is not defined. A template that is read does not change: threads may
 * share it. */
#ifndef LS_DATA_JINJA_H
#define LS_DATA_JINJA_H

#include <jansson.h>
#include <stdbool.h>
#include "lockstep/base.h"

/* Bytes [begin, end) of a text. */
typedef struct ls__text_span {
    size_t begin, end;
} ls__text_span;

typedef enum ls__jinja_kind {
    /* expressions: */
    LS__JINJA_CONST,  /* value */
    LS__JINJA_NAME,   /* name */
    LS__JINJA_LIST,   /* list: its elements */
    LS__JINJA_DICT,   /* list: pairs, each with a: key, b: value */
    LS__JINJA_ATTR,   /* a.name */
    LS__JINJA_ITEM,   /* a[b] */
    LS__JINJA_SLICE,  /* a[b:c:d]; each may be NULL */
    LS__JINJA_CALL,   /* a(list); of arguments with a name, that is `name` */
    LS__JINJA_FILTER, /* a | name(list) */
    LS__JINJA_TEST,   /* a is name(list) */
    LS__JINJA_NOT,    /* not a */
    LS__JINJA_NEGATE, /* -a */
    LS__JINJA_AND,
    LS__JINJA_OR,
    LS__JINJA_BINARY, /* a op b */
    LS__JINJA_CHOOSE, /* a if b else c; c may be NULL */
    LS__JINJA_ARG,    /* a; name: of an argument that has one. In a macro: a parameter and its default, or NULL */
    /* statements: */
    LS__JINJA_TEXT,       /* value */
    LS__JINJA_PRINT,      /* a */
    LS__JINJA_IF,         /* a, list, otherwise */
    LS__JINJA_FOR,        /* for name, name2 in a if b; list, otherwise */
    LS__JINJA_SET,        /* set name[.name2] = a, or the text of list */
    LS__JINJA_MACRO,      /* name, b: parameters, list */
    LS__JINJA_GENERATION, /* list: what the assistant answers */
    LS__JINJA_BREAK,
    LS__JINJA_CONTINUE,
} ls__jinja_kind;

typedef enum ls__jinja_op {
    LS__JINJA_ADD,
    LS__JINJA_SUB,
    LS__JINJA_MUL,
    LS__JINJA_DIV,
    LS__JINJA_FLOOR_DIV,
    LS__JINJA_MOD,
    LS__JINJA_CONCAT,
    LS__JINJA_EQ,
    LS__JINJA_NE,
    LS__JINJA_LT,
    LS__JINJA_LE,
    LS__JINJA_GT,
    LS__JINJA_GE,
    LS__JINJA_IN,
    LS__JINJA_NOT_IN,
} ls__jinja_op;

typedef struct ls__jinja_node ls__jinja_node;
struct ls__jinja_node {
    ls__jinja_kind kind;
    ls__jinja_op op;
    int line;
    json_t *value;
    char *name, *name2;
    ls__jinja_node *a, *b, *c, *d;
    ls__jinja_node *list, *otherwise;
    ls__jinja_node *next;  /* in a list */
    ls__jinja_node *older; /* all nodes, for freeing them */
};

typedef struct ls__jinja {
    char *name; /* for messages */
    ls__jinja_node *body, *all;
    bool marks; /* it has generation blocks */
} ls__jinja;

/* Reads a template. LS_EFORMAT or LS_EUNSUPPORTED with name and line; *out is NULL then. */
LS_MUST_CHECK ls_status ls__jinja_parse(ls__jinja **out, const char *name, const char *text, size_t bytes);
void ls__jinja_free(ls__jinja **template);

/* What a template makes of its variables. All zero is empty. */
typedef struct ls__jinja_text {
    char *bytes; /* 0-terminated */
    size_t count, room;
    ls__text_span *spans; /* of the generation blocks */
    size_t n_spans, spans_room;
} ls__jinja_text;
void ls__jinja_text_free(ls__jinja_text *text);

/* Replaces *out by the text. `variables` is an object, which is not changed. LS_EFORMAT: the template fails, for example because it
 * refuses the messages. */
LS_MUST_CHECK ls_status ls__jinja_render(const ls__jinja *template, json_t *variables, ls__jinja_text *out);

/* ---- Inside: values. Functions that return a json_t return a new reference, or NULL after ls__fail(). */

/* What is not defined; json_is_null() is true for it, too. */
extern json_t ls__jinja_undefined;

/* Arguments of a call, by position and by name. */
typedef struct ls__jinja_args {
    json_t *list;  /* array */
    json_t *named; /* object; NULL: none */
} ls__jinja_args;

bool ls__jinja_true(const json_t *value);
bool ls__jinja_equal(const json_t *a, const json_t *b);
/* "string", "list"..., for messages. */
const char *ls__jinja_type(const json_t *value);
/* As printed; LS_EUNSUPPORTED for lists and objects. */
json_t *ls__jinja_string(json_t *value);
json_t *ls__jinja_binary(ls__jinja_op op, json_t *a, json_t *b);
json_t *ls__jinja_item(json_t *of, json_t *key);
/* Bounds may be NULL. */
json_t *ls__jinja_slice(json_t *of, json_t *from, json_t *to, json_t *step);
json_t *ls__jinja_filter(const char *name, json_t *value, const ls__jinja_args *args);
json_t *ls__jinja_method(const char *name, json_t *value, const ls__jinja_args *args);
/* 1, 0, or -1 after ls__fail(). */
int ls__jinja_test(const char *name, json_t *value, const ls__jinja_args *args);

#endif
