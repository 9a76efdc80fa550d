/* Files of events: any bytes, as rank 0's and rank 1's record. Blocks are given their right checksums, or nothing would get past them. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include "record/event_file.h"
#include "lockstep/measure.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Puts right the checksums of the head and of all blocks that have a sensible length. */
static void repair(uint8_t *data, size_t size)
{
    uint32_t head;
    if (size < 24) return;
    memcpy(&head, data + 12, sizeof head);
    if (head > size - 24) return;
    uint64_t sum = XXH3_64bits(data, 16 + head);
    memcpy(data + 16 + head, &sum, sizeof sum);
    for (size_t at = 24 + head; size - at >= sizeof(ls__event_file_block);) {
        ls__event_file_block b;
        memcpy(&b, data + at, sizeof b);
        if (b.bytes > size - at - sizeof b) return;
        sum = XXH3_64bits(data + at + 8, sizeof b - 8 + b.bytes);
        memcpy(data + at, &sum, sizeof sum);
        at += sizeof b + b.bytes;
    }
}

static void write_file(const char *path, const uint8_t *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    if (size && fwrite(data, 1, size, f) != size) abort();
    fclose(f);
}

static void try_bytes(const char *folder, const uint8_t *data, size_t size)
{
    char path[2][64];
    ls_run *run;
    for (int r = 0; r < 2; r++) {
        snprintf(path[r], sizeof path[r], "%s/rank-%d.bin", folder, r);
        write_file(path[r], data, size);
    }
    if (ls_run_open(&run, folder, NULL) == LS_OK) {
        for (size_t i = 0; i < run->n_steps; i++)
            for (int r = 0; r < run->ranks; r++) {
                const ls_step_rank *s = &run->steps[i].rank[r];
                int64_t sum = 0;
                for (int p = 0; p < LS_PHASE_COUNT; p++) sum += s->ns[p];
                if (s->present && sum != s->end - s->begin)
                    __builtin_trap(); /* phases add up, whatever the file says */
            }
        ls_run_free(&run);
    }
    for (int r = 0; r < 2; r++) unlink(path[r]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char folder[] = "/tmp/lockstep-fuzz-XXXXXX";
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy || !mkdtemp(folder)) abort();
    memcpy(copy, data, size);
    try_bytes(folder, copy, size);
    repair(copy, size);
    try_bytes(folder, copy, size);
    free(copy);
    rmdir(folder);
    return 0;
}
