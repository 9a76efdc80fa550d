/* A program that was compiled for certain CPUs says so on others, before anything that may use instructions which they lack. */
#include <stdio.h>
#include <unistd.h>
#include "cli/exit_codes.h"
#include "kern/select.h"

const bool ls__cpu_mark = false; /* the loader need not know */

LS__ANY_CPU __attribute__((constructor)) static void check_cpu(void)
{
    const char *missing = ls__cpu_lacks();
    if (!missing) return;
    fprintf(stderr, "lockstep: this program was compiled for CPUs with %s; compile it without -march to run on any\n",
            missing);
    _exit(EXIT_FAILED);
}
