/* The rules of a tokenizer.json besides its vocabulary: how text is normalized, split, tokenized and put together again. */
#ifndef LS_DATA_RULES_H
#define LS_DATA_RULES_H

#include <jansson.h>
#include <stdbool.h>
#include "data/template.h"
#include "lockstep/base.h"

typedef enum ls__subword_kind {
    LS__MODEL_BYTES = 0,     /* byte-pair encoding of bytes */
    LS__MODEL_CHARS = 1,     /* byte-pair encoding of characters */
    LS__MODEL_WORDPIECE = 2, /* the longest token first */
} ls__subword_kind;

typedef enum ls__step_kind {
    /* normalizers: */
    LS__STEP_NFC,
    LS__STEP_LOWERCASE,
    LS__STEP_PREPEND, /* a: text */
    LS__STEP_REPLACE, /* a by b; a decoder, too */
    LS__STEP_BERT_NORMALIZER,
    /* pre-tokenizers: */
    LS__STEP_SPLIT_GPT2,
    LS__STEP_SPLIT_LLAMA, /* number: of digits that are one word at most; 0: any */
    LS__STEP_DIGITS,      /* flag LS__STEP_SINGLE: each is a word */
    LS__STEP_BYTE_LEVEL,  /* flag LS__STEP_PREFIX: a space before each word that has none */
    LS__STEP_METASPACE,   /* a: what a space becomes; flags PREFIX, FIRST, SINGLE: split; a decoder, too */
    LS__STEP_BERT_SPLIT,
    /* decoders: */
    LS__STEP_BYTE_FALLBACK,
    LS__STEP_FUSE,
    LS__STEP_STRIP,    /* a: character; number: at most so many in front, number2: at the end */
    LS__STEP_WORDPIECE /* a: prefix; flag CLEAN */
} ls__step_kind;

enum {
    LS__STEP_PREFIX = 1,
    LS__STEP_FIRST = 2,
    LS__STEP_SINGLE = 4,
    LS__STEP_CLEAN = 8,
    LS__STEP_CJK = 16,
    LS__STEP_ACCENTS = 32,
    LS__STEP_LOWER = 64
};

typedef struct ls__step {
    ls__step_kind kind;
    unsigned flags;
    uint32_t number, number2;
    uint8_t *a, *b;
    size_t a_bytes, b_bytes;
} ls__step;

enum { LS__STEPS_MAX = 12 };
typedef struct ls__steps {
    ls__step step[LS__STEPS_MAX];
    size_t count;
} ls__steps;

typedef struct ls__rules {
    ls__subword_kind model;
    ls__steps normalize, split, decode;
    bool ignore_merges, byte_fallback, fuse_unk;
    char *unknown; /* the text of the token for what the vocabulary lacks; NULL: none */
    char *prefix;  /* of tokens that continue a word (WordPiece) */
    uint32_t word_limit;
    ls__templates templates;
    /* Words of a character model may be cut before this mark: the vocabulary has no token with it after another character. */
    uint8_t mark[8];
    size_t mark_bytes; /* 0: they may not */
} ls__rules;

/* Those of GPT-2, which vocab.json and merges.txt do not spell out. */
void ls__rules_gpt2(ls__rules *rules);
bool ls__rules_are_gpt2(const ls__rules *rules);
/* From a tokenizer.json. What is not supported is LS_EUNSUPPORTED with its place; *rules is empty then. */
LS_MUST_CHECK ls_status ls__rules_parse(ls__rules *rules, const char *path, const json_t *root);
void ls__rules_free(ls__rules *rules);
/* Whether text may be cut before this white space, after something else, without a change to its tokens. */
bool ls__rules_may_cut(const ls__rules *rules, uint8_t space);

#endif
