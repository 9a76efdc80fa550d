/* See control.h. */
#include "cli/control.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "comm/tcp.h"
#include "lockstep/base.h"

enum { MOST = LS__STORE_VALUE + 4096, STEP = 4096 }; /* bytes that wait for a line's end, or for a value's */

void control_open(control *c, int fd)
{
    *c = (control){ .fd = fd, .heard = ls_now() };
    ls__tcp_prepare(fd, CONTROL_WRITE_MS);
}

void control_close(control *c)
{
    if (c->fd >= 0) close(c->fd);
    free(c->in);
    *c = (control){ .fd = -1 };
}

/* What the caller got is no longer needed. */
static void drop_taken(control *c)
{
    if (c->taken) memmove(c->in, c->in + c->taken, c->used - c->taken);
    c->used -= c->taken;
    c->taken = 0;
}

bool control_read(control *c)
{
    for (;;) {
        drop_taken(c);
        if (c->used + STEP > c->room) {
            char *more = c->room < MOST ? realloc(c->in, c->room + STEP) : NULL;
            if (!more) return c->used > 0; /* the caller takes what is there, or it will never be complete */
            c->in = more;
            c->room += STEP;
        }
        ssize_t n = recv(c->fd, c->in + c->used, c->room - c->used - 1, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
        if (!n) return false;
        c->used += (size_t)n;
        c->heard = ls_now();
        if (c->used + STEP > c->room && c->room >= MOST) return true;
    }
}

char *control_line(control *c)
{
    drop_taken(c);
    char *end = c->used ? memchr(c->in, '\n', c->used) : NULL;
    if (!end) return NULL;
    *end = 0;
    c->taken = (size_t)(end - c->in) + 1;
    return c->in;
}

char *control_bytes(control *c, size_t bytes)
{
    drop_taken(c);
    if (c->used < bytes || !c->in) return NULL;
    c->taken = bytes;
    return c->in;
}

bool control_say(control *c, const char *format, ...)
{
    char line[1024];
    va_list args;
    if (c->fd < 0) return false;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n < 0) return false;
    if ((size_t)n >= sizeof line) {
        n = sizeof line - 1;
        line[n - 1] = '\n';
    }
    return ls__tcp_send_all(c->fd, line, (size_t)n);
}

bool control_beat(control *c, int64_t now)
{
    if (now - c->said < (int64_t)CONTROL_BEAT_MS * 1000000) return true;
    c->said = now;
    return control_say(c, "beat\n");
}
