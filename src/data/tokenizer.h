/* Tokenizers inside the layer: how they are made of files, and files of them. */
#ifndef LS_DATA_TOKENIZER_H
#define LS_DATA_TOKENIZER_H

#include "data/bpe.h"
#include "lockstep/data.h"

#define LS__END_OF_TEXT "<|endoftext|>"

/* GPT-2's printable alphabet of bytes: byte -> code point, below 512. */
uint32_t ls__byte_to_char(uint8_t byte);
/* Turns a token as files write it into its bytes, in place; false if it has characters that stand for no byte. */
bool ls__chars_to_bytes(char *text, size_t *count);

/* From texts in memory, whose names are for messages. `path` of a tokenizer.json alone, or of a vocabulary and its
 * merges. */
LS_MUST_CHECK ls_status ls__tokenizer_parse(ls__bpe **out, const char *path, const char *json, size_t json_bytes);
LS_MUST_CHECK ls_status ls__vocabulary_parse(ls__bpe **out, const char *vocab_path, const char *vocab,
                                             size_t vocab_bytes, const char *merges_path, const char *merges,
                                             size_t merges_bytes);

/* Writes vocab.json, merges.txt and tokenizer.json into a folder, which is made if need be. */
LS_MUST_CHECK ls_status ls__tokenizer_write(const ls__bpe *bpe, const char *folder);

#endif
