/* runs/last. See last_run.h. */
#include "cli/last_run.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cli/escape.h"

void last_run_set(const char *run_dir)
{
    char temporary[64], *run = realpath(run_dir, NULL); /* run_dir may be runs/last itself */
    if (run) mkdir("runs", 0777);
    char *runs = realpath("runs", NULL);
    if (run && runs) {
        /* A link within runs/ stays right when the folder around it is moved. */
        size_t n = strlen(runs);
        const char *target = !strncmp(run, runs, n) && run[n] == '/' ? run + n + 1 : run;
        snprintf(temporary, sizeof temporary, "runs/.last-%d", getpid());
        if (symlink(target, temporary) || rename(temporary, "runs/last")) unlink(temporary);
    }
    free(run);
    free(runs);
}

const char *last_run_or(const char *given, const char *command)
{
    if (given) return given;
    if (!access("runs/last", F_OK)) return "runs/last";
    char target[4096];
    ssize_t n = readlink("runs/last", target, sizeof target - 1);
    if (n > 0) {
        target[n] = 0;
        fprintf(stderr, "lockstep %s: runs/last links to %s, which does not exist; give the folder of a run\n", command,
                printable(target));
        return NULL;
    }
    fprintf(stderr,
            "lockstep %s: no training run in this folder (runs/last does not exist); give the folder of a run\n",
            command);
    return NULL;
}
