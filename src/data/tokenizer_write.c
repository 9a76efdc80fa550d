/* Writing a tokenizer in the files that Hugging Face's libraries read. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/status.h"
#include "data/tokenizer.h"

static ls_status put(ls__file_writer *w, const char *text)
{
    return ls__file_writer_add(w, text, strlen(text));
}

/* What is written. */
typedef struct source {
    const ls__bpe *bpe;
    const ls__added *added;
    int32_t end; /* < 0: none */
} source;

/* A token in GPT-2's alphabet; `json`: as the inside of a JSON string. */
static ls_status put_token(ls__file_writer *w, const ls__bpe *bpe, uint32_t id, bool json)
{
    size_t count = 0;
    const uint8_t *bytes = ls__bpe_bytes(bpe, id, &count);
    ls_status status = LS_OK;
    for (size_t i = 0; !status && i < count; i++) {
        uint32_t c = ls__byte_to_char(bytes[i]);
        char text[3];
        size_t n = 0;
        if (json && (c == '"' || c == '\\')) text[n++] = '\\';
        if (c < 0x80) {
            text[n++] = (char)c;
        } else {
            text[n++] = (char)(0xc0 | c >> 6);
            text[n++] = (char)(0x80 | (c & 0x3f));
        }
        status = ls__file_writer_add(w, text, n);
    }
    return status;
}

/* Added tokens are plain text, not written in the alphabet. The result is a JSON string. */
static ls_status put_text(ls__file_writer *w, const ls__added_token *t)
{
    json_t *value = json_stringn((const char *)t->bytes, t->count);
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    ls_status status = text ? put(w, text) : ls__fail(LS_EFORMAT, "added token %u is not valid UTF-8", t->id);
    free(text);
    json_decref(value);
    return status;
}

static const ls__added_token *added_of(const ls__added *added, uint32_t id)
{
    for (size_t i = 0; i < added->count; i++)
        if (added->tokens[i].id == id) return &added->tokens[i];
    return NULL;
}

/* {"token": id, ...} */
static ls_status put_vocabulary(ls__file_writer *w, const source *s)
{
    ls_status status = put(w, "{");
    bool first = true;
    for (uint32_t id = 0; !status && id < ls__bpe_tokens(s->bpe); id++) {
        size_t count;
        char number[20];
        if (!ls__bpe_bytes(s->bpe, id, &count)) continue;
        const ls__added_token *added = added_of(s->added, id);
        if (!first) status = put(w, ",");
        if (!status && added) status = put_text(w, added);
        if (!status && !added) status = put(w, "\"");
        if (!status && !added) status = put_token(w, s->bpe, id, true);
        if (!status && !added) status = put(w, "\"");
        snprintf(number, sizeof number, ":%u", id);
        if (!status) status = put(w, number);
        first = false;
    }
    return status ? status : put(w, "}");
}

static ls_status put_merge(ls__file_writer *w, const ls__bpe *bpe, uint32_t rank, bool json)
{
    uint32_t left, right;
    ls__bpe_merge_at(bpe, rank, &left, &right);
    ls_status status = put_token(w, bpe, left, json);
    if (!status) status = put(w, " ");
    return status ? status : put_token(w, bpe, right, json);
}

static ls_status put_merges_text(ls__file_writer *w, const source *s)
{
    ls_status status = put(w, "#version: 0.2\n");
    for (uint32_t rank = 0; !status && rank < ls__bpe_merges(s->bpe); rank++) {
        status = put_merge(w, s->bpe, rank, false);
        if (!status) status = put(w, "\n");
    }
    return status;
}

static const char *truth(bool x)
{
    return x ? "true" : "false";
}

static ls_status put_added(ls__file_writer *w, const ls__added_token *t, bool first)
{
    char head[60], flags[160];
    snprintf(head, sizeof head, "%s{\"id\":%u,\"content\":", first ? "" : ",", t->id);
    snprintf(flags, sizeof flags, ",\"single_word\":%s,\"lstrip\":%s,\"rstrip\":%s,\"normalized\":%s,\"special\":%s}",
             truth(t->single_word), truth(t->lstrip), truth(t->rstrip), truth(t->normalized), truth(t->special));
    ls_status status = put(w, head);
    if (!status) status = put_text(w, t);
    return status ? status : put(w, flags);
}

static ls_status put_tokenizer(ls__file_writer *w, const source *s)
{
    static const char byte_level[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
                                     "\"use_regex\":true}";
    const char *const head[] = { "],\"normalizer\":null,\"pre_tokenizer\":",
                                 byte_level,
                                 ",\"post_processor\":",
                                 byte_level,
                                 ",\"decoder\":",
                                 byte_level,
                                 ",\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                                 "\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":\"\",\"fuse_unk\":false,"
                                 "\"vocab\":" };
    ls_status status = put(w, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[");
    for (size_t i = 0; !status && i < s->added->count; i++) status = put_added(w, &s->added->tokens[i], i == 0);
    for (size_t i = 0; !status && i < sizeof head / sizeof *head; i++) status = put(w, head[i]);
    if (!status) status = put_vocabulary(w, s);
    if (!status) status = put(w, ",\"merges\":[");
    for (uint32_t rank = 0; !status && rank < ls__bpe_merges(s->bpe); rank++) {
        status = put(w, rank ? ",\"" : "\"");
        if (!status) status = put_merge(w, s->bpe, rank, true);
        if (!status) status = put(w, "\"");
    }
    return status ? status : put(w, "]}}\n");
}

/* What transformers needs to know of a tokenizer of GPT-2's kind. */
static ls_status put_config(ls__file_writer *w, const source *s)
{
    static const char gpt2[] = "{\n  \"add_prefix_space\": false,\n  \"bos_token\": \"" LS__END_OF_TEXT
                               "\",\n  \"eos_token\": \"" LS__END_OF_TEXT "\",\n  \"unk_token\": \"" LS__END_OF_TEXT
                               "\",\n  \"tokenizer_class\": \"GPT2Tokenizer\"\n}\n";
    const ls__added_token *usual = ls__added_find(s->added, LS__END_OF_TEXT, sizeof LS__END_OF_TEXT - 1);
    if (usual && (int32_t)usual->id == s->end) return put(w, gpt2);
    /* A GPT-2 class would add its own <|endoftext|>. */
    const ls__added_token *end = s->end < 0 ? NULL : added_of(s->added, (uint32_t)s->end);
    ls_status status = put(w, "{");
    if (!status && end) status = put(w, "\n  \"eos_token\": ");
    if (!status && end) status = put_text(w, end);
    if (!status && end) status = put(w, ",");
    return status ? status : put(w, "\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n");
}

/* A file that is on disk, and not at its place yet. */
static ls_status prepare(const source *s, const char *folder, const char *name,
                         ls_status (*fill)(ls__file_writer *w, const source *s), ls__file_writer **out)
{
    char *path;
    *out = NULL;
    if (asprintf(&path, "%s/%s", folder, name) < 0) return ls__fail(LS_ENOMEM, "%s: out of memory", folder);
    ls_status status = ls__file_writer_open(out, path);
    if (!status) status = fill(*out, s);
    if (!status) status = ls__file_writer_sync(*out);
    free(path);
    return status;
}

/* All files or none: a full disk is noticed before the first is replaced. tokenizer.json is first, because readers prefer it. */
ls_status ls__tokenizer_write(const ls__bpe *bpe, const ls__added *added, int32_t end, const char *folder,
                              bool has_tokenizer, bool has_config)
{
    enum { FILES = 4 };
    const source s = { .bpe = bpe, .added = added, .end = end };
    const struct {
        const char *name;
        ls_status (*fill)(ls__file_writer *w, const source *s);
        bool skip;
    } files[FILES] = { { "tokenizer.json", put_tokenizer, has_tokenizer },
                       { "vocab.json", put_vocabulary, false },
                       { "merges.txt", put_merges_text, false },
                       { "tokenizer_config.json", put_config, has_config } };
    ls__file_writer *w[FILES] = { NULL };
    ls_status status = ls__file_make_dir(folder);
    for (int i = 0; i < FILES && !status; i++)
        if (!files[i].skip) status = prepare(&s, folder, files[i].name, files[i].fill, &w[i]);
    for (int i = 0; i < FILES && !status; i++)
        if (w[i]) status = ls__file_writer_commit(&w[i]);
    for (int i = 0; i < FILES; i++) ls__file_writer_cancel(&w[i]);
    return status;
}
