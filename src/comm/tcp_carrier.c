/* A carrier on TCP: every rank has a connection to every other. See tcp.h.
 *
 * A message is its length (8 bytes) and its data. send() writes what the socket takes at once; a thread writes the rest and reads
 * what comes. It sleeps in poll() and costs nothing while nothing comes.
 *
 * A connection that ends is closed and not reported: see tcp.h.
 *
 * Locks: `lock` guards the queues of messages to send. The thread alone reads. The network is never called with the lock held. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/status.h"
#include "base/thread.h"
#include "comm/tcp.h"

enum {
    MAX_MESSAGE = 1 << 30, /* a length above it is not one of ours */
    STRANGERS = 16,        /* connections beyond those of the ranks that may wait to say who they are */
};

typedef struct outgoing {
    struct outgoing *next;
    const unsigned char *data;
    uint64_t bytes; /* as it is sent: in front of the data */
    size_t sent;    /* of both */
    void *message;  /* the network's */
} outgoing;

typedef struct peer {
    int fd; /* -1: none, or closed */
    outgoing *first, **last;
    uint64_t bytes; /* of the message that is being read */
    size_t got;     /* of its length and data */
    unsigned char *data;
    size_t room;
} peer;

typedef struct carrier {
    ls__tcp_store *store;
    int rank, size, timeout_ms;
    ls_network *network;
    pthread_t thread;
    int wake; /* an eventfd: there is more to write, or the end has come */
    pthread_mutex_t lock;
    pthread_cond_t written;
    bool ending;
    struct pollfd *polls;
    peer peers[];
} carrier;

/* What a connection between ranks begins with. The generation: a port may be one that a rank of an earlier generation had. */
typedef struct hello {
    char secret[LS__SECRET_BYTES];
    int32_t generation, rank;
} hello;

/* A connection that has not sent all of it yet. */
typedef struct caller {
    int fd;
    size_t got;
    hello hello;
} caller;

/* ---- Writing. */

/* Lock held. Writes as much as the socket takes; messages that are done are moved to *done. */
static void write_some(peer *p, outgoing **done)
{
    while (p->first && p->fd >= 0) {
        outgoing *o = p->first;
        size_t head = o->sent < sizeof o->bytes ? sizeof o->bytes - o->sent : 0,
               at = o->sent > sizeof o->bytes ? o->sent - sizeof o->bytes : 0;
        struct iovec parts[2] = { { (unsigned char *)&o->bytes + (sizeof o->bytes - head), head },
                                  { (void *)(uintptr_t)(o->data + at), o->bytes - at } };
        struct msghdr m = { .msg_iov = parts, .msg_iovlen = 2 };
        ssize_t n = sendmsg(p->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return; /* full; or lost, which reading finds out */
        o->sent += (size_t)n;
        if (o->sent < sizeof o->bytes + o->bytes) continue;
        p->first = o->next;
        if (!p->first) p->last = &p->first;
        o->next = *done;
        *done = o;
    }
}

static void report_sent(carrier *c, outgoing *done)
{
    for (outgoing *next; done; done = next) {
        next = done->next;
        ls_network_sent(c->network, done->message);
        free(done);
    }
}

static void wake(const carrier *c)
{
    uint64_t one = 1;
    ssize_t ignored = write(c->wake, &one, sizeof one);
    (void)ignored;
}

static ls_status carrier_send(void *user, int to, const void *data, size_t bytes, void *message)
{
    carrier *c = user;
    outgoing *o = malloc(sizeof *o), *done = NULL;
    if (!o) return ls__fail(LS_ENOMEM, "network: out of memory");
    *o = (outgoing){ .data = data, .bytes = bytes, .message = message };
    peer *p = &c->peers[to];
    pthread_mutex_lock(&c->lock);
    bool was_empty = !p->first;
    *p->last = o;
    p->last = &o->next;
    if (was_empty) write_some(p, &done);
    bool more = p->first != NULL;
    pthread_mutex_unlock(&c->lock);
    report_sent(c, done);
    if (more && was_empty) wake(c);
    return LS_OK;
}

/* ---- Reading. */

static void close_peer(carrier *c, peer *p)
{
    pthread_mutex_lock(&c->lock);
    close(p->fd);
    p->fd = -1;
    pthread_cond_broadcast(&c->written);
    pthread_mutex_unlock(&c->lock);
}

static bool make_room(peer *p)
{
    if (p->bytes > MAX_MESSAGE) return false;
    if (p->bytes <= p->room) return true;
    unsigned char *more = realloc(p->data, p->bytes);
    if (!more) return false;
    p->data = more;
    p->room = p->bytes;
    return true;
}

/* Reads what is there. */
static void read_some(carrier *c, int from)
{
    peer *p = &c->peers[from];
    for (;;) {
        size_t head = sizeof p->bytes;
        bool in_head = p->got < head;
        void *to = in_head ? (unsigned char *)&p->bytes + p->got : p->data + (p->got - head);
        size_t want = in_head ? head - p->got : p->bytes - (p->got - head);
        ssize_t n = want ? recv(p->fd, to, want, MSG_DONTWAIT) : 0;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (want && n <= 0) {
            close_peer(c, p);
            return;
        }
        p->got += (size_t)n;
        if (p->got == head && in_head && !make_room(p)) {
            ls_network_failed(c->network, from, "it sent what is not a message of lockstep");
            close_peer(c, p);
            return;
        }
        if (p->got < head || p->got - head < p->bytes) continue;
        ls_network_received(c->network, from, p->data, p->bytes);
        p->got = 0;
    }
}

static void *carry(void *user)
{
    carrier *c = user;
    for (;;) {
        pthread_mutex_lock(&c->lock);
        bool ending = c->ending;
        for (int i = 0; i < c->size; i++)
            c->polls[i] =
                (struct pollfd){ .fd = c->peers[i].fd, .events = (short)(POLLIN | (c->peers[i].first ? POLLOUT : 0)) };
        pthread_mutex_unlock(&c->lock);
        if (ending) return NULL;
        c->polls[c->size] = (struct pollfd){ .fd = c->wake, .events = POLLIN };
        if (poll(c->polls, (nfds_t)c->size + 1, -1) <= 0) continue;
        uint64_t count;
        if (c->polls[c->size].revents) {
            ssize_t ignored = read(c->wake, &count, sizeof count);
            (void)ignored;
        }
        for (int i = 0; i < c->size; i++) {
            outgoing *done = NULL;
            if (c->polls[i].revents & POLLOUT) {
                pthread_mutex_lock(&c->lock);
                write_some(&c->peers[i], &done);
                if (!c->peers[i].first) pthread_cond_broadcast(&c->written);
                pthread_mutex_unlock(&c->lock);
                report_sent(c, done);
            }
            if (c->polls[i].revents & (POLLIN | POLLERR | POLLHUP) && c->peers[i].fd >= 0) read_some(c, i);
        }
    }
}

/* ---- Connecting. */

static ls_status listen_here(const carrier *c, int *out, char *text, size_t bytes)
{
    const char *address = ls__tcp_store_address(c->store);
    bool six = strchr(address, ':') != NULL;
    struct sockaddr_in own = { .sin_family = AF_INET };
    struct sockaddr_in6 own6 = { .sin6_family = AF_INET6 };
    inet_pton(six ? AF_INET6 : AF_INET, address, six ? (void *)&own6.sin6_addr : (void *)&own.sin_addr);
    struct sockaddr *at = six ? (struct sockaddr *)&own6 : (struct sockaddr *)&own;
    socklen_t size = six ? sizeof own6 : sizeof own;
    int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, at, size) || listen(fd, c->size) || getsockname(fd, at, &size)) {
        ls_status status = ls__fail_errno("rank %d: cannot listen at %s", c->rank, address);
        if (fd >= 0) close(fd);
        return status;
    }
    memset(text, 0, bytes);
    snprintf(text, bytes, six ? "[%s]:%d" : "%s:%d", address, ntohs(six ? own6.sin6_port : own.sin_port));
    *out = fd;
    return LS_OK;
}

static ls_status connect_peer(carrier *c, int to)
{
    char key[32], address[64];
    hello mine = { .generation = ls__tcp_store_generation(c->store), .rank = c->rank };
    ls_store store = ls__tcp_store_calls(c->store);
    snprintf(key, sizeof key, "tcp/%d", to);
    ls_status status = store.get(store.user, key, address, sizeof address, c->timeout_ms);
    if (status) return status;
    address[sizeof address - 1] = 0;
    memcpy(mine.secret, ls__tcp_store_secret(c->store), sizeof mine.secret);
    int fd = ls__tcp_connect(address, c->timeout_ms);
    ls__tcp_store_point(c->store);
    if (fd < 0 || !ls__tcp_send_all(fd, &mine, sizeof mine)) {
        ls__tcp_await_end(c->timeout_ms);
        status = ls__fail_errno("rank %d: cannot connect to rank %d at %s", c->rank, to, address);
        if (fd >= 0) close(fd);
        return status;
    }
    c->peers[to].fd = fd;
    return LS_OK;
}

/* Reads what a caller has sent. True: nothing more is expected from it as such; a rank that belongs here has become a peer. */
static bool hear_caller(carrier *c, caller *from, int *missing)
{
    hello *h = &from->hello;
    ssize_t n = recv(from->fd, (char *)h + from->got, sizeof *h - from->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
    if (n > 0) from->got += (size_t)n;
    if (n > 0 && from->got < sizeof *h) return false;
    if (n > 0 && !memcmp(h->secret, ls__tcp_store_secret(c->store), sizeof h->secret) &&
        h->generation == ls__tcp_store_generation(c->store) && h->rank > c->rank && h->rank < c->size &&
        c->peers[h->rank].fd < 0) {
        c->peers[h->rank].fd = from->fd;
        (*missing)--;
    } else {
        close(from->fd);
    }
    return true;
}

static void remove_caller(caller *callers, int *n, int at)
{
    memmove(callers + at, callers + at + 1, (size_t)(--*n - at) * sizeof *callers);
}

/* Takes the next connection; if too many have said nothing, the oldest goes. */
static void take_caller(caller *callers, int *n, int most, int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return;
    if (*n == most) {
        close(callers[0].fd);
        remove_caller(callers, n, 0);
    }
    callers[(*n)++] = (caller){ .fd = fd };
}

/* Ranks above this one connect to it. Whoever else does is ignored, and cannot keep them waiting. */
static ls_status accept_peers(carrier *c, int listener)
{
    int missing = c->size - 1 - c->rank, n = 0, most = missing + STRANGERS;
    int64_t end = c->timeout_ms < 0 ? INT64_MAX : ls_now() + (int64_t)c->timeout_ms * 1000000;
    caller *callers = malloc((size_t)most * sizeof *callers);
    struct pollfd *polls = malloc(((size_t)most + 1) * sizeof *polls);
    ls_status status = callers && polls ? LS_OK : ls__fail(LS_ENOMEM, "network: out of memory");
    while (missing && !status) {
        int64_t left = end - ls_now();
        for (int i = 0; i < n; i++) polls[i] = (struct pollfd){ .fd = callers[i].fd, .events = POLLIN };
        polls[n] = (struct pollfd){ .fd = listener, .events = POLLIN };
        if (left <= 0)
            status = ls__fail(LS_ETIMEOUT, "rank %d: %d of the %d ranks have not connected to it within %.1f s",
                              c->rank, missing, c->size, c->timeout_ms / 1e3);
        else if (poll(polls, (nfds_t)n + 1, left < 1000000000 ? (int)(left / 1000000) + 1 : 1000) > 0) {
            bool more = polls[n].revents != 0;
            for (int i = n - 1; i >= 0; i--)
                if (polls[i].revents && hear_caller(c, &callers[i], &missing)) remove_caller(callers, &n, i);
            if (more) take_caller(callers, &n, most, listener);
        }
    }
    for (int i = 0; i < n && callers; i++) close(callers[i].fd);
    free(callers);
    free(polls);
    return status;
}

static void free_carrier(carrier *c)
{
    for (int i = 0; i < c->size; i++) {
        if (c->peers[i].fd >= 0) close(c->peers[i].fd);
        free(c->peers[i].data);
        for (outgoing *o = c->peers[i].first, *next; o; o = next) {
            next = o->next;
            free(o);
        }
    }
    if (c->wake >= 0) close(c->wake);
    pthread_cond_destroy(&c->written);
    pthread_mutex_destroy(&c->lock);
    free(c->polls);
    free(c);
}

static ls_status carrier_open(void *user, ls_network *network)
{
    carrier *c = user;
    int listener = -1;
    char address[64], key[32];
    c->network = network;
    ls_store store = ls__tcp_store_calls(c->store);
    ls_status status = listen_here(c, &listener, address, sizeof address);
    snprintf(key, sizeof key, "tcp/%d", c->rank);
    if (!status) status = store.set(store.user, key, address, sizeof address);
    for (int i = 0; i < c->rank && !status; i++) status = connect_peer(c, i);
    ls__tcp_store_point(c->store);
    if (!status) status = accept_peers(c, listener);
    ls__tcp_store_point(c->store);
    if (listener >= 0) close(listener);
    for (int i = 0; i < c->size && !status; i++)
        if (i != c->rank) ls__tcp_prepare(c->peers[i].fd, 0);
    if (!status) status = ls__thread_start(&c->thread, "ls-tcp", carry, c);
    if (status) free_carrier(c); /* its close() is not called */
    return status;
}

static void carrier_close(void *user, bool healthy)
{
    carrier *c = user;
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->size && healthy; i++)
        while (c->peers[i].first && c->peers[i].fd >= 0) pthread_cond_wait(&c->written, &c->lock);
    c->ending = true;
    pthread_mutex_unlock(&c->lock);
    wake(c);
    pthread_join(c->thread, NULL);
    free_carrier(c);
}

ls_status ls__tcp_carrier_make(ls_carrier *out, ls__tcp_store *store, int rank, int size, int timeout_ms)
{
    carrier *c = calloc(1, sizeof *c + (size_t)size * sizeof(peer));
    if (!c) return ls__fail(LS_ENOMEM, "network: out of memory");
    *c = (carrier){ .store = store, .rank = rank, .size = size, .timeout_ms = timeout_ms };
    for (int i = 0; i < size; i++) c->peers[i] = (peer){ .fd = -1, .last = &c->peers[i].first };
    c->polls = calloc((size_t)size + 1, sizeof *c->polls);
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->written, NULL);
    if (!c->polls || c->wake < 0) {
        free_carrier(c);
        return ls__fail(LS_ENOMEM, "network: out of memory");
    }
    *out = (ls_carrier){ .name = "tcp", .user = c, .open = carrier_open, .send = carrier_send, .close = carrier_close };
    return LS_OK;
}

void ls__tcp_carrier_drop(ls_carrier *unused)
{
    free_carrier(unused->user);
    *unused = (ls_carrier){ 0 };
}
