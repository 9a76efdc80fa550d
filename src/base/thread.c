/* Thin wrappers over pthreads. See thread.h. */
#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/status.h"

/* One list per process of threads that have ended. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ls__thread_ended ended[LS__MAX_ENDED];
static int n_ended;

typedef struct start {
    void *(*run)(void *);
    void *arg;
    char name[LS__THREAD_NAME];
} start;

/* /proc does not show the CPU time of threads that have ended. */
static void note_end(const char *name)
{
    struct timespec used;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used)) return;
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < n_ended && strcmp(ended[i].name, name) != 0) i++;
    if (i < LS__MAX_ENDED) {
        if (i == n_ended) memcpy(ended[n_ended++].name, name, LS__THREAD_NAME);
        ended[i].cpu += (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
    }
    pthread_mutex_unlock(&lock);
}

int ls__threads_ended(ls__thread_ended *out, int max)
{
    pthread_mutex_lock(&lock);
    int n = n_ended < max ? n_ended : max;
    memcpy(out, ended, (size_t)n * sizeof *out);
    pthread_mutex_unlock(&lock);
    return n;
}

static void *begin(void *arg)
{
    start s = *(start *)arg;
    free(arg);
    pthread_setname_np(pthread_self(), s.name);
    void *result = s.run(s.arg);
    note_end(s.name);
    return result;
}

ls_status ls__thread_start(pthread_t *out, const char *name, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    start *s = calloc(1, sizeof *s);
    if (!s) return ls__fail(LS_ENOMEM, "starting thread '%s': out of memory", name);
    *s = (start){ .run = run, .arg = arg };
    snprintf(s->name, sizeof s->name, "%s", name);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int error = pthread_create(out, NULL, begin, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error) return LS_OK;
    free(s);
    errno = error;
    return ls__fail_errno("starting thread '%s'", name);
}

int ls__cpu_count(void)
{
    /* A cpu_set_t holds 1,024 cores; on larger machines sched_getaffinity fails, and the online count is used. */
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}
