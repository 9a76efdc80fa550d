/* Each thread counts the words of its chunks in its own table, and at its end adds them to the common one. */
#include "data/tally.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "base/status.h"
#include "data/parallel.h"
#include "data/split.h"

enum { CHUNK_BYTES = 1 << 20, MAX_WORD = 1 << 12 }; /* a longer one is counted in parts */

void ls__tally_free(ls__tally *t)
{
    free(t->places);
    free(t->bytes);
    *t = (ls__tally){ 0 };
}

static ls__tally_entry *place_of(const ls__tally *t, const uint8_t *word, size_t length)
{
    size_t i = XXH3_64bits(word, length) & t->mask;
    for (; t->places[i].length; i = (i + 1) & t->mask)
        if (t->places[i].length == length && !memcmp(t->bytes + t->places[i].at, word, length)) break;
    return &t->places[i];
}

static ls_status grow(ls__tally *t)
{
    ls__tally grown = *t;
    grown.mask = t->places ? 2 * t->mask + 1 : (1 << 14) - 1;
    grown.places = calloc(grown.mask + 1, sizeof *grown.places);
    if (!grown.places) return ls__fail(LS_ENOMEM, "no memory to count %zu different words", t->used);
    for (size_t i = 0; t->places && i <= t->mask; i++)
        if (t->places[i].length) *place_of(&grown, t->bytes + t->places[i].at, t->places[i].length) = t->places[i];
    free(t->places);
    *t = grown;
    return LS_OK;
}

ls_status ls__tally_add(ls__tally *t, const uint8_t *word, size_t length, uint64_t count)
{
    ls_status status = !t->places || 2 * t->used > t->mask ? grow(t) : LS_OK;
    if (status) return status;
    ls__tally_entry *c = place_of(t, word, length);
    c->count += count;
    if (c->length) return LS_OK;
    if (length > t->bytes_room - t->bytes_used) {
        size_t room = 2 * t->bytes_room + length + (1 << 16);
        uint8_t *grown = realloc(t->bytes, room);
        if (!grown) {
            c->count = 0;
            return ls__fail(LS_ENOMEM, "no memory to count %zu different words", t->used);
        }
        t->bytes = grown;
        t->bytes_room = room;
    }
    memcpy(t->bytes + t->bytes_used, word, length);
    c->at = t->bytes_used;
    c->length = (uint32_t)length;
    t->bytes_used += length;
    t->used++;
    return LS_OK;
}

typedef struct counting {
    const ls_bpe_options *o;
    ls__fields fields;
    uint64_t total, done; /* bytes of all files */
    ls__bad_lines bad;    /* of all chunks, in order */
    pthread_mutex_t lock;
    ls__tally *all;   /* under lock */
    ls_status status; /* under lock */
} counting;

static ls_status count_document(void *user, const ls__document *d)
{
    const uint8_t *p = (const uint8_t *)d->text, *end = p + d->text_bytes;
    ls_status status = LS_OK;
    while (!status && p < end) {
        size_t n = ls__split(p, end);
        if (n > MAX_WORD) n = MAX_WORD;
        status = ls__tally_add(user, p, n, 1);
        p += n;
    }
    return status;
}

static ls_status open_tally(void *user, void **state)
{
    (void)user;
    *state = calloc(1, sizeof(ls__tally));
    return *state ? LS_OK : ls__fail(LS_ENOMEM, "no memory to count words");
}

static void add_to_all(void *user, void *state)
{
    counting *c = user;
    ls__tally *own = state;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; own->places && !c->status && i <= own->mask; i++) {
        const ls__tally_entry *p = &own->places[i];
        if (p->length) c->status = ls__tally_add(c->all, own->bytes + p->at, p->length, p->count);
    }
    pthread_mutex_unlock(&c->lock);
    ls__tally_free(own);
    free(own);
}

static ls_status work(void *user, void *state, const ls__chunk *chunk, void **result)
{
    const counting *c = user;
    ls__bad_lines *bad = c->fields.skip_bad ? calloc(1, sizeof *bad) : NULL;
    if (c->fields.skip_bad && !bad) return ls__fail(LS_ENOMEM, "no memory to count words");
    ls_status status = ls__chunk_documents(chunk, &c->fields, bad, count_document, state);
    if (status)
        free(bad);
    else
        *result = bad;
    return status;
}

static ls_status put(void *user, const ls__chunk *chunk, void *result)
{
    counting *c = user;
    if (result) ls__bad_lines_add(&c->bad, result);
    free(result);
    c->done += chunk->consumed;
    if (c->o->progress) c->o->progress(c->o->user, c->done, c->total);
    return LS_OK;
}

ls_status ls__tally_texts(ls__tally *t, const ls_bpe_options *o)
{
    ls__sources sources;
    ls_status status = ls__sources_open_text(&sources, o->paths, o->n_paths, o->format);
    if (status) return status;
    counting c = { .o = o, .fields = { .text = o->field, .skip_bad = o->skip_bad }, .all = t };
    for (size_t i = 0; i < sources.count; i++) c.total += sources.files[i].bytes;
    pthread_mutex_init(&c.lock, NULL);
    ls__chunk_job p = { .chunks = { .sources = &sources, .size = CHUNK_BYTES },
                        .threads = o->threads,
                        .user = &c,
                        .open = open_tally,
                        .free = add_to_all,
                        .work = work,
                        .put = put,
                        .discard = free };
    status = ls__chunk_job_run(&p);
    if (!status) ls__bad_lines_warn(&c.bad);
    if (!status && c.status) status = ls__fail(c.status, "no memory to count %zu different words", t->used);
    pthread_mutex_destroy(&c.lock);
    ls__sources_close(&sources);
    return status;
}
