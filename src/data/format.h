/* The formats of data files: one table, in format.c. */
#ifndef LS_DATA_FORMAT_H
#define LS_DATA_FORMAT_H

#include "data/documents.h"
#include "data/source.h"
#include "lockstep/data.h"

enum { LS__MAX_SUFFIXES = 3, LS__MAX_HEADER = 1024 };

typedef struct ls__format ls__format;

/* What the header of a shard contains. */
typedef struct ls__shard_header {
    bool has_count;
    int64_t count; /* tokens, as the file claims */
} ls__shard_header;

struct ls__format {
    const char *name;                       /* as users write it */
    const char *suffixes[LS__MAX_SUFFIXES]; /* of file names that mean this format when the user names none */
    bool is_text;

    /* Text: */
    bool by_line; /* a line is a document; otherwise the whole file */
    /* Finds the document in a line that is not blank; NULL: the line is the document. LS_EFORMAT: the line is invalid. */
    ls_status (*parse_line)(const ls__line *line, const ls__fields *fields, ls__json_line *json, ls__document *out);

    /* Shards of tokens: */
    size_t token_bytes;  /* 2 or 4 */
    size_t header_bytes; /* 0: no header, so that the format cannot be detected from the first bytes */
    uint32_t magic, version;
    /* Whether a file begins like this format. NULL: it cannot be recognized. */
    bool (*detect)(const ls__format *format, const uint8_t *head, size_t count);
    /* Checks the header. NULL: none. */
    ls_status (*open)(const ls__format *format, const ls__source *file, const uint8_t *head, size_t count,
                      ls__shard_header *out);
    /* Fills in the header_bytes of a header. NULL: none. */
    void (*write)(const ls__format *format, uint64_t tokens, uint8_t *header);
};

/* The row of a format. Auto and numbers out of range have an empty one. */
const ls__format *ls__format_of(ls_data_format format);
/* "auto", "plain"...; never NULL. */
const char *ls__format_name(ls_data_format format);
/* The format of that name; for an unknown name LS_EINVAL with the list of names. */
LS_MUST_CHECK ls_status ls__format_parse(const char *name, ls_data_format *out);

/* The shard format that a file begins like, or LS_FORMAT_AUTO. */
ls_data_format ls__format_by_head(const uint8_t *head, size_t count);

/* The names of the text formats, or of the others, as "plain, lines or jsonl". */
void ls__format_list(bool text, char *out, size_t room);

#endif
