/* Fuzz target: any bytes as tokenizer files: 't' and a tokenizer.json, or 'v', a vocab.json, a 0 byte and merges. What is
 * accepted encodes any text, and decoding gives it back. */
#include <stdlib.h>
#include <string.h>
#include "data/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const ls__bpe *bpe)
{
    static const uint8_t text[] =
        "abababab the cat's\xff\x00 hat, 1234; aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    ls__bpe_scratch *s;
    if (ls__bpe_scratch_open(&s, bpe)) return;
    const size_t lengths[] = { 1, 2, 20, 60, sizeof text - 1 };
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        int32_t tokens[sizeof text + 8];
        size_t n = lengths[k], count = ls__bpe_piece(s, text, n, sizeof text - 1 - n, tokens), at = 0;
        if (!count || count > n) abort();
        for (size_t i = 0; i < count; i++) {
            size_t bytes;
            const uint8_t *token = ls__bpe_bytes(bpe, (uint32_t)tokens[i], &bytes);
            if (!token || bytes > n - at || memcmp(token, text + at, bytes)) abort();
            at += bytes;
        }
        if (at != n) abort();
    }
    ls__bpe_scratch_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls__bpe *bpe;
    const char *text = (const char *)data + 1;
    if (size < 1) return 0;
    size--;
    ls_status status;
    if (data[0] == 'v') {
        const char *end = memchr(text, 0, size);
        size_t vocab = end ? (size_t)(end - text) : size;
        const char *merges = end ? end + 1 : text + size;
        status = ls__vocabulary_parse(&bpe, "vocab", text, vocab, "merges", merges, (size_t)(text + size - merges));
    } else {
        status = ls__tokenizer_parse(&bpe, "tokenizer", text, size);
    }
    if (status && (bpe || !ls_error()[0])) abort();
    if (!status) check(bpe);
    ls__bpe_free(&bpe);
    return 0;
}
