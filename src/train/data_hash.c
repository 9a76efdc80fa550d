/* A hash of the data, so that ranks with different files of one size, or a run resumed with others, are noticed. A few samples
 * spread over the data are enough for that and are cheap. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "train/training.h"

enum { SAMPLES = 8 };

static size_t field_bytes(const ls_field *f)
{
    return f->count * ls_dtype_size(f->type);
}

double ls__train_hash_data(const ls_train *t)
{
    const ls_dataset *d = t->parts.train;
    ls_row row = { 0 };
    void *worker = NULL;
    uint64_t hash = 0;
    bool all = true;
    for (int f = 0; f < d->n_fields; f++) all = (row.fields[f] = calloc(1, field_bytes(&d->fields[f]) + 1)) && all;
    if (all && d->worker_open && d->worker_open(d->self, 0, &worker)) all = false;
    for (uint64_t i = 0; i < SAMPLES && all; i++) {
        /* A sample that cannot be read is reported when it is used. */
        if (d->get(d->self, worker, i * (d->count - 1) / (SAMPLES - 1), &row)) break;
        for (int f = 0; f < d->n_fields; f++)
            hash = XXH3_64bits_withSeed(row.fields[f], field_bytes(&d->fields[f]), hash);
    }
    if (worker && d->worker_free) d->worker_free(d->self, worker);
    for (int f = 0; f < d->n_fields; f++) free(row.fields[f]);
    return (double)(hash >> 12); /* 52 bits fit a double */
}
