/* Which spans share a bucket: a pure function of sizes, order and caps. */
#ifndef LS_DDP_PLAN_H
#define LS_DDP_PLAN_H

#include "lockstep/base.h"

enum { LS__SPAN_ALIGN = 16 }; /* elements: a span starts on a cache line, so two ranks never write to one */

typedef struct ls__bucket_plan {
    size_t first, spans; /* order[first .. first + spans) */
    size_t begin, count; /* elements of the flat block, padding included */
} ls__bucket_plan;

/* Lays spans out one after another and cuts them into buckets: a bucket is closed when it has reached the cap (the first one:
 * first_cap) after adding a span. The first in `order` is at the end of the block: backward ends with what forward began
 * with, so a model whose parameters are in the order of forward can use the block directly.
 *
 * Spans are never split, however large (an embedding): a span becomes ready as a whole, so no part of it could start earlier, and a
 * large bucket takes no more time per byte than small ones. It is reduced (shm) and sent (multi) in chunks: bench/allreduce finds
 * 25 and 100 MiB at over 0.8 of the memory bandwidth, bench/wide 100 MiB at over 0.85 of the link's bandwidth.
 *
 * offsets[i] is span i's place in the flat block; buckets[] has room for n. Returns the number of buckets; *total is the
 * block's elements. */
size_t ls__plan_buckets(const size_t *counts, const uint32_t *order, size_t n, size_t first_cap_bytes, size_t cap_bytes,
                        size_t *offsets, ls__bucket_plan *buckets, size_t *total);

#endif
