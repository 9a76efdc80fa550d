/* Files of records with named fields: JSON lines, CSV (RFC 4180) and TSV (without quotes, as GLUE has it). Of CSV and TSV the first record
 * names the fields. */
#ifndef LS_DATA_TABLE_H
#define LS_DATA_TABLE_H

#include <stdbool.h>
#include "data/json_line.h"
#include "lockstep/base.h"

typedef enum ls__table_kind {
    LS__TABLE_JSONL,
    LS__TABLE_CSV,
    LS__TABLE_TSV,
} ls__table_kind;

/* By the suffix of a name (.jsonl, .csv, .tsv, ...; .gz and .zst are ignored), or by the first line of the text. */
ls__table_kind ls__table_kind_of(const char *path, const char *text, size_t bytes);

/* Where a record is in a text. */
typedef struct ls__table_record {
    size_t offset, bytes;
    uint64_t line; /* of its first byte, from 1 */
} ls__table_record;

/* Iterates over the records of a text that are not blank. All zero at first. */
typedef struct ls__table_cursor {
    size_t at;
    uint64_t lines; /* before `at` */
} ls__table_cursor;
bool ls__table_next(ls__table_kind kind, const char *text, size_t bytes, ls__table_cursor *c, ls__table_record *out);

/* A field of a record. */
typedef struct ls__cell {
    const char *name; /* in CSV and TSV `column` counts */
    int column;       /* from ls__table_column(); < 0: not wanted */
    /* filled in: */
    bool found;
    bool is_number;   /* JSON only */
    const char *text; /* in the record, or in the reader's memory until the next record; not 0-terminated */
    size_t bytes;
    double number;
} ls__cell;
enum { LS__MAX_CELLS = 4 };

/* Memory for text with escapes or quotes. All zero at first. */
typedef struct ls__table_reader {
    ls__json_line json;
    char *memory;
    size_t room;
} ls__table_reader;
void ls__table_reader_free(ls__table_reader *reader);

/* The first column with that name in a first record, how many columns it has, and (unless NULL) how many of that name; -1: none. */
int ls__table_column(ls__table_kind kind, const char *header, size_t bytes, const char *name, int *columns, int *same);
/* Reads fields of a record. columns: how many a record must have (CSV, TSV). What is wrong is LS_EFORMAT with *at and *problem (static
 * text), and no message. A field that is not there is not an error: see `found`. LS_ENOMEM: no memory. */
LS_MUST_CHECK ls_status ls__table_read(ls__table_kind kind, ls__table_reader *reader, const char *record, size_t bytes,
                                       int columns, ls__cell *cells, int n_cells, size_t *at, const char **problem);

#endif
