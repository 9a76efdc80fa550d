/* Threads that wait for each other at the end of a loop spin, in GNU's OpenMP for about a millisecond by default. On a core that
 * another program uses as well, that is very slow: the thread that is waited for cannot run on the core on which the other spins.
 * Measured with 2 threads on 2 cores and a load of 8, 100 steps of the small model: 24.5 s by default, 3.5 s with a short spin
 * and then sleep. There is no function to set this, only environment variables that are read when the library is loaded. */
#include "cli/openmp_spin.h"

#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const settings[][2] = {
    { "GOMP_SPINCOUNT", "1000" }, /* GNU's */
    { "KMP_BLOCKTIME", "0" },     /* LLVM's */
};
enum { SETTINGS = sizeof settings / sizeof *settings };

void limit_openmp_spin(char **argv)
{
    static const char mark[] = "LOCKSTEP_WAITING_SETTLED";
    if (getenv(mark) || getenv("OMP_WAIT_POLICY")) return;
    for (int i = 0; i < SETTINGS; i++) setenv(settings[i][0], settings[i][1], 0);
    setenv(mark, "1", 1);
    execv("/proc/self/exe", argv);
}

void leave_first_place(void)
{
    if (!getenv("OMP_PROC_BIND") && !getenv("OMP_PLACES") && !getenv("GOMP_CPU_AFFINITY")) return;
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int i = 0; i < omp_get_num_places(); i++) {
        int count = omp_get_place_num_procs(i), *cores = calloc((size_t)count + 1, sizeof *cores);
        if (!cores) return;
        omp_get_place_proc_ids(i, cores);
        for (int k = 0; k < count; k++)
            if (cores[k] < CPU_SETSIZE) CPU_SET((size_t)cores[k], &all);
        free(cores);
    }
    if (CPU_COUNT(&all)) sched_setaffinity(0, sizeof all, &all); /* if it fails we stay where we are */
}
