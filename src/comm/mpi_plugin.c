/* The plug-in: the one file that includes <mpi.h>. Built once for each MPI that is installed; see net.h.
 *
 * A process has one MPI, so there is one static state. MPI cannot be initialized again once it was finalized; therefore close() only
 * notes that the user is done, and MPI is finalized at the end of the process.
 *
 * Leaving. A process that ends in order first waits, without using a core, until all others have reached their end, too (a barrier that
 * is polled). One that ends after a failure sends a message to those that wait, and does not finalize: that would wait for ranks that
 * wait for it. The launcher then sees an abnormal end.
 *
 * MPICH is not finalized. MPICH 4.0 over UCX 1.13 and TCP hangs in MPI_Finalize in one run of three under its own mpirun and in most
 * under srun, also with small programs: ranks that have closed their connections wait for the launcher's barrier and no longer poll the
 * network, while another rank waits for them to answer the closing of its connection. What must not be left out is the PMI message to the
 * launcher that this process ends in order; it is sent here. */
#include <mpi.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "comm/net.h"

#if defined(OMPI_MAJOR_VERSION)
#define FAMILY    "openmpi"
#define TEXT2(x)  #x
#define TEXT(x)   TEXT2(x)
#define BUILT_FOR "Open MPI " TEXT(OMPI_MAJOR_VERSION) "." TEXT(OMPI_MINOR_VERSION) "." TEXT(OMPI_RELEASE_VERSION)
#elif defined(MPICH_VERSION)
#define FAMILY    "mpich"
#define BUILT_FOR "MPICH " MPICH_VERSION
#else
#define FAMILY    "mpi"
#define BUILT_FOR "an unknown MPI"
#endif

enum { BATCH = 256 }; /* requests that one call of MPI tests */

static struct {
    MPI_Comm comm;  /* a copy of the world, so that messages of the program itself are separate */
    int joined;     /* comm is valid */
    int users;      /* opens without close */
    int failed;     /* a close was not healthy */
    int we_started; /* MPI_Init was ours, and so is MPI_Finalize */
} state;

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a request must fit its handle");

static MPI_Request get(const ls__net_request *r)
{
    MPI_Request request;
    memcpy(&request, &r->handle, sizeof request);
    return request;
}

static void put(ls__net_request *r, MPI_Request request)
{
    r->handle = 0;
    memcpy(&r->handle, &request, sizeof request);
}

/* A fresh request object from what MPI returned. */
static int begun(int code, MPI_Request request, ls__net_request *out)
{
    *out = (ls__net_request){ .active = code == MPI_SUCCESS, .from = -1 };
    if (code == MPI_SUCCESS) put(out, request);
    return code;
}

static void library(char *out, size_t bytes)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0;
    MPI_Get_library_version(text, &n);
    text[strcspn(text, "\n")] = 0;
    for (char *p = text; *p; p++)
        if (*p == '\t') *p = ' ';
    strncpy(out, text, bytes - 1);
    out[bytes - 1] = 0;
}

/* ---- The end. */

static void nap(int64_t ns)
{
    nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

/* Sends a message to ranks that wait in leave_together(): this process ends after a failure. Only to those: MPI prints errors when a
 * process that has ended cannot be reached. */
static void send_failure(const bool *waiting)
{
    enum { TRIES = 100 };
    static char byte;
    int size = 0, left = 1;
    if (!waiting || MPI_Comm_size(state.comm, &size)) return;
    MPI_Request *requests = malloc((size_t)size * sizeof *requests); /* left to MPI if it does not complete */
    if (!requests) return;
    for (int r = 0; r < size; r++) {
        requests[r] = MPI_REQUEST_NULL;
        if (waiting[r]) MPI_Isend(&byte, 1, MPI_BYTE, r, LS__NET_FAILED_TAG, state.comm, &requests[r]);
    }
    for (int i = 0; i < TRIES && left; i++) {
        left = 0;
        for (int r = 0, done; r < size; r++) left += !MPI_Test(&requests[r], &done, MPI_STATUS_IGNORE) && !done;
        if (left) nap(1000000);
    }
    if (!left) free(requests);
}

/* Waits until all processes end in order; 0: one did not. */
static int leave_together(void)
{
    enum { SHORT_NS = 50000, LONG_NS = 5000000, AFTERWARDS = 20, FAILED_FIRST = 200 };
    char byte;
    int which = MPI_UNDEFINED, done = 0;
    MPI_Request requests[2];
    if (MPI_Irecv(&byte, 1, MPI_BYTE, MPI_ANY_SOURCE, LS__NET_FAILED_TAG, state.comm, &requests[0])) return 0;
    if (MPI_Ibarrier(state.comm, &requests[1])) return 0;
    for (int64_t ns = SHORT_NS; !done; ns = ns < LONG_NS ? 2 * ns : ns) {
        if (MPI_Testany(2, requests, &which, &done, MPI_STATUS_IGNORE)) return 0;
        if (!done) nap(ns);
    }
    if (which != 1) {
        /* The launcher reports the first process that ends abnormally: that should be the one that failed. */
        for (int i = 0; i < FAILED_FIRST; i++) nap(LONG_NS);
        return 0;
    }
    /* Others may still need a message of the barrier that is in a queue of this process. */
    for (int i = 0; i < AFTERWARDS; i++) {
        MPI_Test(&requests[0], &done, MPI_STATUS_IGNORE);
        nap(SHORT_NS);
    }
    if (requests[0] != MPI_REQUEST_NULL) {
        MPI_Cancel(&requests[0]);
        MPI_Request_free(&requests[0]);
    }
    return 1;
}

/* Notifies the launcher that this process is done, by PMI-1, the protocol of MPICH with its mpirun and with srun --mpi=pmi2; false: it is
 * neither of them. */
static int finalize_pmi(void)
{
#ifdef MPICH_VERSION
    static const char request[] = "cmd=finalize\n", answer[] = "cmd=finalize_ack";
    const char *text = getenv("PMI_FD");
    char got[64];
    if (!text) return 0;
    int fd = atoi(text);
    if (write(fd, request, sizeof request - 1) != (ssize_t)sizeof request - 1) return 0;
    ssize_t n = read(fd, got, sizeof got);
    return n >= (ssize_t)sizeof answer - 1 && !memcmp(got, answer, sizeof answer - 1);
#else
    return 0;
#endif
}

static void at_exit(void)
{
    int finalized = 0;
    sigset_t pipe; /* others may have ended by now, and this process ends anyway */
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    MPI_Finalized(&finalized);
    if (finalized || !state.we_started || state.users || state.failed) return;
    if (leave_together() && !finalize_pmi()) MPI_Finalize();
}

static int join(void)
{
    int there = 0, gone = 0, level, code;
    MPI_Initialized(&there);
    MPI_Finalized(&gone);
    if (gone) return MPI_ERR_OTHER;
    if (!there) {
        code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
        if (code) return code;
        state.we_started = 1;
    }
    code = MPI_Query_thread(&level);
    if (code) return code;
    if (level < MPI_THREAD_SERIALIZED) return MPI_ERR_UNSUPPORTED_OPERATION;
    code = MPI_Comm_dup(MPI_COMM_WORLD, &state.comm);
    if (code) return code;
    MPI_Comm_set_errhandler(state.comm, MPI_ERRORS_RETURN);
    state.joined = 1;
    return atexit(at_exit) ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static int open_net(int *rank, int *size)
{
    int code = state.joined ? MPI_SUCCESS : join();
    if (!code) code = MPI_Comm_rank(state.comm, rank);
    if (!code) code = MPI_Comm_size(state.comm, size);
    if (!code) state.users++;
    return code;
}

static void close_net(int healthy, const bool *waiting)
{
    state.users--;
    if (healthy) return;
    state.failed = 1;
    send_failure(waiting);
}

static int send_bytes(const void *data, size_t bytes, int to, int tag, int matched, ls__net_request *out)
{
    MPI_Request request;
    int code = matched ? MPI_Issend(data, (int)bytes, MPI_BYTE, to, tag, state.comm, &request)
                       : MPI_Isend(data, (int)bytes, MPI_BYTE, to, tag, state.comm, &request);
    return begun(code, request, out);
}

static int recv_bytes(void *data, size_t bytes, int from, int tag, ls__net_request *out)
{
    MPI_Request request;
    int source = from == LS__NET_ANY ? MPI_ANY_SOURCE : from;
    int code = MPI_Irecv(data, (int)bytes, MPI_BYTE, source, tag, state.comm, &request);
    return begun(code, request, out);
}

static int allgather(const void *mine, void *all, size_t bytes, ls__net_request *out)
{
    MPI_Request request;
    int n = (int)bytes;
    int code = MPI_Iallgather(mine, n, MPI_BYTE, all, n, MPI_BYTE, state.comm, &request);
    return begun(code, request, out);
}

static int finish(ls__net_request *r, const MPI_Status *status)
{
    int n = 0;
    r->active = false;
    r->from = status->MPI_SOURCE;
    MPI_Get_count(status, MPI_BYTE, &n);
    r->bytes = n > 0 ? (size_t)n : 0;
    return MPI_SUCCESS;
}

/* Tests up to BATCH requests with one call, since each call also makes progress inside MPI, which takes time. */
static int test_batch(ls__net_request *const *requests, int count)
{
    MPI_Request handles[BATCH];
    MPI_Status statuses[BATCH];
    int indices[BATCH], done = 0;
    for (int i = 0; i < count; i++) handles[i] = requests[i]->active ? get(requests[i]) : MPI_REQUEST_NULL;
    int code = MPI_Testsome(count, handles, &done, indices, statuses);
    if (code && code != MPI_ERR_IN_STATUS) return code;
    for (int i = 0; i < done && done != MPI_UNDEFINED; i++) {
        int wrong = code == MPI_ERR_IN_STATUS ? statuses[i].MPI_ERROR : MPI_SUCCESS;
        if (wrong && wrong != MPI_ERR_PENDING) return wrong;
        finish(requests[indices[i]], &statuses[i]);
    }
    for (int i = 0; i < count; i++)
        if (requests[i]->active) put(requests[i], handles[i]);
    return MPI_SUCCESS;
}

static int test(ls__net_request *const *requests, int count)
{
    for (int at = 0; at < count; at += BATCH) {
        int code = test_batch(requests + at, count - at < BATCH ? count - at : BATCH);
        if (code) return code;
    }
    return MPI_SUCCESS;
}

static void cancel(ls__net_request *r)
{
    if (!r->active) return;
    MPI_Request request = get(r);
    MPI_Cancel(&request);
    MPI_Request_free(&request);
    r->active = false;
}

static void error_text(int code, char *out, size_t bytes)
{
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;
    text[0] = 0;
    MPI_Error_string(code, text, &n);
    text[strcspn(text, "\n")] = 0;
    strncpy(out, text, bytes - 1);
    out[bytes - 1] = 0;
}

extern LS_API const ls__net_plugin ls__net_table;
const ls__net_plugin ls__net_table = {
    .abi = LS__NET_ABI,
    .family = FAMILY,
    .built_for = BUILT_FOR,
    .library = library,
    .open = open_net,
    .close = close_net,
    .send = send_bytes,
    .recv = recv_bytes,
    .allgather = allgather,
    .test = test,
    .cancel = cancel,
    .error_text = error_text,
};
