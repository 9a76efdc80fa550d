/* What normalizers and pre-tokenizers need to know of characters. The tables are in unicode_forms.c. */
#ifndef LS_DATA_UNICODE_H
#define LS_DATA_UNICODE_H

#include "lockstep/base.h"

enum {
    LS__FORM_UNSTABLE = 1,     /* may combine with the character before it, or move before it */
    LS__FORM_CHANGES = 2,      /* NFC writes it differently, even alone */
    LS__FORM_REMOVED = 4,      /* BERT's clean_text removes it */
    LS__FORM_SPACE = 8,        /* white space */
    LS__FORM_CJK = 16,         /* BERT separates it from its neighbours */
    LS__FORM_MARK = 32,        /* an accent, which BERT removes once it is separate */
    LS__FORM_PUNCTUATION = 64, /* for BERT */
    LS__FORM_DIGIT = 128,
};

/* Flags of a code point: block ls__form_index[c / 256], then c % 256. */
extern const uint8_t ls__form_index[];
extern const uint8_t ls__form_blocks[][256];
static inline uint8_t ls__form_of(int32_t c)
{
    return ls__form_blocks[ls__form_index[c >> 8]][c & 255];
}

/* Sorted by the first column: {first, last, combining class}; {character, its two parts, the second may be 0};
 * {first part, second part, character}; {character, its lower case, a second character or 0}. */
extern const size_t ls__combining_count, ls__decompositions_count, ls__compositions_count, ls__lowered_count;
extern const int32_t ls__combining[][3], ls__decompositions[][3], ls__compositions[][3], ls__lowered[][3];

/* The code point at p < end and its length; -1 and 1 for a byte that is not valid UTF-8. */
int32_t ls__utf8_get(const uint8_t *p, const uint8_t *end, size_t *bytes);
/* Writes a code point, at most 4 bytes; returns how many. */
size_t ls__utf8_put(uint8_t *p, int32_t c);

#endif
