/* Shards of tokens. The formats are in format.c. A file without a header could be anything, so unless the user sets the format it is
 * read as raw tokens only if its name ends in .bin and it does not begin like any known format.
 *
 * All numbers are little-endian, as are the supported machines. */
#include "data/shard.h"

#include <string.h>
#include "base/status.h"
#include "base/text.h"
#include "data/names.h"
#include "data/recognize.h"

/* Tokens read at a time, on the stack. */
enum { CHUNK = 8192 };

/* Whether what was read is valid UTF-8 without control characters; a character may be cut at the end. */
static bool looks_like_text(const uint8_t *head, size_t count)
{
    size_t at = 0;
    char last[5] = "";
    while (at < count) {
        const char *p = (const char *)head + at;
        size_t left = count - at;
        if (left < 4) { /* what is after the end must not be read */
            memset(last, 0, sizeof last);
            memcpy(last, p, left);
            p = last;
        }
        int n = ls__utf8_length(p);
        if (!n) return left < 4 && at;
        if (n == 1 && ((uint8_t)*p < 32 || *p == 127) && !memchr("\t\n\r\f", *p, 4)) return false;
        at += (size_t)n;
    }
    return true;
}

/* Whether 16-bit words look like 32-bit tokens: every second one is the upper half of a number that is not large, and the
 * others are not so small. */
static bool looks_wide(const uint8_t *head, size_t count)
{
    enum {
        PAIRS = 8,
        UPPER = 16
    }; /* fewer pairs are not conclusive; a vocabulary of a million has upper halves below 16 */
    uint16_t low = 0, high = 0;
    for (size_t i = 0; i + 4 <= count; i += 4) {
        uint16_t pair[2];
        memcpy(pair, head + i, sizeof pair);
        low |= pair[0];
        high |= pair[1];
    }
    return count >= 4 * PAIRS && high < UPPER && (low >= UPPER || (low && !high));
}

/* Whether they look like 64-bit numbers, as NumPy makes them by default: the upper half of each is 0. */
static bool looks_long(const uint8_t *head, size_t count)
{
    enum { NUMBERS = 8 };
    uint32_t low = 0, high = 0;
    for (size_t i = 0; i + 8 <= count; i += 8) {
        uint32_t pair[2];
        memcpy(pair, head + i, sizeof pair);
        low |= pair[0];
        high |= pair[1];
    }
    return count >= 8 * NUMBERS && low && !high;
}

/* A file without a header is read as raw tokens only if its suffix is .bin and its first bytes do not contradict that. */
static ls_status check_raw(const ls__source *file, const uint8_t *head, size_t count)
{
    static const char ask[] = "set the format: u16 or u32 for raw tokens";
    if (ls__suffix_of(file->path).format != LS_FORMAT_U16)
        return ls__fail(LS_EFORMAT, "%s: byte 0: no token shard header, and the name does not end in .bin; %s",
                        file->path, ask);
    if (count >= 64 && looks_like_text(head, count))
        return ls__fail(LS_EFORMAT, "%s: byte 0: looks like text, not tokens; rename it to .txt or .jsonl, or %s",
                        file->path, ask);
    if (file->bytes % 8 == 0 && looks_long(head, count))
        return ls__fail(
            LS_EFORMAT,
            "%s: byte 0: looks like 64-bit numbers, which are not supported; write them as uint16 or uint32",
            file->path);
    if (file->bytes % 4 == 0 && looks_wide(head, count))
        return ls__fail(LS_EFORMAT, "%s: byte 0: looks like 32-bit tokens, not 16-bit; %s", file->path, ask);
    return LS_OK;
}

/* Decides the format from the user's choice and the file's first bytes. */
static ls_status choose_format(const ls__source *file, ls_data_format *format, const uint8_t *head, size_t count)
{
    ls__recognized r = ls__recognize(head, count, file->bytes);
    ls_data_format seen = ls__format_by_head(head, count), asked = *format;
    if (asked == LS_FORMAT_AUTO && seen != LS_FORMAT_AUTO) {
        *format = seen;
        return LS_OK;
    }
    if (asked == LS_FORMAT_AUTO) {
        *format = LS_FORMAT_U16;
        if (r.kind != LS__KIND_UNKNOWN && !r.weak) return ls__recognized_fail(file, &r, "a token shard");
        return check_raw(file, head, count);
    }
    const ls__format *f = ls__format_of(asked);
    if (!f->token_bytes)
        return ls__fail(LS_EINVAL, "%s: format %s is not a format of token shards", file->path, ls__format_name(asked));
    if (!f->detect && seen != LS_FORMAT_AUTO)
        return ls__fail(LS_EFORMAT, "%s: byte 0: begins with the header of format %s; it is not %s", file->path,
                        ls__format_name(seen), f->name);
    return LS_OK;
}

ls_status ls__shard_examine(const ls__source *file, ls_data_format format, ls__shard *out)
{
    uint8_t head[LS__HEAD];
    ls__shard_header header = { 0 };
    size_t count = 0;
    ls_status status = ls__source_head(file, head, &count);
    if (!status) status = choose_format(file, &format, head, count);
    if (status) return status;
    const ls__format *f = ls__format_of(format);
    if (f->open) status = f->open(f, file, head, count, &header);
    if (status) return status;

    *out = (ls__shard){ .format = format, .width = f->token_bytes, .begin = f->header_bytes };
    if (file->bytes < out->begin)
        return ls__fail(LS_EFORMAT, "%s: byte %zu: the file ends inside the header of %zu bytes", file->path,
                        (size_t)file->bytes, (size_t)out->begin);
    uint64_t body = file->bytes - out->begin;
    if (body % out->width)
        return ls__fail(LS_EFORMAT,
                        "%s: byte %zu: the file ends inside a token of %zu bytes; it is truncated, or not a %s "
                        "shard",
                        file->path, (size_t)(file->bytes - body % out->width), out->width, f->name);
    out->tokens = body / out->width;
    if (header.has_count && (header.count < 0 || (uint64_t)header.count != out->tokens))
        return ls__fail(LS_EFORMAT, "%s: byte 8: the header has %lld token%s, the file %zu", file->path,
                        (long long)header.count, ls__s(header.count), (size_t)out->tokens);
    if (!out->tokens) return ls__fail(LS_EFORMAT, "%s: byte %zu: no tokens", file->path, (size_t)out->begin);
    return LS_OK;
}

/* Finds the first token that is not in the vocabulary; the caller knows that there is one. */
static ls_status outside(const ls__source *file, const ls__shard *shard, uint64_t first, const int32_t *tokens,
                         uint32_t vocab_size)
{
    size_t i = 0;
    while ((uint32_t)tokens[i] < vocab_size) i++;
    return ls__fail(LS_EFORMAT, "%s: byte %zu: token %u (number %zu) is outside the vocabulary of %u", file->path,
                    (size_t)(shard->begin + (first + i) * shard->width), (uint32_t)tokens[i], (size_t)(first + i),
                    vocab_size);
}

/* The first number that no token may be. */
static uint32_t limit_of(uint32_t vocab_size)
{
    return vocab_size && vocab_size <= INT32_MAX ? vocab_size : (uint32_t)INT32_MAX + 1;
}

ls_status ls__shard_read(const ls__source *file, const ls__shard *shard, uint64_t first, size_t count,
                         uint32_t vocab_size, int32_t *out)
{
    uint32_t limit = limit_of(vocab_size);
    while (count) {
        size_t n = count < CHUNK ? count : CHUNK;
        uint64_t at = shard->begin + first * shard->width;
        uint32_t most = 0;
        ls_status status;
        if (shard->width == 2) {
            uint16_t raw[CHUNK];
            status = ls__source_read(file, raw, n * 2, at);
            if (status) return status;
            for (size_t i = 0; i < n; i++) {
                most = raw[i] > most ? raw[i] : most;
                out[i] = raw[i];
            }
        } else {
            status = ls__source_read(file, out, n * 4, at);
            if (status) return status;
            for (size_t i = 0; i < n; i++) most = (uint32_t)out[i] > most ? (uint32_t)out[i] : most;
        }
        if (most >= limit) return outside(file, shard, first, out, limit);
        out += n;
        first += n;
        count -= n;
    }
    return LS_OK;
}

ls_status ls__shard_read_pairs(const ls__source *file, const ls__shard *shard, uint64_t first, size_t count,
                               uint32_t vocab_size, int32_t *restrict inputs, int32_t *restrict targets)
{
    uint16_t raw[LS__SHARD_PAIRS + 1];
    ls_status status = ls__source_read(file, raw, (count + 1) * 2, shard->begin + first * 2);
    if (status) return status;
    /* Numbers of all tokens or-ed together are a quick look: only if they reach the limit is it worth a second one. */
    uint16_t all = raw[count];
    for (size_t i = 0; i < count; i++) {
        all |= raw[i];
        inputs[i] = raw[i];
        targets[i] = raw[i + 1];
    }
    uint32_t limit = limit_of(vocab_size);
    for (size_t i = 0; all >= limit && i <= count; i++) {
        if (raw[i] < limit) continue;
        int32_t token = raw[i];
        return outside(file, shard, first + i, &token, limit);
    }
    return LS_OK;
}
