/* A folder of a test's own, made and entered before, removed after. */
#ifndef LS_TESTS_FOLDER_H
#define LS_TESTS_FOLDER_H

#include <ftw.h>
#include <unistd.h>

static char folder[] = "/tmp/lockstep-test-XXXXXX";

static int enter_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static int leave_folder(void **state)
{
    (void)state;
    return chdir("/") || nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

#endif
