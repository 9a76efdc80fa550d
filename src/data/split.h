/* Splits text into words before bytes are merged, as GPT-2 does: words with the space before them, numbers, runs of other
 * characters, white space, and English contractions. Written by hand because that is ten times faster than a regular expression,
 * which is what its test compares it with. */
#ifndef LS_DATA_SPLIT_H
#define LS_DATA_SPLIT_H

#include <stdbool.h>
#include "lockstep/base.h"

/* The class of a character. A byte that is not valid UTF-8 is a separate character of class other. */
typedef enum ls__char_class {
    LS__OTHER = 0,
    LS__LETTER = 1,
    LS__NUMBER = 2,
    LS__SPACE = 3,
} ls__char_class;

/* Two bits a code point: block ls__class_index[c / 256], then 64 bytes of four each. */
extern const uint8_t ls__class_index[];
extern const uint8_t ls__class_blocks[][64];

/* First and last code point of what belongs to words (\w of regular expressions), in order. */
extern const size_t ls__word_range_count;
extern const int32_t ls__word_ranges[][2];
/* Whether the character at `p` < `end` belongs to a word. */
bool ls__is_word(const uint8_t *p, const uint8_t *end);

/* The class of the character at `p` < `end` and its length in bytes. */
ls__char_class ls__char_at(const uint8_t *p, const uint8_t *end, size_t *bytes);

/* The length of the first word of the text; at least 1 if there is any text. */
size_t ls__split(const uint8_t *text, const uint8_t *end);

/* The same as Llama 3 splits; at most `digits` numbers are one word, 0: any. */
size_t ls__split_llama(const uint8_t *text, const uint8_t *end, uint32_t digits);

/* The first position at or after `from` where the text can be cut in two without changing its words:
 * between a character that is not white space and one that is (for ls__split_llama(), if that is not the end of a line). `bytes` if
 * there is none. */
size_t ls__split_cut(const uint8_t *text, size_t from, size_t bytes);

#endif
