/* The energy that the machine's processor packages have used, where the kernel tells: /sys/class/powercap, which Intel's and AMD's
 * counters (RAPL) share. Mostly only root may read them, and virtual machines have none. */
#ifndef LS_RECORD_ENERGY_H
#define LS_RECORD_ENERGY_H

#include <stdbool.h>
#include <stdint.h>

enum { LS__MAX_PACKAGES = 16 };

/* Values are recorded (LS_METADATA_ENERGY). */
typedef enum ls__energy_access {
    LS__ENERGY_NONE = 0,      /* this kernel exposes none */
    LS__ENERGY_FORBIDDEN = 1, /* it does, but not to this user */
    LS__ENERGY_OPEN = 2,
} ls__energy_access;

typedef struct ls__energy {
    ls__energy_access access;
    int packages;
    struct {
        int fd;
        uint64_t last, range; /* microjoules: the last reading, and the largest one before it starts again at 0 */
    } package[LS__MAX_PACKAGES];
    uint64_t total; /* microjoules since it was opened */
} ls__energy;

/* `folder`: NULL: /sys/class/powercap; another one is for tests. */
void ls__energy_open(ls__energy *e, const char *folder);
/* Brings e->total up to now. False: there is nothing to read. */
bool ls__energy_read(ls__energy *e);
void ls__energy_close(ls__energy *e);

#endif
