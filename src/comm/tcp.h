/* Jobs on several machines without MPI: ranks find each other through a store that the launcher keeps, and are connected by TCP.
 *
 * The launcher (cli/coordinator.c) passes the store's address in LOCKSTEP_STORE=ADDRESS:PORT and what it knows its ranks by in
 * LOCKSTEP_STORE_SECRET; LOCKSTEP_GENERATION is the number of the start that a rank belongs to. Lines of text, and bytes after them
 * where a line says how many:
 *
 *   lockstep-rank VERSION SECRET GENERATION       the first line of a rank; the store closes the connection of one that does not
 *   belong to it set KEY BYTES                                 and the value get KEY                                       the
 *   answer, once the key is set: "value BYTES" and the value
 *
 * When a rank is lost its connections go silent, and are not reported: on several machines it is the launcher that finds out, and
 * ends all. */
#ifndef LS_COMM_TCP_H
#define LS_COMM_TCP_H

#include <stdbool.h>
#include "lockstep/comm.h"

#define LS__STORE_VARIABLE      "LOCKSTEP_STORE"
#define LS__SECRET_VARIABLE     "LOCKSTEP_STORE_SECRET"
#define LS__GENERATION_VARIABLE "LOCKSTEP_GENERATION"

enum {
    LS__SECRET_BYTES = 33,      /* 32 digits and the end */
    LS__STORE_VALUE = 64 << 10, /* longest value */
    LS__STORE_KEY = 128,
};

typedef struct ls__tcp_store ls__tcp_store;

/* Connects to the store that the environment names; `get` as in comm/launcher.h. */
LS_MUST_CHECK ls_status ls__tcp_store_open(ls__tcp_store **out, const char *(*get)(void *user, const char *name),
                                           void *user, int timeout_ms);
void ls__tcp_store_free(ls__tcp_store **store);
ls_store ls__tcp_store_calls(ls__tcp_store *store);

/* A carrier for rank `rank` of `size`. Its `user` is freed by its close(); `store` is used by its open() only. */
LS_MUST_CHECK ls_status ls__tcp_carrier_make(ls_carrier *out, ls__tcp_store *store, int rank, int size, int timeout_ms);

/* Frees one that was not opened, because all ranks are on one node. */
void ls__tcp_carrier_drop(ls_carrier *carrier);

/* The address of our end of the store's connection, in text; and what ranks know each other by. */
const char *ls__tcp_store_address(const ls__tcp_store *store);
const char *ls__tcp_store_secret(const ls__tcp_store *store);
int ls__tcp_store_generation(const ls__tcp_store *store);

/* A point at which tests kill ranks: see ls__kept_point(). */
void ls__tcp_store_point(const ls__tcp_store *store);

/* After a failure of the network: the launcher finds it, too, and ends this process. Returns when it has not done so in time. */
void ls__tcp_await_end(int timeout_ms);

/* Connects to "ADDRESS:PORT" ("[ADDRESS]:PORT" for IPv6). Returns a descriptor, or -1 with errno. */
int ls__tcp_connect(const char *address, int timeout_ms);
/* Sends or receives all of it, within the socket's own limits of time. */
bool ls__tcp_send_all(int fd, const void *data, size_t bytes);
bool ls__tcp_recv_all(int fd, void *data, size_t bytes);
/* A timeout of reads and writes; 0: none. No delay of small messages. */
void ls__tcp_prepare(int fd, int timeout_ms);

#endif
