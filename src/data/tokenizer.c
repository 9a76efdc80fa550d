/* Tokenizers: bytes, and byte-pair encodings read from files. The tokenizer itself is read-only; each thread that
 * encodes has an encoder with the memory for it. */
#include "data/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "data/chat.h"
#include "data/normalize.h"
#include "data/split.h"
#include "data/unicode.h"
#include "data/wordpiece_vocab.h"

enum { FILE_LIMIT = 1 << 28, BYTES_END = 256 };

struct ls_encoder {
    const ls_tokenizer *tokenizer;
    ls__bpe_scratch *scratch; /* NULL: bytes */
    ls__normalizer normalizer;
    ls__text_buffer changed[LS__STEPS_MAX]; /* what a step makes of a word, if it changes it */
    const uint8_t *begin;                   /* where the text begins once normalized; NULL: it began before */
    bool continues;                         /* the text is the rest of one */
    int32_t *tokens;
    size_t count, room;
};

static ls_status read_tokenizer(ls_tokenizer *t, const char *path)
{
    ls__kept_file *kept = &t->kept[LS__KEPT_TOKENIZER];
    ls_status status = ls__file_read(path, FILE_LIMIT, &kept->text, &kept->bytes);
    return status ? status : ls__tokenizer_parse(&t->bpe, &t->added, &t->rules, path, kept->text, kept->bytes);
}

static ls_status read_vocabulary(ls_tokenizer *t, const char *folder, const char *vocab_path, const char *merges_path)
{
    char *vocab = NULL, *merges = NULL;
    json_t *more = NULL;
    size_t vocab_bytes, merges_bytes;
    ls_status status = ls__file_read(vocab_path, FILE_LIMIT, &vocab, &vocab_bytes);
    if (!status) status = ls__file_read(merges_path, FILE_LIMIT, &merges, &merges_bytes);
    if (!status) status = ls__tokenizer_added_json(folder, &more);
    if (!status)
        status = ls__vocabulary_parse(&t->bpe, &t->added, vocab_path, vocab, vocab_bytes, merges_path, merges,
                                      merges_bytes, more);
    ls__rules_gpt2(&t->rules);
    json_decref(more);
    free(vocab);
    free(merges);
    return status;
}

/* vocab.txt alone, as a tokenizer.json. */
static ls_status read_wordpiece(ls_tokenizer *t, const char *folder, const char *path)
{
    ls__kept_file *kept = &t->kept[LS__KEPT_TOKENIZER];
    char *config_path = NULL, *vocab = NULL, *config = NULL;
    size_t vocab_bytes, config_bytes = 0;
    ls_status status = ls__file_read(path, FILE_LIMIT, &vocab, &vocab_bytes);
    if (!status && asprintf(&config_path, "%s/tokenizer_config.json", folder) < 0)
        status = ls__fail(LS_ENOMEM, "%s: out of memory", folder);
    if (!status && !access(config_path, F_OK)) status = ls__file_read(config_path, FILE_LIMIT, &config, &config_bytes);
    json_t *root = config ? json_loadb(config, config_bytes, JSON_DECODE_INT_AS_REAL, NULL) : NULL;
    if (!status) status = ls__wordpiece_json(path, vocab, vocab_bytes, root, &kept->text);
    if (!status) kept->bytes = strlen(kept->text);
    if (!status) status = ls__tokenizer_parse(&t->bpe, &t->added, &t->rules, path, kept->text, kept->bytes);
    json_decref(root);
    free(config);
    free(config_path);
    free(vocab);
    return status;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* A folder: whichever of the usual files it has. */
static ls_status read_files(ls_tokenizer *t, const char *folder)
{
    static const char *const names[][2] = { { "tokenizer.json", NULL },
                                            { "vocab.json", "merges.txt" },
                                            { "encoder.json", "vocab.bpe" },
                                            { "vocab.txt", NULL } };
    ls_status status = ls__fail(LS_ENOENT,
                                "%s: no tokenizer found: neither tokenizer.json, nor vocab.json and merges.txt, nor "
                                "encoder.json and vocab.bpe, "
                                "nor vocab.txt",
                                folder);
    for (size_t i = 0; i < 4; i++) {
        char *first = NULL, *second = NULL;
        if (asprintf(&first, "%s/%s", folder, names[i][0]) < 0) first = NULL;
        if (first && names[i][1] && asprintf(&second, "%s/%s", folder, names[i][1]) < 0) second = NULL;
        bool found = first && exists(first);
        if (found && i == 3)
            status = read_wordpiece(t, folder, first);
        else if (found)
            status = second ? read_vocabulary(t, folder, first, second) : read_tokenizer(t, first);
        free(first);
        free(second);
        if (found) break;
    }
    return status;
}

/* "bytes" needs no files; its end token is an added one like others. */
static ls_status make_bytes(ls_tokenizer *t)
{
    static const ls__added_token end = {
        .bytes = (const uint8_t *)LS__END_OF_TEXT, .count = sizeof LS__END_OF_TEXT - 1, .id = BYTES_END, .special = true
    };
    t->end = BYTES_END;
    ls_status status = ls__added_add(&t->added, &end);
    ls__added_seal(&t->added);
    return status;
}

/* A file that describes "bytes", as ls_tokenizer_save() writes it, is read as "bytes", which is faster. */
static bool is_bytes(const ls_tokenizer *t)
{
    if (!ls__rules_are_gpt2(&t->rules) || ls__bpe_merges(t->bpe) || ls__bpe_tokens(t->bpe) != BYTES_END + 1 ||
        t->end != BYTES_END || t->added.count != 1)
        return false;
    const ls__added_token *end = &t->added.tokens[0];
    if (end->id != BYTES_END || end->lstrip || end->rstrip || end->single_word ||
        end->count != sizeof LS__END_OF_TEXT - 1 || memcmp(end->bytes, LS__END_OF_TEXT, end->count) != 0)
        return false;
    for (uint32_t i = 0; i < 256; i++) {
        size_t count;
        const uint8_t *bytes = ls__bpe_bytes(t->bpe, i, &count);
        if (!bytes || count != 1 || *bytes != i) return false;
    }
    return true;
}

static ls_status read_named(ls_tokenizer *t, const char *name)
{
    size_t length = strlen(name);
    bool file = length > 5 && !strcmp(name + length - 5, ".json");
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    char *folder = !file ? strdup(name) : slash ? strndup(name, (size_t)(slash - name) + 1) : strdup(".");
    if (!folder) return ls__fail(LS_ENOMEM, "no memory for a tokenizer");
    ls_status status = file ? read_tokenizer(t, name) : read_files(t, folder);
    /* Files next to a tokenizer file of another name may not belong to it. */
    if (!status) status = ls__tokenizer_read_folder(t, file && strcmp(base, "tokenizer.json") ? NULL : folder);
    if (!status && is_bytes(t)) ls__bpe_free(&t->bpe);
    if (!status) status = ls__pieces_make(t);
    free(folder);
    return status;
}

static ls_status set_end_token(ls_tokenizer *t, const char *text, const char *name)
{
    size_t count = strlen(text);
    const ls__added_token *added = ls__added_find(&t->added, text, count);
    uint32_t id = added ? added->id : t->bpe ? ls__bpe_find(t->bpe, text, count) : LS__BPE_NONE;
    if (id == LS__BPE_NONE) return ls__fail(LS_EINVAL, "%s: end token '%s' is not in the tokenizer", name, text);
    t->end = (int32_t)id;
    t->end_given = true;
    return LS_OK;
}

ls_status ls_tokenizer_open(ls_tokenizer **out, const char *name, const ls_tokenizer_options *options)
{
    ls_tokenizer_options o = options ? *options : (ls_tokenizer_options){ 0 };
    LS__NEED(out, "out");
    *out = NULL;
    LS__NEED(name, "name");
    ls_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return ls__fail(LS_ENOMEM, "no memory for a tokenizer");
    for (int i = 0; i < 256; i++) t->each[i] = (uint8_t)i;
    ls_status status = strcmp(name, "bytes") ? read_named(t, name) : make_bytes(t);
    if (!status && o.end_token) status = set_end_token(t, o.end_token, name);
    if (!status && o.chat_template) status = ls__chat_set_template(t, o.chat_template);
    if (status) ls_tokenizer_free(&t);
    *out = t;
    return status;
}

void ls_tokenizer_free(ls_tokenizer **tokenizer)
{
    ls_tokenizer *t = tokenizer ? *tokenizer : NULL;
    if (!t) return;
    ls__bpe_free(&t->bpe);
    ls__added_free(&t->added);
    ls__rules_free(&t->rules);
    ls__pieces_free(&t->pieces);
    for (int i = 0; i < LS__KEPT_FILES; i++) free(t->kept[i].text);
    free(t);
    *tokenizer = NULL;
}

/* "bytes" as a byte-pair encoding without pairs. */
static ls_status bytes_as_bpe(ls__bpe **out, const ls_tokenizer *t)
{
    ls_status status = ls__bpe_open(out, BYTES_END + 1);
    for (uint32_t i = 0; i <= BYTES_END && !status; i++) {
        size_t count;
        const uint8_t *bytes = ls_tokenizer_token_bytes(t, (int32_t)i, &count);
        status = ls__bpe_add_token(*out, i, bytes, count);
    }
    if (status) ls__bpe_free(out);
    return status;
}

ls_status ls_tokenizer_save(const ls_tokenizer *t, const char *folder)
{
    LS__NEED(t, "tokenizer");
    LS__NEED(folder, "folder");
    ls__bpe *made = NULL;
    /* vocab.json and merges.txt alone would be taken for a tokenizer of GPT-2's kind. */
    if (t->bpe && !ls__rules_are_gpt2(&t->rules)) {
        ls_status made_folder = ls__file_make_dir(folder);
        return made_folder ? made_folder : ls__tokenizer_write_kept(t, folder);
    }
    ls_status status = t->bpe ? LS_OK : bytes_as_bpe(&made, t);
    if (!status)
        status = ls__tokenizer_write(t->bpe ? t->bpe : made, &t->added, t->end, folder,
                                     t->kept[LS__KEPT_TOKENIZER].text != NULL, t->kept[LS__KEPT_CONFIG].text != NULL);
    /* Last, because they contain more than what is generated. */
    if (!status) status = ls__tokenizer_write_kept(t, folder);
    ls__bpe_free(&made);
    return status;
}

uint32_t ls_tokenizer_vocab_size(const ls_tokenizer *t)
{
    return t->bpe ? ls__bpe_tokens(t->bpe) : BYTES_END + 1;
}

int32_t ls_tokenizer_end_token(const ls_tokenizer *t)
{
    return t->end;
}

ls_status ls__tokenizer_check_end(const ls_tokenizer *t, const char *name)
{
    char list[200] = "";
    size_t n = 0;
    if (t->end >= 0) return LS_OK;
    for (size_t i = 0; i < t->added.count && n < sizeof list - 1; i++)
        if (t->added.tokens[i].special)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%.*s", n ? ", " : "", (int)t->added.tokens[i].count,
                                  (const char *)t->added.tokens[i].bytes);
    if (n)
        return ls__fail(LS_EINVAL,
                        "%s: unknown which token ends a text (special tokens: %s); set it with end_token, or add a "
                        "tokenizer_config.json with eos_token",
                        name, list);
    ls__log(LS_LOG_WARNING, "%s: has no token that ends a text; documents are not separated", name);
    return LS_OK;
}

const uint8_t *ls_tokenizer_token_bytes(const ls_tokenizer *t, int32_t token, size_t *count)
{
    *count = 0;
    if (token < 0) return NULL;
    if (t->bpe) {
        const uint8_t *own = ls__bpe_bytes(t->bpe, (uint32_t)token, count);
        if (!own || !t->pieces.bytes) return own;
        *count = t->pieces.at[token + 1] - t->pieces.at[token];
        return t->pieces.bytes + t->pieces.at[token];
    }
    if (token == BYTES_END) {
        *count = sizeof LS__END_OF_TEXT - 1;
        return (const uint8_t *)LS__END_OF_TEXT;
    }
    *count = 1;
    return token < BYTES_END ? &t->each[token] : NULL;
}

ls_status ls_tokenizer_decode(const ls_tokenizer *t, const int32_t *tokens, size_t count, char **out, size_t *bytes)
{
    size_t total = 0, n;
    LS__NEED(t, "tokenizer");
    LS__NEED(out, "out");
    LS__NEED(bytes, "bytes");
    *out = NULL;
    *bytes = 0;
    if (count) LS__NEED(tokens, "tokens");
    for (size_t i = 0; i < count; i++) {
        if (!ls_tokenizer_token_bytes(t, tokens[i], &n))
            return ls__fail(LS_EINVAL, "token %d (number %zu) is not in the vocabulary of %u", tokens[i], i,
                            ls_tokenizer_vocab_size(t));
        total += n;
    }
    if (t->pieces.bytes) return ls__decode(t, tokens, count, out, bytes);
    char *text = malloc(total + 1);
    if (!text) return ls__fail(LS_ENOMEM, "no memory for a text of %zu bytes", total);
    for (size_t i = 0, at = 0; i < count; i++, at += n) {
        const uint8_t *token = ls_tokenizer_token_bytes(t, tokens[i], &n);
        memcpy(text + at, token, n);
    }
    text[total] = 0;
    *out = text;
    *bytes = total;
    return LS_OK;
}

/* ---- Encoding. */

ls_status ls_encoder_open(ls_encoder **out, const ls_tokenizer *tokenizer)
{
    LS__NEED(out, "out");
    *out = NULL;
    LS__NEED(tokenizer, "tokenizer");
    ls_encoder *e = calloc(1, sizeof *e);
    if (!e) return ls__fail(LS_ENOMEM, "no memory to encode text");
    e->tokenizer = tokenizer;
    ls_status status = tokenizer->bpe ? ls__bpe_scratch_open(&e->scratch, tokenizer->bpe) : LS_OK;
    if (status) {
        free(e);
        return status;
    }
    *out = e;
    return LS_OK;
}

void ls_encoder_free(ls_encoder **encoder)
{
    ls_encoder *e = encoder ? *encoder : NULL;
    if (!e) return;
    ls__bpe_scratch_free(&e->scratch);
    ls__normalizer_free(&e->normalizer);
    for (int i = 0; i < LS__STEPS_MAX; i++) ls__text_buffer_free(&e->changed[i]);
    free(e->tokens);
    free(e);
    *encoder = NULL;
}

/* Room for `more` tokens after the first `used`. */
static ls_status make_room(ls_encoder *e, size_t used, size_t more)
{
    if (more <= e->room - used) return LS_OK;
    size_t room = e->room + e->room / 2 + more;
    int32_t *tokens = realloc(e->tokens, room * sizeof *tokens);
    if (!tokens) return ls__fail(LS_ENOMEM, "no memory for %zu tokens", room);
    e->tokens = tokens;
    e->room = room;
    return LS_OK;
}

/* Text between added tokens: appends its tokens. */
static ls_status encode_bytes(void *user, const uint8_t *text, size_t bytes)
{
    ls_encoder *e = user;
    ls_status status = make_room(e, e->count, bytes);
    for (size_t i = 0; i < bytes && !status; i++) e->tokens[e->count + i] = text[i];
    if (!status) e->count += bytes;
    return status;
}

/* A part of text that steps divide; `limit` is the end of what can be read. */
typedef struct part {
    const uint8_t *begin, *end, *limit;
} part;

static ls_status encode_word(ls_encoder *e, const part *p)
{
    size_t bytes = (size_t)(p->end - p->begin), rest = (size_t)(p->limit - p->end);
    if (bytes + 8 > e->room - e->count) {
        /* A word may need as many tokens as it has bytes; text has a token for every four or five. */
        ls_status status = make_room(e, e->count, bytes + 8 + rest / 4 + 64);
        if (status) return status;
    }
    size_t n = ls__bpe_word(e->scratch, p->begin, bytes, rest, e->tokens + e->count);
    if (!n) return ls__fail(LS_ENOMEM, "no memory for a word of %zu bytes", bytes);
    e->count += n;
    return LS_OK;
}

static size_t by_digits(const uint8_t *p, const uint8_t *end, bool single)
{
    const uint8_t *begin = p;
    size_t bytes;
    int32_t c = ls__utf8_get(p, end, &bytes);
    bool digit = c >= 0 && ls__form_of(c) & LS__FORM_DIGIT;
    if (digit && single) return bytes;
    for (p += bytes; p < end; p += bytes) {
        c = ls__utf8_get(p, end, &bytes);
        if ((c >= 0 && ls__form_of(c) & LS__FORM_DIGIT) != digit) break;
    }
    return (size_t)(p - begin);
}

/* White space is left out: *skip bytes before the word. */
static size_t by_bert(const uint8_t *p, const uint8_t *end, size_t *skip)
{
    const uint8_t *begin = p, *first = NULL;
    size_t bytes;
    for (; p < end; p += bytes) {
        int32_t c = ls__utf8_get(p, end, &bytes);
        uint8_t form = ls__form_of(c < 0 ? 0xfffd : c);
        if (form & LS__FORM_SPACE && !first) continue;
        if (form & LS__FORM_SPACE) break;
        if (form & LS__FORM_PUNCTUATION && first) break;
        if (!first) first = p;
        if (!(form & LS__FORM_PUNCTUATION)) continue;
        p += bytes;
        break;
    }
    *skip = (size_t)((first ? first : p) - begin);
    return (size_t)(p - begin) - *skip;
}

/* To the next mark after another character, or of several marks, if each begins a word. */
static size_t by_mark(const uint8_t *p, const uint8_t *end, const uint8_t *mark, size_t bytes, bool each)
{
    const uint8_t *begin = p;
    while (!each && (size_t)(end - p) >= bytes && !memcmp(p, mark, bytes)) p += bytes;
    if (p == begin) p++;
    const uint8_t *next = p < end ? memmem(p, (size_t)(end - p), mark, bytes) : NULL;
    return (size_t)((next ? next : end) - begin);
}

/* What the step makes of a part as a whole; in the encoder's memory if it changes. */
static ls_status change(ls_encoder *e, size_t k, const ls__step *s, part *p)
{
    bool meta = s->kind == LS__STEP_METASPACE;
    const uint8_t *mark = meta ? s->a : (const uint8_t *)" ";
    size_t bytes = meta ? s->a_bytes : 1, count = (size_t)(p->end - p->begin);
    bool has = count && (*p->begin == ' ' || (count >= bytes && !memcmp(p->begin, mark, bytes)));
    bool prefix = s->flags & LS__STEP_PREFIX && !has && (!(s->flags & LS__STEP_FIRST) || p->begin == e->begin);
    ls__text_buffer *out = &e->changed[k];
    if (!prefix && !meta) return LS_OK;
    out->count = 0;
    ls_status status = prefix ? ls__text_buffer_add(out, mark, bytes) : LS_OK;
    for (const uint8_t *at = p->begin; at < p->end && !status;) {
        const uint8_t *space = meta ? memchr(at, ' ', (size_t)(p->end - at)) : NULL;
        status = ls__text_buffer_add(out, at, (size_t)((space ? space : p->end) - at));
        if (space && !status) status = ls__text_buffer_add(out, mark, bytes);
        at = space ? space + 1 : p->end;
    }
    *p = (part){ .begin = out->bytes, .end = out->bytes + out->count, .limit = out->bytes + out->count };
    return status;
}

/* Divides a part by step k and each of the words by those after it. */
static ls_status encode_part(ls_encoder *e, size_t k, part p)
{
    const ls__rules *r = &e->tokenizer->rules;
    const ls__step mark = { .kind = LS__STEP_METASPACE, .a_bytes = r->mark_bytes };
    bool last = k == r->split.count;
    if (last && !r->mark_bytes) return encode_word(e, &p);
    const ls__step *s = last ? &mark : &r->split.step[k];
    ls_status status = LS_OK;
    if (!last && (s->kind == LS__STEP_BYTE_LEVEL || s->kind == LS__STEP_METASPACE)) status = change(e, k, s, &p);
    size_t after = last ? k : k + 1;
    bool words = last || (after == r->split.count && !r->mark_bytes);
    while (p.begin < p.end && !status) {
        size_t n = (size_t)(p.end - p.begin), skip = 0;
        switch (s->kind) {
        case LS__STEP_SPLIT_GPT2: n = ls__split(p.begin, p.end); break;
        case LS__STEP_BYTE_LEVEL:
            if (s->flags & LS__STEP_SINGLE) n = ls__split(p.begin, p.end);
            break;
        case LS__STEP_SPLIT_LLAMA: n = ls__split_llama(p.begin, p.end, s->number); break;
        case LS__STEP_DIGITS: n = by_digits(p.begin, p.end, s->flags & LS__STEP_SINGLE); break;
        case LS__STEP_BERT_SPLIT: n = by_bert(p.begin, p.end, &skip); break;
        default: /* LS__STEP_METASPACE */
            if (last)
                n = by_mark(p.begin, p.end, r->mark, r->mark_bytes, false);
            else if (s->flags & LS__STEP_SINGLE)
                n = by_mark(p.begin, p.end, s->a, s->a_bytes, true);
        }
        part word = { .begin = p.begin + skip, .end = p.begin + skip + n, .limit = p.limit };
        if (n) status = words ? encode_word(e, &word) : encode_part(e, after, word);
        p.begin = word.end;
    }
    return status;
}

static ls_status encode_words(void *user, const uint8_t *text, size_t bytes)
{
    return encode_part(user, 0, (part){ .begin = text, .end = text + bytes, .limit = text + bytes });
}

static ls_status normalize(void *user, const uint8_t **text, size_t *bytes, bool begins)
{
    ls_encoder *e = user;
    ls__steps steps = { .count = 0 };
    const ls__steps *all = &e->tokenizer->rules.normalize;
    bool rest = begins && e->continues;
    for (size_t i = 0; rest && i < all->count; i++) /* nothing comes before the rest of a text */
        if (all->step[i].kind != LS__STEP_PREPEND) steps.step[steps.count++] = all->step[i];
    ls_status status = ls__normalize(&e->normalizer, rest ? &steps : all, text, bytes);
    e->begin = begins && !rest ? *text : NULL;
    return status;
}

static ls_status encode_added(void *user, uint32_t id)
{
    ls_encoder *e = user;
    ls_status status = make_room(e, e->count, 1);
    if (!status) e->tokens[e->count++] = (int32_t)id;
    return status;
}

ls_status ls_encode(ls_encoder *e, const void *text, size_t bytes, const int32_t **tokens, size_t *count)
{
    LS__NEED(e, "encoder");
    LS__NEED(tokens, "tokens");
    LS__NEED(count, "count");
    if (bytes) LS__NEED(text, "text");
    return ls__encode_part(e, false, bytes ? text : "", bytes, tokens, count); /* no arithmetic on NULL */
}

ls_status ls__encode_part(ls_encoder *e, bool continues, const void *text, size_t bytes, const int32_t **tokens,
                          size_t *count)
{
    *tokens = NULL;
    *count = e->count = 0;
    e->continues = continues;
    ls_status status = ls__added_split(&e->tokenizer->added, text, bytes, normalize,
                                       e->scratch ? encode_words : encode_bytes, encode_added, e);
    if (status) return status;
    *tokens = e->tokens;
    *count = e->count;
    return LS_OK;
}

bool ls__tokenizer_may_cut(const ls_tokenizer *t, const char *text, size_t bytes, size_t at)
{
    if (t->bpe && !ls__rules_may_cut(&t->rules, (uint8_t)text[at])) return false;
    return ls__added_may_cut(&t->added, (const uint8_t *)text, bytes, at);
}

bool ls__tokenizer_is_part(const ls_tokenizer *t, const ls_tokenizer *other, int32_t *first)
{
    for (int32_t id = 0; id < (int32_t)ls_tokenizer_vocab_size(t); id++) {
        size_t a, b;
        const uint8_t *own = ls_tokenizer_token_bytes(t, id, &a), *theirs = ls_tokenizer_token_bytes(other, id, &b);
        if (!own || (theirs && a == b && memcmp(own, theirs, a) == 0)) continue;
        *first = id;
        return false;
    }
    return true;
}
