/* The client of a job's store. See tcp.h. */
#include "comm/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/status.h"
#include "comm/kept.h"

struct ls__tcp_store {
    int fd, timeout_ms, generation;
    char address[INET6_ADDRSTRLEN];
    char secret[LS__SECRET_BYTES];
    ls__kept *kept; /* for tests, see ls__tcp_store_point(); NULL: the job has none */
    int rank;
};

/* ---- Sockets. */

void ls__tcp_prepare(int fd, int timeout_ms)
{
    int on = 1;
    struct timeval limit = { timeout_ms / 1000, timeout_ms % 1000 * 1000 };
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool ls__tcp_send_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

bool ls__tcp_recv_all(int fd, void *data, size_t bytes)
{
    char *at = data;
    while (bytes) {
        ssize_t n = recv(fd, at, bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            if (!n) errno = ECONNRESET;
            return false;
        }
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* Connects within the time, which connect() itself does not know. */
static int connect_to(const struct addrinfo *a, int timeout_ms)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
    socklen_t size = sizeof error;
    if (fd < 0) return -1;
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    if (connect(fd, a->ai_addr, a->ai_addrlen)) error = errno;
    if (error == EINPROGRESS && poll(&p, 1, timeout_ms) != 1) error = ETIMEDOUT;
    if (error == EINPROGRESS) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error) {
        close(fd);
        errno = error;
        return -1;
    }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
}

int ls__tcp_connect(const char *address, int timeout_ms)
{
    char host[256];
    const char *port = strrchr(address, ':');
    size_t n = port ? (size_t)(port - address) : 0;
    if (!n || n >= sizeof host) {
        errno = EINVAL;
        return -1;
    }
    if (*address == '[' && address[n - 1] == ']') address++, n -= 2;
    memcpy(host, address, n);
    host[n] = 0;
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
    if (getaddrinfo(host, port + 1, &hints, &found)) {
        errno = EHOSTUNREACH;
        return -1;
    }
    int fd = -1;
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next) fd = connect_to(a, timeout_ms);
    int error = errno;
    freeaddrinfo(found);
    errno = error;
    return fd;
}

/* ---- The store. */

void ls__tcp_await_end(int timeout_ms)
{
    int error = errno;
    nanosleep(&(struct timespec){ timeout_ms / 1000, timeout_ms % 1000 * 1000000L }, NULL);
    errno = error;
}

static ls_status lost(const ls__tcp_store *s, const char *what)
{
    ls__tcp_await_end(s->timeout_ms);
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return ls__fail(LS_ETIMEOUT, "store: no answer from the launcher in time (%s)", what);
    return ls__fail(LS_EPEER, "store: the connection to the launcher is lost (%s): %s", what, strerror(errno));
}

static ls_status set(void *user, const char *key, const void *value, size_t bytes)
{
    const ls__tcp_store *s = user;
    char line[LS__STORE_KEY + 32];
    if (bytes > LS__STORE_VALUE || strlen(key) >= LS__STORE_KEY)
        return ls__fail(LS_EINVAL, "store: '%s': a value of %zu bytes is too long", key, bytes);
    ls__tcp_store_point(s);
    int n = snprintf(line, sizeof line, "set %s %zu\n", key, bytes);
    if (!ls__tcp_send_all(s->fd, line, (size_t)n) || !ls__tcp_send_all(s->fd, value, bytes)) return lost(s, key);
    return LS_OK;
}

static ls_status get(void *user, const char *key, void *value, size_t bytes, int timeout_ms)
{
    const ls__tcp_store *s = user;
    char line[LS__STORE_KEY + 32] = "";
    if (strlen(key) >= LS__STORE_KEY) return ls__fail(LS_EINVAL, "store: the key '%s' is too long", key);
    int n = snprintf(line, sizeof line, "get %s\n", key);
    size_t at = 0, there = 0;
    ls__tcp_store_point(s);
    ls__tcp_prepare(s->fd, timeout_ms > 0 ? timeout_ms : 0);
    if (!ls__tcp_send_all(s->fd, line, (size_t)n)) return lost(s, key);
    do {
        if (at + 1 >= sizeof line || !ls__tcp_recv_all(s->fd, line + at, 1)) return lost(s, key);
    } while (line[at++] != '\n');
    line[at] = 0;
    if (sscanf(line, "value %zu", &there) != 1 || there != bytes)
        return ls__fail(LS_EMISMATCH, "store: '%s' has %zu bytes, and %zu are expected", key, there, bytes);
    return ls__tcp_recv_all(s->fd, value, bytes) ? LS_OK : lost(s, key);
}

ls_store ls__tcp_store_calls(ls__tcp_store *store)
{
    return (ls_store){ .user = store, .set = set, .get = get };
}

const char *ls__tcp_store_address(const ls__tcp_store *store)
{
    return store->address;
}

const char *ls__tcp_store_secret(const ls__tcp_store *store)
{
    return store->secret;
}

int ls__tcp_store_generation(const ls__tcp_store *store)
{
    return store->generation;
}

void ls__tcp_store_point(const ls__tcp_store *store)
{
    ls__kept_point(store->kept, LS__POINT_STORE, store->rank);
}

static void find_own_address(ls__tcp_store *s)
{
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    if (getsockname(s->fd, (struct sockaddr *)&own, &size)) return;
    if (own.ss_family == AF_INET)
        inet_ntop(AF_INET, &((struct sockaddr_in *)&own)->sin_addr, s->address, sizeof s->address);
    else if (own.ss_family == AF_INET6)
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&own)->sin6_addr, s->address, sizeof s->address);
}

ls_status ls__tcp_store_open(ls__tcp_store **out, const char *(*env)(void *user, const char *name), void *user,
                             int timeout_ms)
{
    *out = NULL;
    const char *address = env(user, LS__STORE_VARIABLE), *secret = env(user, LS__SECRET_VARIABLE);
    const char *generation = env(user, LS__GENERATION_VARIABLE);
    if (!address || !secret || strlen(secret) != LS__SECRET_BYTES - 1 || !generation)
        return ls__fail(LS_EINVAL, "environment: " LS__STORE_VARIABLE " is set, and " LS__SECRET_VARIABLE
                                   " and " LS__GENERATION_VARIABLE
                                   " are not as the launcher sets them; pass all of its variables on, or unset them");
    ls__tcp_store *s = calloc(1, sizeof *s);
    if (!s) return ls__fail(LS_ENOMEM, "store: out of memory");
    memcpy(s->secret, secret, sizeof s->secret);
    s->generation = atoi(generation);
    const char *kept = env(user, LS__KEPT_FD_VARIABLE), *rank = env(user, "RANK");
    s->rank = rank ? atoi(rank) : -1;
    ls_status attached = kept ? ls__kept_attach(atoi(kept), &s->kept) : LS_OK;
    (void)attached; /* who needs it finds out */
    ls__tcp_store_point(s);
    s->fd = ls__tcp_connect(address, timeout_ms);
    s->timeout_ms = timeout_ms > 0 ? timeout_ms : 0;
    if (s->fd < 0) {
        ls__tcp_await_end(s->timeout_ms);
        ls_status status = ls__fail_errno("store: cannot connect to the launcher at %s", address);
        ls__tcp_store_free(&s);
        return status;
    }
    ls__tcp_prepare(s->fd, timeout_ms);
    find_own_address(s);
    char line[160];
    ls__tcp_store_point(s);
    int n = snprintf(line, sizeof line, "lockstep-rank %s %s %d\n", ls_version(), secret, s->generation);
    if (!ls__tcp_send_all(s->fd, line, (size_t)n)) {
        ls_status status = lost(s, "hello");
        ls__tcp_store_free(&s);
        return status;
    }
    *out = s;
    return LS_OK;
}

void ls__tcp_store_free(ls__tcp_store **store)
{
    if (!*store) return;
    if ((*store)->fd >= 0) close((*store)->fd);
    ls__kept_detach(&(*store)->kept);
    free(*store);
    *store = NULL;
}
