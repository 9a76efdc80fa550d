/* Runs a fuzz target over files and folders of files, for compilers that have no fuzzer: every kept case is a test.
 * Each file is handed over in memory of its exact size, so that a sanitizer sees a read beyond it. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return -1;
    }
    fseek(f, 0, SEEK_END);
    size_t size = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(size ? size : 1);
    size_t got = fread(data, 1, size, f);
    fclose(f);
    LLVMFuzzerTestOneInput(data, got);
    free(data);
    return 1;
}

int main(int argc, char **argv)
{
    int ran = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        for (struct dirent *e; folder && (e = readdir(folder));) {
            char path[4096];
            if (e->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            if (run_file(path) < 0) return 1;
            ran++;
        }
        if (folder) closedir(folder);
    }
    printf("%d cases\n", ran);
    return ran ? 0 : 1;
}
