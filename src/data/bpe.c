/* Byte-pair encoding. The model is read-only once sealed and shared by all threads.
 *
 * A word starts as its single bytes; then the neighbouring pair that was learned first (lowest rank, leftmost of equals) is
 * merged, repeatedly, until no pair can be merged. For short words the lowest rank is searched in a small array; for long ones (a
 * line of a thousand dashes) it comes from a heap, so that the time is n log n.
 *
 * Models of characters (SentencePiece's) start with the tokens of the word's characters instead. WordPiece has no merges, and takes the
 * longest token each time.
 *
 * Words repeat: a table in each thread's scratch caches the tokens of short words. It has one entry per hash value, the last one
 * wins; an entry is a cache line. */
#include "data/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "base/status.h"
#include "data/unicode.h"

typedef struct span {
    size_t at;
    uint32_t count; /* 0: no such token */
} span;

typedef struct pair {
    uint64_t key; /* left << 32 | right */
    uint32_t rank, id;
} pair;
#define NO_PAIR UINT64_MAX

struct ls__bpe {
    uint32_t tokens;
    span *spans; /* (tokens): where each token's bytes are */
    uint8_t *bytes;
    size_t bytes_used, bytes_room;
    uint32_t *strings; /* hash of a token's bytes -> id; LS__BPE_NONE: free */
    uint64_t strings_mask;
    pair *pairs; /* hash of a pair -> what becomes of it */
    uint64_t pairs_mask;
    uint64_t *merges; /* (merge_count): keys in order of rank */
    uint32_t merge_count, merge_room;
    uint32_t singles[256]; /* the token of each byte; of characters: for those that are not in the vocabulary */
    enum { OF_BYTES, OF_CHARS, WORDPIECE } kind;
    bool ignore_merges, fuse;
    size_t vocabulary_bytes; /* tokens whose bytes are at or after this are no result of encoding */
    uint32_t unknown;
    char *prefix; /* WordPiece */
    size_t prefix_bytes, longest;
    uint32_t limit;
};

ls_status ls__bpe_open(ls__bpe **out, uint32_t tokens)
{
    *out = NULL;
    if (!tokens || tokens > LS__BPE_MAX_TOKENS)
        return ls__fail(LS_EFORMAT, "vocabulary size %u; must be from 1 to %d", tokens, LS__BPE_MAX_TOKENS);
    ls__bpe *b = calloc(1, sizeof *b);
    if (!b) return ls__fail(LS_ENOMEM, "no memory for a tokenizer");
    b->tokens = tokens;
    b->unknown = LS__BPE_NONE;
    b->vocabulary_bytes = SIZE_MAX;
    b->strings_mask = 1;
    while (b->strings_mask < 2 * (uint64_t)tokens) b->strings_mask *= 2;
    b->pairs_mask = 1024;
    b->spans = calloc(tokens, sizeof *b->spans);
    b->strings = malloc(b->strings_mask * sizeof *b->strings);
    b->pairs = malloc(b->pairs_mask * sizeof *b->pairs);
    if (!b->spans || !b->strings || !b->pairs) {
        ls__bpe_free(&b);
        return ls__fail(LS_ENOMEM, "no memory for a vocabulary of %u tokens", tokens);
    }
    memset(b->strings, 0xff, b->strings_mask * sizeof *b->strings);
    memset(b->pairs, 0xff, b->pairs_mask * sizeof *b->pairs);
    b->strings_mask--;
    b->pairs_mask--;
    *out = b;
    return LS_OK;
}

void ls__bpe_free(ls__bpe **bpe)
{
    ls__bpe *b = *bpe;
    if (!b) return;
    free(b->spans);
    free(b->bytes);
    free(b->strings);
    free(b->pairs);
    free(b->merges);
    free(b->prefix);
    free(b);
    *bpe = NULL;
}

/* The place of a byte string in the table of strings: where it is, or where it would go. */
static uint64_t string_place(const ls__bpe *b, const void *bytes, size_t count)
{
    uint64_t i = XXH3_64bits(bytes, count) & b->strings_mask;
    for (; b->strings[i] != LS__BPE_NONE; i = (i + 1) & b->strings_mask) {
        const span *s = &b->spans[b->strings[i]];
        if (s->count == count && !memcmp(b->bytes + s->at, bytes, count)) break;
    }
    return i;
}

ls_status ls__bpe_add_token(ls__bpe *b, uint32_t id, const void *bytes, size_t count)
{
    if (id >= b->tokens)
        return ls__fail(LS_EFORMAT, "token id %u is out of range; the vocabulary size is %u", id, b->tokens - 1);
    if (b->spans[id].count) return ls__fail(LS_EFORMAT, "token id %u occurs twice", id);
    if (!count || count > LS__BPE_MAX_TOKEN_BYTES)
        return ls__fail(LS_EFORMAT, "token %u has %zu bytes; must be from 1 to %d", id, count, LS__BPE_MAX_TOKEN_BYTES);
    if (count > b->bytes_room - b->bytes_used) {
        size_t room = 2 * b->bytes_room + count + 4096;
        uint8_t *grown = realloc(b->bytes, room);
        if (!grown) return ls__fail(LS_ENOMEM, "no memory for the bytes of %u tokens", b->tokens);
        b->bytes = grown;
        b->bytes_room = room;
    }
    uint64_t place = string_place(b, bytes, count);
    memcpy(b->bytes + b->bytes_used, bytes, count);
    b->spans[id] = (span){ .at = b->bytes_used, .count = (uint32_t)count };
    b->bytes_used += count;
    if (b->strings[place] == LS__BPE_NONE) b->strings[place] = id;
    if (count > b->longest) b->longest = count;
    return LS_OK;
}

uint32_t ls__bpe_find(const ls__bpe *b, const void *bytes, size_t count)
{
    return count ? b->strings[string_place(b, bytes, count)] : LS__BPE_NONE;
}

static uint64_t pair_hash(uint64_t key)
{
    key *= UINT64_C(0x9e3779b97f4a7c15);
    return key ^ key >> 32;
}

/* Where a pair is in the table, or where it would go. */
static inline pair *pair_place(const ls__bpe *b, uint64_t key)
{
    uint64_t i = pair_hash(key) & b->pairs_mask;
    while (b->pairs[i].key != key && b->pairs[i].key != NO_PAIR) i = (i + 1) & b->pairs_mask;
    return &b->pairs[i];
}

static ls_status grow_pairs(ls__bpe *b)
{
    uint64_t old_places = b->pairs_mask + 1, places = 2 * old_places;
    pair *old = b->pairs, *grown = malloc(places * sizeof *grown);
    if (!grown) return ls__fail(LS_ENOMEM, "no memory for %u merges", b->merge_count);
    memset(grown, 0xff, places * sizeof *grown);
    b->pairs = grown;
    b->pairs_mask = places - 1;
    for (uint64_t i = 0; i < old_places; i++)
        if (old[i].key != NO_PAIR) *pair_place(b, old[i].key) = old[i];
    free(old);
    return LS_OK;
}

ls_status ls__bpe_add_merge(ls__bpe *b, uint32_t left, uint32_t right)
{
    uint8_t joined[2 * LS__BPE_MAX_TOKEN_BYTES];
    size_t n_left, n_right;
    const uint8_t *bytes_left = ls__bpe_bytes(b, left, &n_left), *bytes_right = ls__bpe_bytes(b, right, &n_right);
    if (!bytes_left || !bytes_right)
        return ls__fail(LS_EFORMAT, "merge %u: token %u does not exist", b->merge_count, bytes_left ? right : left);
    memcpy(joined, bytes_left, n_left);
    memcpy(joined + n_left, bytes_right, n_right);
    uint32_t id = ls__bpe_find(b, joined, n_left + n_right);
    if (id == LS__BPE_NONE)
        return ls__fail(LS_EFORMAT, "merge %u: tokens %u and %u together are not in the vocabulary", b->merge_count,
                        left, right);
    if (b->merge_count >= LS__BPE_MAX_TOKENS) return ls__fail(LS_EFORMAT, "more than %d merges", LS__BPE_MAX_TOKENS);
    ls_status status = 2 * (uint64_t)b->merge_count > b->pairs_mask ? grow_pairs(b) : LS_OK;
    if (status) return status;
    if (b->merge_count == b->merge_room) {
        uint32_t room = 2 * b->merge_room + 1024;
        uint64_t *grown = realloc(b->merges, room * sizeof *grown);
        if (!grown) return ls__fail(LS_ENOMEM, "no memory for %u merges", room);
        b->merges = grown;
        b->merge_room = room;
    }
    uint64_t key = (uint64_t)left << 32 | right;
    pair *p = pair_place(b, key);
    if (p->key == NO_PAIR) *p = (pair){ .key = key, .rank = b->merge_count, .id = id };
    b->merges[b->merge_count++] = key;
    return LS_OK;
}

ls_status ls__bpe_seal(ls__bpe *b)
{
    for (int i = 0; i < 256; i++) {
        uint8_t byte = (uint8_t)i;
        b->singles[i] = ls__bpe_find(b, &byte, 1);
        if (b->singles[i] == LS__BPE_NONE)
            return ls__fail(LS_EFORMAT,
                            "the vocabulary has no token for byte %d; such a tokenizer cannot encode every text", i);
    }
    return LS_OK;
}

void ls__bpe_end_vocabulary(ls__bpe *b)
{
    b->vocabulary_bytes = b->bytes_used;
}

void ls__bpe_ignore_merges(ls__bpe *b)
{
    b->ignore_merges = true;
}

/* Like ls__bpe_find(), in the vocabulary alone. */
static uint32_t find_own(const ls__bpe *b, const void *bytes, size_t count)
{
    uint32_t id = ls__bpe_find(b, bytes, count);
    return id != LS__BPE_NONE && b->spans[id].at >= b->vocabulary_bytes ? LS__BPE_NONE : id;
}

static ls_status find_unknown(ls__bpe *b, const char *unknown)
{
    b->unknown = find_own(b, unknown, strlen(unknown));
    if (b->unknown != LS__BPE_NONE) return LS_OK;
    return ls__fail(LS_EFORMAT, "unk_token '%s' is not in the vocabulary", unknown);
}

ls_status ls__bpe_seal_chars(ls__bpe *b, const char *unknown, bool byte_fallback, bool fuse)
{
    int missing = byte_fallback ? -1 : 0;
    b->kind = OF_CHARS;
    b->fuse = fuse;
    for (int i = 255; i >= 0; i--) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)i & 255);
        b->singles[i] = byte_fallback ? find_own(b, text, 6) : LS__BPE_NONE;
        if (b->singles[i] == LS__BPE_NONE) missing = i;
    }
    if (unknown) return find_unknown(b, unknown);
    if (missing < 0) return LS_OK;
    return ls__fail(LS_EFORMAT,
                    "the model has neither unk_token nor the token <0x%02X> for byte_fallback; such a tokenizer cannot "
                    "encode every text",
                    (unsigned)missing);
}

ls_status ls__bpe_seal_wordpiece(ls__bpe *b, const char *unknown, const char *prefix, uint32_t limit)
{
    b->kind = WORDPIECE;
    b->limit = limit;
    b->prefix = strdup(prefix);
    b->prefix_bytes = strlen(prefix);
    if (!b->prefix) return ls__fail(LS_ENOMEM, "no memory for a tokenizer");
    return find_unknown(b, unknown);
}

uint32_t ls__bpe_tokens(const ls__bpe *b)
{
    return b->tokens;
}

uint32_t ls__bpe_merges(const ls__bpe *b)
{
    return b->merge_count;
}

const uint8_t *ls__bpe_bytes(const ls__bpe *b, uint32_t id, size_t *count)
{
    if (id >= b->tokens || !b->spans[id].count) return NULL;
    *count = b->spans[id].count;
    return b->bytes + b->spans[id].at;
}

void ls__bpe_merge_at(const ls__bpe *b, uint32_t rank, uint32_t *left, uint32_t *right)
{
    *left = (uint32_t)(b->merges[rank] >> 32);
    *right = (uint32_t)b->merges[rank];
}

/* ---- Encoding. */

enum {
    KEY_BYTES = 24,   /* words up to this are cached... */
    KEY_TOKENS = 8,   /* ...if they have at most this many tokens */
    PLACES = 1 << 16, /* of the table; 4 MiB */
    SHORT_WORD = 100, /* up to here a search beats the heap */
};

/* A cached short word. */
typedef struct memory {
    uint64_t key[3]; /* its bytes, then zeros */
    uint32_t bytes;  /* 0: empty */
    uint32_t tokens;
    int32_t token[KEY_TOKENS];
} memory;
_Static_assert(sizeof(memory) == 64, "a place is a cache line");

struct ls__bpe_scratch {
    const ls__bpe *bpe;
    memory *places;
    /* for long words: */
    size_t room;                      /* bytes of word that there is room for */
    uint32_t *token, *before, *after; /* (room): a list of tokens, linked both ways */
    uint64_t *heap;                   /* (3 * room): rank << 32 | where the pair begins */
    uint8_t *part;                    /* of a word, with the prefix; NULL if not WordPiece */
};

ls_status ls__bpe_scratch_open(ls__bpe_scratch **out, const ls__bpe *bpe)
{
    *out = NULL;
    ls__bpe_scratch *s = calloc(1, sizeof *s);
    if (s) s->places = aligned_alloc(64, PLACES * sizeof *s->places);
    if (!s || !s->places) {
        free(s);
        return ls__fail(LS_ENOMEM, "no memory to encode text");
    }
    memset(s->places, 0, PLACES * sizeof *s->places);
    s->bpe = bpe;
    if (bpe->kind == WORDPIECE && !(s->part = malloc(bpe->prefix_bytes + bpe->longest + 1))) {
        ls__bpe_scratch_free(&s);
        return ls__fail(LS_ENOMEM, "no memory to encode text");
    }
    *out = s;
    return LS_OK;
}

void ls__bpe_scratch_free(ls__bpe_scratch **scratch)
{
    ls__bpe_scratch *s = *scratch;
    if (!s) return;
    free(s->places);
    free(s->token);
    free(s->before);
    free(s->after);
    free(s->heap);
    free(s->part);
    free(s);
    *scratch = NULL;
}

/* The tokens of a word's characters, before anything merges. */
static size_t begin_chars(const ls__bpe *b, const uint8_t *word, size_t count, uint32_t *token)
{
    const uint8_t *end = word + count;
    size_t n = 0, bytes;
    bool pending = false; /* an unknown token, which others may join */
    for (const uint8_t *p = word; p < end; p += bytes) {
        int32_t c = ls__utf8_get(p, end, &bytes);
        uint32_t id = c < 0 ? LS__BPE_NONE : find_own(b, p, bytes);
        size_t known = 0;
        while (id == LS__BPE_NONE && known < bytes && b->singles[p[known]] != LS__BPE_NONE) known++;
        if (id == LS__BPE_NONE && known == bytes) {
            /* As in tokenizers, an unknown token that is pending comes after these. */
            for (size_t i = 0; i < bytes; i++) token[n++] = b->singles[p[i]];
            continue;
        }
        if (pending && (id != LS__BPE_NONE || !b->fuse)) token[n++] = b->unknown;
        pending = id == LS__BPE_NONE;
        if (!pending) token[n++] = id;
    }
    if (pending) token[n++] = b->unknown;
    return n;
}

static size_t begin_word(const ls__bpe *b, const uint8_t *word, size_t count, uint32_t *token)
{
    if (b->kind == OF_CHARS) return begin_chars(b, word, count, token);
    for (size_t i = 0; i < count; i++) token[i] = b->singles[word[i]];
    return count;
}

/* Longest first. */
static size_t take_longest(ls__bpe_scratch *s, const uint8_t *word, size_t count, int32_t *out)
{
    const ls__bpe *b = s->bpe;
    size_t n = 0, chars = 0, prefix = 0;
    for (size_t i = 0; i < count; i++) chars += (word[i] & 0xc0) != 0x80;
    memcpy(s->part, b->prefix, b->prefix_bytes);
    for (size_t start = 0, length; start < count && chars <= b->limit; start += length, prefix = b->prefix_bytes) {
        uint32_t id = LS__BPE_NONE;
        length = count - start < b->longest ? count - start : b->longest;
        memcpy(s->part + b->prefix_bytes, word + start, length);
        const uint8_t *part = s->part + b->prefix_bytes - prefix;
        for (; length; length--) {
            if (start + length < count && (word[start + length] & 0xc0) == 0x80) continue; /* inside a character */
            id = find_own(b, part, prefix + length);
            if (id != LS__BPE_NONE) break;
        }
        if (id == LS__BPE_NONE) {
            chars = SIZE_MAX;
            break;
        }
        out[n++] = (int32_t)id;
    }
    if (chars <= b->limit) return n;
    out[0] = (int32_t)b->unknown;
    return 1;
}

static size_t merge_short(const ls__bpe *b, const uint8_t *word, size_t count, int32_t *out)
{
    const pair *merge[SHORT_WORD]; /* what becomes of tokens i and i + 1; key NO_PAIR: nothing */
    uint32_t token[SHORT_WORD];
    count = begin_word(b, word, count, token);
    for (size_t i = 0; i + 1 < count; i++) merge[i] = pair_place(b, (uint64_t)token[i] << 32 | token[i + 1]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (merge[i]->rank < merge[best]->rank) best = i; /* of a pair that does not merge, it is the largest */
        if (merge[best]->key == NO_PAIR) break;
        token[best] = merge[best]->id;
        count--;
        memmove(token + best + 1, token + best + 2, (count - best - 1) * sizeof *token);
        if (best + 1 < count) {
            memmove(merge + best + 1, merge + best + 2, (count - best - 1) * sizeof(pair *));
            merge[best] = pair_place(b, (uint64_t)token[best] << 32 | token[best + 1]);
        }
        if (best) merge[best - 1] = pair_place(b, (uint64_t)token[best - 1] << 32 | token[best]);
    }
    for (size_t i = 0; i < count; i++) out[i] = (int32_t)token[i];
    return count;
}

static void heap_push(uint64_t *heap, size_t *n, uint64_t item)
{
    size_t i = (*n)++;
    for (; i && heap[(i - 1) / 2] > item; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = item;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
    uint64_t top = heap[0], item = heap[--*n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < *n; i = child) {
        if (child + 1 < *n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= item) break;
        heap[i] = heap[child];
    }
    heap[i] = item;
    return top;
}

static bool long_room(ls__bpe_scratch *s, size_t count)
{
    if (count <= s->room) return true;
    if (count > UINT32_MAX / 2) return false;
    size_t room = 2 * count;
    s->room = 0;
    free(s->token);
    free(s->before);
    free(s->after);
    free(s->heap);
    s->token = malloc(room * sizeof *s->token);
    s->before = malloc(room * sizeof *s->before);
    s->after = malloc(room * sizeof *s->after);
    s->heap = malloc(3 * room * sizeof *s->heap);
    if (!s->token || !s->before || !s->after || !s->heap) return false;
    s->room = room;
    return true;
}

/* Pushes the pair that begins at `i`, if it merges. */
static void push_pair(ls__bpe_scratch *s, size_t *n, size_t count, uint32_t i)
{
    if (s->after[i] >= count) return;
    const pair *p = pair_place(s->bpe, (uint64_t)s->token[i] << 32 | s->token[s->after[i]]);
    if (p->key != NO_PAIR) heap_push(s->heap, n, (uint64_t)p->rank << 32 | i);
}

/* A heap entry is stale if its first token is gone (marked NONE) or the pair there is now another one. */
static size_t merge_long(ls__bpe_scratch *s, const uint8_t *word, size_t count, int32_t *out)
{
    if (!long_room(s, count)) return 0;
    size_t n = 0;
    count = begin_word(s->bpe, word, count, s->token);
    for (uint32_t i = 0; i < count; i++) {
        s->before[i] = i - 1;
        s->after[i] = i + 1;
    }
    for (uint32_t i = 0; i < count; i++) push_pair(s, &n, count, i);
    while (n) {
        uint64_t top = heap_pop(s->heap, &n);
        uint32_t i = (uint32_t)top, next = s->after[i];
        if (s->token[i] == LS__BPE_NONE || next >= count) continue;
        const pair *p = pair_place(s->bpe, (uint64_t)s->token[i] << 32 | s->token[next]);
        if (p->key == NO_PAIR || p->rank != top >> 32) continue;
        s->token[i] = p->id;
        s->token[next] = LS__BPE_NONE;
        s->after[i] = s->after[next];
        if (s->after[i] < count) s->before[s->after[i]] = i;
        push_pair(s, &n, count, i);
        if (i) push_pair(s, &n, count, s->before[i]);
    }
    size_t tokens = 0;
    for (uint32_t i = 0; i < count; i = s->after[i]) out[tokens++] = (int32_t)s->token[i];
    return tokens;
}

/* The word's bytes as three integers, padded with zeros. */
static inline void make_key(uint64_t key[3], const uint8_t *word, size_t count, size_t slack)
{
    if (count + slack >= KEY_BYTES) {
        memcpy(key, word, KEY_BYTES);
        for (size_t i = 0; i < 3; i++) {
            size_t bytes = count > 8 * i ? count - 8 * i : 0;
            if (bytes < 8) key[i] &= (UINT64_C(1) << 8 * bytes) - 1;
        }
    } else {
        memset(key, 0, KEY_BYTES);
        memcpy(key, word, count);
    }
}

static size_t tokenize(ls__bpe_scratch *s, const uint8_t *word, size_t count, int32_t *out)
{
    const ls__bpe *b = s->bpe;
    if (b->kind == WORDPIECE) return take_longest(s, word, count, out);
    uint32_t whole = b->ignore_merges && count <= b->longest ? find_own(b, word, count) : LS__BPE_NONE;
    if (whole == LS__BPE_NONE)
        return count > SHORT_WORD ? merge_long(s, word, count, out) : merge_short(b, word, count, out);
    out[0] = (int32_t)whole;
    return 1;
}

size_t ls__bpe_word(ls__bpe_scratch *s, const uint8_t *word, size_t count, size_t slack, int32_t *out)
{
    if (count > KEY_BYTES) return tokenize(s, word, count, out);
    uint64_t key[3];
    make_key(key, word, count, slack);
    uint64_t hash = (key[0] ^ key[1] * UINT64_C(0xd6e8feb86659fd93) ^ key[2] * UINT64_C(0xa0761d6478bd642f)) *
                    UINT64_C(0x9e3779b97f4a7c15);
    memory *m = &s->places[hash >> 48];
    if (m->key[0] == key[0] && m->key[1] == key[1] && m->key[2] == key[2] && m->bytes == count) {
        memcpy(out, m->token, sizeof m->token);
        return m->tokens;
    }
    size_t tokens = tokenize(s, word, count, out);
    if (tokens <= KEY_TOKENS) {
        memcpy(m->key, key, sizeof key);
        m->bytes = (uint32_t)count;
        m->tokens = (uint32_t)tokens;
        memcpy(m->token, out, tokens * sizeof *out);
    }
    return tokens;
}
