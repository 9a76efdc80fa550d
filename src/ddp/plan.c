/* Bucket planning. See plan.h. */
#include "ddp/plan.h"

static size_t padded(size_t count)
{
    return (count + LS__SPAN_ALIGN - 1) / LS__SPAN_ALIGN * LS__SPAN_ALIGN;
}

size_t ls__plan_buckets(const size_t *counts, const uint32_t *order, size_t n, size_t first_cap_bytes, size_t cap_bytes,
                        size_t *offsets, ls__bucket_plan *buckets, size_t *total)
{
    size_t n_buckets = 0, at = 0;
    for (size_t i = 0; i < n; i++) at += padded(counts[i]);
    *total = at;
    ls__bucket_plan b = { 0 };
    for (size_t k = 0; k < n; k++) {
        size_t cap = n_buckets == 0 ? first_cap_bytes : cap_bytes;
        at -= padded(counts[order[k]]);
        offsets[order[k]] = at;
        b.begin = at;
        b.count += padded(counts[order[k]]);
        b.spans++;
        if (b.count * sizeof(float) >= cap || k + 1 == n) {
            buckets[n_buckets++] = b;
            b = (ls__bucket_plan){ .first = k + 1 };
        }
    }
    return n_buckets;
}
