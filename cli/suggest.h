/* "did you mean": the word of a list that is most like one that is not in it. */
#ifndef LS_CLI_SUGGEST_H
#define LS_CLI_SUGGEST_H

#include <stddef.h>

/* Starts with `nearest` NULL; words are offered one after the other. */
typedef struct near_word {
    const char *asked;
    size_t length;       /* of `asked` */
    const char *nearest; /* NULL: none is similar */
    int distance;
} near_word;

void near_offer(near_word *n, const char *word);

/* "; did you mean 'WORD'?", or "" if there is none. Good until the next call. */
const char *near_text(const near_word *n);

#endif
