/* Text in files: as it comes, document by document, for whoever tokenizes it. */
#ifndef LS_DATA_DOCUMENTS_H
#define LS_DATA_DOCUMENTS_H

#include "data/source.h"
#include "lockstep/data.h"

/* What `format` means for a file of that name. */
ls_text_format ls__text_format_of(ls_text_format format, const char *path);

/* Opens files of text. One that begins like an llm.c shard is LS_EFORMAT: its bytes are no text. */
LS_MUST_CHECK ls_status ls__sources_open_text(ls__sources *out, const char *const *paths, size_t n_paths);

/* A stretch of a file that can be tokenized on its own: whole lines, or plain text cut where the splitter does not
 * mind. */
typedef struct ls__chunk {
    const ls__source *file;
    ls_text_format format; /* never auto */
    uint64_t offset;       /* of its first byte */
    uint64_t line;         /* number of its first line, from 1; 0: not known */
    char *bytes;
    size_t count;
    bool last; /* the file ends here */
} ls__chunk;

/* Goes over the files from first to last. */
typedef struct ls__chunks {
    const ls__sources *sources;
    ls_text_format format;
    size_t size; /* bytes of a chunk, more or less */
    size_t file;
    uint64_t offset, line;
} ls__chunks;

/* Fills *chunk, reusing its memory (free chunk->bytes at the end). LS_END after the last. */
LS_MUST_CHECK ls_status ls__chunks_next(ls__chunks *c, ls__chunk *chunk);

/* One document, or a part of one. */
typedef struct ls__document {
    const char *prompt; /* NULL: none */
    size_t prompt_bytes;
    const char *text;
    size_t text_bytes;
    double weight;   /* 1 unless the line says otherwise */
    bool ends;       /* this is the document's end */
    uint64_t offset; /* where in the file it begins */
} ls__document;

/* Which members of a JSON line are meant. */
typedef struct ls__fields {
    const char *text;   /* NULL: "text" */
    const char *prompt; /* NULL: none */
    const char *weight; /* NULL: none */
} ls__fields;

/* Calls `each` for every document of a chunk, in order, until it fails. Empty lines are none. A line that is no JSON
 * object with that member is LS_EFORMAT with file, byte and line. */
LS_MUST_CHECK ls_status ls__chunk_documents(const ls__chunk *chunk, const ls__fields *fields,
                                            ls_status (*each)(void *user, const ls__document *document), void *user);

#endif
