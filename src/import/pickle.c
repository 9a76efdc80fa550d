/* See pickle.h. A pickle is a program for a stack machine. Only those instructions are known that push plain values and put them
 * together; any other, such as one that names a function or a class, is an error. What was fetched from the memo, whether its first
 * place is still on the stack or not, is not filled any more, so nothing can be put into itself. A value that is in another many
 * times counts as often: lists of lists of the same list would make of a few bytes more than anyone can walk through. */
#include "import/pickle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"

enum { STACK = 1 << 16, MARKS = 1 << 10, MEMO = 1 << 22, MAX_DEPTH = 64, MAX_SIZE = 1 << 26 };

typedef struct slot {
    json_t *value;
    int depth;     /* of what is in it */
    uint32_t size; /* how many values are in it, and in those */
    bool fetched;  /* from the memo, or it was fetched since: it is not filled any more */
    uint32_t memo; /* index + 1 of where it was remembered last; 0: nowhere */
} slot;

typedef struct machine {
    const uint8_t *data;
    size_t at, end;
    slot *stack;
    size_t count, room;
    size_t marks[MARKS];
    size_t n_marks;
    slot *memo;
    size_t n_memo, memo_room;
    size_t begin; /* of the instruction */
} machine;

static ls_status wrong(const machine *m, const char *what)
{
    return ls__fail(LS_EFORMAT, "the pickle %s at byte %zu", what, m->begin);
}

static bool have(const machine *m, size_t bytes)
{
    return bytes <= m->end - m->at;
}

static uint64_t number(machine *m, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) value |= (uint64_t)m->data[m->at + i] << (8 * i);
    m->at += bytes;
    return value;
}

/* Takes the value. */
static ls_status push(machine *m, json_t *value, int depth, uint32_t size, bool fetched)
{
    if (!value) return ls__fail(LS_ENOMEM, "out of memory");
    if (m->count == STACK || depth > MAX_DEPTH) {
        json_decref(value);
        return wrong(m, "is nested too deeply");
    }
    if (m->count == m->room) {
        size_t room = m->room ? 2 * m->room : 64;
        slot *more = reallocarray(m->stack, room, sizeof *more);
        if (!more) {
            json_decref(value);
            return ls__fail(LS_ENOMEM, "out of memory");
        }
        m->stack = more;
        m->room = room;
    }
    m->stack[m->count++] = (slot){ value, depth, size, fetched, 0 };
    return LS_OK;
}

static ls_status push_text(machine *m, size_t bytes)
{
    if (!have(m, bytes)) return wrong(m, "is truncated");
    const char *text = (const char *)m->data + m->at;
    m->at += bytes;
    json_t *value = json_stringn(text, bytes);
    return push(m, value ? value : json_string("?"), 0, 1, false); /* bytes that are not UTF-8 */
}

/* A text whose length is a number of `bytes` bytes. */
static ls_status read_text(machine *m, size_t bytes)
{
    if (!have(m, bytes)) return wrong(m, "is truncated");
    return push_text(m, (size_t)number(m, bytes));
}

static ls_status read_integer(machine *m, size_t bytes, bool is_signed)
{
    if (!have(m, bytes)) return wrong(m, "is truncated");
    if (bytes > 8) return wrong(m, "has a number of over 64 bits");
    uint64_t value = number(m, bytes);
    if (is_signed && bytes && bytes < 8 && value >> (8 * bytes - 1)) value |= UINT64_MAX << (8 * bytes);
    return push(m, json_integer((json_int_t)value), 0, 1, false);
}

static ls_status read_float(machine *m)
{
    if (!have(m, 8)) return wrong(m, "is truncated");
    uint64_t bits = 0;
    double value;
    for (int i = 0; i < 8; i++) bits = bits << 8 | m->data[m->at++];
    memcpy(&value, &bits, sizeof value);
    json_t *real = json_real(value);
    return push(m, real ? real : json_null(), 0, 1, false); /* JSON has no infinity */
}

static ls_status memoize(machine *m, uint64_t index)
{
    if (!m->count) return wrong(m, "stores a memo entry of an empty stack");
    if (index >= MEMO || index >= m->end) return wrong(m, "has too many memo entries"); /* a byte each, at least */
    if (index >= m->memo_room) {
        size_t room = (size_t)index + 1 < 64 ? 64 : 2 * ((size_t)index + 1);
        slot *more = reallocarray(m->memo, room, sizeof *more);
        if (!more) return ls__fail(LS_ENOMEM, "out of memory");
        memset(more + m->memo_room, 0, (room - m->memo_room) * sizeof *more);
        m->memo = more;
        m->memo_room = room;
    }
    slot *top = &m->stack[m->count - 1];
    /* So that what a place says of its value is true of it: each place has one value, and a value one place. No pickler does otherwise. */
    if (m->memo[index].value || (top->memo && top->memo != (uint32_t)index + 1))
        return wrong(m, "stores a memo entry twice");
    m->memo[index] = *top;
    json_incref(top->value);
    top->memo = (uint32_t)index + 1; /* how deep and large it is will be known when it is full */
    if (index >= m->n_memo) m->n_memo = (size_t)index + 1;
    return LS_OK;
}

static ls_status fetch(machine *m, uint64_t index)
{
    if (index >= m->n_memo || !m->memo[index].value) return wrong(m, "refers to a memo entry that does not exist");
    json_t *value = m->memo[index].value;
    m->memo[index].fetched = true; /* from now on it may be in what would be put into it */
    return push(m, json_incref(value), m->memo[index].depth, m->memo[index].size, true);
}

/* The topmost mark's place; SIZE_MAX: there is none. */
static size_t pop_mark(machine *m)
{
    return m->n_marks ? m->marks[--m->n_marks] : SIZE_MAX;
}

static void drop(machine *m, size_t count)
{
    while (m->count > count) json_decref(m->stack[--m->count].value);
}

static bool set_item(json_t *object, json_t *key, json_t *value)
{
    char text[32];
    if (json_is_integer(key))
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(key));
    else if (!json_is_string(key))
        return false;
    return !json_object_set(object, json_is_string(key) ? json_string_value(key) : text, value);
}

/* Puts the values from `first` on into the container before them. */
static ls_status fill(machine *m, size_t first, bool pairs)
{
    if (first == SIZE_MAX || !first || first > m->count) return wrong(m, "adds items without a container");
    slot *target = &m->stack[first - 1];
    size_t n = m->count - first;
    if ((target->fetched || (target->memo && m->memo[target->memo - 1].fetched)) && n)
        return wrong(m, "adds items to a container that is already in use and could then contain itself");
    if ((pairs ? !json_is_object(target->value) || n % 2 : !json_is_array(target->value)))
        return wrong(m, "adds items to a value that is not a container");
    for (size_t i = first; i < m->count; i += pairs ? 2 : 1) {
        const slot *value = &m->stack[pairs ? i + 1 : i];
        bool ok = pairs ? set_item(target->value, m->stack[i].value, value->value)
                        : !json_array_append(target->value, value->value);
        if (!ok) return wrong(m, "has a key that is neither a string nor a number");
        if (value->depth + 1 > target->depth) target->depth = value->depth + 1;
        if (target->depth > MAX_DEPTH) return wrong(m, "is nested too deeply");
        target->size += value->size;
        if (target->size > MAX_SIZE) return wrong(m, "refers to the same values too often");
    }
    if (target->memo) m->memo[target->memo - 1].depth = target->depth, m->memo[target->memo - 1].size = target->size;
    drop(m, first);
    return LS_OK;
}

/* A container of the values from `first` on. */
static ls_status collect(machine *m, size_t first, bool pairs)
{
    int depth = 0;
    uint32_t size = 1;
    if (first == SIZE_MAX || first > m->count || (pairs && (m->count - first) % 2))
        return wrong(m, "builds a container without items on the stack");
    json_t *made = pairs ? json_object() : json_array();
    for (size_t i = first; made && i < m->count; i++) {
        if (m->stack[i].depth + 1 > depth) depth = m->stack[i].depth + 1;
        size += m->stack[i].size;
        if (size > MAX_SIZE) {
            json_decref(made);
            return wrong(m, "refers to the same values too often");
        }
        if (!pairs) json_array_append(made, m->stack[i].value);
        if (pairs && (i - first) % 2 && !set_item(made, m->stack[i - 1].value, m->stack[i].value)) {
            json_decref(made);
            return wrong(m, "has a key that is neither a string nor a number");
        }
    }
    drop(m, first);
    return push(m, made, depth, size, false);
}

static ls_status step(machine *m, bool *over)
{
    m->begin = m->at;
    if (!have(m, 1)) return wrong(m, "is truncated");
    uint8_t code = m->data[m->at++];
    size_t n = m->count;
    switch (code) {
    case 0x80: /* PROTO */
        if (!have(m, 1)) return wrong(m, "is truncated");
        m->at++;
        return LS_OK;
    case 0x95: /* FRAME */
        if (!have(m, 8)) return wrong(m, "is truncated");
        m->at += 8;
        return LS_OK;
    case '.': *over = true; return LS_OK;
    case '}': return push(m, json_object(), 1, 1, false);
    case ']': return push(m, json_array(), 1, 1, false);
    case ')': return push(m, json_array(), 1, 1, false);
    case '(':
        if (m->n_marks == MARKS) return wrong(m, "is nested too deeply");
        m->marks[m->n_marks++] = m->count;
        return LS_OK;
    case 'u': return fill(m, pop_mark(m), true);
    case 's': return fill(m, n >= 2 ? n - 2 : SIZE_MAX, true);
    case 'e': return fill(m, pop_mark(m), false);
    case 'a': return fill(m, n >= 1 ? n - 1 : SIZE_MAX, false);
    case 't':
    case 'l': return collect(m, pop_mark(m), false);
    case 'd': return collect(m, pop_mark(m), true);
    case 0x85: return collect(m, n >= 1 ? n - 1 : SIZE_MAX, false);
    case 0x86: return collect(m, n >= 2 ? n - 2 : SIZE_MAX, false);
    case 0x87: return collect(m, n >= 3 ? n - 3 : SIZE_MAX, false);
    case 'X':
    case 'T':
    case 'B': return read_text(m, 4);
    case 0x8c:
    case 'U':
    case 'C': return read_text(m, 1);
    case 0x8d:
    case 0x8e: return read_text(m, 8);
    case 'J': return read_integer(m, 4, true);
    case 'K': return read_integer(m, 1, false);
    case 'M': return read_integer(m, 2, false);
    case 0x8a: /* LONG1 */
        if (!have(m, 1)) return wrong(m, "is truncated");
        return read_integer(m, (size_t)number(m, 1), true);
    case 'G': return read_float(m);
    case 'N': return push(m, json_null(), 0, 1, false);
    case 0x88: return push(m, json_true(), 0, 1, false);
    case 0x89: return push(m, json_false(), 0, 1, false);
    case 'q': return have(m, 1) ? memoize(m, number(m, 1)) : wrong(m, "is truncated");
    case 'r': return have(m, 4) ? memoize(m, number(m, 4)) : wrong(m, "is truncated");
    case 0x94: return memoize(m, m->n_memo);
    case 'h': return have(m, 1) ? fetch(m, number(m, 1)) : wrong(m, "is truncated");
    case 'j': return have(m, 4) ? fetch(m, number(m, 4)) : wrong(m, "is truncated");
    case '0':
        if (!n) return wrong(m, "pops an empty stack");
        drop(m, n - 1);
        return LS_OK;
    default:
        return ls__fail(LS_EFORMAT,
                        "the pickle has opcode 0x%02x at byte %zu, which is not for plain data; nothing was executed, "
                        "and dumps of the Flight Recorder do not have it",
                        code, m->begin);
    }
}

bool ls__is_pickle(const void *data, size_t bytes)
{
    const uint8_t *b = data;
    return bytes >= 2 && b[0] == 0x80 && b[1] >= 2 && b[1] <= 5;
}

ls_status ls__pickle_read(json_t **out, const void *data, size_t bytes)
{
    machine *m = calloc(1, sizeof *m);
    bool over = false;
    *out = NULL;
    if (!m) return ls__fail(LS_ENOMEM, "out of memory");
    m->data = data;
    m->end = bytes;
    ls_status status = LS_OK;
    while (!status && !over) {
        status = step(m, &over);
        /* a mark that a pop went below does not count */
        while (m->n_marks && m->marks[m->n_marks - 1] > m->count) m->n_marks--;
    }
    if (!status && m->count != 1) status = wrong(m, "has several values at its end");
    if (!status) *out = json_incref(m->stack[0].value);
    drop(m, 0);
    for (size_t i = 0; i < m->n_memo; i++) json_decref(m->memo[i].value);
    free(m->memo);
    free(m->stack);
    free(m);
    return status;
}
