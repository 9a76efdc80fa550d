/* Limits of control groups (version 2). The tightest of all groups around this process counts; a container usually sees
 * its own group as the root. */
#include "cli/machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/thread.h"

const char *machine_read(const char *path, char *out, size_t bytes)
{
    *out = 0;
    FILE *f = fopen(path, "re");
    if (!f) return out;
    if (!fgets(out, (int)bytes, f)) *out = 0;
    fclose(f);
    out[strcspn(out, "\n")] = 0;
    return out;
}

/* "max 100000", "200000 100000": time per period. */
static double cores_of(const char *text)
{
    double quota, period;
    return sscanf(text, "%lf %lf", &quota, &period) == 2 && period > 0 ? quota / period : 0;
}

/* "max", "1073741824". */
static double bytes_of(const char *text)
{
    return strtod(text, NULL); /* 0 for "max" */
}

static double tightest(const char *file, double (*value)(const char *))
{
    char group[1024], path[1200], text[64];
    double least = 0;
    machine_read("/proc/self/cgroup", group, sizeof group);
    char *end = strncmp(group, "0::", 3) ? group : group + strlen(group); /* version 1 only: the root has no limit */
    for (;;) {
        *end = 0;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", end > group + 3 ? group + 3 : "", file);
        double v = value(machine_read(path, text, sizeof text));
        if (v > 0 && (least == 0 || v < least)) least = v;
        if (end <= group + 3) return least;
        while (end > group + 3 && *--end != '/') {
        }
    }
}

double machine_quota_cores(void)
{
    return tightest("cpu.max", cores_of);
}

int machine_cores(void)
{
    int cores = ls__cpu_count();
    double quota = machine_quota_cores();
    return quota > 0 && quota < cores ? (int)ceil(quota) : cores;
}

int machine_threads(void)
{
    int cores = machine_cores();
    return cores < ls__cpu_count() && !getenv("OMP_NUM_THREADS") ? cores : 0;
}

double machine_quota_bytes(void)
{
    return tightest("memory.max", bytes_of);
}
