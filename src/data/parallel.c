/* Chunks are read, and their results put, in order; only the work in between runs in parallel. Each thread loops: take the next
 * chunk (under the reading lock), work on it, wait for its turn, put the result. A waiting thread holds one result, so memory is
 * bounded by the number of threads. Since every thread puts its result before it takes another chunk, failures are in order too:
 * the first in the order of the data is reported. */
#include "data/parallel.h"

#include <pthread.h>
#include <stdlib.h>
#include <stdio.h>
#include "base/status.h"
#include "base/thread.h"

typedef struct shared {
    ls__chunk_job *p;
    pthread_mutex_t lock; /* what follows */
    pthread_cond_t turn;
    uint64_t taken; /* chunks given out */
    uint64_t put;   /* chunks whose turn is over */
    bool reading;   /* a thread reads; the others wait */
    bool ended;     /* all chunks were taken */
    ls_status status;
    char message[1024];
} shared;

/* Ends the run with this thread's message, unless it has ended. The lock is held when called. */
static void fail(shared *s, ls_status status)
{
    if (s->status) return;
    s->status = status;
    s->ended = true;
    snprintf(s->message, sizeof s->message, "%s", ls_error());
    pthread_cond_broadcast(&s->turn);
}

/* The next chunk and its number; false when there is none. A chunk that cannot be read is one too, with its status.
 * Reading happens outside the lock, by one thread at a time. */
static bool take(shared *s, ls__chunk *chunk, uint64_t *number, ls_status *status)
{
    pthread_mutex_lock(&s->lock);
    while (s->reading && !s->ended) pthread_cond_wait(&s->turn, &s->lock);
    bool go = !s->ended;
    if (go) {
        s->reading = true;
        pthread_mutex_unlock(&s->lock);
        *status = ls__chunks_next(&s->p->chunks, chunk);
        pthread_mutex_lock(&s->lock);
        s->reading = false;
        if (*status) s->ended = true;
        go = *status != LS_END;
        *number = s->taken;
        s->taken += go;
        pthread_cond_broadcast(&s->turn);
    }
    pthread_mutex_unlock(&s->lock);
    return go;
}

/* Waits for its turn, then puts. */
static void put(shared *s, const ls__chunk *chunk, uint64_t number, ls_status status, void *result)
{
    ls__chunk_job *p = s->p;
    pthread_mutex_lock(&s->lock);
    while (s->put < number && !s->status) pthread_cond_wait(&s->turn, &s->lock);
    bool go = !s->status;
    pthread_mutex_unlock(&s->lock);
    if (go && !status && p->put) {
        status = p->put(p->user, chunk, result);
        result = NULL;
    } else if (result && p->discard) {
        p->discard(result);
    }
    pthread_mutex_lock(&s->lock);
    if (go && status) fail(s, status);
    s->put++;
    pthread_cond_broadcast(&s->turn);
    pthread_mutex_unlock(&s->lock);
}

static void *run(void *arg)
{
    shared *s = arg;
    ls__chunk_job *p = s->p;
    void *state = NULL;
    ls_status status = p->open ? p->open(p->user, &state) : LS_OK;
    if (status) {
        pthread_mutex_lock(&s->lock);
        fail(s, status);
        pthread_mutex_unlock(&s->lock);
        return NULL;
    }
    ls__chunk chunk = { 0 };
    for (uint64_t number; take(s, &chunk, &number, &status);) {
        void *result = NULL;
        if (!status) status = p->work(p->user, state, &chunk, &result);
        put(s, &chunk, number, status, result);
    }
    free(chunk.bytes);
    if (p->free) p->free(p->user, state);
    return NULL;
}

ls_status ls__chunk_job_run(ls__chunk_job *p)
{
    enum { MAX_THREADS = 256 };
    int threads = p->threads > 0 ? p->threads : ls__cpu_count(), started = 0;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    pthread_t ids[MAX_THREADS];
    shared s = { .p = p };
    pthread_mutex_init(&s.lock, NULL);
    pthread_cond_init(&s.turn, NULL);
    /* This thread is one of them, so that there is always one. */
    while (started < threads - 1 && !ls__thread_start(&ids[started], "ls-text", run, &s)) started++;
    run(&s);
    for (int i = 0; i < started; i++) pthread_join(ids[i], NULL);
    ls__chunks_close(&p->chunks);
    pthread_cond_destroy(&s.turn);
    pthread_mutex_destroy(&s.lock);
    return s.status ? ls__fail(s.status, "%s", s.message) : LS_OK;
}
