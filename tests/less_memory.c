/* For programs under qemu-user 7, which keeps a record of every page that was ever mapped, some 40 bytes that it never frees, and does not
 * use addresses again. Job memory and tapes reserve as much address space as the machine has memory, so with 24 GiB each of them costs
 * 200 MiB, and a test that opens a hundred in turn is killed. scripts/test-aarch64 links this to every program: 1 GiB is enough there. */
#include <dlfcn.h>
#include <unistd.h>

long sysconf(int name)
{
    static long (*real)(int);
    if (name == _SC_PHYS_PAGES) return 1L << 18; /* of 4 KiB */
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "sysconf");
    return real(name);
}
