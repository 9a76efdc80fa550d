/* Trains a byte-pair encoding. The text is split into words as for encoding, and each distinct word is counted, in parallel. Then the
 * most frequent pair of neighbouring tokens becomes a token, repeatedly. Of equally frequent pairs the one with the lower ids
 * is taken, as in Hugging Face's trainer, so the result depends on nothing else.
 *
 * Counts of pairs are kept up to date: a merge visits only the words that have its pair. The most frequent pair comes from a
 * heap whose entries may be outdated: one that reaches the top with an old count is put back with its new one; a pair whose
 * count rises is pushed again. */
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "data/tally.h"
#include "data/tokenizer.h"

/* ---- Pairs. */

typedef struct pair_count {
    uint64_t key; /* left << 32 | right; UINT64_MAX: a free place */
    int64_t count;
    uint32_t *words; /* words that have it, or had it */
    uint32_t n_words, room;
    uint32_t touched; /* the merge that last gave it more */
} pair_count;

typedef struct candidate {
    int64_t count;
    uint64_t key;
} candidate;

typedef struct trainer {
    const ls_bpe_options *o;
    ls__tally tally;
    ls__bpe *bpe;
    ls__added added; /* the end of text */
    uint32_t next;   /* id for the next token */
    /* A distinct word: its tokens are words[w].first and the n after it, in `tokens`. */
    struct word {
        size_t first;
        uint32_t n;
        int64_t count;
    } * words;
    size_t n_words;
    uint32_t *tokens;
    pair_count *pairs;
    size_t pairs_mask, pairs_used;
    candidate *heap;
    size_t heap_n, heap_room;
    uint64_t *gained; /* keys of the pairs that the present merge makes more frequent */
    size_t n_gained, gained_room;
} trainer;

static pair_count *pair_place(const trainer *t, uint64_t key)
{
    uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15);
    size_t i = (hash ^ hash >> 32) & t->pairs_mask;
    while (t->pairs[i].key != key && t->pairs[i].key != UINT64_MAX) i = (i + 1) & t->pairs_mask;
    return &t->pairs[i];
}

static ls_status pairs_grow(trainer *t)
{
    trainer grown = *t;
    grown.pairs_mask = t->pairs ? 2 * t->pairs_mask + 1 : (1 << 16) - 1;
    grown.pairs = malloc((grown.pairs_mask + 1) * sizeof *grown.pairs);
    if (!grown.pairs) return ls__fail(LS_ENOMEM, "no memory for %zu pairs", t->pairs_used);
    memset(grown.pairs, 0xff, (grown.pairs_mask + 1) * sizeof *grown.pairs);
    for (size_t i = 0; t->pairs && i <= t->pairs_mask; i++)
        if (t->pairs[i].key != UINT64_MAX) *pair_place(&grown, t->pairs[i].key) = t->pairs[i];
    free(t->pairs);
    *t = grown;
    return LS_OK;
}

/* The count of a pair, at first 0. */
static ls_status pair_of(trainer *t, uint32_t left, uint32_t right, pair_count **out)
{
    ls_status status = !t->pairs || 2 * t->pairs_used > t->pairs_mask ? pairs_grow(t) : LS_OK;
    if (status) return status;
    uint64_t key = (uint64_t)left << 32 | right;
    *out = pair_place(t, key);
    if ((*out)->key == key) return LS_OK;
    **out = (pair_count){ .key = key };
    t->pairs_used++;
    return LS_OK;
}

/* One more occurrence of a pair in word w, which counts for w's count. */
static ls_status pair_gains(trainer *t, uint32_t left, uint32_t right, uint32_t w, uint32_t merge)
{
    pair_count *p;
    ls_status status = pair_of(t, left, right, &p);
    if (status) return status;
    p->count += t->words[w].count;
    if (!p->n_words || p->words[p->n_words - 1] != w) {
        if (p->n_words == p->room) {
            uint32_t room = 2 * p->room + 4;
            uint32_t *grown = realloc(p->words, room * sizeof *grown);
            if (!grown) return ls__fail(LS_ENOMEM, "no memory for the places of a pair");
            p->words = grown;
            p->room = room;
        }
        p->words[p->n_words++] = w;
    }
    if (p->touched == merge) return LS_OK;
    p->touched = merge;
    if (t->n_gained == t->gained_room) {
        size_t room = 2 * t->gained_room + 1024;
        uint64_t *grown = realloc(t->gained, room * sizeof *grown);
        if (!grown) return ls__fail(LS_ENOMEM, "no memory for %zu pairs", room);
        t->gained = grown;
        t->gained_room = room;
    }
    t->gained[t->n_gained++] = p->key;
    return LS_OK;
}

static void pair_loses(const trainer *t, uint32_t left, uint32_t right, uint32_t w)
{
    pair_place(t, (uint64_t)left << 32 | right)->count -= t->words[w].count;
}

/* ---- The heap of candidates. */

static bool better(candidate a, candidate b)
{
    return a.count != b.count ? a.count > b.count : a.key < b.key;
}

static ls_status heap_push(trainer *t, candidate c)
{
    if (t->heap_n == t->heap_room) {
        size_t room = 2 * t->heap_room + 1024;
        candidate *grown = realloc(t->heap, room * sizeof *grown);
        if (!grown) return ls__fail(LS_ENOMEM, "no memory for %zu pairs", room);
        t->heap = grown;
        t->heap_room = room;
    }
    size_t i = t->heap_n++;
    for (; i && better(c, t->heap[(i - 1) / 2]); i = (i - 1) / 2) t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = c;
    return LS_OK;
}

static candidate heap_pop(trainer *t)
{
    candidate top = t->heap[0], c = t->heap[--t->heap_n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < t->heap_n; i = child) {
        if (child + 1 < t->heap_n && better(t->heap[child + 1], t->heap[child])) child++;
        if (!better(t->heap[child], c)) break;
        t->heap[i] = t->heap[child];
    }
    t->heap[i] = c;
    return top;
}

/* What gained since the last call becomes a candidate with its present count. */
static ls_status push_gained(trainer *t)
{
    ls_status status = LS_OK;
    for (size_t i = 0; !status && i < t->n_gained; i++) {
        candidate c = { .count = pair_place(t, t->gained[i])->count, .key = t->gained[i] };
        if (c.count > 0) status = heap_push(t, c);
    }
    t->n_gained = 0;
    return status;
}

/* ---- Merging. */

static ls_status merge_word(trainer *t, uint32_t w, uint32_t left, uint32_t right, uint32_t joined, uint32_t merge)
{
    uint32_t *s = t->tokens + t->words[w].first, n = t->words[w].n, out = 0;
    for (uint32_t i = 0; i < n; i++, out++) {
        if (s[i] != left || i + 1 >= n || s[i + 1] != right) {
            s[out] = s[i];
            continue;
        }
        ls_status status = LS_OK;
        if (out) {
            pair_loses(t, s[out - 1], left, w);
            status = pair_gains(t, s[out - 1], joined, w, merge);
        }
        if (!status && i + 2 < n) {
            pair_loses(t, right, s[i + 2], w);
            status = pair_gains(t, joined, s[i + 2], w, merge);
        }
        if (status) return status;
        s[out] = joined;
        i++;
    }
    t->words[w].n = out;
    return LS_OK;
}

/* Makes a token of a pair, and replaces the pair in all words. */
static ls_status merge_pair(trainer *t, uint64_t key, uint32_t merge)
{
    uint32_t left = (uint32_t)(key >> 32), right = (uint32_t)key;
    uint8_t joined[2 * LS__BPE_MAX_TOKEN_BYTES];
    size_t n_left, n_right;
    const uint8_t *bytes = ls__bpe_bytes(t->bpe, left, &n_left);
    memcpy(joined, bytes, n_left);
    bytes = ls__bpe_bytes(t->bpe, right, &n_right);
    memcpy(joined + n_left, bytes, n_right);
    /* Two ways to the same bytes are one token. */
    uint32_t id = ls__bpe_find(t->bpe, joined, n_left + n_right);
    ls_status status = LS_OK;
    if (id == LS__BPE_NONE) {
        id = t->next;
        status = ls__bpe_add_token(t->bpe, id, joined, n_left + n_right);
        if (!status) t->next++;
    }
    if (!status) status = ls__bpe_add_merge(t->bpe, left, right);

    pair_count *p = pair_place(t, key);
    uint32_t *words = p->words, n = p->n_words;
    p->words = NULL;
    p->n_words = p->room = 0;
    for (uint32_t i = 0; !status && i < n; i++) status = merge_word(t, words[i], left, right, id, merge);
    free(words);
    return status ? status : push_gained(t);
}

static ls_status learn(trainer *t)
{
    uint32_t most = t->o->vocab_size - 1; /* one is for the end of text */
    int64_t least = t->o->min_count ? (int64_t)t->o->min_count : 2;
    ls_status status = LS_OK;
    for (uint32_t merge = 1; !status && t->next < most && t->heap_n;) {
        candidate top = heap_pop(t);
        int64_t now = pair_place(t, top.key)->count;
        if (now != top.count) {
            if (now > 0) status = heap_push(t, (candidate){ .count = now, .key = top.key });
            continue;
        }
        if (now < least) break;
        status = merge_pair(t, top.key, merge++);
    }
    return status;
}

/* ---- Beginning and end. */

/* The bytes come first, in the order of their characters, as in GPT-2's own vocabulary. */
static ls_status add_bytes(trainer *t, uint32_t byte_ids[256])
{
    for (uint32_t c = 0; c < 512; c++) {
        for (int b = 0; b < 256; b++) {
            uint8_t byte = (uint8_t)b;
            if (ls__byte_to_char(byte) != c) continue;
            byte_ids[b] = t->next;
            ls_status status = ls__bpe_add_token(t->bpe, t->next++, &byte, 1);
            if (status) return status;
        }
    }
    return LS_OK;
}

/* Every distinct word begins as single bytes; all its pairs are counted. */
static ls_status make_words(trainer *t, const uint32_t byte_ids[256])
{
    const ls__tally *y = &t->tally;
    t->words = malloc(y->used * sizeof *t->words);
    t->tokens = malloc(y->bytes_used * sizeof *t->tokens);
    if (!t->words || !t->tokens) return ls__fail(LS_ENOMEM, "no memory for %zu words", y->used);
    if (y->used > UINT32_MAX - 1) return ls__fail(LS_EUNSUPPORTED, "%zu different words are too many", y->used);
    size_t at = 0;
    for (size_t i = 0; i <= y->mask; i++) {
        const ls__tally_entry *c = &y->places[i];
        if (!c->length) continue;
        uint32_t w = (uint32_t)t->n_words++;
        t->words[w] = (struct word){ .first = at, .n = c->length, .count = (int64_t)c->count };
        for (uint32_t k = 0; k < c->length; k++) {
            t->tokens[at++] = byte_ids[y->bytes[c->at + k]];
            if (!k) continue;
            ls_status status = pair_gains(t, t->tokens[at - 2], t->tokens[at - 1], w, UINT32_MAX);
            if (status) return status;
        }
    }
    return push_gained(t);
}

static void trainer_free(trainer *t)
{
    ls__tally_free(&t->tally);
    ls__bpe_free(&t->bpe);
    ls__added_free(&t->added);
    for (size_t i = 0; t->pairs && i <= t->pairs_mask; i++)
        if (t->pairs[i].key != UINT64_MAX) free(t->pairs[i].words);
    free(t->words);
    free(t->tokens);
    free(t->pairs);
    free(t->heap);
    free(t->gained);
}

ls_status ls_bpe_train(const ls_bpe_options *o, uint32_t *learned)
{
    LS__NEED(o, "options");
    LS__NEED(learned, "vocab_size");
    *learned = 0;
    LS__NEED(o->output, "options.output");
    if (o->vocab_size < 257 || o->vocab_size > LS__BPE_MAX_TOKENS)
        return ls__fail(LS_EINVAL, "vocabulary size %u; must be from 257 to %d: 256 bytes, the end token, and merges",
                        o->vocab_size, LS__BPE_MAX_TOKENS);
    trainer t = { .o = o };
    uint32_t byte_ids[256];
    ls_status status = ls__tally_texts(&t.tally, o);
    if (!status && !t.tally.used) status = ls__fail(LS_EFORMAT, "%s: byte 0: no text to train on", o->paths[0]);
    if (!status) status = ls__bpe_open(&t.bpe, o->vocab_size);
    if (!status) status = add_bytes(&t, byte_ids);
    if (!status) status = make_words(&t, byte_ids);
    if (!status) status = learn(&t);
    if (!status) status = ls__bpe_add_token(t.bpe, t.next++, LS__END_OF_TEXT, sizeof LS__END_OF_TEXT - 1);
    if (!status)
        status = ls__added_add(&t.added, &(ls__added_token){ .bytes = (const uint8_t *)LS__END_OF_TEXT,
                                                             .count = sizeof LS__END_OF_TEXT - 1,
                                                             .id = t.next - 1,
                                                             .special = true });
    if (!status) status = ls__tokenizer_write(t.bpe, &t.added, (int32_t)t.next - 1, o->output, false, false);
    if (!status) {
        *learned = t.next;
        if (t.next < o->vocab_size)
            ls__log(LS_LOG_WARNING, "only %u of %u tokens were learned: no other pair occurs at least %zu time%s",
                    t.next, o->vocab_size, (size_t)(o->min_count ? o->min_count : 2),
                    ls__s((int64_t)(o->min_count ? o->min_count : 2)));
    }
    trainer_free(&t);
    return status;
}
