/* First fit over a sorted table of extents. Allocation is rare (once per group and buffer), so one lock and a linear search are
 * enough. See heap.h. */
#include "comm/heap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/status.h"

enum { PAGE = 4096 };

/* If a rank died while it held the lock, the table is not used any more: memory that is allocated stays so until the job ends. */
static ls_status lock(ls__job *job)
{
    int error = pthread_mutex_lock(&job->heap.lock);
    if (error == EOWNERDEAD) {
        pthread_mutex_consistent(&job->heap.lock);
        job->heap.torn = true;
        error = 0;
    }
    if (error) return ls__fail(LS_ESYS, "shared memory: cannot lock the heap: %s", strerror(error));
    if (!job->heap.torn) return LS_OK;
    pthread_mutex_unlock(&job->heap.lock);
    return ls__fail(LS_EPEER, "shared memory: a rank died while it allocated or freed some; no more can be allocated");
}

static void unlock(ls__job *job)
{
    pthread_mutex_unlock(&job->heap.lock);
}

/* Where `bytes` fit: the index to insert at, and the offset; false if nowhere. Lock held. */
static bool find_gap(const ls__job *job, uint64_t bytes, uint32_t *index, uint64_t *offset)
{
    const ls__job_heap *h = &job->heap;
    uint64_t at = (sizeof(ls__job) + PAGE - 1) / PAGE * PAGE;
    for (uint32_t i = 0; i <= h->extents; i++) {
        uint64_t end = i < h->extents ? h->extent[i].offset : job->bytes;
        if (end - at >= bytes) {
            *index = i;
            *offset = at;
            return true;
        }
        if (i < h->extents) at = h->extent[i].offset + h->extent[i].bytes;
    }
    return false;
}

ls_status ls__heap_init(ls__job *job)
{
    pthread_mutexattr_t a;
    int error = pthread_mutexattr_init(&a);
    if (!error) {
        pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
        error = pthread_mutex_init(&job->heap.lock, &a);
        pthread_mutexattr_destroy(&a);
    }
    return error ? ls__fail(LS_ESYS, "shared memory: cannot make a lock: %s", strerror(error)) : LS_OK;
}

static int by_offset(const void *a, const void *b)
{
    const ls__extent *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

bool ls__heap_hold(ls__job *job, const ls__extent *held, size_t n)
{
    ls__job_heap *h = &job->heap;
    uint64_t end = (sizeof(ls__job) + PAGE - 1) / PAGE * PAGE;
    if (n > LS__JOB_MAX_EXTENTS) return false;
    memcpy(h->extent, held, n * sizeof *held);
    qsort(h->extent, n, sizeof *h->extent, by_offset);
    for (size_t i = 0; i < n; i++) {
        const ls__extent *e = &h->extent[i];
        if (!e->bytes || (e->offset | e->bytes) % PAGE || e->offset < end || e->bytes > job->bytes ||
            e->offset > job->bytes - e->bytes)
            return false;
        end = e->offset + e->bytes;
    }
    h->extents = (uint32_t)n;
    return true;
}

ls_status ls__heap_take(ls__job *job, int fd, size_t bytes, bool backed, uint64_t *offset)
{
    ls_status status = ls__heap_take_any(job, fd, bytes, backed, offset);
    if (!status && job->heap.used_before)
        memset(ls__heap_at(job, *offset), 0, bytes ? (bytes + PAGE - 1) / PAGE * PAGE : PAGE);
    return status;
}

ls_status ls__heap_take_any(ls__job *job, int fd, size_t bytes, bool backed, uint64_t *offset)
{
    *offset = 0;
    if (bytes > job->bytes)
        return ls__fail(LS_ENOMEM, "shared memory: cannot allocate %zu bytes; the node has %llu", bytes,
                        (unsigned long long)job->bytes);
    uint64_t size = bytes ? (bytes + PAGE - 1) / PAGE * PAGE : PAGE, at;
    uint32_t index;
    ls__job_heap *h = &job->heap;
    ls_status status = lock(job);
    if (status) return status;
    bool found = h->extents < LS__JOB_MAX_EXTENTS && find_gap(job, size, &index, &at);
    if (found) {
        memmove(&h->extent[index + 1], &h->extent[index], (h->extents - index) * sizeof *h->extent);
        h->extent[index].offset = at;
        h->extent[index].bytes = size;
        h->extents++;
    }
    unlock(job);
    if (!found)
        return ls__fail(LS_ENOMEM, "shared memory: no free range of %zu bytes in %llu", bytes,
                        (unsigned long long)job->bytes);
    if (backed && fallocate(fd, 0, (off_t)at, (off_t)size)) {
        status = ls__fail_errno("shared memory: cannot allocate %.1f MiB", (double)bytes / (1 << 20));
        ls__heap_give(job, fd, at);
        return status == LS_ESYS ? LS_ENOMEM : status;
    }
    /* Fills page tables now rather than in the first collective. Older kernels do not know this advice. */
    if (backed) madvise(ls__heap_at(job, at), size, MADV_POPULATE_WRITE);
    *offset = at;
    return LS_OK;
}

uint64_t ls__heap_bytes(ls__job *job, uint64_t offset)
{
    uint64_t bytes = 0;
    if (lock(job)) return 0;
    for (uint32_t i = 0; i < job->heap.extents && !bytes; i++)
        if (job->heap.extent[i].offset == offset) bytes = job->heap.extent[i].bytes;
    unlock(job);
    return bytes;
}

void ls__heap_give(ls__job *job, int fd, uint64_t offset)
{
    ls__job_heap *h = &job->heap;
    uint64_t bytes = 0;
    if (lock(job)) return; /* freed with the job */
    for (uint32_t i = 0; i < h->extents && !bytes; i++) {
        if (h->extent[i].offset != offset) continue;
        bytes = h->extent[i].bytes;
        /* Emptied before it can be allocated again, so that allocations are always zero-filled. */
        if (fd >= 0) fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
        h->extents--;
        memmove(&h->extent[i], &h->extent[i + 1], (h->extents - i) * sizeof *h->extent);
    }
    unlock(job);
}

void ls__heap_trim(ls__job *job, int fd)
{
    const ls__job_heap *h = &job->heap;
    uint64_t at = (sizeof(ls__job) + PAGE - 1) / PAGE * PAGE;
    if (lock(job)) return;
    for (uint32_t i = 0; i <= h->extents; i++) { /* with the lock: nobody may get a gap while it is emptied */
        uint64_t end = i < h->extents ? h->extent[i].offset : job->bytes;
        if (end > at) fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)(end - at));
        if (i < h->extents) at = end + h->extent[i].bytes;
    }
    unlock(job);
}
