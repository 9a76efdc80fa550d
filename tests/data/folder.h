/* A folder of the test's own, and files in it. */
#ifndef LS_TESTS_DATA_FOLDER_H
#define LS_TESTS_DATA_FOLDER_H

#include "check.h"
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/lockstep-test-XXXXXX";

static inline int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "chmod -R u+rwX %s; rm -rf %s", folder, folder);
    return chdir("/") || system(command);
}

static inline void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static inline void write_text(const char *path, const char *text)
{
    write_file(path, text, strlen(text));
}

#endif
