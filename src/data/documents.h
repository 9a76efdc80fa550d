/* Text files, read chunk by chunk and document by document. */
#ifndef LS_DATA_DOCUMENTS_H
#define LS_DATA_DOCUMENTS_H

#include "data/jinja.h"
#include "data/json_line.h"
#include "data/source.h"
#include "lockstep/data.h"

/* Opens text files, and decides the format and the compression of each. A file that by its first bytes is something else (a
 * shard, a Parquet file...) is LS_EFORMAT; only the format plain accepts any bytes. */
LS_MUST_CHECK ls_status ls__sources_open_text(ls__sources *out, const char *const *paths, size_t n_paths,
                                              ls_data_format format);

/* Part of a file that can be tokenized separately: complete lines, or plain text cut where that does not change the tokens. */
typedef struct ls__chunk {
    const ls__source *file;
    ls_data_format format; /* never auto */
    uint64_t offset;       /* of its first byte; of a compressed file, in its text */
    uint64_t line;         /* number of its first line, from 1; 0: not known */
    char *bytes;
    size_t count;
    uint64_t consumed; /* bytes of the file that it took: `count`, or fewer of a compressed one */
    bool last;         /* the file ends here */
} ls__chunk;

/* Iterates over the files. Compressed ones are decompressed meanwhile. */
typedef struct ls__chunks {
    const ls__sources *sources;
    ls_data_format format;         /* 0: each file's */
    const ls_tokenizer *tokenizer; /* plain text is not cut inside its added tokens; NULL: it has none */
    size_t size;                   /* bytes of a chunk, more or less */
    size_t file;
    uint64_t offset, line;
    /* of a compressed file: */
    struct ls__unpack *unpack; /* NULL: none is being read */
    char *rest;                /* text after the last chunk, for the next one */
    size_t rest_bytes;
    uint64_t consumed; /* of the compressed file, so far */
    bool ended;        /* the last chunk was the file's last */
} ls__chunks;

/* Fills *chunk, reusing its memory (free chunk->bytes at the end). LS_END after the last. */
LS_MUST_CHECK ls_status ls__chunks_next(ls__chunks *c, ls__chunk *chunk);
/* Releases what reading needs; may be called before the last chunk. */
void ls__chunks_close(ls__chunks *c);

/* One document, or a part of one. */
typedef struct ls__document {
    const char *prompt; /* NULL: none */
    size_t prompt_bytes;
    const char *text;
    size_t text_bytes;
    const ls__text_span *answers; /* of a chat: those parts of the text have a loss, in order */
    size_t n_answers;
    double weight;   /* 1 unless the line has another */
    bool continues;  /* this is not the document's beginning */
    bool ends;       /* this is the document's end */
    uint64_t offset; /* where in the file it begins */
} ls__document;

/* The fields of a JSON line that are read. */
typedef struct ls__fields {
    const char *text;             /* NULL: "text" */
    const char *prompt;           /* NULL: none */
    const char *weight;           /* NULL: none */
    const ls_chat_template *chat; /* the text is a list of messages, of which it makes text; NULL: it is not */
    bool skip_bad;                /* an invalid line is skipped; default: it is LS_EFORMAT with file, byte and line */
    ls_hold_out hold_out;         /* which documents are read; fraction 0: all */
    /* the first file, if not all documents are read: the choice depends on a document's file and position */
    const ls__source *files;
} ls__fields;

/* One line of a chunk, without its line feed. */
typedef struct ls__line {
    const ls__source *file;
    uint64_t offset; /* of its first byte */
    uint64_t number; /* from 1; 0: not known */
    const char *bytes;
    size_t count;
} ls__line;

/* Whether the document at that byte of a file is read. */
bool ls__has_document(const ls__fields *fields, const ls__source *file, uint64_t offset);

/* The lines that were skipped. */
typedef struct ls__bad_lines {
    uint64_t count;
    char first[240]; /* message about the first, with its place */
} ls__bad_lines;

/* Adds those of `more`, which come later. */
void ls__bad_lines_add(ls__bad_lines *to, const ls__bad_lines *more);
/* Logs how many there are, if any. */
void ls__bad_lines_warn(const ls__bad_lines *bad);

/* Calls `each` for every document of a chunk that is read, in order, until it fails. Empty lines and a byte order mark at the
 * beginning of a file are ignored. A JSON line is invalid if it is not an object with the requested fields; `bad` counts those that
 * are skipped (may be NULL). */
LS_MUST_CHECK ls_status ls__chunk_documents(const ls__chunk *chunk, const ls__fields *fields, ls__bad_lines *bad,
                                            ls_status (*each)(void *user, const ls__document *document), void *user);

#endif
