/* Fuzz target: any bytes as a file of text; the first byte says whether plain, lines or JSON lines, and
 * whether bad lines are skipped. Documents are inside
 * the file, and the splitter goes through each without gaps, also when it is cut where that is allowed. */
#include <stdlib.h>
#include <string.h>
#include "data/documents.h"
#include "data/split.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static ls_status check(void *user, const ls__document *d)
{
    const ls__chunk *chunk = user;
    const uint8_t *text = (const uint8_t *)d->text;
    if (d->offset > chunk->count || !(d->weight >= 0)) abort();
    uint8_t *ends = calloc(d->text_bytes + 1, 1);
    if (!ends) return LS_OK;
    for (size_t at = 0; at < d->text_bytes;) {
        size_t word = ls__split(text + at, text + d->text_bytes);
        if (!word || word > d->text_bytes - at) abort();
        ends[at += word] = 1;
    }
    for (size_t cut = 0; (cut = ls__split_cut(text, cut + 1, d->text_bytes)) < d->text_bytes;) {
        if (!ends[cut]) abort();
        size_t last = cut;
        while (last && !ends[last - 1]) last--;
        if (last && !ends[last - 1 + ls__split(text + last - 1, text + cut)]) abort();
    }
    free(ends);
    return LS_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    const ls__source file = { .path = (char *)(uintptr_t) "fuzz", .fd = -1, .bytes = size - 1 };
    ls__chunk chunk = { .file = &file,
                        .format = (ls_data_format)(1 + data[0] % 3),
                        .line = 1,
                        .last = true,
                        .bytes = malloc(size),
                        .count = size - 1 };
    const ls__fields plain = { 0 }, all = { .text = "a", .prompt = "b", .weight = "w" };
    if (!chunk.bytes) return 0;
    memcpy(chunk.bytes, data + 1, size - 1);
    ls__fields fields = data[0] & 0x80 ? all : plain;
    ls__bad_lines bad = { 0 };
    fields.skip_bad = data[0] & 0x40;
    ls_status status = ls__chunk_documents(&chunk, &fields, &bad, check, &chunk);
    if (status && (!ls_error()[0] || (fields.skip_bad && status != LS_ENOMEM))) abort();
    if (bad.count && (!fields.skip_bad || !bad.first[0])) abort();
    free(chunk.bytes);
    return 0;
}
