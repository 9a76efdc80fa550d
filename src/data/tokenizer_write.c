/* Writing a tokenizer in the three files that Hugging Face's libraries read. */
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

/* A token in GPT-2's alphabet; `json`: as the inside of a JSON string. Special tokens are written as they are. */
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

/* {"token": id, ...} */
static ls_status put_vocabulary(ls__file_writer *w, const ls__bpe *bpe)
{
    ls_status status = put(w, "{");
    bool first = true;
    for (uint32_t id = 0; !status && id < ls__bpe_tokens(bpe); id++) {
        size_t count;
        char number[20];
        if (!ls__bpe_bytes(bpe, id, &count)) continue;
        status = put(w, first ? "\"" : ",\"");
        if (!status) status = put_token(w, bpe, id, true);
        snprintf(number, sizeof number, "\":%u", id);
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

static ls_status put_merges_text(ls__file_writer *w, const ls__bpe *bpe)
{
    ls_status status = put(w, "#version: 0.2\n");
    for (uint32_t rank = 0; !status && rank < ls__bpe_merges(bpe); rank++) {
        status = put_merge(w, bpe, rank, false);
        if (!status) status = put(w, "\n");
    }
    return status;
}

static ls_status put_tokenizer(ls__file_writer *w, const ls__bpe *bpe)
{
    static const char byte_level[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
                                     "\"use_regex\":true}";
    uint32_t end = ls__bpe_find(bpe, LS__END_OF_TEXT, sizeof LS__END_OF_TEXT - 1);
    char added[300] = "";
    if (end != LS__BPE_NONE)
        snprintf(added, sizeof added,
                 "{\"id\":%u,\"content\":\"" LS__END_OF_TEXT
                 "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                 "\"normalized\":false,\"special\":true}",
                 end);
    const char *const head[] = { "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[",
                                 added,
                                 "],\"normalizer\":null,\"pre_tokenizer\":",
                                 byte_level,
                                 ",\"post_processor\":",
                                 byte_level,
                                 ",\"decoder\":",
                                 byte_level,
                                 ",\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                                 "\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":\"\",\"fuse_unk\":false,"
                                 "\"vocab\":" };
    ls_status status = LS_OK;
    for (size_t i = 0; !status && i < sizeof head / sizeof *head; i++) status = put(w, head[i]);
    if (!status) status = put_vocabulary(w, bpe);
    if (!status) status = put(w, ",\"merges\":[");
    for (uint32_t rank = 0; !status && rank < ls__bpe_merges(bpe); rank++) {
        status = put(w, rank ? ",\"" : "\"");
        if (!status) status = put_merge(w, bpe, rank, true);
        if (!status) status = put(w, "\"");
    }
    return status ? status : put(w, "]}}\n");
}

static ls_status write_one(const ls__bpe *bpe, const char *folder, const char *name,
                           ls_status (*fill)(ls__file_writer *w, const ls__bpe *bpe))
{
    char *path;
    ls__file_writer *w = NULL;
    if (asprintf(&path, "%s/%s", folder, name) < 0) return ls__fail(LS_ENOMEM, "%s: out of memory", folder);
    ls_status status = ls__file_writer_open(&w, path);
    if (!status) status = fill(w, bpe);
    if (!status) status = ls__file_writer_commit(&w);
    ls__file_writer_cancel(&w);
    free(path);
    return status;
}

ls_status ls__tokenizer_write(const ls__bpe *bpe, const char *folder)
{
    ls_status status = ls__file_make_dir(folder);
    if (!status) status = write_one(bpe, folder, "vocab.json", put_vocabulary);
    if (!status) status = write_one(bpe, folder, "merges.txt", put_merges_text);
    if (!status) status = write_one(bpe, folder, "tokenizer.json", put_tokenizer);
    return status;
}
