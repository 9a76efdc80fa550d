/* Job memory and the state of its ranks. See job.h. */
#include "comm/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/futex.h"
#include "base/status.h"
#include "base/thread.h"
#include "comm/heap.h"

/* The number counts layouts. Raise it with every change of what is in job memory: headers, control blocks, arrivals. */
static const char MAGIC[16] = "lockstep job 05";

/* As large as the node's memory: more could never be used. Pages are allocated on first touch. */
static uint64_t memory_size(void)
{
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t unit = (uint64_t)1 << 30;
    return (memory + unit - 1) / unit * unit;
}

/* Maps job memory; an error names the limit that forbids it. */
static ls_status map_memory(int fd, uint64_t bytes, ls__job **out)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (p == MAP_FAILED) {
        int error = errno;
        struct rlimit limit;
        if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur < 2 * bytes)
            return ls__fail(LS_ENOMEM,
                            "shared memory: no address space for %.0f GiB: the limit is %.1f GiB; "
                            "raise it with 'ulimit -v unlimited'",
                            (double)bytes / (1 << 30), (double)limit.rlim_cur / (1 << 30));
        errno = error;
        return ls__fail_errno("shared memory: cannot map %.0f GiB", (double)bytes / (1 << 30));
    }
    madvise(p, bytes, MADV_HUGEPAGE); /* helps where the kernel allows it for shared memory */
    madvise(p, bytes, MADV_DONTFORK); /* a child must not write to the job; exec'ed programs attach by themselves */
    *out = p;
    return LS_OK;
}

static ls_status fill_header(ls__job *job, uint64_t bytes, int ranks, int timeout_ms)
{
    ls_status status = ls__heap_init(job);
    if (status) return status;
    job->header_bytes = sizeof *job;
    job->bytes = bytes;
    job->ranks = ranks;
    job->timeout_ms = timeout_ms;
    job->cores = ls__cpu_count();
    job->failure.rank = -1;
    memcpy(job->magic, MAGIC, sizeof MAGIC);
    return LS_OK;
}

ls_status ls__job_renew(ls__job *job, int ranks, int timeout_ms)
{
    uint64_t bytes = job->bytes;
    if (ranks < 1 || ranks > LS__JOB_MAX_RANKS)
        return ls__fail(LS_EINVAL, "%d ranks on one node; must be between 1 and %d", ranks, LS__JOB_MAX_RANKS);
    memset(job, 0, sizeof *job);
    job->heap.used_before = true;
    return fill_header(job, bytes, ranks, timeout_ms);
}

ls_status ls__job_create(int ranks, int timeout_ms, ls__job **out, int *fd)
{
    *out = NULL;
    *fd = -1;
    if (ranks < 1 || ranks > LS__JOB_MAX_RANKS)
        return ls__fail(LS_EINVAL, "%d ranks on one node; must be between 1 and %d", ranks, LS__JOB_MAX_RANKS);
    uint64_t bytes = memory_size();
    struct rlimit limit;
    if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < bytes)
        return ls__fail(LS_ENOMEM,
                        "shared memory: the file size limit is %.1f MiB, and job memory needs %.0f GiB; "
                        "raise it with 'ulimit -f unlimited'",
                        (double)limit.rlim_cur / (1 << 20), (double)bytes / (1 << 30));
    int f = memfd_create("lockstep-job", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (f < 0) return ls__fail_errno("shared memory: memfd_create");
    ls_status status = LS_OK;
    ls__job *job = NULL;
    if (ftruncate(f, (off_t)bytes)) {
        status = ls__fail_errno("shared memory: cannot make a sparse file of %.0f GiB", (double)bytes / (1 << 30));
        goto fail;
    }
    /* No rank can truncate the memory that others use. */
    if (fcntl(f, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
        status = ls__fail_errno("shared memory: cannot seal the memfd");
        goto fail;
    }
    status = map_memory(f, bytes, &job);
    if (status) goto fail;
    if ((status = fill_header(job, bytes, ranks, timeout_ms))) {
        munmap(job, (size_t)bytes);
        goto fail;
    }
    *out = job;
    *fd = f;
    return LS_OK;
fail:
    close(f);
    return status;
}

ls_status ls__job_attach(int fd, ls__job **out)
{
    struct stat st;
    *out = NULL;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || fstat(fd, &st))
        return ls__fail(LS_EINVAL,
                        LS__JOB_FD_VARIABLE "=%d: not the descriptor of job memory; "
                                            "a wrapper between the launcher and this program must pass it on",
                        fd);
    if (!(seals & F_SEAL_SHRINK) || (uint64_t)st.st_size < sizeof(ls__job))
        return ls__fail(LS_EINVAL, LS__JOB_FD_VARIABLE "=%d: not the descriptor of job memory", fd);
    ls__job *job;
    ls_status status = map_memory(fd, (uint64_t)st.st_size, &job);
    if (status) return status;
    if (memcmp(job->magic, MAGIC, sizeof MAGIC) || job->header_bytes != sizeof *job ||
        job->bytes != (uint64_t)st.st_size || job->ranks < 1 || job->ranks > LS__JOB_MAX_RANKS) {
        munmap(job, (size_t)st.st_size);
        return ls__fail(LS_EINVAL,
                        LS__JOB_FD_VARIABLE "=%d: the job was made by another version of lockstep; "
                                            "use the same one for the launcher and the program",
                        fd);
    }
    *out = job;
    return LS_OK;
}

void ls__job_detach(ls__job **pjob)
{
    if (*pjob) munmap(*pjob, (*pjob)->bytes);
    *pjob = NULL;
}

void ls__job_wake(ls__job *job, int rank)
{
    ls__job_rank *r = &job->rank[rank];
    if (atomic_load_explicit(&r->sleepers, memory_order_relaxed) == 0) return;
    atomic_fetch_add_explicit(&r->futex, 1, memory_order_release);
    ls__futex_wake_all(&r->futex);
}

void ls__job_wake_all(ls__job *job)
{
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < job->ranks; i++) ls__job_wake(job, i);
}

void ls__job_fail(ls__job *job, ls_status status, int rank, const char *format, ...)
{
    char text[LS__FAILURE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ls__failure_set(&job->failure, status, rank, text);
    ls__job_wake_all(job);
}

void ls__job_set_state(ls__job *job, int rank, ls__rank_state state, int detail)
{
    ls__job_rank *r = &job->rank[rank];
    atomic_store_explicit(&r->detail, detail, memory_order_relaxed);
    atomic_store_explicit(&r->since, ls_now(), memory_order_relaxed);
    atomic_store_explicit(&r->state, state, memory_order_release);
    ls__job_wake_all(job);
}

void ls__job_describe_state(const ls__job *job, int rank, char *out, size_t bytes)
{
    const ls__job_rank *r = &job->rank[rank];
    uint32_t state = atomic_load_explicit(&r->state, memory_order_acquire);
    int detail = atomic_load_explicit(&r->detail, memory_order_relaxed);
    double seconds = (double)(ls_now() - atomic_load_explicit(&r->since, memory_order_relaxed)) / 1e9;
    switch (state) {
    case LS__RANK_STARTING: snprintf(out, bytes, "has not joined yet"); return;
    case LS__RANK_RUNNING: snprintf(out, bytes, "is running"); return;
    case LS__RANK_STOPPED:
        snprintf(out, bytes, "is stopped by SIG%s, for %.1f s", sigabbrev_np(detail) ? sigabbrev_np(detail) : "?",
                 seconds);
        return;
    case LS__RANK_EXITED: snprintf(out, bytes, "exited with code %d", detail); return;
    case LS__RANK_KILLED:
        snprintf(out, bytes, "was killed by signal %d (%s)", detail,
                 sigabbrev_np(detail) ? sigdescr_np(detail) : "unknown");
        return;
    case LS__RANK_GONE: snprintf(out, bytes, "has ended"); return;
    default: snprintf(out, bytes, "is in an unknown state"); return;
    }
}
