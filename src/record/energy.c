/* See energy.h. A counter has 32 bits in a unit of the processor and wraps around within an hour of work, so it must be read more
 * often, and its increments are added up here.
 *
 * The folder has a zone for each package ("intel-rapl:0"), parts of it ("intel-rapl:0:0"), and sometimes one for the whole board
 * ("psys"), which would count the packages twice. */
#include "record/energy.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The text of a small file, without its newline; false: it is not readable. */
static bool read_text(int folder, const char *zone, const char *file, char *out, size_t bytes)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", zone, file);
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, bytes - 1);
    if (fd >= 0) close(fd);
    if (n < 0) return false;
    out[n] = 0;
    out[strcspn(out, "\n")] = 0;
    return true;
}

static bool read_counter(int fd, uint64_t *out)
{
    char text[32];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0) return false;
    text[n] = 0;
    *out = strtoull(text, NULL, 10);
    return true;
}

static void add_package(ls__energy *e, int folder, const char *zone)
{
    char path[300], text[32];
    uint64_t now;
    snprintf(path, sizeof path, "%s/energy_uj", zone);
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || !read_counter(fd, &now)) {
        if (fd >= 0) close(fd);
        if (e->access == LS__ENERGY_NONE) e->access = LS__ENERGY_FORBIDDEN;
        return;
    }
    e->access = LS__ENERGY_OPEN;
    e->package[e->packages].fd = fd;
    e->package[e->packages].last = now;
    e->package[e->packages].range =
        read_text(folder, zone, "max_energy_range_uj", text, sizeof text) ? strtoull(text, NULL, 10) : 0;
    e->packages++;
}

void ls__energy_open(ls__energy *e, const char *folder)
{
    *e = (ls__energy){ .access = LS__ENERGY_NONE };
    DIR *d = opendir(folder ? folder : "/sys/class/powercap");
    for (const struct dirent *z; d && e->packages < LS__MAX_PACKAGES && (z = readdir(d));) {
        static const char prefix[] = "intel-rapl:";
        char name[32];
        if (strncmp(z->d_name, prefix, sizeof prefix - 1) != 0 || strchr(z->d_name + sizeof prefix - 1, ':')) continue;
        if (read_text(dirfd(d), z->d_name, "name", name, sizeof name) && strncmp(name, "package", 7) == 0)
            add_package(e, dirfd(d), z->d_name);
    }
    if (d) closedir(d);
}

bool ls__energy_read(ls__energy *e)
{
    for (int i = 0; i < e->packages; i++) {
        uint64_t now, last = e->package[i].last, range = e->package[i].range;
        if (!read_counter(e->package[i].fd, &now)) continue;
        if (now >= last)
            e->total += now - last;
        else if (range >= last)
            e->total += range - last + now; /* it wrapped around */
        e->package[i].last = now;
    }
    return e->packages > 0;
}

void ls__energy_close(ls__energy *e)
{
    for (int i = 0; i < e->packages; i++) close(e->package[i].fd);
    e->packages = 0;
}
