/* A network made of the caller's byte mover: see ls_carrier in lockstep/comm.h.
 *
 * The carrier moves whole messages between two ranks, in order. Tags, receives that were not posted yet, receives from any rank and sends
 * that complete with their receive are made here, with a header in front of each message. What is sent is copied: after a failure the
 * carrier may hold on to it for as long as it likes.
 *
 * Locks: `lock` guards the lists. The carrier is never called with it held, since it may report from another thread at once. */
#include "comm/carrier.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "comm/failure.h"

typedef enum message_kind { DATA = 1, DATA_MATCHED, MATCHED } message_kind;

/* In front of every message. */
typedef struct header {
    int32_t kind, tag;
    uint64_t id; /* DATA_MATCHED: the sender's; MATCHED: of the message that was received */
} header;

/* A send or receive under way. */
typedef struct operation {
    struct operation *next; /* posted receives, or sends that await their receive */
    bool done;
    void *data; /* receive: where to */
    size_t room;
    int from, tag;
    size_t bytes; /* of a receive that is done */
    uint64_t id;  /* of a matched send */
} operation;

/* A message on its way out, or one that nobody has received yet. */
typedef struct message {
    struct message *next;
    operation *operation; /* out: of the send, which is done with it; NULL: none */
    int from;
    size_t bytes; /* without the header */
    header header;
    unsigned char data[];
} message;

struct ls_network {
    ls_carrier carrier;
    int rank, size;
    pthread_mutex_t lock;
    operation *receives, *unmatched; /* in the order of posting */
    message *early, *sending;
    uint64_t next_id;
    ls_status failed;
    char why[LS__FAILURE_BYTES];
};

/* ---- Lists. */

static void append_operation(operation **list, operation *o)
{
    while (*list) list = &(*list)->next;
    *list = o;
}

static void remove_operation(operation **list, const operation *o)
{
    while (*list && *list != o) list = &(*list)->next;
    if (*list) *list = o->next;
}

static void append_message(message **list, message *m)
{
    m->next = NULL;
    while (*list) list = &(*list)->next;
    *list = m;
}

static void remove_message(message **list, const message *m)
{
    while (*list && *list != m) list = &(*list)->next;
    if (*list) *list = m->next;
}

static void free_messages(message *m)
{
    while (m) {
        message *next = m->next;
        free(m);
        m = next;
    }
}

/* ---- Failure. */

/* Lock held. */
static void set_failed(ls_network *n, ls_status status, const char *why)
{
    if (n->failed) return;
    n->failed = status;
    snprintf(n->why, sizeof n->why, "%s", why);
}

static ls_status report(const ls_network *n)
{
    return ls__fail(n->failed, "%s", n->why);
}

void ls_network_failed(ls_network *n, int rank, const char *why)
{
    char text[LS__FAILURE_BYTES];
    snprintf(text, sizeof text, "rank %d: the connection to rank %d is lost: %s", n->rank, rank, why ? why : "");
    pthread_mutex_lock(&n->lock);
    set_failed(n, LS_EPEER, text);
    pthread_mutex_unlock(&n->lock);
}

/* ---- Sending. */

static ls_status new_message(const void *data, size_t bytes, header head, message **out)
{
    message *m = malloc(sizeof *m + bytes);
    *out = m;
    if (!m) return ls__fail(LS_ENOMEM, "network: no memory for a message of %zu bytes", bytes);
    *m = (message){ .bytes = bytes, .header = head };
    if (bytes) memcpy(m->data, data, bytes);
    return LS_OK;
}

/* Passes a message to the carrier, to which it belongs until ls_network_sent(). Lock not held. */
static ls_status carry(ls_network *n, int to, message *m)
{
    pthread_mutex_lock(&n->lock);
    bool failed = n->failed;
    if (!failed) append_message(&n->sending, m);
    pthread_mutex_unlock(&n->lock);
    if (!failed && !n->carrier.send(n->carrier.user, to, &m->header, sizeof m->header + m->bytes, m)) return LS_OK;
    pthread_mutex_lock(&n->lock);
    remove_message(&n->sending, m);
    set_failed(n, LS_EPEER, *ls_error() ? ls_error() : "the carrier failed to send");
    pthread_mutex_unlock(&n->lock);
    free(m);
    return report(n);
}

void ls_network_sent(ls_network *n, void *sent)
{
    message *m = sent;
    pthread_mutex_lock(&n->lock);
    remove_message(&n->sending, m);
    if (m->operation && m->header.kind == DATA) m->operation->done = true;
    pthread_mutex_unlock(&n->lock);
    free(m);
}

ls_status ls__network_send(ls_network *n, const void *data, size_t bytes, int to, int tag, bool matched,
                           ls__net_request *out)
{
    operation *o = calloc(1, sizeof *o);
    message *m = NULL;
    *out = (ls__net_request){ .active = false };
    if (!o) return ls__fail(LS_ENOMEM, "network: out of memory");
    header head = { .kind = matched ? DATA_MATCHED : DATA, .tag = tag };
    pthread_mutex_lock(&n->lock);
    o->id = head.id = ++n->next_id;
    if (matched) append_operation(&n->unmatched, o);
    pthread_mutex_unlock(&n->lock);
    ls_status status = new_message(data, bytes, head, &m);
    if (!status) {
        m->operation = o;
        status = carry(n, to, m);
    }
    if (status) {
        pthread_mutex_lock(&n->lock);
        remove_operation(&n->unmatched, o);
        pthread_mutex_unlock(&n->lock);
        free(o);
        return status;
    }
    *out = (ls__net_request){ .handle = (uintptr_t)o, .active = true, .from = to };
    return LS_OK;
}

/* ---- Receiving. */

static bool fits(const operation *o, int from, int tag)
{
    return o->tag == tag && (o->from == from || o->from == LS__NET_ANY);
}

/* A receive gets its data. Lock held. */
static void deliver(ls_network *n, operation *o, int from, const void *data, size_t bytes)
{
    if (bytes > o->room) {
        char text[128];
        snprintf(text, sizeof text, "rank %d: a message of %zu bytes from rank %d does not fit into %zu", n->rank,
                 bytes, from, o->room);
        set_failed(n, LS_EFORMAT, text);
        return;
    }
    if (bytes) memcpy(o->data, data, bytes);
    o->from = from;
    o->bytes = bytes;
    o->done = true;
}

/* Tells the sender that its message was received. Lock not held. A failure is found by the next call. */
static void acknowledge(ls_network *n, int to, uint64_t id)
{
    message *m;
    if (!new_message(NULL, 0, (header){ .kind = MATCHED, .id = id }, &m)) {
        ls_status ignored = carry(n, to, m);
        (void)ignored;
    }
}

static void match_send(ls_network *n, uint64_t id)
{
    operation *o = n->unmatched;
    while (o && o->id != id) o = o->next;
    if (!o) return;
    remove_operation(&n->unmatched, o);
    o->done = true;
}

void ls_network_received(ls_network *n, int from, const void *data, size_t bytes)
{
    header head;
    bool valid = from >= 0 && from < n->size && bytes >= sizeof head;
    if (valid) memcpy(&head, data, sizeof head);
    valid = valid && head.kind >= DATA && head.kind <= MATCHED;
    if (!valid) {
        ls_network_failed(n, from, "it sent what is not a message of lockstep");
        return;
    }
    const unsigned char *rest = (const unsigned char *)data + sizeof head;
    bool matched = false;
    pthread_mutex_lock(&n->lock);
    if (head.kind == MATCHED) {
        match_send(n, head.id);
    } else {
        operation *o = n->receives;
        while (o && !fits(o, from, head.tag)) o = o->next;
        message *m;
        if (o) {
            remove_operation(&n->receives, o);
            deliver(n, o, from, rest, bytes - sizeof head);
            matched = head.kind == DATA_MATCHED;
        } else if (!new_message(rest, bytes - sizeof head, head, &m)) {
            m->from = from;
            append_message(&n->early, m);
        } else {
            set_failed(n, LS_ENOMEM, ls_error());
        }
    }
    pthread_mutex_unlock(&n->lock);
    if (matched) acknowledge(n, from, head.id);
}

ls_status ls__network_recv(ls_network *n, void *data, size_t bytes, int from, int tag, ls__net_request *out)
{
    operation *o = malloc(sizeof *o);
    *out = (ls__net_request){ .active = false };
    if (!o) return ls__fail(LS_ENOMEM, "network: out of memory");
    *o = (operation){ .data = data, .room = bytes, .from = from, .tag = tag };
    pthread_mutex_lock(&n->lock);
    message *m = n->early;
    while (m && !fits(o, m->from, m->header.tag)) m = m->next;
    if (m) {
        remove_message(&n->early, m);
        deliver(n, o, m->from, m->data, m->bytes);
    } else {
        append_operation(&n->receives, o);
    }
    pthread_mutex_unlock(&n->lock);
    if (m && m->header.kind == DATA_MATCHED) acknowledge(n, m->from, m->header.id);
    free(m);
    *out = (ls__net_request){ .handle = (uintptr_t)o, .active = true };
    return LS_OK;
}

ls_status ls__network_test(ls_network *n, ls__net_request *const *requests, int count)
{
    ls_status status = LS_OK;
    pthread_mutex_lock(&n->lock);
    for (int i = 0; i < count; i++) {
        operation *o = (operation *)(uintptr_t)requests[i]->handle;
        if (!requests[i]->active || !o->done) continue;
        requests[i]->active = false;
        requests[i]->from = o->from;
        requests[i]->bytes = o->bytes;
        free(o);
    }
    if (n->failed) status = report(n);
    pthread_mutex_unlock(&n->lock);
    return status;
}

void ls__network_cancel(ls_network *n, ls__net_request *request)
{
    operation *o = (operation *)(uintptr_t)request->handle;
    if (!request->active) return;
    request->active = false;
    pthread_mutex_lock(&n->lock);
    remove_operation(&n->receives, o);
    remove_operation(&n->unmatched, o);
    for (message *m = n->sending; m; m = m->next)
        if (m->operation == o) m->operation = NULL;
    pthread_mutex_unlock(&n->lock);
    free(o);
}

/* ---- Opening and closing. */

ls_status ls__network_open(ls_network **out, const ls_carrier *carrier, int rank, int size)
{
    ls_network *n = calloc(1, sizeof *n);
    *out = NULL;
    if (!n) return ls__fail(LS_ENOMEM, "network: out of memory");
    *n = (ls_network){ .carrier = *carrier, .rank = rank, .size = size };
    pthread_mutex_init(&n->lock, NULL);
    ls_status status = carrier->open(carrier->user, n);
    if (status) {
        if (!*ls_error()) status = ls__fail(status, "rank %d: the carrier could not be opened", rank);
        pthread_mutex_destroy(&n->lock);
        free(n);
        return status;
    }
    *out = n;
    return LS_OK;
}

void ls__network_close(ls_network **pn, bool healthy)
{
    ls_network *n = *pn;
    if (!n) return;
    n->carrier.close(n->carrier.user, healthy);
    *pn = NULL;
    if (!healthy) { /* the carrier may still read messages, and bring some */
        pthread_mutex_lock(&n->lock);
        n->receives = n->unmatched = NULL;
        pthread_mutex_unlock(&n->lock);
        return;
    }
    free_messages(n->early);
    free_messages(n->sending);
    pthread_mutex_destroy(&n->lock);
    free(n);
}
