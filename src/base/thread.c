/* Thin wrappers over pthreads. See thread.h. */
#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include "base/status.h"

ls_status ls__thread_start(pthread_t *out, const char *name, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int error = pthread_create(out, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        errno = error;
        return ls__fail_errno("starting thread '%s'", name);
    }
    char shown[16];
    snprintf(shown, sizeof shown, "%s", name);
    pthread_setname_np(*out, shown);
    return LS_OK;
}

int ls__cpu_count(void)
{
    /* A cpu_set_t holds 1,024 cores; larger machines make sched_getaffinity fail, and then the online count is it. */
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}
