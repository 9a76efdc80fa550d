/* Fuzz target: any bytes as a shard of tokens. The first byte says which format is claimed, how large the vocabulary is
 * and whether the name ends in .bin. What is accepted can be read to the end, and holds as many tokens as its size allows
 * and none outside. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "data/shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    int choice = data[0] % 5; /* auto, and the formats of shards */
    ls_data_format format = (ls_data_format)(choice ? LS_FORMAT_LLMC16 - 1 + choice : 0);
    uint32_t vocab_size = data[0] & 0x80 ? 50257 : 0;
    ls__source file = { .path = (char *)(uintptr_t)(data[0] & 0x40 ? "fuzz" : "fuzz.bin"),
                        .fd = memfd_create("fuzz", MFD_CLOEXEC),
                        .bytes = size - 1 };
    if (file.fd < 0 || write(file.fd, data + 1, size - 1) != (ssize_t)(size - 1)) abort();
    ls__shard shard;
    if (ls__shard_examine(&file, format, &shard)) {
        if (!ls_error()[0]) abort();
    } else {
        if (!shard.tokens || shard.begin + shard.tokens * shard.width != file.bytes) abort();
        int32_t tokens[100], inputs[100], targets[100];
        for (uint64_t at = 0; at < shard.tokens; at += 100) {
            size_t n = shard.tokens - at < 100 ? shard.tokens - at : 100;
            ls_status status = ls__shard_read(&file, &shard, at, n, vocab_size, tokens);
            if (!status)
                for (size_t i = 0; i < n; i++)
                    if (tokens[i] < 0 || (vocab_size && (uint32_t)tokens[i] >= vocab_size)) abort();
            if (shard.width != 2 || n < 2) continue;
            ls_status pairs = ls__shard_read_pairs(&file, &shard, at, n - 1, vocab_size, inputs, targets);
            if (pairs != status) abort();
            for (size_t i = 0; !status && i + 1 < n; i++)
                if (inputs[i] != tokens[i] || targets[i] != tokens[i + 1]) abort();
        }
    }
    close(file.fd);
    return 0;
}
