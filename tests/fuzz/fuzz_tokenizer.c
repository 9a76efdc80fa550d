/* Fuzz target: any bytes as tokenizer files: 't' and a tokenizer.json, or 'v', a vocab.json, a 0 byte and merges. What is
 * accepted encodes any text, and if nothing is normalized and all bytes are tokens, decoding gives it back. */
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
    if (ls__added_split(added, text, sizeof text - 1, NULL, walk_text, walk_token, &w)) abort();
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

/* All of it: normalizing, splitting, tokens, and text again. What it does not own is the caller's. */
static void check_rules(const ls__bpe *bpe, const ls__added *added, const ls__rules *rules)
{
    static const char text[] = "ab THE cat's  \xff\x80 \xc3\x85 A\xcc\x8a\xcc\xa3\xe1\x84\x80\xe1\x85\xa1 "
                               "x\xe2\x96\x81\xe2\x96\x81y 12345.\r\n\n <s>\xe4"
                               "\xb8\xad\xe6\x96\x87\xf0\x9f\x98\x80\t\xe2\x80\x83z\xe2\x96\x81";
    ls_tokenizer t = { .bpe = (ls__bpe *)(uintptr_t)bpe, .added = *added, .rules = *rules };
    ls_encoder *e = NULL;
    if (!ls__pieces_make(&t) && !ls_encoder_open(&e, &t))
        for (size_t n = sizeof text - 1; n; n = n / 2) {
            const int32_t *tokens;
            size_t count, bytes;
            char *back;
            if (ls_encode(e, text, n, &tokens, &count) || ls_tokenizer_decode(&t, tokens, count, &back, &bytes))
                abort();
            if (rules->model == LS__MODEL_BYTES && !rules->normalize.count && !added->count &&
                rules->split.count == 1 && !(rules->split.step[0].flags & LS__STEP_PREFIX) &&
                (bytes != n || memcmp(back, text, n) != 0))
                abort();
            free(back);
            (void)ls__rules_may_cut(rules, ' ');
        }
    ls_encoder_free(&e);
    ls__pieces_free(&t.pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls__bpe *bpe;
    ls__rules rules;
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
        ls__rules_gpt2(&rules);
    } else {
        status = ls__tokenizer_parse(&bpe, &added, &rules, "tokenizer", text, size);
    }
    if (status && (bpe || added.count || !ls_error()[0])) abort();
    if (!status && rules.model == LS__MODEL_BYTES && !rules.ignore_merges) check(bpe);
    if (!status) check_rules(bpe, &added, &rules);
    if (!status) check_added(&added);
    ls__bpe_free(&bpe);
    ls__added_free(&added);
    ls__rules_free(&rules);
    return 0;
}
