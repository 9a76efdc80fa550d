/* Traces of the PyTorch profiler: any bytes, as they are; what is kept of them must be as sane as that of a whole one. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>
#include <sys/mman.h>
#include "import/trace.h"
#include "import/write.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("trace", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ls__file_state file = { .path = path };
    ls__traces traces;
    if (ls__traces_read(&traces, &file) == LS_OK) {
        ls__trace *list[64];
        ls__remarks remarks = { 0 };
        size_t n = 0;
        bool ok = true;
        for (size_t i = 0; i < traces.count && ok; i++) {
            ls__trace *t = &traces.at[i];
            ok = ls__trace_host(t) == LS_OK && ls__trace_device(t) == LS_OK;
            if (!t->steps.count) __builtin_trap();
            for (size_t k = 1; k < t->intervals.count; k++)
                if (t->intervals.at[k].begin < t->intervals.at[k - 1].end)
                    __builtin_trap(); /* phases follow each other */
            for (size_t k = 0; k < t->calls.count; k++)
                if (t->calls.at[k].done && t->calls.at[k].done < t->calls.at[k].arrived)
                    __builtin_trap(); /* a collective ends after its rank came to it */
            if (n < 64) list[n++] = t;
        }
        for (size_t i = 0; i < n; i++) list[i]->rank = (int)i;
        json_t *sizes = NULL;
        if (ok && ls__join(list, n, (int)n, &remarks) == LS_OK)
            if (ls__clocks_find(list, n, &remarks) != LS_OK || ls__describe_sizes(list, n, (int)n, &sizes) != LS_OK)
                abort();
        json_decref(sizes);
        ls__remarks_free(&remarks);
        ls__traces_free(&traces);
    }
    close(fd);
    return 0;
}
