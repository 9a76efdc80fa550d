/* GPT-2's way to cut a text into pieces before merging bytes: words with the blank before them, numbers, runs of other
 * signs, white space, and English contractions. By hand, because it is ten times faster than a regular expression; the
 * expression is the oracle of its test. */
#ifndef LS_DATA_SPLIT_H
#define LS_DATA_SPLIT_H

#include <stdbool.h>
#include "lockstep/base.h"

/* What a character is to the splitter. A byte that is no valid UTF-8 is a character of its own and counts as other. */
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

/* The length of the first piece of the text; at least 1 if there is any text. */
size_t ls__split(const uint8_t *text, const uint8_t *end);

/* The first place at or behind `from` where the text can be cut in two whose pieces together are those of the whole:
 * between a character that is no white space and one that is. `bytes` if there is none. */
size_t ls__split_cut(const uint8_t *text, size_t from, size_t bytes);

#endif
