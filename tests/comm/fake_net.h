/* A network among threads, with the manners of MPI: what has come is seen only by asking, at times only the second
 * time; messages between two ranks with one tag keep their order, others need not. */
#ifndef LS_TESTS_COMM_FAKE_NET_H
#define LS_TESTS_COMM_FAKE_NET_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/net.h"

enum { FAKE_RANKS = 64, FAKE_TRUNCATED = 15 };

typedef struct fake_message {
    struct fake_message *next;
    int from, to, tag;
    struct fake_request *matched; /* a send that is done when the message is received */
    size_t bytes;
    uint8_t data[];
} fake_message;

/* A request under way: a send that is not noticed yet, a published receive, or a part of an all-gather. */
typedef struct fake_request {
    struct fake_request *next;
    int from, to, tag;
    size_t bytes;
    void *data;
    bool done, truncated;
    bool known; /* the other side knows that it is done: the next test sees it, too */
} fake_request;

typedef struct fake_gather {
    struct fake_gather *next;
    int arrived, left;
    const void *mine[FAKE_RANKS];
    void *all[FAKE_RANKS];
    fake_request *requests[FAKE_RANKS];
} fake_gather;

static struct {
    pthread_mutex_t lock;
    int size;
    fake_message *messages; /* in the order in which they were sent */
    fake_request *receives; /* in the order in which they were published */
    fake_gather *gathers;   /* begun by some */
    int gathered[FAKE_RANKS];
    int cut; /* this rank's messages get lost; -1: nobody's */
} fake = { .lock = PTHREAD_MUTEX_INITIALIZER, .cut = -1 };
static _Thread_local int fake_rank;
static _Thread_local unsigned fake_seed;

static unsigned fake_random(void)
{
    fake_seed = fake_seed * 1664525u + 1013904223u;
    return fake_seed >> 16;
}

static fake_request *fake_begin(ls__net_request *out, int from, int to, int tag, void *data, size_t bytes)
{
    fake_request *r = calloc(1, sizeof *r);
    *r = (fake_request){ .from = from, .to = to, .tag = tag, .data = data, .bytes = bytes };
    *out = (ls__net_request){ .handle = (uint64_t)(uintptr_t)r, .active = true };
    return r;
}

/* Joins sent messages and published receives, oldest first. Lock held. */
static void fake_match(void)
{
    for (fake_request **link = &fake.receives; *link;) {
        fake_request *r = *link;
        fake_message **at = &fake.messages;
        while (*at &&
               ((*at)->to != r->to || (*at)->tag != r->tag || (r->from != LS__NET_ANY && (*at)->from != r->from)))
            at = &(*at)->next;
        fake_message *m = *at;
        if (!m) {
            link = &r->next;
            continue;
        }
        /* As with MPI, it is for the receiver to see. A rank that gives up a group cancels its receives one by one, so that a message
         * may match the receive of another one. */
        r->truncated = m->bytes > r->bytes;
        if (!r->truncated) r->bytes = m->bytes;
        memcpy(r->data, m->data, r->bytes);
        r->from = m->from;
        r->done = true;
        if (m->matched) m->matched->done = r->known = true;
        *link = r->next;
        *at = m->next;
        free(m);
    }
}

static int fake_send(const void *data, size_t bytes, int to, int tag, int matched, ls__net_request *out)
{
    pthread_mutex_lock(&fake.lock);
    fake_request *request = fake_begin(out, fake_rank, to, tag, NULL, bytes);
    request->done = !matched;
    if (fake.cut != fake_rank && fake.cut != to) {
        fake_message **at = &fake.messages, *m = malloc(sizeof *m + bytes);
        *m = (fake_message){ .from = fake_rank, .to = to, .tag = tag, .bytes = bytes };
        m->matched = matched ? request : NULL;
        memcpy(m->data, data, bytes);
        while (*at) at = &(*at)->next;
        *at = m;
        fake_match();
    }
    pthread_mutex_unlock(&fake.lock);
    return 0;
}

static int fake_recv(void *data, size_t bytes, int from, int tag, ls__net_request *out)
{
    pthread_mutex_lock(&fake.lock);
    fake_request **at = &fake.receives;
    while (*at) at = &(*at)->next;
    *at = fake_begin(out, from, fake_rank, tag, data, bytes);
    fake_match();
    pthread_mutex_unlock(&fake.lock);
    return 0;
}

static int fake_allgather(const void *mine, void *all, size_t bytes, ls__net_request *out)
{
    pthread_mutex_lock(&fake.lock);
    fake_gather **at = &fake.gathers;
    for (int skip = fake.gathered[fake_rank]++; skip && *at; skip--) at = &(*at)->next;
    if (!*at) *at = calloc(1, sizeof **at);
    fake_gather *g = *at;
    g->mine[fake_rank] = mine;
    g->all[fake_rank] = all;
    g->requests[fake_rank] = fake_begin(out, fake_rank, fake_rank, -1, all, bytes);
    if (++g->arrived == fake.size) {
        for (int r = 0; r < fake.size; r++)
            for (int k = 0; k < fake.size; k++) memcpy((char *)g->all[r] + (size_t)k * bytes, g->mine[k], bytes);
        for (int r = 0; r < fake.size; r++) g->requests[r]->done = true;
    }
    pthread_mutex_unlock(&fake.lock);
    return 0;
}

static int fake_test(ls__net_request *const *requests, int count)
{
    int code = 0;
    pthread_mutex_lock(&fake.lock);
    for (int i = 0; i < count; i++) {
        fake_request *r = (fake_request *)(uintptr_t)requests[i]->handle;
        if (!requests[i]->active || !r->done || (!r->known && fake_random() % 3 == 0)) continue;
        requests[i]->active = false;
        requests[i]->from = r->from;
        requests[i]->bytes = r->bytes;
        if (r->truncated) code = FAKE_TRUNCATED;
        free(r);
    }
    pthread_mutex_unlock(&fake.lock);
    return code;
}

static void fake_cancel(ls__net_request *request)
{
    pthread_mutex_lock(&fake.lock);
    fake_request *r = (fake_request *)(uintptr_t)request->handle;
    for (fake_request **link = &fake.receives; *link; link = &(*link)->next)
        if (*link == r) {
            *link = r->next;
            break;
        }
    free(r);
    request->active = false;
    pthread_mutex_unlock(&fake.lock);
}

static void fake_library(char *out, size_t bytes)
{
    snprintf(out, bytes, "a network among threads");
}
static int fake_open(int *rank, int *size)
{
    *rank = fake_rank;
    *size = fake.size;
    return 0;
}
static void fake_close(int healthy, const bool *waiting)
{
    (void)healthy, (void)waiting;
}
static void fake_error_text(int code, char *out, size_t bytes)
{
    snprintf(out, bytes, "error %d", code);
}

static const ls__net_plugin fake_plugin = {
    .abi = LS__NET_ABI,
    .family = "fake",
    .built_for = "threads",
    .library = fake_library,
    .open = fake_open,
    .close = fake_close,
    .send = fake_send,
    .recv = fake_recv,
    .allgather = fake_allgather,
    .test = fake_test,
    .cancel = fake_cancel,
    .error_text = fake_error_text,
};

/* From now on nothing comes from this rank, or gets to it. */
static inline void fake_cut(int rank)
{
    pthread_mutex_lock(&fake.lock);
    fake.cut = rank;
    pthread_mutex_unlock(&fake.lock);
}

/* An empty network for `size` ranks. */
static void fake_reset(int size)
{
    for (fake_message *m; (m = fake.messages); free(m)) fake.messages = m->next;
    for (fake_request *r; (r = fake.receives); free(r)) fake.receives = r->next;
    for (fake_gather *g; (g = fake.gathers); free(g)) fake.gathers = g->next;
    memset(fake.gathered, 0, sizeof fake.gathered);
    fake.size = size;
    fake.cut = -1;
}

#endif
