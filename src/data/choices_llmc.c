/* Questions as tokens: the files of llm.c's write_evalfile(), such as hellaswag_val.bin.
 *
 * A header of 256 int32: magic, version 1, number of questions, bytes of the longest. Each question is of uint16: 65535, its
 * bytes from there on, its number, the right ending, the number of endings; then a number and so many tokens, of the context
 * and of each ending. */
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "data/choices.h"

enum { HEADER_BYTES = 1024, START = 65535, FIXED = 5 /* numbers before the context's */ };

/* One question at p, of which `left` numbers are in the file. Returns what is wrong with it; NULL: nothing, and *used are its numbers. */
static const char *read_question(const uint16_t *p, size_t left, size_t number, ls__question *q, size_t *used)
{
    if (left < FIXED || p[0] != START) return "does not begin where the one before ends";
    size_t all = p[1] / 2u, at = FIXED;
    if (p[1] % 2 || all < FIXED || all > left) return "is longer than the file, or has an odd number of bytes";
    if (p[2] != (uint16_t)number) return "has the number of another one";
    if (p[4] < 2 || p[4] > LS__CHOICES_MAX) return "does not have 2 to 16 endings";
    if (p[3] >= p[4]) return "names a right ending that it does not have";
    *q = (ls__question){ .count = p[4], .right = p[3], .tokens = p + FIXED };
    for (int i = 0; i <= q->count; i++) {
        if (at >= all || p[at] > all - at - 1) return "has tokens beyond its end";
        if (!p[at]) return i ? "has an ending without tokens" : "has a context without tokens";
        at += 1u + p[at];
    }
    *used = all;
    return at == all ? NULL : "has more bytes than its tokens";
}

ls_status ls__questions_parse_llmc(ls__questions *out, const char *path, const char *data, size_t bytes)
{
    int32_t header[4];
    *out = (ls__questions){ 0 };
    if (bytes < HEADER_BYTES) return ls__fail(LS_EFORMAT, "%s: is shorter than the header of llm.c's files", path);
    memcpy(header, data, sizeof header);
    if (header[1] != 1)
        return ls__fail(LS_EFORMAT, "%s: has version %d of llm.c's files of questions; 1 is supported", path,
                        header[1]);
    size_t left = (bytes - HEADER_BYTES) / 2, used = 0, count = header[2] > 0 ? (size_t)header[2] : 0;
    if (!count || count > left / FIXED || bytes % 2)
        return ls__fail(LS_EFORMAT, "%s: has %zu bytes, and its header says %d questions", path, bytes, header[2]);
    out->items = calloc(count, sizeof *out->items);
    out->tokens = malloc(left * 2);
    if (!out->items || !out->tokens) {
        ls__questions_free(out);
        return ls__fail(LS_ENOMEM, "%s: no memory for %zu questions", path, count);
    }
    memcpy(out->tokens, data + HEADER_BYTES, left * 2);
    const uint16_t *p = out->tokens;
    ls_status status = LS_OK;
    for (; out->count < count && !status; p += used, left -= used) {
        const char *problem = read_question(p, left, out->count, &out->items[out->count], &used);
        if (problem)
            status = ls__fail(LS_EFORMAT, "%s: question %zu: %s", path, out->count, problem);
        else
            out->count++;
    }
    if (!status && left) status = ls__fail(LS_EFORMAT, "%s: %zu bytes after the last question", path, left * 2);
    if (status) ls__questions_free(out);
    return status;
}
