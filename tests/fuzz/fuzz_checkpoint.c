/* Checkpoints: any bytes, and any bytes followed by the right checksum, are whole or an error. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>
#include "lockstep/train.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_bytes(const uint8_t *data, size_t size, int with_checksum)
{
    char path[64];
    ls_checkpoint_info info;
    int fd = memfd_create("checkpoint", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    XXH128_hash_t hash = XXH3_128bits(data, size);
    uint64_t words[2] = { hash.low64, hash.high64 };
    int written = write(fd, data, size) == (ssize_t)size;
    if (with_checksum) written &= write(fd, words, sizeof words) == sizeof words;
    if (written && ls_checkpoint_verify(path, &info) == LS_OK && info.bytes < size) __builtin_trap();
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_bytes(data, size, 0);
    try_bytes(data, size, 1);
    return 0;
}
