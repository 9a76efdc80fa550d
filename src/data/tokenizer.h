/* Tokenizers inside the layer: how they are made of files, and files of them. */
#ifndef LS_DATA_TOKENIZER_H
#define LS_DATA_TOKENIZER_H

#include <jansson.h>
#include "data/added.h"
#include "data/bpe.h"
#include "data/rules.h"
#include "lockstep/data.h"

#define LS__END_OF_TEXT "<|endoftext|>"

/* A file that belongs to the tokenizer, as it was read. */
typedef struct ls__kept_file {
    char *text; /* NULL: there is none */
    size_t bytes;
} ls__kept_file;
enum { LS__KEPT_TOKENIZER = 0, LS__KEPT_CONFIG = 1, LS__KEPT_FILES = 5 }; /* see tokenizer_folder.c */

/* What each token adds to a text, if that is not its text in the vocabulary. */
typedef struct ls__pieces {
    uint8_t *bytes; /* NULL: it is */
    size_t *at;     /* (tokens + 1) */
} ls__pieces;

struct ls_tokenizer {
    ls__bpe *bpe; /* NULL: bytes are tokens */
    ls__added added;
    ls__rules rules;
    ls__pieces pieces;
    int32_t end;
    bool end_given;    /* by the options, not by the files */
    uint8_t each[256]; /* 0 to 255: what the tokens of `bytes` are made of */
    ls__kept_file kept[LS__KEPT_FILES];
};

/* GPT-2's printable alphabet of bytes: byte -> code point, below 512. */
uint32_t ls__byte_to_char(uint8_t byte);
/* Turns a token as files write it into its bytes, in place; false if it has characters that stand for no byte. */
bool ls__chars_to_bytes(char *text, size_t *count);

/* From texts in memory, whose names are for messages. `path` of a tokenizer.json alone, or of a vocabulary and its
 * merges; `more` is a list of added tokens as tokenizer.json has it, or NULL. On failure *out is NULL, *added and *rules empty. */
LS_MUST_CHECK ls_status ls__tokenizer_parse(ls__bpe **out, ls__added *added, ls__rules *rules, const char *path,
                                            const char *json, size_t json_bytes);
LS_MUST_CHECK ls_status ls__vocabulary_parse(ls__bpe **out, ls__added *added, const char *vocab_path, const char *vocab,
                                             size_t vocab_bytes, const char *merges_path, const char *merges,
                                             size_t merges_bytes, const json_t *more);

/* The added tokens of a folder without a tokenizer.json, from its added_tokens.json and tokenizer_config.json, as a list like that of
 * tokenizer.json; a new reference. */
LS_MUST_CHECK ls_status ls__tokenizer_added_json(const char *folder, json_t **out);
/* Reads the files next to the tokenizer that belong to it (NULL: there are none), and finds the token that ends a text. */
LS_MUST_CHECK ls_status ls__tokenizer_read_folder(ls_tokenizer *t, const char *folder);
/* Writes the files that were kept. */
LS_MUST_CHECK ls_status ls__tokenizer_write_kept(const ls_tokenizer *t, const char *folder);

/* Writes vocab.json and merges.txt, and unless the caller has them tokenizer.json and tokenizer_config.json, into a folder, which is
 * made if need be. `end` is the token that ends a text; < 0: none. */
LS_MUST_CHECK ls_status ls__tokenizer_write(const ls__bpe *bpe, const ls__added *added, int32_t end, const char *folder,
                                            bool has_tokenizer, bool has_config);

/* Makes t->pieces, if the tokenizer needs them. */
LS_MUST_CHECK ls_status ls__pieces_make(ls_tokenizer *t);
void ls__pieces_free(ls__pieces *pieces);
/* ls_tokenizer_decode() for tokenizers with pieces. All tokens exist. */
LS_MUST_CHECK ls_status ls__decode(const ls_tokenizer *t, const int32_t *tokens, size_t count, char **out,
                                   size_t *bytes);

/* ls_encode() of a part of a text; `continues`: it is not the first, and the text was cut where ls__tokenizer_may_cut() allows it. */
LS_MUST_CHECK ls_status ls__encode_part(ls_encoder *encoder, bool continues, const void *text, size_t bytes,
                                        const int32_t **tokens, size_t *count);
/* Whether text may be cut in two at `at`, where ls__split_cut() allows it, without a change to its tokens. */
bool ls__tokenizer_may_cut(const ls_tokenizer *t, const char *text, size_t bytes, size_t at);

/* LS_EINVAL if it is not known which of the special tokens ends a text; a warning if there are no special tokens. */
LS_MUST_CHECK ls_status ls__tokenizer_check_end(const ls_tokenizer *t, const char *name);

/* Whether each token of `t` has the same bytes in `other`; if not, *first is one that does not. */
bool ls__tokenizer_is_part(const ls_tokenizer *t, const ls_tokenizer *other, int32_t *first);

#endif
