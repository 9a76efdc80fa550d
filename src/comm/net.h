/* The network between nodes, as the mpi transport sees it.
 *
 * MPI is used through a plug-in that is loaded at run time: one build of lockstep works with any MPI, and without one. A plug-in is one
 * table of functions. It knows nothing of lockstep, calls nothing in it, and never prints. Messages are bytes with a tag; between two
 * ranks, those with the same tag arrive in order.
 *
 * Threads  every call locks the net, so any thread may call (abort does).
 * Memory   what a request reads or writes must stay until the request is done. After a failure that may never happen, so messages are
 *          sent from and received into memory of the transport, never memory of the user. */
#ifndef LS_COMM_NET_H
#define LS_COMM_NET_H

#include <stdbool.h>
#include "comm/launcher.h"
#include "lockstep/comm.h"

#define LS__NET_ABI        2
#define LS__NET_SYMBOL     "ls__net_table"
#define LS__NET_ANY        (-1)       /* receive from any rank */
#define LS__NET_FAILED_TAG 7          /* used by the plug-in itself */
#define LS__NET_MAX_TAG    0x7ffffff  /* every MPI in use allows it; the standard guarantees less */
#define LS__NET_MAX_SEND   (1u << 30) /* bytes of one message */
#define LS__NET_NAP_NS     20000      /* a rank with messages under way polls this often */

/* A message under way. */
typedef struct ls__net_request {
    uint64_t handle;
    bool active; /* false: done, or never begun */
    int from;    /* of a receive that is done: the sender */
    size_t bytes;
} ls__net_request;

/* What a plug-in offers, under the name ls__net_table. Functions return 0 or the MPI's own error code. */
typedef struct ls__net_plugin {
    uint32_t abi;
    const char *family;    /* "openmpi", "mpich" */
    const char *built_for; /* "Open MPI 4.1.4" */
    /* Name and version of the MPI library that it found at run time; may be called before open. */
    void (*library)(char *out, size_t bytes);
    /* Joins; may be called again after close. */
    int (*open)(int *rank, int *size);
    /* Leaves. `healthy`: at its end the process waits until all others have reached theirs. Otherwise it does not wait, and sends a
     * message to those ranks r that do (waiting[r]; NULL: none). */
    void (*close)(int healthy, const bool *waiting);
    /* `matched`: done only when the receiver has posted its receive. */
    int (*send)(const void *data, size_t bytes, int to, int tag, int matched, ls__net_request *out);
    int (*recv)(void *data, size_t bytes, int from, int tag, ls__net_request *out);
    /* All ranks contribute `bytes` and get those of all, in order of rank. */
    int (*allgather)(const void *mine, void *all, size_t bytes, ls__net_request *out);
    /* Polls the network, and clears `active` of requests that are done. Never waits. */
    int (*test)(ls__net_request *const *requests, int count);
    /* Cancels a receive. Its memory may still be written to. */
    void (*cancel)(ls__net_request *request);
    void (*error_text)(int code, char *out, size_t bytes);
} ls__net_plugin;

typedef struct ls__net ls__net;

/* Finds, loads and opens a plug-in. `which` is the user's choice: "openmpi", "mpich" or a path; NULL: LOCKSTEP_MPI of
 * the environment, or else what fits the launcher. On failure *out is NULL. */
LS_MUST_CHECK ls_status ls__net_open(ls__net **out, const char *which, const ls__launch_info *identity);
/* A net on the caller's table: for tests, whose ranks are threads. */
LS_MUST_CHECK ls_status ls__net_open_on(ls__net **out, const ls__net_plugin *plugin, int rank, int size);
/* A net without a plug-in: ranks gather through the caller's store (lockstep/comm.h), which must outlive it. It carries no data until
 * ls__net_connect() has opened the carrier, if that is not NULL; in a net with a plug-in, or without a carrier, that does nothing. */
LS_MUST_CHECK ls_status ls__net_open_store(ls__net **out, const ls_store *store, const ls_carrier *carrier, int rank,
                                           int size);
LS_MUST_CHECK ls_status ls__net_connect(ls__net *net);
/* Calls of a store. */
LS_MUST_CHECK ls_status ls__store_set(const ls_store *store, const char *key, const void *value, size_t bytes);
LS_MUST_CHECK ls_status ls__store_get(const ls_store *store, const char *key, void *value, size_t bytes,
                                      int timeout_ms);
/* Returns `status` of such a call, with the message that the store has left. */
ls_status ls__store_failed(ls_status status, int rank, const char *key);
/* Whether messages can be sent. */
bool ls__net_carries_data(const ls__net *net);
/* See ls__net_plugin.close. */
void ls__net_close(ls__net **net, bool healthy, const bool *waiting);

int ls__net_rank(const ls__net *net);
int ls__net_size(const ls__net *net);
/* "Open MPI v4.1.4, ..." and the file of the plug-in. */
const char *ls__net_library(const ls__net *net);
const char *ls__net_path(const ls__net *net);

LS_MUST_CHECK ls_status ls__net_send(ls__net *net, const void *data, size_t bytes, int to, int tag, bool matched,
                                     ls__net_request *out);
LS_MUST_CHECK ls_status ls__net_recv(ls__net *net, void *data, size_t bytes, int from, int tag, ls__net_request *out);
/* Requests that are not active are skipped. */
LS_MUST_CHECK ls_status ls__net_test(ls__net *net, ls__net_request *const *requests, int count);
void ls__net_cancel(ls__net *net, ls__net_request *request);
/* Waits until all ranks have called it, or for `timeout_ms` (< 0: no limit). */
LS_MUST_CHECK ls_status ls__net_allgather(ls__net *net, const void *mine, void *all, size_t bytes, int timeout_ms);

/* For a process that ends without closing the net: whether a call is under way, perhaps of a thread that will never continue; and
 * ls__net_plugin.close as unhealthy, which leaves the net as it is. */
bool ls__net_is_busy(ls__net *net);
void ls__net_abandon(ls__net *net, const bool *waiting);

/* A pause between two polls of the network, which grows with their number: *polls counts, and the caller resets it. It always yields the
 * core, since the kernel needs it for packets. */
void ls__net_pause(int *polls);

/* Whether there is a plug-in for `family`, the MPI library that it finds, and its path: for `lockstep doctor`. Does not join. */
LS_MUST_CHECK ls_status ls__net_probe(const char *family, char *library, size_t bytes);

#endif
