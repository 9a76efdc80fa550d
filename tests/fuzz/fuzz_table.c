/* Fuzz target: any bytes as records of JSON lines, CSV or TSV. Records lie in the text, one after the other; cells lie in their
 * record or in the reader's memory; a failure has a problem and a place. */
#include <stdlib.h>
#include <string.h>
#include "data/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_records(ls__table_kind kind, const char *text, size_t bytes)
{
    ls__table_reader reader = { 0 };
    ls__table_cursor c = { 0 };
    ls__table_record r;
    int columns = 0, column = -1;
    size_t before = 0;
    uint64_t line = 0;
    while (ls__table_next(kind, text, bytes, &c, &r)) {
        if (r.offset < before || r.offset + r.bytes > bytes || r.line <= line || !r.bytes) abort();
        before = r.offset + r.bytes;
        line = r.line;
        if (!columns) column = ls__table_column(kind, text + r.offset, r.bytes, "a", &columns, NULL);
        ls__cell cells[2] = { { .name = "a", .column = column < 0 ? 0 : column }, { .name = "b", .column = 1 } };
        size_t at = 0;
        const char *problem = NULL;
        ls_status status = ls__table_read(kind, &reader, text + r.offset, r.bytes, columns, cells, 2, &at, &problem);
        if (status == LS_ENOMEM) break;
        if (at > r.bytes || (status == LS_EFORMAT) != (problem != NULL)) abort();
        for (int i = 0; i < 2 && !status; i++) {
            size_t sum = 0;
            for (size_t k = 0; k < cells[i].bytes; k++) sum += (unsigned char)cells[i].text[k];
            if (cells[i].found && cells[i].bytes > r.bytes) abort();
            if (sum > 256 * r.bytes) abort();
        }
    }
    ls__table_reader_free(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1); /* exactly as long, so that a read beyond it is found */
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = 0;
    for (int kind = LS__TABLE_JSONL; kind <= LS__TABLE_TSV; kind++) read_records((ls__table_kind)kind, text, size);
    (void)ls__table_kind_of("x", text, size);
    free(text);
    return 0;
}
