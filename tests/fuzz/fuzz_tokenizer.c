/* Fuzz target: any bytes as tokenizer files: 't' and a tokenizer.json, or 'v', a vocab.json, a 0 byte and merges. What is
 * accepted encodes any text, and decoding gives it back. */
#include <stdlib.h>
#include <string.h>
#include "data/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is between added tokens is the text, in order and without a byte twice. */
typedef struct walk {
    const uint8_t *at, *end;
} walk;

static ls_status walk_text(void *user, const uint8_t *text, size_t bytes)
{
    walk *w = user;
    if (!bytes || text < w->at || bytes > (size_t)(w->end - text)) abort();
    w->at = text + bytes;
    return LS_OK;
}

static ls_status walk_token(void *user, uint32_t id)
{
    (void)user;
    return id < LS__BPE_MAX_TOKENS ? LS_OK : LS_EINVAL;
}

static void check_added(const ls__added *added)
{
    static const uint8_t text[] = "a <|endoftext|> b\t<|im_start|>\xffuser_ \xe2\x80\x83x<|endoftext|><a>";
    walk w = { .at = text, .end = text + sizeof text - 1 };
    if (ls__added_split(added, text, sizeof text - 1, walk_text, walk_token, &w)) abort();
    for (size_t at = 1; at < sizeof text - 1; at++) (void)ls__added_may_cut(added, text, sizeof text - 1, at);
}

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
        size_t n = lengths[k], count = ls__bpe_word(s, text, n, sizeof text - 1 - n, tokens), at = 0;
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
    ls__added added;
    const char *text = (const char *)data + 1;
    if (size < 1) return 0;
    size--;
    ls_status status;
    if (data[0] == 'v') {
        const char *end = memchr(text, 0, size);
        size_t vocab = end ? (size_t)(end - text) : size;
        const char *merges = end ? end + 1 : text + size;
        status = ls__vocabulary_parse(&bpe, &added, "vocab", text, vocab, "merges", merges,
                                      (size_t)(text + size - merges), NULL);
    } else {
        status = ls__tokenizer_parse(&bpe, &added, "tokenizer", text, size);
    }
    if (status && (bpe || added.count || !ls_error()[0])) abort();
    if (!status) check(bpe);
    if (!status) check_added(&added);
    ls__bpe_free(&bpe);
    ls__added_free(&added);
    return 0;
}
