/* The output of the ranks.
 *
 * Each stream of each rank is one of three: a file (the rank writes to it directly), our own output (the rank writes to it
 * directly: --no-prefix), or a pipe that we read. A thread reads the pipes: lines are assembled per stream and written with the
 * rank in front, so lines of different ranks never mix; a copy may be written to a file. There is one thread for stdout and one for
 * stderr, because a reader may be slow (a pager, a terminal held by Ctrl-S), and neither watching the ranks nor the other
 * stream must wait for it. Messages of the launcher use a pipe that never blocks.
 *
 * If we write to a terminal, a rank gets a pseudo-terminal instead of the pipe: programs print line by line to a terminal but only
 * in large blocks to a pipe. */
#include "cli/launch_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "base/text.h"
#include "base/thread.h"
#include "comm/job.h"

enum {
    READ_BYTES = 1 << 16,
    LINE_BYTES = 1 << 20, /* a longer line is divided into parts of this size */
    MESSAGE_BYTES = 1024,
};

typedef struct stream {
    int in;    /* we read here; -1: nothing, or ended */
    int child; /* the rank writes here; -1: to what we have ourselves */
    int file;  /* gets a copy of what we read; -1: none */
    int to;    /* 1 or 2 */
    char prefix[40];
    char *line; /* begun and not ended */
    size_t used, room;
} stream;

/* What is on its way to our stdout or stderr. It belongs to its thread. */
typedef struct sink {
    int fd;
    bool broken; /* the reader has ended, or writing failed */
    bool lost;   /* writing failed */
    char *data;
    size_t used, room;
    launch_output *output;
    struct pollfd *polls; /* one for each stream */
    pthread_t thread;
    bool started;
} sink;

struct launch_output {
    const launch_options *options;
    int count; /* of streams: two for each rank, and the launcher's own */
    int say;   /* where messages are written */
    sink sinks[2];
    stream streams[];
};

/* ---- Which output is redirected: "3", or "0:1,1:2". */

static ls_status bad_spec(const char *option, const char *text)
{
    return ls__fail(
        LS_EINVAL,
        "--%s %s: must be 0 (none), 1 (stdout), 2 (stderr) or 3 (both), for all ranks or per rank as in 0:3,1:2",
        option, text);
}

static ls_status parse_spec(const char *option, const char *text, int ranks, unsigned char *out)
{
    memset(out, 0, (size_t)ranks);
    if (!text) return LS_OK;
    if (!text[0]) return bad_spec(option, "''");
    if (!strchr(text, ':')) {
        if (text[0] < '0' || text[0] > '3' || text[1]) return bad_spec(option, text);
        memset(out, text[0] - '0', (size_t)ranks);
        return LS_OK;
    }
    for (const char *at = text;;) {
        char *end;
        errno = 0;
        long rank = strtol(at, &end, 10);
        if (end == at || *end != ':' || errno || end[1] < '0' || end[1] > '3' || (end[2] && end[2] != ','))
            return bad_spec(option, text);
        if (rank < 0 || rank >= ranks)
            return ls__fail(LS_EINVAL, "--%s %s: rank %ld is out of range; there are %d", option, text, rank, ranks);
        out[rank] = (unsigned char)(end[1] - '0');
        if (!end[2]) return LS_OK;
        at = end + 3;
    }
}

/* ---- Opening. */

static ls_status open_file(const launch_options *o, int rank, int which, int attempt, int *out)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/rank_%d", o->log_dir, rank);
    if (n < 0 || (size_t)n + 12 >= sizeof path) return ls__fail(LS_EINVAL, "--log-dir %s: too long", o->log_dir);
    ls_status status = ls__file_make_own_dir(path);
    strcat(path, which == LAUNCH_STDOUT ? "/stdout.log" : "/stderr.log");
    if (!status && !attempt) status = ls__file_create(path, O_WRONLY | O_APPEND, out);
    if (status) return ls__fail_within(status, "--log-dir %s", o->log_dir);
    if (attempt) *out = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (*out < 0) return ls__fail_errno("--log-dir: %s cannot be opened", path);
    if (attempt) dprintf(*out, "---- restart %d\n", attempt);
    return LS_OK;
}

/* A terminal for the rank that passes bytes on unchanged. -1: none to be had. */
static int open_terminal(int ours, int ends[2])
{
    char name[64];
    struct termios mode;
    struct winsize size;
    ends[1] = -1;
    ends[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (ends[0] < 0) return -1;
    if (grantpt(ends[0]) || unlockpt(ends[0]) || ptsname_r(ends[0], name, sizeof name)) goto fail;
    ends[1] = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (ends[1] < 0 || tcgetattr(ends[1], &mode)) goto fail;
    mode.c_oflag &= ~(tcflag_t)OPOST;
    if (tcsetattr(ends[1], TCSANOW, &mode)) goto fail;
    if (!ioctl(ours, TIOCGWINSZ, &size)) ioctl(ends[1], TIOCSWINSZ, &size);
    return 0;
fail:
    close(ends[0]);
    if (ends[1] >= 0) close(ends[1]);
    return -1;
}

static ls_status open_stream(launch_output *out, int rank, int which, int redirect, int tee, int attempt)
{
    const launch_options *o = out->options;
    stream *s = &out->streams[2 * rank + which];
    ls_status status;
    int bit = which == LAUNCH_STDOUT ? 1 : 2, ends[2];
    if (redirect & bit & ~tee) return open_file(o, rank, which, attempt, &s->child);
    if (tee & bit && (status = open_file(o, rank, which, attempt, &s->file))) return status;
    if (o->no_prefix && s->file < 0) return LS_OK;
    if (!(isatty(s->to) && open_terminal(s->to, ends) == 0) && pipe2(ends, O_CLOEXEC))
        return ls__fail_errno("a pipe for rank %d's output (raise the limit with 'ulimit -n')", rank);
    s->in = ends[0];
    s->child = ends[1];
    if (o->no_prefix) return LS_OK;
    const char *term = getenv("TERM");
    if (isatty(s->to) && term && strcmp(term, "dumb") && !getenv("NO_COLOR"))
        snprintf(s->prefix, sizeof s->prefix, "\033[%dm[%d]\033[0m ", 31 + rank % 6, rank);
    else
        snprintf(s->prefix, sizeof s->prefix, "[%d] ", rank);
    return LS_OK;
}

static void free_output(launch_output *out)
{
    for (int i = 0; i < out->count; i++) {
        stream *s = &out->streams[i];
        if (s->in >= 0) close(s->in);
        if (s->child >= 0) close(s->child);
        if (s->file >= 0) close(s->file);
        free(s->line);
    }
    if (out->say >= 0) close(out->say);
    for (int i = 0; i < 2; i++) {
        free(out->sinks[i].data);
        free(out->sinks[i].polls);
    }
    free(out);
}

ls_status launch_output_open(launch_output **result, const launch_options *o, int attempt)
{
    unsigned char redirect[LS__JOB_MAX_RANKS], tee[LS__JOB_MAX_RANKS];
    const char *redirects = o->redirects ? o->redirects : o->log_dir && !o->tee ? "3" : NULL;
    int count = 2 * o->ranks + 1, ends[2];
    *result = NULL;
    ls_status status = parse_spec("redirects", redirects, o->ranks, redirect);
    if (!status) status = parse_spec("tee", o->tee, o->ranks, tee);
    if (status) return status;
    if ((o->redirects || o->tee) && !o->log_dir) return ls__fail(LS_EINVAL, "--redirects and --tee need --log-dir DIR");

    launch_output *out = calloc(1, sizeof *out + (size_t)count * sizeof(stream));
    if (!out) return ls__fail(LS_ENOMEM, "out of memory");
    out->options = o;
    out->count = count;
    out->say = -1;
    for (int i = 0; i < 2; i++) {
        sink *k = &out->sinks[i];
        *k = (sink){ .fd = 1 + i, .output = out, .polls = calloc((size_t)count, sizeof *k->polls) };
        if (!k->polls) status = ls__fail(LS_ENOMEM, "out of memory");
    }
    for (int i = 0; i < count; i++) {
        stream *s = &out->streams[i];
        s->in = s->child = s->file = -1;
        s->to = i < count - 1 && i % 2 == LAUNCH_STDOUT ? 1 : 2;
    }
    for (int r = 0; r < o->ranks && !status; r++)
        for (int w = 0; w < 2 && !status; w++) status = open_stream(out, r, w, redirect[r], tee[r], attempt);
    if (!status && pipe2(ends, O_CLOEXEC)) status = ls__fail_errno("a pipe (raise the limit with 'ulimit -n')");
    if (status) {
        free_output(out);
        return status;
    }
    out->streams[count - 1].in = ends[0];
    out->say = ends[1];
    fcntl(out->say, F_SETFL, O_NONBLOCK);
    *result = out;
    return LS_OK;
}

int launch_output_fd(const launch_output *out, int rank, int which)
{
    return out->streams[2 * rank + which].child;
}

/* ---- Carrying. */

static int write_all(int fd, const char *data, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(fd, data, bytes);
        if (n > 0) {
            data += n;
            bytes -= (size_t)n;
        } else if (n < 0 && errno == EAGAIN) {
            struct pollfd p = { fd, POLLOUT, 0 };
            poll(&p, 1, -1);
        } else if (n == 0 || errno != EINTR) {
            return -1;
        }
    }
    return 0;
}

static int grow(char **data, size_t *room, size_t needed)
{
    if (needed <= *room) return 0;
    size_t bytes = *room ? *room : 4096;
    while (bytes < needed) bytes *= 2;
    char *p = realloc(*data, bytes);
    if (!p) return -1;
    *data = p;
    *room = bytes;
    return 0;
}

/* A reader that went away (`| head`), or a user who closed our output (main() holds its place with what cannot be written), wants no more;
 * anything else loses output. */
static void put(sink *k, const char *data, size_t bytes)
{
    if (k->broken || !write_all(k->fd, data, bytes)) return;
    k->broken = true;
    k->lost = errno != EPIPE && errno != EBADF;
    if (k->lost)
        launch_output_say(k->output, "%s cannot be written: %s", k->fd == 1 ? "stdout" : "stderr", strerror(errno));
}

static void flush_sink(sink *k)
{
    if (k->used) put(k, k->data, k->used);
    k->used = 0;
}

/* A line with its prefix, to our stdout or stderr. Without memory it is written directly. */
static void emit(sink *k, const char *prefix, const char *data, size_t bytes, bool newline)
{
    size_t n = strlen(prefix), total = n + bytes + newline;
    if (k->used + total > LINE_BYTES) flush_sink(k);
    if (grow(&k->data, &k->room, k->used + total)) {
        flush_sink(k);
        put(k, prefix, n);
        put(k, data, bytes);
        return;
    }
    memcpy(k->data + k->used, prefix, n);
    memcpy(k->data + k->used + n, data, bytes);
    if (newline) k->data[k->used + total - 1] = '\n';
    k->used += total;
}

/* Where the first line ends, its end included; 0: it does not yet. A carriage return ends one too (progress bars),
 * once it is clear that no newline follows. */
static size_t line_end(const char *data, size_t bytes, size_t from)
{
    for (size_t i = from; i < bytes; i++) {
        if (data[i] == '\n') return i + 1;
        if (data[i] == '\r' && i + 1 < bytes && data[i + 1] != '\n') return i + 1;
    }
    return 0;
}

static void end_stream(stream *s, sink *k)
{
    if (s->used) emit(k, s->prefix, s->line, s->used, s->prefix[0] != 0);
    s->used = 0;
    close(s->in);
    s->in = -1;
}

/* Writes out the lines that are whole. */
static void carry_lines(stream *s, sink *k, size_t fresh)
{
    size_t at = 0, looked = s->used - fresh, end;
    if (looked) looked--; /* a carriage return at the end is decided now */
    while ((end = line_end(s->line, s->used, looked > at ? looked : at))) {
        emit(k, s->prefix, s->line + at, end - at, false);
        at = end;
    }
    if (s->used - at >= LINE_BYTES) {
        emit(k, s->prefix, s->line + at, s->used - at, true);
        at = s->used;
    }
    memmove(s->line, s->line + at, s->used - at);
    s->used -= at;
}

static void read_stream(sink *k, stream *s)
{
    if (grow(&s->line, &s->room, s->used + READ_BYTES)) { /* out of memory: write the incomplete line */
        emit(k, s->prefix, s->line, s->used, true);
        s->used = 0;
        if (!s->room) return;
    }
    ssize_t n = read(s->in, s->line + s->used, s->room - s->used);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) { /* a terminal whose other side is closed says EIO */
        end_stream(s, k);
        return;
    }
    if (s->file >= 0 && write_all(s->file, s->line + s->used, (size_t)n)) {
        launch_output_say(k->output, "cannot write to a log file: %s", strerror(errno));
        close(s->file);
        s->file = -1;
    }
    s->used += (size_t)n;
    carry_lines(s, k, (size_t)n);
    if (k->broken && s->file < 0) end_stream(s, k); /* the rank must notice that the reader has ended */
}

/* Carries all streams of one sink until they have ended. */
static void *carry(void *arg)
{
    sink *k = arg;
    launch_output *out = k->output;
    for (;;) {
        int open_streams = 0;
        for (int i = 0; i < out->count; i++) {
            stream *s = &out->streams[i];
            k->polls[i] = (struct pollfd){ s->to == k->fd ? s->in : -1, POLLIN, 0 }; /* poll() skips -1 */
            open_streams += k->polls[i].fd >= 0;
        }
        if (!open_streams) break;
        if (poll(k->polls, (nfds_t)out->count, -1) < 0) continue;
        for (int i = 0; i < out->count; i++)
            if (k->polls[i].revents) read_stream(k, &out->streams[i]);
        flush_sink(k);
    }
    return NULL;
}

/* Only the ranks may hold these, or the end of a pipe would never be seen. */
static void close_child_ends(launch_output *out)
{
    for (int i = 0; i < out->count; i++) {
        stream *s = &out->streams[i];
        if (s->child >= 0) close(s->child);
        s->child = -1;
    }
}

ls_status launch_output_start(launch_output *out)
{
    close_child_ends(out);
    for (int i = 0; i < 2; i++) {
        ls_status status = ls__thread_start(&out->sinks[i].thread, i ? "stderr" : "stdout", carry, &out->sinks[i]);
        if (status) return status;
        out->sinks[i].started = true;
    }
    return LS_OK;
}

void launch_output_say(launch_output *out, const char *format, ...)
{
    char raw[MESSAGE_BYTES], text[MESSAGE_BYTES] = "lockstep: ";
    va_list args;
    va_start(args, format);
    vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    size_t at = strlen(text);
    at += ls__printable(text + at, sizeof text - at - 1, raw);
    text[at++] = '\n';
    ssize_t ignored = write(out->say, text, at); /* full: the reader does not read; the message is lost */
    (void)ignored;
}

/* Waits until a sink's thread is done; false: not in time. Without a thread, does its work. */
static bool finish_sink(sink *k, const struct timespec *until)
{
    if (!k->started) {
        carry(k);
        return true;
    }
    if (!until) return !pthread_join(k->thread, NULL);
    if (!pthread_timedjoin_np(k->thread, NULL, until)) return true;
    pthread_detach(k->thread);
    return false;
}

bool launch_output_close(launch_output **pout, int wait_ms)
{
    launch_output *out = *pout;
    if (!out) return true;
    *pout = NULL;
    close_child_ends(out);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t ns = until.tv_nsec + (int64_t)wait_ms * 1000000;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    /* stdout first: its thread may still have something to say. */
    bool done = finish_sink(&out->sinks[0], wait_ms < 0 ? NULL : &until);
    if (done) {
        close(out->say);
        out->say = -1;
        done = finish_sink(&out->sinks[1], wait_ms < 0 ? NULL : &until);
    }
    if (!done) return false; /* a reader does not read: what is left is lost, and a thread still uses `out` */
    bool lost = out->sinks[0].lost || out->sinks[1].lost;
    free_output(out);
    return !lost;
}
