/* The energy that the machine's processor packages have used, where the kernel reports it: /sys/class/powercap, for the RAPL counters
 * of Intel and AMD. Usually only root may read them, and virtual machines have none. */
#ifndef LS_RECORD_ENERGY_H
#define LS_RECORD_ENERGY_H

#include <stdbool.h>
#include <stdint.h>

enum { LS__MAX_PACKAGES = 16 };

/* Values are recorded (LS_METADATA_ENERGY). */
typedef enum ls__energy_access {
    LS__ENERGY_NONE = 0,      /* the kernel reports none */
    LS__ENERGY_FORBIDDEN = 1, /* not readable for this user */
    LS__ENERGY_OPEN = 2,
} ls__energy_access;

typedef struct ls__energy {
    ls__energy_access access;
    int packages;
    struct {
        int fd;
        uint64_t last, range; /* microjoules: the last reading, and the largest one before it wraps around */
    } package[LS__MAX_PACKAGES];
    uint64_t total; /* microjoules since it was opened */
} ls__energy;

/* `folder`: NULL: /sys/class/powercap; others are for tests. */
void ls__energy_open(ls__energy *e, const char *folder);
/* Updates e->total. False: no counters. */
bool ls__energy_read(ls__energy *e);
void ls__energy_close(ls__energy *e);

#endif
