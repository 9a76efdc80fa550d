/* Byte-pair encoding: a vocabulary of byte strings and an ordered list of pairs that merge. WordPiece is a vocabulary alone. */
#ifndef LS_DATA_BPE_H
#define LS_DATA_BPE_H

#include <stdbool.h>
#include "lockstep/base.h"

enum { LS__BPE_MAX_TOKENS = 1 << 22, LS__BPE_MAX_TOKEN_BYTES = 1 << 14 };
#define LS__BPE_NONE UINT32_MAX

typedef struct ls__bpe ls__bpe;

/* An empty model for ids below `tokens`. */
LS_MUST_CHECK ls_status ls__bpe_open(ls__bpe **out, uint32_t tokens);
void ls__bpe_free(ls__bpe **bpe);

/* Token `id` is these bytes. An id that is taken or too large, no bytes or too many are LS_EFORMAT. Two tokens may be
 * the same bytes (a special one, say); the first is then found. */
LS_MUST_CHECK ls_status ls__bpe_add_token(ls__bpe *bpe, uint32_t id, const void *bytes, size_t count);
/* The id of a byte string; LS__BPE_NONE if it is not a token. */
uint32_t ls__bpe_find(const ls__bpe *bpe, const void *bytes, size_t count);
/* The next pair that merges: `left` and `right` are ids, and their bytes together must be a token. A pair that was
 * there before keeps its first rank. */
LS_MUST_CHECK ls_status ls__bpe_add_merge(ls__bpe *bpe, uint32_t left, uint32_t right);
/* What was added so far is the vocabulary; what follows are added tokens, which are no result of encoding. */
void ls__bpe_end_vocabulary(ls__bpe *bpe);
/* All is there: a model of bytes. Every single byte must be a token, or some text could not be encoded. */
LS_MUST_CHECK ls_status ls__bpe_seal(ls__bpe *bpe);
/* A word that is a token is that token, whatever the merges say. */
void ls__bpe_ignore_merges(ls__bpe *bpe);
/* All is there: a model of characters. One that is not in the vocabulary becomes the tokens of its bytes, "<0x0A>", if
 * `byte_fallback` and if all of them exist, or else the token `unknown`; `fuse`: one for several in sequence. */
LS_MUST_CHECK ls_status ls__bpe_seal_chars(ls__bpe *bpe, const char *unknown, bool byte_fallback, bool fuse);
/* All is there: WordPiece. A word is its longest beginning that is a token, then the longest that continues it, with `prefix` before
 * it...; the token `unknown` if that fails or if it has more than `limit` characters. */
LS_MUST_CHECK ls_status ls__bpe_seal_wordpiece(ls__bpe *bpe, const char *unknown, const char *prefix, uint32_t limit);

uint32_t ls__bpe_tokens(const ls__bpe *bpe); /* as given to open */
uint32_t ls__bpe_merges(const ls__bpe *bpe);
/* The bytes of a token; NULL if the id has none. */
const uint8_t *ls__bpe_bytes(const ls__bpe *bpe, uint32_t id, size_t *count);
/* Merge number `rank`. */
void ls__bpe_merge_at(const ls__bpe *bpe, uint32_t rank, uint32_t *left, uint32_t *right);

/* Memory for encoding, one for each thread. */
typedef struct ls__bpe_scratch ls__bpe_scratch;
LS_MUST_CHECK ls_status ls__bpe_scratch_open(ls__bpe_scratch **out, const ls__bpe *bpe);
void ls__bpe_scratch_free(ls__bpe_scratch **scratch);

/* Tokenizes one word of `count` bytes; out has room for count + 8 tokens, of which the last 8 may be overwritten. `slack`
 * bytes after the word can be read. Returns how many tokens there are; 0 only if memory ran out. */
size_t ls__bpe_word(ls__bpe_scratch *scratch, const uint8_t *word, size_t count, size_t slack, int32_t *out);

#endif
