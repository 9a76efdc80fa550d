/* Preloaded into a program (LD_PRELOAD): putting a model or a checkpoint in its place takes longer than launchers wait, as if it
 * were large. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int rename(const char *from, const char *to)
{
    struct timespec left = { .tv_sec = 1, .tv_nsec = 200000000 };
    if (strstr(to, "/model.safetensors") || strstr(to, "/checkpoints/"))
        while (nanosleep(&left, &left) && errno == EINTR) continue; /* signals do not make a disk faster */
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
