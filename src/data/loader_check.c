/* What a loader's options may be. */
#include "base/status.h"
#include "base/text.h"
#include "data/loader.h"

ls_status ls__loader_check(const ls_dataset *d, ls_loader_options *o)
{
    if (!o->world_size) o->world_size = 1;
    if (!o->slots) o->slots = o->world_size;
    if (!o->batch_size) o->batch_size = 1;
    if (o->order != LS_ORDER_TORCH) o->torch_world_size = 1; /* no other order depends on it */
    if (!o->torch_world_size) o->torch_world_size = o->world_size;
    if (!o->max_workers) o->max_workers = 32;
    if (o->world_size < 1 || o->rank < 0 || o->rank >= o->world_size)
        return ls__fail(LS_EINVAL, "loader: rank %d is out of range; the world size is %d", o->rank, o->world_size);
    if (o->slots < o->world_size)
        return ls__fail(LS_EINVAL, "loader: %d slot%s cannot be spread over %d ranks; each rank needs at least one",
                        o->slots, ls__s(o->slots), o->world_size);
    if (o->workers < LS_WORKERS_AUTO || o->workers > LS__LOADER_WORKERS || o->max_workers < 0 ||
        o->max_workers > LS__LOADER_WORKERS)
        return ls__fail(LS_EINVAL, "loader: %d workers; must be from 0 to %d, or auto", o->workers, LS__LOADER_WORKERS);
    if (o->prefetch < 0 || o->timeout_ms < 0)
        return ls__fail(LS_EINVAL, "loader: prefetch and timeout must not be negative");
    if (!d->count) return ls__fail(LS_EINVAL, "loader: the dataset has no samples; its count must be at least 1");
    if (!d->get) return ls__fail(LS_EINVAL, "loader: the dataset has no function get(), which writes a sample");
    if (d->n_fields < 1 || d->n_fields > LS_MAX_FIELDS)
        return ls__fail(LS_EINVAL, "loader: the dataset has %d fields; n_fields must be from 1 to %d", d->n_fields,
                        LS_MAX_FIELDS);
    size_t bytes = 0;
    for (int f = 0; f < d->n_fields; f++) {
        size_t row, size = ls_dtype_size(d->fields[f].type);
        if (!size) return ls__fail(LS_EINVAL, "loader: field %d of the dataset has no valid type", f);
        if (__builtin_mul_overflow(d->fields[f].count, size, &row) ||
            __builtin_mul_overflow(row, o->batch_size, &row) || __builtin_add_overflow(bytes, row, &bytes) ||
            bytes > SIZE_MAX / 4)
            return ls__fail(LS_EINVAL, "loader: a batch of %zu samples is too large", o->batch_size);
    }
    return LS_OK;
}
