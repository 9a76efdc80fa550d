/* Labelled texts. See rows.h. The files are read at the start, each row is checked, and a worker tokenizes a row when it is needed. */
#include "data/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "base/text.h"
#include "data/datasets.h"
#include "data/documents.h"
#include "data/table.h"
#include "data/template.h"
#include "data/unpack.h"

enum { TEXT, PAIR, LABEL, CELLS, MAX_CLASSES = 1 << 16, MAX_LABEL = 200 };
static const uint64_t file_limit = UINT64_C(1) << 32;

typedef struct file {
    const char *path;
    char *text;
    size_t bytes;
    ls__table_kind kind;
    int column[CELLS], columns;
} file;

typedef struct row {
    uint32_t file;
    int32_t label;
    ls__table_record at;
} row;

typedef struct rows {
    ls_dataset dataset; /* what the caller holds */
    ls__sources sources;
    file *files;
    char *name[CELLS]; /* of fields; PAIR NULL: one text */
    row *list;
    size_t count, room;
    const ls_tokenizer *tokenizer;
    ls__template form;
    size_t seq_len;
} rows;

/* ---- Files and fields. */

static ls_status row_fails(const file *f, const ls__table_record *r, size_t at, const char *what, const char *about)
{
    return ls__fail(LS_EFORMAT, "%s: byte %zu (line %zu): %s%s", f->path, r->offset + at, (size_t)r->line, what, about);
}

static ls_status read_file(file *f, const ls__source *source)
{
    f->path = source->path;
    if (source->bytes > file_limit)
        return ls__fail(LS_EUNSUPPORTED, "%s: files of rows are read into memory; this one has more than %zu GiB",
                        f->path, (size_t)(file_limit >> 30));
    f->bytes = (size_t)source->bytes;
    if (!(f->text = malloc(f->bytes + 1))) return ls__fail(LS_ENOMEM, "%s: no memory for %zu bytes", f->path, f->bytes);
    f->text[f->bytes] = 0;
    ls_status status = ls__source_read(source, f->text, f->bytes, 0);
    f->kind = ls__table_kind_of(f->path, f->text, f->bytes);
    return status;
}

/* Whether a first record has a field. */
static bool has_field(const file *f, const ls__table_record *first, const char *name)
{
    int columns;
    if (f->kind != LS__TABLE_JSONL)
        return ls__table_column(f->kind, f->text + first->offset, first->bytes, name, &columns, NULL) >= 0;
    ls__table_reader reader = { 0 };
    ls__cell cell = { .name = name };
    size_t at;
    const char *problem;
    bool found = !ls__table_read(f->kind, &reader, f->text + first->offset, first->bytes, 0, &cell, 1, &at, &problem) &&
                 cell.found;
    ls__table_reader_free(&reader);
    return found;
}

/* The usual names of fields, where none are given: those of GLUE and of many others. */
static ls_status choose_fields(rows *t, const file *f, const ls__table_record *first, const ls__rows_options *o)
{
    static const char *const texts[][2] = { { "text", NULL },
                                            { "sentence", NULL },
                                            { "sentence1", "sentence2" },
                                            { "#1 String", "#2 String" },
                                            { "premise", "hypothesis" },
                                            { "question1", "question2" },
                                            { "question", "sentence" } };
    static const char *const labels[] = { "label", "labels", "Quality", "class" };
    const char *names[CELLS] = { o->field, o->pair_field, o->label_field };
    for (size_t i = 0; i < sizeof texts / sizeof *texts && !names[TEXT]; i++)
        if (has_field(f, first, texts[i][0]) && (!texts[i][1] || has_field(f, first, texts[i][1]))) {
            names[TEXT] = texts[i][0];
            if (!names[PAIR]) names[PAIR] = texts[i][1];
        }
    for (size_t i = 0; i < sizeof labels / sizeof *labels && !names[LABEL]; i++)
        if (has_field(f, first, labels[i])) names[LABEL] = labels[i];
    if (!names[TEXT])
        return row_fails(f, first, 0, "no field with a text is known by its name (text, sentence, sentence1, ...); ",
                         "name it with the option field");
    if (!names[LABEL]) names[LABEL] = labels[0];
    for (int i = 0; i < CELLS; i++)
        for (int k = 0; k < i; k++)
            if (names[i] && names[k] && !strcmp(names[i], names[k]))
                return ls__fail(LS_EINVAL, "field '%s' is used twice; texts and label must be different fields",
                                names[i]);
    for (int i = 0; i < CELLS; i++)
        if (names[i] && !(t->name[i] = strdup(names[i]))) return ls__fail(LS_ENOMEM, "no memory for a dataset");
    return LS_OK;
}

/* The columns of a file whose first record names them. */
static ls_status find_columns(const rows *t, file *f, const ls__table_record *first)
{
    static const char *const options[CELLS] = { "the option field", "pair_field", "label_field" };
    const char *header = f->text + first->offset;
    int shown = (int)(first->bytes < MAX_LABEL ? first->bytes : MAX_LABEL), same = 0;
    char what[2 * MAX_LABEL];
    for (int i = 0; i < CELLS; i++) {
        f->column[i] = t->name[i] ? 0 : -1;
        if (!t->name[i] || f->kind == LS__TABLE_JSONL) continue;
        f->column[i] = ls__table_column(f->kind, header, first->bytes, t->name[i], &f->columns, &same);
        if (f->column[i] >= 0 && same == 1) continue;
        if (same > 1)
            snprintf(what, sizeof what, "the first record has %d fields with the name %.60s", same, t->name[i]);
        else
            snprintf(what, sizeof what, "the first record has no field %.60s (it is: %.*s); name another with %s",
                     t->name[i], shown, header, options[i]);
        return row_fails(f, first, 0, what, "");
    }
    return LS_OK;
}

static ls_status read_cells(const rows *t, const file *f, ls__table_reader *reader, const ls__table_record *r,
                            ls__cell cells[CELLS])
{
    size_t at;
    const char *problem;
    for (int i = 0; i < CELLS; i++) cells[i] = (ls__cell){ .name = t->name[i], .column = f->column[i] };
    ls_status status =
        ls__table_read(f->kind, reader, f->text + r->offset, r->bytes, f->columns, cells, CELLS, &at, &problem);
    if (status == LS_ENOMEM) return ls__fail(LS_ENOMEM, "%s: no memory for a row of %zu bytes", f->path, r->bytes);
    if (status) return row_fails(f, r, at, f->kind == LS__TABLE_JSONL ? "not a JSON object: " : "", problem);
    for (int i = 0; i < LABEL; i++)
        if (t->name[i] && !cells[i].text) return row_fails(f, r, 0, "no string in field ", t->name[i]);
    if (!cells[LABEL].found || (!cells[LABEL].is_number && !cells[LABEL].bytes))
        return row_fails(f, r, 0, "no text or number in field ", t->name[LABEL]);
    return LS_OK;
}

/* ---- Labels. */

/* A label as a number; false: it is not one. */
static bool label_number(const ls__cell *c, double *out)
{
    char digits[32], *end;
    *out = c->number;
    if (c->is_number) return true;
    if (!c->bytes || c->bytes >= sizeof digits) return false;
    memcpy(digits, c->text, c->bytes);
    digits[c->bytes] = 0;
    *out = strtod(digits, &end);
    return !*end;
}

/* The number of a name in a list separated by commas; -1: none. */
static int32_t label_named(const char *labels, const char *text, size_t bytes)
{
    int32_t number = 0;
    for (const char *at = labels;; number++) {
        size_t n = (size_t)(strchrnul(at, ',') - at);
        if (n == bytes && !memcmp(at, text, n)) return number;
        if (!at[n]) return -1;
        at += n + 1;
    }
}

static ls_status read_label(const rows *t, const file *f, const ls__table_record *r, const ls__cell *c,
                            const ls__rows_options *o, int32_t *out)
{
    double number;
    char what[MAX_LABEL + 100];
    bool is_number = label_number(c, &number);
    int shown = (int)(c->bytes < 60 ? c->bytes : 60);
    *out = o->labels && !c->is_number ? label_named(o->labels, c->text, c->bytes) : -1;
    if (*out >= 0) return LS_OK;
    if (o->labels && !is_number) {
        snprintf(what, sizeof what, "label '%.*s' in field %s is none of ", shown, c->text, t->name[LABEL]);
        return row_fails(f, r, 0, what, o->labels);
    }
    if (!is_number) {
        snprintf(what, sizeof what, "label '%.*s' in field %s is not a number; ", shown, c->text, t->name[LABEL]);
        return row_fails(f, r, 0, what, "name the classes with the option labels");
    }
    int most = o->classes ? o->classes : MAX_CLASSES;
    if (number >= 0 && number < most && number == floor(number)) {
        *out = (int32_t)number;
        return LS_OK;
    }
    snprintf(what, sizeof what, "label %g in field %s: must be an integer from 0 to %d", number, t->name[LABEL],
             most - 1);
    return row_fails(f, r, 0, what, "");
}

/* ---- Opening. */

static void rows_free(void *self)
{
    rows *t = self;
    for (size_t i = 0; t->files && i < t->sources.count; i++) free(t->files[i].text);
    ls__sources_close(&t->sources);
    for (int i = 0; i < CELLS; i++) free(t->name[i]);
    free(t->files);
    free(t->list);
    free(t);
}

static ls_status open_files(rows *t, const ls__rows_options *o)
{
    ls_status status = ls__sources_open_text(&t->sources, o->paths, o->n_paths, LS_FORMAT_AUTO);
    if (!status) status = ls__sources_unpack(&t->sources);
    if (!status && !(t->files = calloc(t->sources.count + 1, sizeof *t->files)))
        status = ls__fail(LS_ENOMEM, "no memory for a dataset");
    for (size_t i = 0; i < t->sources.count && !status; i++) status = read_file(&t->files[i], &t->sources.files[i]);
    return status;
}

static ls_status add_row(rows *t, uint32_t number, const ls__table_record *r, int32_t label)
{
    if (t->count == t->room) {
        size_t room = 2 * t->room + 1024;
        row *grown = realloc(t->list, room * sizeof *grown);
        if (!grown) return ls__fail(LS_ENOMEM, "no memory for an index of %zu rows", room);
        t->list = grown;
        t->room = room;
    }
    t->list[t->count++] = (row){ .file = number, .label = label, .at = *r };
    return LS_OK;
}

/* Calls `each` for every valid row. */
static ls_status read_rows(rows *t, const ls__rows_options *o,
                           ls_status (*each)(void *user, rows *t, uint32_t number, const ls__table_record *r,
                                             const ls__cell cells[CELLS]),
                           void *user)
{
    ls__table_reader reader = { 0 };
    ls__bad_lines bad = { 0 };
    ls_status status = LS_OK;
    for (size_t i = 0; i < t->sources.count && !status; i++) {
        file *f = &t->files[i];
        ls__table_cursor c = { 0 };
        ls__table_record r;
        ls__cell cells[CELLS];
        bool first = true;
        while (!status && ls__table_next(f->kind, f->text, f->bytes, &c, &r)) {
            if (first && !t->name[TEXT]) status = choose_fields(t, f, &r, o);
            if (first && !status) status = find_columns(t, f, &r);
            bool header = first && f->kind != LS__TABLE_JSONL;
            first = false;
            if (header || status) continue;
            status = read_cells(t, f, &reader, &r, cells);
            if (!status) status = each(user, t, (uint32_t)i, &r, cells);
            if (status != LS_EFORMAT) continue;
            if (!o->skip_bad) {
                ls__fail(status, "%s; correct the row, or skip such rows (skip_bad)", ls_error());
                continue;
            }
            ls__bad_lines one = { .count = 1 };
            snprintf(one.first, sizeof one.first, "%s", ls_error());
            ls__bad_lines_add(&bad, &one);
            status = LS_OK;
        }
    }
    ls__table_reader_free(&reader);
    if (!status) ls__bad_lines_warn(&bad);
    return status;
}

static ls_status keep_row(void *user, rows *t, uint32_t number, const ls__table_record *r, const ls__cell cells[CELLS])
{
    int32_t label = 0;
    ls_status status = read_label(t, &t->files[number], r, &cells[LABEL], user, &label);
    return status ? status : add_row(t, number, r, label);
}

/* ---- Samples. */

typedef struct worker {
    ls_encoder *encoder;
    ls__table_reader reader;
    int32_t *first; /* tokens of the first text */
    size_t room;
} worker;

static void worker_free(void *self, void *state)
{
    (void)self;
    worker *w = state;
    if (!w) return;
    ls_encoder_free(&w->encoder);
    ls__table_reader_free(&w->reader);
    free(w->first);
    free(w);
}

static ls_status worker_open(void *self, int number, void **state)
{
    (void)number;
    const rows *t = self;
    worker *w = calloc(1, sizeof *w);
    *state = NULL;
    if (!w) return ls__fail(LS_ENOMEM, "no memory for a worker that tokenizes");
    ls_status status = ls_encoder_open(&w->encoder, t->tokenizer);
    if (status)
        worker_free(self, w);
    else
        *state = w;
    return status;
}

/* The encoder's memory is used again for the second text. */
static ls_status keep_first(worker *w, const int32_t *tokens, size_t count)
{
    if (w->room < count) {
        int32_t *grown = realloc(w->first, count * sizeof *grown);
        if (!grown) return ls__fail(LS_ENOMEM, "no memory for %zu tokens", count);
        w->first = grown;
        w->room = count;
    }
    if (count) memcpy(w->first, tokens, count * sizeof *tokens);
    return LS_OK;
}

static ls_status rows_get(void *self, void *state, uint64_t sample, ls_row *out)
{
    const rows *t = self;
    worker *w = state;
    ls_status status = ls__sample_check(&t->dataset, state, sample);
    if (status) return status;
    const row *r = &t->list[sample];
    const int32_t *second = NULL;
    size_t a = 0, b = 0, added = (size_t)ls__template_tokens(&t->form);
    ls__cell cells[CELLS];
    status = read_cells(t, &t->files[r->file], &w->reader, &r->at, cells);
    if (!status) status = ls_encode(w->encoder, cells[TEXT].text, cells[TEXT].bytes, &second, &a);
    if (!status) status = keep_first(w, second, a);
    second = NULL;
    if (!status && t->name[PAIR]) status = ls_encode(w->encoder, cells[PAIR].text, cells[PAIR].bytes, &second, &b);
    if (status) return status;
    ls__truncate_pair(t->seq_len - added, &a, &b);
    int32_t *tokens = out->fields[LS__ROWS_TOKENS], *types = out->fields[LS__ROWS_TYPES];
    size_t n = ls__template_fill(&t->form, w->first, a, second, b, tokens, types);
    if (!n) tokens[0] = types[0] = 0, n = 1; /* an empty text without special tokens */
    for (size_t i = n; i < t->seq_len; i++) tokens[i] = types[i] = 0;
    *(int32_t *)out->fields[LS__ROWS_LABEL] = r->label;
    *(int32_t *)out->fields[LS__ROWS_LENGTH] = (int32_t)n;
    out->tokens = 1; /* one target */
    out->length = n;
    return LS_OK;
}

/* Bytes instead of tokens: for the balanced order that is enough. */
static uint64_t rows_length(void *self, uint64_t sample)
{
    return ((const rows *)self)->list[sample].at.bytes;
}

ls_status ls__rows_open(ls_dataset **out, const ls__rows_options *o)
{
    *out = NULL;
    rows *t = calloc(1, sizeof *t);
    if (!t) return ls__fail(LS_ENOMEM, "no memory for a dataset");
    t->sources.unpacked_fd = -1;
    t->tokenizer = o->tokenizer;
    t->seq_len = o->seq_len;
    ls_status status = open_files(t, o);
    ls__rows_options user = *o;
    if (!status) status = read_rows(t, o, keep_row, &user);
    if (!status && !t->count)
        status = ls__fail(LS_EINVAL, "%s: byte %zu: no rows in the data", t->files[t->sources.count - 1].path,
                          t->files[t->sources.count - 1].bytes);
    if (!status) {
        t->form = ls__template_of(t->tokenizer, t->name[PAIR] != NULL);
        int added = ls__template_tokens(&t->form);
        if ((size_t)added >= t->seq_len)
            status = ls__fail(LS_EINVAL,
                              "sequence length %zu: the tokenizer adds %d special token%s, so that at least "
                              "%d are needed",
                              t->seq_len, added, ls__s(added), added + 1);
    }
    if (status) {
        rows_free(t);
        return status;
    }
    t->dataset = (ls_dataset){
        .count = t->count,
        .n_fields = 4,
        .fields = { { "tokens", LS_I32, t->seq_len },
                    { "types", LS_I32, t->seq_len },
                    { "label", LS_I32, 1 },
                    { "length", LS_I32, 1 } },
        .self = t,
        .get = rows_get,
        .length = rows_length,
        .worker_open = worker_open,
        .worker_free = worker_free,
        .free = rows_free,
    };
    *out = &t->dataset;
    return LS_OK;
}

/* ---- The labels of files. */

typedef struct label_set {
    char **names; /* sorted, each once */
    size_t count;
    bool text; /* a label was not a number */
    int classes;
} label_set;

static ls_status note_label(void *user, rows *t, uint32_t number, const ls__table_record *r,
                            const ls__cell cells[CELLS])
{
    label_set *s = user;
    const ls__cell *c = &cells[LABEL];
    double value;
    if (label_number(c, &value)) {
        if (value >= s->classes && value < MAX_CLASSES) s->classes = (int)value + 1;
    } else {
        s->text = true;
    }
    if (c->is_number) return LS_OK;
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = (low + high) / 2, n = strlen(s->names[middle]);
        int order = memcmp(s->names[middle], c->text, n < c->bytes ? n : c->bytes);
        if (!order) order = (n > c->bytes) - (n < c->bytes);
        if (!order) return LS_OK;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (c->bytes > MAX_LABEL || memchr(c->text, ',', c->bytes) || memchr(c->text, 0, c->bytes))
        return row_fails(&t->files[number], r, 0, "a label with a comma, or longer than 200 bytes, in field ",
                         t->name[LABEL]);
    if (s->count == MAX_CLASSES)
        return row_fails(&t->files[number], r, 0, "more than 65536 different labels in field ", t->name[LABEL]);
    char **grown = realloc(s->names, (s->count + 1) * sizeof *grown), *copy = strndup(c->text, c->bytes);
    if (grown) s->names = grown;
    if (!grown || !copy) {
        free(copy);
        return ls__fail(LS_ENOMEM, "no memory for labels");
    }
    memmove(s->names + low + 1, s->names + low, (s->count - low) * sizeof *s->names);
    s->names[low] = copy;
    s->count++;
    return LS_OK;
}

ls_status ls__rows_labels(const ls__rows_options *o, char **names, int *classes)
{
    label_set s = { 0 };
    rows *t = calloc(1, sizeof *t);
    size_t room = 1;
    *names = NULL;
    *classes = 0;
    if (!t) return ls__fail(LS_ENOMEM, "no memory for a dataset");
    t->sources.unpacked_fd = -1;
    ls_status status = open_files(t, o);
    if (!status) status = read_rows(t, o, note_label, &s);
    *classes = s.text ? (int)s.count : s.classes;
    for (size_t i = 0; i < s.count; i++) room += strlen(s.names[i]) + 1;
    if (!status && s.text && !(*names = calloc(1, room))) status = ls__fail(LS_ENOMEM, "no memory for labels");
    char *to = *names;
    for (size_t i = 0; i < s.count; i++) {
        if (to) to += sprintf(to, "%s%s", i ? "," : "", s.names[i]);
        free(s.names[i]);
    }
    free(s.names);
    rows_free(t);
    return status;
}
