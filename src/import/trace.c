/* The lists of a trace. See trace.h. */
#include "import/trace.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

bool ls__list_grow(void **at, size_t *room, size_t count, size_t size)
{
    /* In small steps where there is much already: memory is what an import must be careful with. */
    size_t want = count < 16 ? 16 : count < 1 << 16 ? 2 * count : count + count / 4;
    void *more = reallocarray(*at, want, size);
    if (!more) return false;
    *at = more;
    *room = want;
    return true;
}

void ls__sort_nearly(void *at, size_t count, size_t size, int (*order)(const void *, const void *))
{
    enum { LARGEST = 128, MOVES = 64 };
    char *base = at, entry[LARGEST];
    size_t moves = 0;
    for (size_t i = 1; i < count; i++) {
        if (order(base + (i - 1) * size, base + i * size) <= 0) continue;
        size_t low = 0, high = i - 1; /* the place after the last entry that may stay before it */
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (order(base + middle * size, base + i * size) <= 0)
                low = middle + 1;
            else
                high = middle;
        }
        moves += i - low;
        if (size > LARGEST || moves > MOVES * count) {
            qsort(at, count, size, order);
            return;
        }
        memcpy(entry, base + i * size, size);
        memmove(base + (low + 1) * size, base + low * size, (i - low) * size);
        memcpy(base + low * size, entry, size);
    }
}

static uint32_t *place_of(const ls__interned *n, ls__text text)
{
    uint32_t i = (uint32_t)XXH3_64bits(text.at, text.bytes) & n->mask;
    for (; n->places[i]; i = (i + 1) & n->mask) {
        const char *t = n->text[n->places[i] - 1];
        if (!strncmp(t, text.at, text.bytes) && !t[text.bytes]) break;
    }
    return &n->places[i];
}

uint32_t ls__interned_find(const ls__interned *n, ls__text text)
{
    uint32_t place = n->places && text.at ? *place_of(n, text) : 0;
    return place ? place - 1 : UINT32_MAX;
}

uint32_t ls__interned_of(ls__interned *n, ls__text text)
{
    if (!text.at) text = (ls__text){ "", 0 };
    const char *nul = text.bytes ? memchr(text.at, 0, text.bytes) : NULL;
    if (nul) text.bytes = (size_t)(nul - text.at);
    if (!n->places || n->count >= n->mask / 2) {
        uint32_t room = n->places ? 2 * (n->mask + 1) : 64, *old = n->places;
        uint32_t *places = calloc(room, sizeof *places);
        if (!places) return UINT32_MAX;
        n->places = places;
        n->mask = room - 1;
        for (uint32_t i = 0; i < n->count; i++) *place_of(n, (ls__text){ n->text[i], strlen(n->text[i]) }) = i + 1;
        free(old);
    }
    uint32_t *place = place_of(n, text);
    if (*place) return *place - 1;
    if (n->count == n->room) {
        uint32_t room = n->room ? 2 * n->room : 64;
        char **more = reallocarray(n->text, room, sizeof *more);
        if (!more) return UINT32_MAX;
        n->text = more;
        n->room = room;
    }
    char *copy = strndup(text.at, text.bytes);
    if (!copy) return UINT32_MAX;
    n->text[n->count++] = copy;
    *place = n->count;
    return n->count - 1;
}

void ls__interned_free(ls__interned *n)
{
    for (uint32_t i = 0; i < n->count; i++) free(n->text[i]);
    free(n->text);
    free(n->places);
    *n = (ls__interned){ 0 };
}

void ls__trace_free(ls__trace *t)
{
    for (size_t i = 0; i < t->groups.count; i++) {
        free(t->groups.at[i].name);
        free(t->groups.at[i].ranks);
    }
    ls__interned *names[] = { &t->threads, &t->operation_names, &t->kernel_names, &t->marks_names };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) ls__interned_free(names[i]);
    void *lists[] = { t->path,      t->marks.at,        t->backward.at,    t->busy.at,    t->calls.at,
                      t->c10d.at,   t->comms.at,        t->comm_launch.at, t->kernels.at, t->launches.at,
                      t->groups.at, t->operations.at,   t->kernel_sums.at, t->stack.at,   t->intervals.at,
                      t->steps.at,  t->step_numbers.at, t->waits.at,       t->streams.at };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]);
    ls__deltas *packed[] = { &t->packed_busy, &t->packed_backward, &t->packed_kernels, &t->packed_launches };
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) ls__deltas_free(packed[i]);
    *t = (ls__trace){ 0 };
}

void ls__traces_free(ls__traces *t)
{
    for (size_t i = 0; i < t->count; i++) ls__trace_free(&t->at[i]);
    free(t->at);
    *t = (ls__traces){ 0 };
}
