/* Fuzz target: any bytes as a list of machines: --hosts, a hostfile, or Slurm's list. What is accepted has distinct names that
 * ssh takes for machines, and is the same when it is written and read again. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cli/hosts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool read_file(hosts *h, const char *text, size_t bytes, char *why, size_t room)
{
    char path[64];
    int fd = memfd_create("hosts", MFD_CLOEXEC);
    if (fd < 0 || write(fd, text, bytes) != (ssize_t)bytes) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    bool good = hosts_read(h, path, why, room);
    close(fd);
    return good;
}

static void check(const hosts *h)
{
    if (h->n < 1 || h->n > MAX_HOSTS) abort();
    for (int i = 0; i < h->n; i++) {
        const char *name = h->host[i].name;
        size_t n = strnlen(name, HOST_NAME);
        if (!n || n == HOST_NAME || *name == '-' || h->host[i].ranks < 1 || h->host[i].ranks > 512) abort();
        if (strpbrk(name, " \t\r\n,:[]'\"\\$`;|&<>()*?/#=")) abort();
        for (int k = 0; k < i; k++)
            if (!strcmp(h->host[k].name, name)) abort();
    }
}

/* In one of the two forms, and read again. */
static void repeat(const hosts *first, bool file)
{
    static hosts second;
    char *text = NULL, why[300];
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) abort();
    for (int i = 0; i < first->n; i++)
        fprintf(to, file ? "%s%s slots=%d" : "%s%s:%d", i ? (file ? "\n" : ",") : "", first->host[i].name,
                first->host[i].ranks);
    fclose(to);
    if (!(file ? read_file(&second, text, bytes, why, sizeof why) : hosts_parse(&second, text, why, sizeof why)))
        abort();
    if (second.n != first->n) abort();
    for (int i = 0; i < first->n; i++)
        if (strcmp(first->host[i].name, second.host[i].name) || first->host[i].ranks != second.host[i].ranks) abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static hosts h;
    char why[300] = "";
    if (!size) return 0;
    char *text = malloc(size);
    if (!text) abort();
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    bool good;
    if (data[0] % 3 == 0)
        good = hosts_parse(&h, text, why, sizeof why);
    else if (data[0] % 3 == 1)
        good = hosts_expand(&h, text, 1 + data[0] % 7, why, sizeof why);
    else
        good = read_file(&h, text, size - 1, why, sizeof why);
    free(text);
    if (!good && (!*why || strlen(why) >= sizeof why)) abort();
    if (!good) return 0;
    check(&h);
    repeat(&h, false);
    repeat(&h, true);
    return 0;
}
