/* For programs under qemu-user 7, which keeps a record of every page that was ever mapped: job memory as large as this machine's,
 * mapped by many tests in turn, takes all of it. scripts/test-aarch64 links it to every program. */
#include <dlfcn.h>
#include <unistd.h>

long sysconf(int name)
{
    static long (*real)(int);
    if (name == _SC_PHYS_PAGES) return 1L << 18; /* of 4 KiB */
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "sysconf");
    return real(name);
}
