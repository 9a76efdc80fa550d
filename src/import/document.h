/* A trace as a stream: one or more JSON documents in a row, read event by event, never completely in memory. What is broken is skipped to
 * where the next event can begin, and counted. */
#ifndef LS_IMPORT_DOCUMENT_H
#define LS_IMPORT_DOCUMENT_H

#include "import/input.h"
#include "import/scan.h"

typedef struct ls__trace_event {
    char ph; /* 'X' a span, 'i' a moment ...; 0: it has none */
    ls__text cat, name;
    ls__text pid, tid; /* as in the file; strings without their quotes */
    ls__text args;     /* the object, from brace to brace */
    int64_t time;      /* ns, from the document's base */
    int64_t duration;  /* ns; < 0: not known */
    bool timed;
} ls__trace_event;

typedef struct ls__document_reader {
    void *user;
    /* A document begins; the one before, if any, is over. */
    ls_status (*begin)(void *user);
    /* A value of the document's top level that is not a list of events, as in the file; long ones are left out. */
    void (*value)(void *user, ls__text key, ls__text value);
    ls_status (*event)(void *user, const ls__trace_event *event);
    /* Whether events of this category are passed over before they are read in full. May be NULL. */
    bool (*unwanted)(ls__text cat);
    /* What was wrong, in all documents together. */
    uint64_t events, broken, skipped_bytes;
    uint64_t first_broken; /* the byte of the text at which the first broken event begins */
    uint64_t bytes;        /* of text */
    bool cut;              /* it ends within a document */
    int documents;
    int without_events; /* documents that have no list of events */
} ls__document_reader;

/* LS_EFORMAT if the text does not begin like JSON. The reader's counters have what is wrong after the beginning. */
LS_MUST_CHECK ls_status ls__document_read(ls__document_reader *r, ls__input *in);

#endif
