/* What the machine and its administrator allow this process. */
#ifndef LS_CLI_MACHINE_H
#define LS_CLI_MACHINE_H

#include <stddef.h>

/* The first line of a small file of /proc or /sys, without its newline; "" if it cannot be read. */
const char *machine_read(const char *path, char *out, size_t bytes);

/* How many cores' worth of time the control groups around this process grant; 0: no limit. */
double machine_quota_cores(void);
/* The cores that this process may use, by its affinity and by that limit: at least 1. */
int machine_cores(void);
/* Bytes that they grant; 0: no limit. */
double machine_quota_bytes(void);

/* The default number of threads of a process without a launcher; 0 leaves it to OpenMP, which knows of affinity and
 * not of control groups. */
int machine_threads(void);

#endif
