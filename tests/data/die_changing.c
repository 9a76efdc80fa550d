/* Preloaded into a program (LD_PRELOAD): counts its system calls that change what a folder holds, or sync, and kills it at one of
 * them, before it is made. DIE_AT=N: at the N-th. DIE_COUNT=FILE: instead of dying, FILE grows by a byte a call. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int calls;

static void count(void)
{
    const char *at = getenv("DIE_AT"), *file = getenv("DIE_COUNT");
    int n = atomic_fetch_add(&calls, 1) + 1;
    if (file) {
        int to = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND, 0666);
        syscall(SYS_write, to, "x", 1);
        syscall(SYS_close, to);
    }
    if (!at || n != atoi(at)) return;
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

int rename(const char *from, const char *to)
{
    count();
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    count();
    return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, 0);
}
int unlink(const char *path)
{
    count();
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}
int unlinkat(int fd, const char *path, int flags)
{
    count();
    return (int)syscall(SYS_unlinkat, fd, path, flags);
}
int fsync(int fd)
{
    count();
    return (int)syscall(SYS_fsync, fd);
}
char *mkdtemp(char *template)
{
    char *(*real)(char *);
    *(void **)&real = dlsym(RTLD_NEXT, "mkdtemp");
    count();
    return real(template);
}
