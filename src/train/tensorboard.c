/* TensorBoard's event files. See tensorboard.h.
 *
 * A record is: u64 length, u32 checksum of the length, data, u32 checksum of the data. The data is one Event: when (field
 * 1), step (2), and either the format's version (3), a summary (5) or the start of a session (7). A summary is a list of values,
 * each a tag (1) and a float (2). A step is one record and one write, so that a reader finds
 * complete records at any time, also if the run was killed. */
#include "train/tensorboard.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"

/* A record being built. Its size is bounded, since the tags are fixed and few; this is checked. */
typedef struct record {
    uint8_t data[2048];
    size_t bytes;
} record;

enum { HEAD = 12, WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

uint32_t ls__masked_crc32c(const void *data, size_t bytes)
{
    static const uint32_t nibble[16] = { /* the polynomial 0x82f63b78, four bits at a time */
                                         0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                         0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                         0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75
    };
    const uint8_t *at = data;
    uint32_t crc = ~0u;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        crc = crc >> 4 ^ nibble[crc & 15];
        crc = crc >> 4 ^ nibble[crc & 15];
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put(record *r, const void *data, size_t bytes)
{
    if (bytes > sizeof r->data - r->bytes) bytes = sizeof r->data - r->bytes;
    memcpy(r->data + r->bytes, data, bytes);
    r->bytes += bytes;
}

/* Little-endian on every machine. */
static void put_fixed(record *r, uint64_t x, int bytes)
{
    uint8_t out[8];
    for (int i = 0; i < bytes; i++) out[i] = (uint8_t)(x >> 8 * i);
    put(r, out, (size_t)bytes);
}

static void put_varint(record *r, uint64_t x)
{
    uint8_t out[10];
    size_t n = 0;
    for (; x > 127; x >>= 7) out[n++] = (uint8_t)(x | 128);
    out[n++] = (uint8_t)x;
    put(r, out, n);
}

static void put_key(record *r, unsigned field, unsigned wire)
{
    put_varint(r, field << 3 | wire);
}

static void put_bytes(record *r, unsigned field, const void *data, size_t bytes)
{
    put_key(r, field, WIRE_BYTES);
    put_varint(r, bytes);
    put(r, data, bytes);
}

static void begin_event(record *r, int64_t step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double seconds = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof bits);
    r->bytes = HEAD;
    put_key(r, 1, WIRE_64);
    put_fixed(r, bits, 8);
    put_key(r, 2, WIRE_VARINT);
    put_varint(r, (uint64_t)step);
}

static void add_value(record *summary, const char *tag, double x)
{
    record value = { .bytes = 0 };
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    put_bytes(&value, 1, tag, strlen(tag));
    put_key(&value, 2, WIRE_32);
    put_fixed(&value, bits, 4);
    put_bytes(summary, 1, value.data, value.bytes);
}

static ls_status write_record(int fd, record *r)
{
    record head = { .bytes = 0 };
    put_fixed(&head, r->bytes - HEAD, 8);
    put_fixed(&head, ls__masked_crc32c(head.data, 8), 4);
    memcpy(r->data, head.data, HEAD);
    put_fixed(r, ls__masked_crc32c(r->data + HEAD, r->bytes - HEAD), 4);
    ssize_t done;
    do done = write(fd, r->data, r->bytes);
    while (done < 0 && errno == EINTR);
    if (done < 0) return ls__fail_errno("tensorboard: writing a step");
    return (size_t)done == r->bytes ? LS_OK : ls__fail(LS_EIO, "tensorboard: the disk is full");
}

/* "events.out.tfevents.SECONDS.HOST.PID": TensorBoard reads the files of a folder in the order of their names. */
static char *file_name(const char *run_dir, int64_t seconds)
{
    char host[65] = "", *path;
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '-') *c = '_';
    if (asprintf(&path, "%s/tensorboard/events.out.tfevents.%010lld.%s.%d", run_dir, (long long)seconds,
                 *host ? host : "localhost", (int)getpid()) >= 0)
        return path;
    ls__fail(LS_ENOMEM, "%s/tensorboard: out of memory", run_dir);
    return NULL;
}

ls_status ls__tensorboard_open(int *fd, const char *run_dir, int64_t step)
{
    record r;
    int64_t now = (int64_t)time(NULL);
    char *folder = NULL, *path = NULL;
    *fd = -1;
    if (asprintf(&folder, "%s/tensorboard", run_dir) < 0) return ls__fail(LS_ENOMEM, "%s: out of memory", run_dir);
    ls_status status = ls__file_make_own_dir(folder);
    for (int tries = 0; !status && *fd < 0; tries++) {
        free(path);
        if (!(path = file_name(run_dir, now + tries))) status = LS_ENOMEM;
        if (!status) *fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND | O_CLOEXEC, 0666);
        if (!status && *fd < 0 && (errno != EEXIST || tries > 1000))
            status = ls__fail_errno("%s: cannot be created", path);
    }
    if (!status) {
        begin_event(&r, 0);
        put_bytes(&r, 3, "brain.Event:2", 13);
        status = write_record(*fd, &r);
    }
    if (!status && step > 0) {
        begin_event(&r, step + 1);
        put_bytes(&r, 7, "\x08\x01", 2); /* SessionLog: START */
        status = write_record(*fd, &r);
    }
    if (status && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    free(path);
    free(folder);
    return status;
}

ls_status ls__tensorboard_add(int fd, const ls__task_type *task, const ls_train_metrics *m)
{
    record r, summary = { .bytes = 0 };
    add_value(&summary, "loss", m->loss);
    if (m->eval_loss >= 0) add_value(&summary, "eval_loss", m->eval_loss);
    for (int i = 0; task->info.metrics[i] && m->eval_loss >= 0; i++) {
        char name[32];
        if (!isfinite(m->eval_metrics[i])) continue;
        snprintf(name, sizeof name, "eval_%.20s", task->info.metrics[i]);
        add_value(&summary, name, m->eval_metrics[i]);
    }
    add_value(&summary, "epoch", m->epoch);
    add_value(&summary, "optimizer/lr", m->lr);
    if (isfinite(m->grad_norm)) add_value(&summary, "optimizer/grad_norm", m->grad_norm);
    add_value(&summary, "speed/tokens_per_s", m->tokens_per_s);
    add_value(&summary, "speed/gflops", m->gflops);
    add_value(&summary, "memory/resident_mib", (double)m->memory_bytes / (1 << 20));
    add_value(&summary, "step_ms/all", m->step_ms);
    add_value(&summary, "step_ms/data", m->data_ms);
    add_value(&summary, "step_ms/forward", m->forward_ms);
    add_value(&summary, "step_ms/backward", m->backward_ms);
    add_value(&summary, "step_ms/update", m->update_ms);
    add_value(&summary, "step_ms/other", m->other_ms);
    add_value(&summary, "step_ms/blocked", m->blocked_ms);
    begin_event(&r, m->step);
    put_bytes(&r, 5, summary.data, summary.bytes);
    return write_record(fd, &r);
}
