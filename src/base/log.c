/* The log callback. A process has one; it may be changed while other threads log, so function and
 * argument are read and written under one lock. The callback runs without the lock. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include "base/text.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ls_log_fn log_fn; /* under lock */
static void *log_user;   /* under lock */

void ls_log_set(ls_log_fn fn, void *user)
{
    pthread_mutex_lock(&lock);
    log_fn = fn;
    log_user = user;
    pthread_mutex_unlock(&lock);
}

void ls__log(ls_log_level level, const char *format, ...)
{
    pthread_mutex_lock(&lock);
    ls_log_fn fn = log_fn;
    void *user = log_user;
    pthread_mutex_unlock(&lock);
    if (!fn) return;

    char raw[1032], text[1024]; /* may contain names from files, so it is made printable */
    va_list args;
    va_start(args, format);
    vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    ls__printable(text, sizeof text, raw);
    fn(user, level, text);
}
