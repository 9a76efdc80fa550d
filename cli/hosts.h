/* The machines of a job: --hosts, --hostfile and Slurm's list. */
#ifndef LS_CLI_HOSTS_H
#define LS_CLI_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

enum { HOST_NAME = 256, MAX_HOSTS = 256 };

typedef struct host {
    char name[HOST_NAME];
    int ranks;
} host;

typedef struct hosts {
    int n;
    host host[MAX_HOSTS];
} hosts;

/* "node0:2,node1" (1 rank where no number is given), or "slurm": the machines of the allocation that this process is in. False:
 * `why` says what is wrong. */
bool hosts_parse(hosts *out, const char *text, char *why, size_t bytes);
/* One machine per line: "node0 slots=2", "node0:2" or "node0"; '#' begins a comment. */
bool hosts_read(hosts *out, const char *path, char *why, size_t bytes);
/* Slurm's short form: "node[0-2,7],other". */
bool hosts_expand(hosts *out, const char *text, int ranks, char *why, size_t bytes);

#endif
