/* Kept memory. See kept.h. */
#include "comm/kept.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/status.h"
#include "comm/group.h"
#include "comm/heap.h"

/* The number counts layouts, also of the program's part (train/kept.c). */
static const char MAGIC[16] = "lockstep kept 5";

static ls_status map_header(int fd, ls__kept **out)
{
    _Static_assert(sizeof(ls__kept) <= LS__KEPT_HEADER, "the program's part begins after the header");
    void *p = mmap(NULL, LS__KEPT_HEADER, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return ls__fail_errno("kept memory: cannot map it");
    *out = p;
    return LS_OK;
}

ls_status ls__kept_create(ls__kept **out, int *fd)
{
    *out = NULL;
    *fd = memfd_create("lockstep-kept", MFD_CLOEXEC);
    if (*fd < 0) return ls__fail_errno("kept memory: cannot be created");
    ls_status status = ftruncate(*fd, LS__KEPT_HEADER) ? ls__fail_errno("kept memory: cannot be created") : LS_OK;
    if (!status) status = map_header(*fd, out);
    if (status) {
        close(*fd);
        *fd = -1;
        return status;
    }
    memcpy((*out)->magic, MAGIC, sizeof MAGIC);
    (*out)->header_bytes = sizeof **out;
    return LS_OK;
}

ls_status ls__kept_attach(int fd, ls__kept **out)
{
    struct stat st;
    *out = NULL;
    if (fstat(fd, &st) || st.st_size < LS__KEPT_HEADER)
        return ls__fail(LS_EINVAL, LS__KEPT_FD_VARIABLE "=%d: not the descriptor of kept memory; unset it", fd);
    ls_status status = map_header(fd, out);
    if (status) return status;
    if (memcmp((*out)->magic, MAGIC, sizeof MAGIC) || (*out)->header_bytes != sizeof **out) {
        ls__kept_detach(out);
        return ls__fail(LS_EINVAL,
                        LS__KEPT_FD_VARIABLE "=%d: kept by another version of lockstep; start the job and its ranks "
                                             "with the same one",
                        fd);
    }
    return LS_OK;
}

static double number_in(const char *path)
{
    double x = 0;
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%lf", &x) != 1) x = 0; /* "max" */
    if (f) fclose(f);
    return x;
}

/* What can be allocated without pushing something else out, in bytes, by the kernel's estimate and the control group's limit
 * (version 2, as containers see it). 0: not known. */
static double available_memory(void)
{
    double available = 0, kib;
    char line[256];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lf kB", &kib) == 1) available = kib * 1024;
    if (f) fclose(f);
    double limit = number_in("/sys/fs/cgroup/memory.max");
    double left = limit > 0 ? limit - number_in("/sys/fs/cgroup/memory.current") : 0;
    if (limit > 0 && (available == 0 || left < available)) available = left > 1 ? left : 1;
    return available;
}

bool ls__kept_fits(size_t bytes)
{
    double available = available_memory();
    return available == 0 || (double)bytes <= available;
}

ls_status ls__kept_allocate(int fd, size_t bytes)
{
    enum { MIB = 1 << 20 };
    static const char advice[] = "use a smaller model, or train without elastic";
    double available = available_memory();
    /* Asking for more than there is would not fail: the kernel would kill a process, perhaps another one. */
    if (available > 0 && (double)bytes > available)
        return ls__fail(LS_ENOMEM, "elastic: %.0f MiB of kept memory are needed, and %.0f MiB are available; %s",
                        (double)bytes / MIB, available / MIB, advice);
    int error = posix_fallocate(fd, LS__KEPT_HEADER, (off_t)bytes);
    if (!error) return LS_OK;
    return ls__fail(LS_ENOMEM, "elastic: cannot allocate %.0f MiB of kept memory (%s); %s", (double)bytes / MIB,
                    strerror(error), advice);
}

ls_status ls__kept_map(int fd, size_t bytes, void **out)
{
    struct stat st;
    *out = NULL;
    if (fstat(fd, &st) || (size_t)st.st_size < LS__KEPT_HEADER + bytes)
        return ls__fail(LS_EMISMATCH, "elastic: kept memory belongs to another model");
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, LS__KEPT_HEADER);
    if (p == MAP_FAILED) return ls__fail_errno("elastic: cannot map %.1f MiB", (double)bytes / (1 << 20));
    madvise(p, bytes, MADV_HUGEPAGE);
    *out = p;
    return LS_OK;
}

void ls__kept_detach(ls__kept **kept)
{
    if (*kept) munmap(*kept, LS__KEPT_HEADER);
    *kept = NULL;
}

/* ---- Held allocations. */

static bool outlives_ranks(const ls_world *world)
{
    return world->job && !world->cluster;
}

uint64_t ls__world_offset(const ls_world *world, const void *memory)
{
    return outlives_ranks(world) ? ls__heap_offset(world->job, memory, 1) : 0;
}

void *ls__world_at(const ls_world *world, uint64_t offset, size_t bytes)
{
    if (!outlives_ranks(world) || !offset || offset > world->job->bytes || bytes > world->job->bytes - offset)
        return NULL;
    return ls__heap_at(world->job, offset);
}

void *ls__kept_alloc(ls_world *world, size_t bytes)
{
    uint64_t at;
    if (!outlives_ranks(world) || ls__heap_take_any(world->job, world->job_fd, bytes, true, &at)) return NULL;
    return ls__heap_at(world->job, at);
}

bool ls__kept_hold(ls__kept *kept, const ls_world *world, const void *memory, int kind)
{
    uint64_t at = ls__world_offset(world, memory), bytes = at ? ls__heap_bytes(world->job, at) : 0;
    for (int i = 0; bytes && i < LS__KEPT_HELD; i++) {
        ls__kept_held *h = &kept->held[i];
        uint64_t none = 0;
        if (!atomic_compare_exchange_strong(&h->offset, &none, 1)) continue;
        h->bytes = bytes;
        h->generation = atomic_load(&kept->generation);
        h->kind = kind;
        atomic_store(&h->offset, at);
        return true;
    }
    return false;
}

void ls__kept_let_go(ls__kept *kept, const ls_world *world, const void *memory)
{
    uint64_t at = ls__world_offset(world, memory);
    for (int i = 0; at && i < LS__KEPT_HELD; i++) {
        ls__kept_held *h = &kept->held[i];
        uint64_t begin = atomic_load(&h->offset);
        /* If another rank has let go of it since, it may be somebody else's entry by now. */
        if (begin > 1 && at >= begin && at - begin < h->bytes) atomic_compare_exchange_strong(&h->offset, &begin, 0);
    }
}

void ls__kept_drop(ls__kept *kept, ls_world *world, int index, bool reuse)
{
    ls__kept_held *h = &kept->held[index];
    uint64_t at = atomic_load(&h->offset);
    if (!outlives_ranks(world) || at <= 1 || h->generation == atomic_load(&kept->generation)) return;
    atomic_store(&h->offset, 0); /* first: what is freed must not be held */
    ls__kept_point(kept, LS__POINT_DROPPED, world->rank);
    ls__heap_give(world->job, reuse ? -1 : world->job_fd, at);
}

void ls__kept_drop_held(ls__kept *kept, ls_world *world, bool reuse)
{
    for (int i = 0; i < LS__KEPT_HELD; i++) ls__kept_drop(kept, world, i, reuse);
}

void ls__kept_trim(const ls_world *world)
{
    if (outlives_ranks(world)) ls__heap_trim(world->job, world->job_fd);
}

void ls__kept_renew_held(ls__kept *kept, ls__job *job)
{
    ls__extent extents[LS__KEPT_HELD];
    size_t n = 0;
    for (int i = 0; i < LS__KEPT_HELD; i++) {
        ls__kept_held *h = &kept->held[i];
        uint64_t at = atomic_load(&h->offset);
        if (at == 1) atomic_store(&h->offset, 0); /* by a rank that was killed */
        if (at > 1) extents[n++] = (ls__extent){ .offset = at, .bytes = h->bytes };
    }
    if (ls__heap_hold(job, extents, n)) return;
    for (int i = 0; i < LS__KEPT_HELD; i++) atomic_store(&kept->held[i].offset, 0);
}

bool ls__kept_is_next_point(const ls__kept *kept, int point)
{
    int at = atomic_load_explicit(&kept->next_kill, memory_order_relaxed);
    return at < LS__KEPT_KILLS && kept->kill[at].point == point;
}

void ls__kept_point(ls__kept *kept, int point, int rank)
{
    if (!kept || !ls__kept_is_next_point(kept, point)) return;
    int at = atomic_load(&kept->next_kill);
    if (kept->kill[at].rank >= 0 && kept->kill[at].rank != rank) return;
    if (atomic_fetch_sub(&kept->kill[at].after, 1) != 1) return;
    atomic_fetch_add(&kept->next_kill, 1);
    raise(SIGKILL);
}
