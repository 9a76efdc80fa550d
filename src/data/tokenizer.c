/* Tokenizers: bytes, and byte-pair encodings read from files. The tokenizer itself is read-only; each thread that
 * encodes has an encoder with the memory for it. */
#include "data/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "data/split.h"

enum { FILE_LIMIT = 1 << 28, BYTES_END = 256 };

struct ls_tokenizer {
    ls__bpe *bpe; /* NULL: bytes are tokens */
    int32_t end;
    uint8_t each[256]; /* 0 to 255: what the tokens of `bytes` are made of */
};

struct ls_encoder {
    const ls_tokenizer *tokenizer;
    ls__bpe_scratch *scratch; /* NULL: bytes */
    int32_t *tokens;
    size_t room;
};

static ls_status read_tokenizer(ls__bpe **out, const char *path)
{
    char *text;
    size_t bytes;
    ls_status status = ls__file_read(path, FILE_LIMIT, &text, &bytes);
    if (status) return status;
    status = ls__tokenizer_parse(out, path, text, bytes);
    free(text);
    return status;
}

static ls_status read_vocabulary(ls__bpe **out, const char *vocab_path, const char *merges_path)
{
    char *vocab = NULL, *merges = NULL;
    size_t vocab_bytes, merges_bytes;
    ls_status status = ls__file_read(vocab_path, FILE_LIMIT, &vocab, &vocab_bytes);
    if (!status) status = ls__file_read(merges_path, FILE_LIMIT, &merges, &merges_bytes);
    if (!status) status = ls__vocabulary_parse(out, vocab_path, vocab, vocab_bytes, merges_path, merges, merges_bytes);
    free(vocab);
    free(merges);
    return status;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* A folder: whichever of the usual files it has. */
static ls_status read_folder(ls__bpe **out, const char *folder)
{
    static const char *const names[][2] = { { "tokenizer.json", NULL },
                                            { "vocab.json", "merges.txt" },
                                            { "encoder.json", "vocab.bpe" } };
    ls_status status = ls__fail(LS_ENOENT,
                                "%s: no tokenizer: neither tokenizer.json, nor vocab.json and merges.txt, nor "
                                "encoder.json and vocab.bpe are there",
                                folder);
    for (size_t i = 0; i < 3; i++) {
        char *first = NULL, *second = NULL;
        if (asprintf(&first, "%s/%s", folder, names[i][0]) < 0) first = NULL;
        if (first && names[i][1] && asprintf(&second, "%s/%s", folder, names[i][1]) < 0) second = NULL;
        bool found = first && exists(first);
        if (found) status = second ? read_vocabulary(out, first, second) : read_tokenizer(out, first);
        free(first);
        free(second);
        if (found) break;
    }
    return status;
}

ls_status ls_tokenizer_open(ls_tokenizer **out, const char *name)
{
    *out = NULL;
    ls_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return ls__fail(LS_ENOMEM, "no memory for a tokenizer");
    for (int i = 0; i < 256; i++) t->each[i] = (uint8_t)i;
    ls_status status = LS_OK;
    size_t length = strlen(name);
    if (!strcmp(name, "bytes"))
        t->end = BYTES_END;
    else if (length > 5 && !strcmp(name + length - 5, ".json"))
        status = read_tokenizer(&t->bpe, name);
    else
        status = read_folder(&t->bpe, name);
    if (status) {
        free(t);
        return status;
    }
    if (t->bpe) {
        uint32_t end = ls__bpe_find(t->bpe, LS__END_OF_TEXT, sizeof LS__END_OF_TEXT - 1);
        t->end = end == LS__BPE_NONE ? -1 : (int32_t)end;
    }
    *out = t;
    return LS_OK;
}

void ls_tokenizer_free(ls_tokenizer **tokenizer)
{
    ls_tokenizer *t = *tokenizer;
    if (!t) return;
    ls__bpe_free(&t->bpe);
    free(t);
    *tokenizer = NULL;
}

ls_status ls_tokenizer_save(const ls_tokenizer *tokenizer, const char *folder)
{
    return tokenizer->bpe ? ls__tokenizer_write(tokenizer->bpe, folder) : LS_OK;
}

uint32_t ls_tokenizer_vocabulary(const ls_tokenizer *t)
{
    return t->bpe ? ls__bpe_tokens(t->bpe) : BYTES_END + 1;
}

int32_t ls_tokenizer_end(const ls_tokenizer *t)
{
    return t->end;
}

const uint8_t *ls_tokenizer_bytes(const ls_tokenizer *t, int32_t token, size_t *count)
{
    *count = 0;
    if (token < 0) return NULL;
    if (t->bpe) return ls__bpe_bytes(t->bpe, (uint32_t)token, count);
    if (token == BYTES_END) {
        *count = sizeof LS__END_OF_TEXT - 1;
        return (const uint8_t *)LS__END_OF_TEXT;
    }
    *count = 1;
    return token < BYTES_END ? &t->each[token] : NULL;
}

ls_status ls_tokenizer_decode(const ls_tokenizer *t, const int32_t *tokens, size_t count, char **out, size_t *bytes)
{
    size_t total = 0, n;
    *out = NULL;
    *bytes = 0;
    for (size_t i = 0; i < count; i++) {
        if (!ls_tokenizer_bytes(t, tokens[i], &n))
            return ls__fail(LS_EINVAL, "token %d (number %zu) is not in the vocabulary of %u", tokens[i], i,
                            ls_tokenizer_vocabulary(t));
        total += n;
    }
    char *text = malloc(total + 1);
    if (!text) return ls__fail(LS_ENOMEM, "no memory for a text of %zu bytes", total);
    for (size_t i = 0, at = 0; i < count; i++, at += n) {
        const uint8_t *token = ls_tokenizer_bytes(t, tokens[i], &n);
        memcpy(text + at, token, n);
    }
    text[total] = 0;
    *out = text;
    *bytes = total;
    return LS_OK;
}

/* ---- Encoding. */

ls_status ls_encoder_open(ls_encoder **out, const ls_tokenizer *tokenizer)
{
    *out = NULL;
    ls_encoder *e = calloc(1, sizeof *e);
    if (!e) return ls__fail(LS_ENOMEM, "no memory to encode text");
    e->tokenizer = tokenizer;
    ls_status status = tokenizer->bpe ? ls__bpe_scratch_open(&e->scratch, tokenizer->bpe) : LS_OK;
    if (status) {
        free(e);
        return status;
    }
    *out = e;
    return LS_OK;
}

void ls_encoder_free(ls_encoder **encoder)
{
    ls_encoder *e = *encoder;
    if (!e) return;
    ls__bpe_scratch_free(&e->scratch);
    free(e->tokens);
    free(e);
    *encoder = NULL;
}

/* Room for `more` tokens behind the first `used`. */
static ls_status make_room(ls_encoder *e, size_t used, size_t more)
{
    if (more <= e->room - used) return LS_OK;
    size_t room = e->room + e->room / 2 + more;
    int32_t *tokens = realloc(e->tokens, room * sizeof *tokens);
    if (!tokens) return ls__fail(LS_ENOMEM, "no memory for %zu tokens", room);
    e->tokens = tokens;
    e->room = room;
    return LS_OK;
}

static ls_status encode_bytes(ls_encoder *e, const uint8_t *text, size_t bytes, size_t *count)
{
    ls_status status = make_room(e, 0, bytes);
    if (status) return status;
    for (size_t i = 0; i < bytes; i++) e->tokens[i] = text[i];
    *count = bytes;
    return LS_OK;
}

static ls_status encode_pieces(ls_encoder *e, const uint8_t *text, size_t bytes, size_t *count)
{
    const uint8_t *p = text, *end = text + bytes;
    size_t used = 0;
    while (p < end) {
        size_t piece = ls__split(p, end);
        if (piece + 8 > e->room - used) {
            /* A piece may need as many tokens as it has bytes; text has a token for every four or five. */
            ls_status status = make_room(e, used, piece + (size_t)(end - p) / 4 + 64);
            if (status) return status;
        }
        size_t n = ls__bpe_piece(e->scratch, p, piece, (size_t)(end - p) - piece, e->tokens + used);
        if (!n) return ls__fail(LS_ENOMEM, "no memory for a piece of %zu bytes", piece);
        used += n;
        p += piece;
    }
    *count = used;
    return LS_OK;
}

ls_status ls_encode(ls_encoder *e, const void *text, size_t bytes, const int32_t **tokens, size_t *count)
{
    *tokens = NULL;
    *count = 0;
    ls_status status = e->scratch ? encode_pieces(e, text, bytes, count) : encode_bytes(e, text, bytes, count);
    if (!status) *tokens = e->tokens;
    return status;
}
