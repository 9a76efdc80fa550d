/* Walks the tree of a template and writes its text. See jinja.h.
 *
 * A template is a file of others: how deep it goes, how much it writes and how long it runs is limited. */
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "data/jinja.h"

typedef ls__jinja_node node;

enum {
    MAX_DEPTH = 600,
    MAX_BYTES = 1 << 26,
    MAX_STEPS = 1 << 24,
    MAX_MACROS = 64,
    MAX_RANGE = 1 << 20,
    MAX_NESTING = 100
};

typedef enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;

typedef struct loop {
    json_t *items;
    size_t at;
} loop;

/* The names of a body. */
typedef struct frame {
    json_t *names;
    const loop *loop; /* NULL: it is not a loop's */
    struct frame *outer;
} frame;

typedef struct state {
    const ls__jinja *template;
    ls__jinja_text *out;
    frame *top, *root;
    json_t *namespaces; /* those whose attributes can be set */
    const node *macros[MAX_MACROS];
    int n_macros, depth, captures;
    uint64_t steps;
    flow flow;
    int failed_line; /* 0: not yet */
} state;

void ls__jinja_text_free(ls__jinja_text *text)
{
    free(text->bytes);
    free(text->spans);
    *text = (ls__jinja_text){ 0 };
}

static bool put(state *s, const char *bytes, size_t count)
{
    ls__jinja_text *o = s->out;
    if (count > MAX_BYTES - o->count) {
        ls__fail(LS_EFORMAT, "more than %d MiB of text", MAX_BYTES >> 20);
        return false;
    }
    if (o->count + count + 1 > o->room) {
        size_t room = 2 * (o->count + count) + 256;
        char *more = realloc(o->bytes, room);
        if (!more) {
            ls__fail(LS_ENOMEM, "no memory for %zu bytes of text", room);
            return false;
        }
        o->bytes = more;
        o->room = room;
    }
    memcpy(o->bytes + o->count, bytes, count);
    o->count += count;
    o->bytes[o->count] = 0;
    return true;
}

static json_t *eval(state *s, const node *n);
static bool run_list(state *s, const node *n);

/* ---- Names. */

static json_t *look_up(const state *s, const char *name)
{
    for (const frame *f = s->top; f; f = f->outer) {
        json_t *found = json_object_get(f->names, name);
        if (found) return found;
    }
    return NULL;
}

static const node *find_macro(const state *s, const char *name)
{
    for (int i = s->n_macros; i-- > 0;)
        if (!strcmp(s->macros[i]->name, name)) return s->macros[i];
    return NULL;
}

static bool is_function(const state *s, const char *name)
{
    return find_macro(s, name) || !strcmp(name, "range") || !strcmp(name, "namespace") ||
           !strcmp(name, "raise_exception");
}

/* loop.first and so on; NULL without a message: there is no such name. */
static json_t *loop_value(const state *s, const char *name)
{
    const frame *f = s->top;
    while (f && !f->loop) f = f->outer;
    if (!f) return NULL;
    size_t at = f->loop->at, count = json_array_size(f->loop->items);
    json_t *item = NULL;
    if (!strcmp(name, "index")) return json_integer((json_int_t)at + 1);
    if (!strcmp(name, "index0")) return json_integer((json_int_t)at);
    if (!strcmp(name, "revindex")) return json_integer((json_int_t)(count - at));
    if (!strcmp(name, "revindex0")) return json_integer((json_int_t)(count - at) - 1);
    if (!strcmp(name, "first")) return json_boolean(at == 0);
    if (!strcmp(name, "last")) return json_boolean(at + 1 == count);
    if (!strcmp(name, "length")) return json_integer((json_int_t)count);
    if (!strcmp(name, "previtem")) item = at ? json_array_get(f->loop->items, at - 1) : &ls__jinja_undefined;
    if (!strcmp(name, "nextitem"))
        item = at + 1 < count ? json_array_get(f->loop->items, at + 1) : &ls__jinja_undefined;
    return json_incref(item);
}

static json_t *attribute(state *s, const node *n)
{
    if (n->a->kind == LS__JINJA_NAME && !strcmp(n->a->name, "loop") && !look_up(s, "loop")) {
        json_t *value = loop_value(s, n->name);
        if (!value) ls__fail(LS_EUNSUPPORTED, "unsupported: loop.%s", n->name);
        return value;
    }
    json_t *of = eval(s, n->a), *key = of ? json_string(n->name) : NULL;
    json_t *value = NULL;
    if (of == &ls__jinja_undefined && n->a->kind == LS__JINJA_NAME)
        ls__fail(LS_EFORMAT, "'%s' is undefined", n->a->name);
    else if (key)
        value = ls__jinja_item(of, key);
    json_decref(key);
    json_decref(of);
    return value;
}

static bool is_namespace(const state *s, const json_t *value)
{
    size_t i;
    json_t *item;
    json_array_foreach(s->namespaces, i, item) if (item == value) return true;
    return false;
}

/* ---- Lists and objects. */

static int nesting(json_t *value)
{
    int deepest = 0;
    size_t i;
    const char *key;
    json_t *item;
    json_array_foreach(value, i, item)
    {
        int inside = json_is_array(item) || json_is_object(item) ? nesting(item) : 0;
        deepest = inside > deepest ? inside : deepest;
    }
    json_object_foreach(value, key, item)
    {
        int inside = json_is_array(item) || json_is_object(item) ? nesting(item) : 0;
        deepest = inside > deepest ? inside : deepest;
    }
    return deepest + 1;
}

/* What can be an element: not a namespace, which could contain itself. */
static bool is_element(const state *s, json_t *value)
{
    if (!value) return false;
    if (is_namespace(s, value))
        ls__fail(LS_EUNSUPPORTED, "unsupported: a namespace inside of a list or object");
    else if ((json_is_array(value) || json_is_object(value)) && nesting(value) > MAX_NESTING)
        ls__fail(LS_EFORMAT, "values are nested too deeply");
    else
        return true;
    return false;
}

static json_t *make_list(state *s, const node *n)
{
    json_t *out = json_array();
    for (n = n->list; n && out; n = n->next) {
        json_t *value = eval(s, n);
        if (is_element(s, value) && !json_array_append(out, value)) {
            json_decref(value);
            continue;
        }
        json_decref(value);
        json_decref(out);
        out = NULL;
    }
    return out;
}

static json_t *make_dict(state *s, const node *n)
{
    json_t *out = json_object();
    for (n = n->list; n && out; n = n->next) {
        json_t *key = eval(s, n->a), *value = key ? eval(s, n->b) : NULL;
        if (key && value && !json_is_string(key))
            ls__fail(LS_EUNSUPPORTED, "unsupported: an object with %s as a name", ls__jinja_type(key));
        bool good = json_is_string(key) && is_element(s, value) && !json_object_set(out, json_string_value(key), value);
        json_decref(key);
        json_decref(value);
        if (good) continue;
        json_decref(out);
        out = NULL;
    }
    return out;
}

/* What a loop goes over, as a list. */
static json_t *make_items(json_t *value)
{
    if (json_is_array(value)) return json_incref(value);
    if (value == &ls__jinja_undefined) return json_array();
    if (json_is_object(value)) return ls__jinja_method("keys", value, NULL);
    if (json_is_string(value)) return ls__jinja_filter("list", value, NULL);
    ls__fail(LS_EFORMAT, "a loop over %s", ls__jinja_type(value));
    return NULL;
}

/* ---- Calls. */

static void free_arguments(ls__jinja_args *a)
{
    json_decref(a->list);
    json_decref(a->named);
}

static bool make_arguments(state *s, const node *n, ls__jinja_args *a)
{
    *a = (ls__jinja_args){ .list = json_array(), .named = json_object() };
    bool good = a->list && a->named;
    for (; n && good; n = n->next) {
        json_t *value = eval(s, n->a);
        good = is_element(s, value) &&
               !(n->name ? json_object_set(a->named, n->name, value) : json_array_append(a->list, value));
        json_decref(value);
    }
    if (!good) free_arguments(a);
    return good;
}

static json_t *make_range(const ls__jinja_args *a)
{
    json_int_t from = 0, to = json_integer_value(json_array_get(a->list, 0)), step = 1;
    if (json_array_size(a->list) > 1) from = to, to = json_integer_value(json_array_get(a->list, 1));
    if (json_array_size(a->list) > 2) step = json_integer_value(json_array_get(a->list, 2));
    bool small = from > -MAX_RANGE && from < MAX_RANGE && to > -MAX_RANGE && to < MAX_RANGE && step > -MAX_RANGE &&
                 step < MAX_RANGE;
    if (!small || !step) {
        ls__fail(LS_EFORMAT, "range() of more than %d numbers", MAX_RANGE);
        return NULL;
    }
    json_t *out = json_array();
    for (json_int_t i = from; step > 0 ? i < to : i > to; i += step) json_array_append_new(out, json_integer(i));
    return out;
}

/* What the body of a macro writes, or that of "set". */
static json_t *capture(state *s, const node *body)
{
    ls__jinja_text own = { 0 }, *before = s->out;
    s->out = &own;
    s->captures++;
    bool good = put(s, "", 0) && run_list(s, body);
    s->captures--;
    s->out = before;
    json_t *out = good ? json_stringn(own.bytes, own.count) : NULL;
    ls__jinja_text_free(&own);
    return out;
}

/* Its parameters are a frame on top of the template's own names. */
static json_t *call_macro(state *s, const node *m, const ls__jinja_args *a)
{
    frame own = { .names = json_object(), .outer = s->root }, *before = s->top;
    size_t i = 0;
    bool good = own.names;
    for (const node *p = m->b; p && good; p = p->next, i++) {
        json_t *given = json_array_get(a->list, i), *value;
        if (!given) given = json_object_get(a->named, p->name);
        value = given ? json_incref(given) : p->a ? eval(s, p->a) : &ls__jinja_undefined;
        good = value && !json_object_set_new(own.names, p->name, value);
    }
    s->top = &own;
    json_t *out = good ? capture(s, m->list) : NULL;
    s->top = before;
    json_decref(own.names);
    return out;
}

static json_t *call_function(state *s, const char *name, const ls__jinja_args *a)
{
    const node *macro = find_macro(s, name);
    if (macro) return call_macro(s, macro, a);
    if (!strcmp(name, "range")) return make_range(a);
    if (!strcmp(name, "namespace")) {
        json_t *space = json_copy(a->named);
        if (space) json_array_append(s->namespaces, space);
        return space;
    }
    if (!strcmp(name, "raise_exception")) {
        const char *why = json_string_value(json_array_get(a->list, 0));
        ls__fail(LS_EFORMAT, "the chat template refuses the messages: %s", why ? why : "it gives no reason");
        return NULL;
    }
    ls__fail(LS_EUNSUPPORTED, "unsupported: the function '%s'", name);
    return NULL;
}

static json_t *call(state *s, const node *n)
{
    ls__jinja_args a;
    json_t *out = NULL;
    if (!make_arguments(s, n->list, &a)) return NULL;
    if (n->a->kind == LS__JINJA_NAME) {
        out = call_function(s, n->a->name, &a);
    } else if (n->a->kind == LS__JINJA_ATTR) {
        json_t *of = eval(s, n->a->a);
        if (of) out = ls__jinja_method(n->a->name, of, &a);
        json_decref(of);
    } else {
        ls__fail(LS_EUNSUPPORTED, "unsupported: a call of something that has no name");
    }
    free_arguments(&a);
    return out;
}

/* A filter or a test. */
static json_t *applied(state *s, const node *n)
{
    ls__jinja_args a;
    bool function = n->kind == LS__JINJA_TEST && n->a->kind == LS__JINJA_NAME && is_function(s, n->a->name);
    if (function && !strcmp(n->name, "defined")) return json_true();
    json_t *value = eval(s, n->a), *out = NULL;
    if (value && make_arguments(s, n->list, &a)) {
        int passes = -1;
        if (n->kind == LS__JINJA_FILTER)
            out = ls__jinja_filter(n->name, value, &a);
        else if ((passes = ls__jinja_test(n->name, value, &a)) >= 0)
            out = json_boolean(passes);
        free_arguments(&a);
    }
    json_decref(value);
    return out;
}

/* ---- Expressions. */

static json_t *choose(state *s, const node *n)
{
    json_t *condition = eval(s, n->b);
    if (!condition) return NULL;
    const node *chosen = ls__jinja_true(condition) ? n->a : n->c;
    json_decref(condition);
    return chosen ? eval(s, chosen) : &ls__jinja_undefined;
}

static json_t *eval_two(state *s, const node *n)
{
    json_t *a = eval(s, n->a), *b = NULL, *out = NULL;
    if (a && (n->kind == LS__JINJA_AND || n->kind == LS__JINJA_OR)) {
        if (ls__jinja_true(a) == (n->kind == LS__JINJA_OR)) return a;
        json_decref(a);
        return eval(s, n->b);
    }
    if (a) b = eval(s, n->b);
    if (b) out = n->kind == LS__JINJA_ITEM ? ls__jinja_item(a, b) : ls__jinja_binary(n->op, a, b);
    json_decref(a);
    json_decref(b);
    return out;
}

static json_t *eval_slice(state *s, const node *n)
{
    const node *parts[] = { n->a, n->b, n->c, n->d };
    json_t *values[4] = { NULL }, *out = NULL;
    bool good = true;
    for (int i = 0; i < 4 && good; i++)
        if (parts[i]) good = (values[i] = eval(s, parts[i]));
    if (good) out = ls__jinja_slice(values[0], values[1], values[2], values[3]);
    for (int i = 0; i < 4; i++) json_decref(values[i]);
    return out;
}

static json_t *eval_one(state *s, const node *n)
{
    json_t *a = eval(s, n->a), *out = NULL;
    if (a && n->kind == LS__JINJA_NOT) {
        out = json_boolean(!ls__jinja_true(a));
    } else if (a) {
        json_t *zero = json_integer(0);
        out = ls__jinja_binary(LS__JINJA_SUB, zero, a);
        json_decref(zero);
    }
    json_decref(a);
    return out;
}

static json_t *eval_kind(state *s, const node *n)
{
    json_t *found;
    switch (n->kind) {
    case LS__JINJA_CONST: return json_incref(n->value);
    case LS__JINJA_NAME: found = look_up(s, n->name); return found ? json_incref(found) : &ls__jinja_undefined;
    case LS__JINJA_LIST: return make_list(s, n);
    case LS__JINJA_DICT: return make_dict(s, n);
    case LS__JINJA_ATTR: return attribute(s, n);
    case LS__JINJA_ITEM:
    case LS__JINJA_AND:
    case LS__JINJA_OR:
    case LS__JINJA_BINARY: return eval_two(s, n);
    case LS__JINJA_SLICE: return eval_slice(s, n);
    case LS__JINJA_CALL: return call(s, n);
    case LS__JINJA_FILTER:
    case LS__JINJA_TEST: return applied(s, n);
    case LS__JINJA_NOT:
    case LS__JINJA_NEGATE: return eval_one(s, n);
    case LS__JINJA_CHOOSE: return choose(s, n);
    default: ls__fail(LS_EFORMAT, "a statement where a value is expected"); return NULL;
    }
}

/* Goes one level down; false: too deep, or for too long. */
static bool go_down(state *s)
{
    if (s->depth >= MAX_DEPTH)
        ls__fail(LS_EFORMAT, "nested too deeply");
    else if (s->steps >= MAX_STEPS)
        ls__fail(LS_EFORMAT, "runs for too long");
    else
        return s->steps++, s->depth++, true;
    return false;
}

static json_t *eval(state *s, const node *n)
{
    if (!go_down(s)) return NULL;
    json_t *value = eval_kind(s, n);
    s->depth--;
    return value;
}

/* ---- Statements. */

static bool print(state *s, const node *n)
{
    json_t *value = eval(s, n->a), *text = value ? ls__jinja_string(value) : NULL;
    bool good = text && put(s, json_string_value(text), json_string_length(text));
    json_decref(text);
    json_decref(value);
    return good;
}

static bool run_if(state *s, const node *n)
{
    json_t *condition = eval(s, n->a);
    if (!condition) return false;
    bool yes = ls__jinja_true(condition);
    json_decref(condition);
    return run_list(s, yes ? n->list : n->otherwise);
}

static bool set(state *s, const node *n)
{
    json_t *value = n->a ? eval(s, n->a) : capture(s, n->list);
    bool good = value;
    if (good && n->name2) {
        json_t *space = look_up(s, n->name);
        good = space && is_namespace(s, space);
        if (!good) ls__fail(LS_EFORMAT, "'%s' is not a namespace; its attributes cannot be set", n->name);
        good = good && is_element(s, value) && !json_object_set(space, n->name2, value);
    } else if (good) {
        good = !json_object_set(s->top->names, n->name, value);
    }
    json_decref(value);
    return good;
}

/* Gives an element its name, or its two names. */
static bool name_item(json_t *names, const node *n, json_t *item)
{
    if (!n->name2) return !json_object_set(names, n->name, item);
    if (json_array_size(item) != 2) {
        ls__fail(LS_EFORMAT, "a loop with two names over something that is not pairs");
        return false;
    }
    return !json_object_set(names, n->name, json_array_get(item, 0)) &&
           !json_object_set(names, n->name2, json_array_get(item, 1));
}

/* Those elements for which the loop's condition is true. */
static json_t *filter_items(state *s, const node *n, json_t *items)
{
    json_t *out = json_array(), *item;
    size_t i;
    bool good = out;
    frame own = { .names = json_object(), .outer = s->top };
    s->top = &own;
    json_array_foreach(items, i, item)
    {
        json_t *wanted = good && name_item(own.names, n, item) ? eval(s, n->b) : NULL;
        good = wanted && !(ls__jinja_true(wanted) && json_array_append(out, item));
        json_decref(wanted);
        if (!good) break;
    }
    s->top = own.outer;
    json_decref(own.names);
    if (!good) json_decref(out);
    return good ? out : NULL;
}

static bool run_for(state *s, const node *n)
{
    json_t *over = eval(s, n->a), *items = over ? make_items(over) : NULL;
    json_decref(over);
    if (items && n->b) {
        json_t *some = filter_items(s, n, items);
        json_decref(items);
        items = some;
    }
    bool good = items;
    loop l = { .items = items };
    for (; good && l.at < json_array_size(items); l.at++) {
        frame own = { .names = json_object(), .loop = &l, .outer = s->top };
        s->top = &own;
        good = name_item(own.names, n, json_array_get(items, l.at)) && run_list(s, n->list);
        s->top = own.outer;
        json_decref(own.names);
        bool stop = s->flow == FLOW_BREAK;
        s->flow = FLOW_ON;
        if (stop) break;
    }
    if (good && !json_array_size(items)) good = run_list(s, n->otherwise);
    json_decref(items);
    return good;
}

static bool define(state *s, const node *n)
{
    if (s->n_macros == MAX_MACROS) {
        ls__fail(LS_EUNSUPPORTED, "unsupported: more than %d macros", MAX_MACROS);
        return false;
    }
    s->macros[s->n_macros++] = n;
    return true;
}

static bool run_generation(state *s, const node *n)
{
    ls__jinja_text *o = s->out;
    size_t begin = o->count;
    if (!run_list(s, n->list)) return false;
    if (s->captures) return true; /* where its text will be is not known */
    if (o->n_spans == o->spans_room) {
        size_t room = 2 * o->spans_room + 8;
        ls__text_span *more = realloc(o->spans, room * sizeof *more);
        if (!more) {
            ls__fail(LS_ENOMEM, "out of memory");
            return false;
        }
        o->spans = more;
        o->spans_room = room;
    }
    o->spans[o->n_spans++] = (ls__text_span){ begin, o->count };
    return true;
}

static bool run(state *s, const node *n)
{
    switch (n->kind) {
    case LS__JINJA_TEXT: return put(s, json_string_value(n->value), json_string_length(n->value));
    case LS__JINJA_PRINT: return print(s, n);
    case LS__JINJA_IF: return run_if(s, n);
    case LS__JINJA_FOR: return run_for(s, n);
    case LS__JINJA_SET: return set(s, n);
    case LS__JINJA_MACRO: return define(s, n);
    case LS__JINJA_GENERATION: return run_generation(s, n);
    case LS__JINJA_BREAK: s->flow = FLOW_BREAK; return true;
    default: s->flow = FLOW_CONTINUE; return true;
    }
}

static bool run_list(state *s, const node *n)
{
    for (; n && s->flow == FLOW_ON; n = n->next) {
        bool good = go_down(s);
        if (good) {
            good = run(s, n);
            s->depth--;
        }
        if (!good && !s->failed_line) s->failed_line = n->line;
        if (!good) return false;
    }
    return true;
}

ls_status ls__jinja_render(const ls__jinja *template, json_t *variables, ls__jinja_text *out)
{
    frame given = { .names = variables }, own = { .names = json_object(), .outer = &given };
    state s = { .template = template, .out = out, .top = &own, .root = &own, .namespaces = json_array() };
    out->count = out->n_spans = 0;
    bool good = own.names && s.namespaces && put(&s, "", 0) && run_list(&s, template->body);
    json_decref(own.names);
    json_decref(s.namespaces);
    return good ? LS_OK : ls__fail_within(LS_EFORMAT, "%s: line %d", template->name, s.failed_line);
}
