/* A file of options: a part of TOML, one `name = value` per line. Names and values are not interpreted here.
 *
 * What it may hold: comments, headings in brackets, and values that are strings in one line ("..." with escapes, or '...'),
 * numbers, true, false, and arrays of strings, which may go over several lines. Bytes above 127 are kept, so that any file name can
 * be written. The file is untrusted, and its parser is fuzzed. */
#ifndef LS_CLI_CONFIG_FILE_H
#define LS_CLI_CONFIG_FILE_H

#include <stddef.h>
#include <stdio.h>
#include "lockstep/base.h"

typedef enum config_kind {
    CONFIG_TEXT,   /* a string */
    CONFIG_NUMBER, /* as it is written, without underscores */
    CONFIG_TRUE,
    CONFIG_FALSE,
    CONFIG_LIST, /* strings */
} config_kind;

typedef struct config_entry {
    const char *name; /* with '-' for '_' */
    int line;         /* counted from 1 */
    config_kind kind;
    const char **items; /* one text, unless a list */
    size_t count;
} config_entry;

typedef struct config_heading {
    const char *name;
    int line;
} config_heading;

typedef struct config_file {
    config_entry *entries;
    size_t count;
    config_heading *headings;
    size_t n_headings;
    void *memory; /* of the texts */
} config_file;

/* Parses text; `path` is for messages: LS_EFORMAT with "path:line: ". On failure *out is empty. */
LS_MUST_CHECK ls_status config_file_parse(config_file *out, const char *path, const char *text, size_t bytes);
LS_MUST_CHECK ls_status config_file_read(config_file *out, const char *path);
void config_file_free(config_file *file);

/* Writes a string as this parser reads it, with its quotes. */
void config_put_text(FILE *to, const char *text);

#endif
