/* Fuzz target: any bytes as a compressed file; the first byte says which compression. However much is asked for at a time, the
 * same text comes, and (of gzip) the same end. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "data/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 1 << 20 }; /* text that is looked at */

static ls_status read_all(const ls__source *file, size_t step, uint8_t *out, size_t *total)
{
    ls__unpack *u;
    size_t got = step;
    ls_status status = ls__unpack_open(&u, file);
    *total = 0;
    while (!status && got == step && *total + step <= MOST) {
        status = ls__unpack_read(u, out + *total, step, &got);
        if (got > step) abort();
        *total += got;
    }
    if (status && !ls_error()[0]) abort();
    if (u && ls__unpack_position(u) > file->bytes) abort();
    ls__unpack_free(&u);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t one[MOST], two[MOST];
    if (size < 2) return 0;
    ls__source file = { .path = (char *)(uintptr_t) "fuzz",
                        .fd = memfd_create("fuzz", MFD_CLOEXEC),
                        .bytes = size - 1,
                        .packing = data[0] & 1 ? LS__PACKED_GZIP : LS__PACKED_ZSTD };
    if (file.fd < 0 || write(file.fd, data + 1, size - 1) != (ssize_t)(size - 1)) abort();
    size_t n, m;
    ls_status a = read_all(&file, MOST, one, &n), b = read_all(&file, 100, two, &m);
    size_t both = n < m ? n : m;
    if (memcmp(one, two, both)) abort();
    /* libzstd looks at the size in a frame's header only if there is room for all of it. */
    if (file.packing == LS__PACKED_GZIP && a == LS_OK && n < MOST - 100 && (b || m != n)) abort();
    if (file.packing == LS__PACKED_GZIP && a == LS_EFORMAT && m < MOST - 100 && b != LS_EFORMAT) abort();
    close(file.fd);
    return 0;
}
