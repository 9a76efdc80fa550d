/* Compressed traces: any bytes as gzip, zstd or plain text. In pieces of any length the same text must come out as at once; of data that go
 * bad, as much as comes before. */
#include <stdlib.h>
#include <string.h>
#include "import/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 1 << 20 };

/* Up to MOST bytes of the text, read `step` bytes at a time. A frame that needs too much memory is an error. */
static size_t read_text(const uint8_t *data, size_t size, size_t step, char *out, bool *cut)
{
    ls__input *in;
    size_t n = 0, got = 1;
    if (ls__input_open_memory(&in, data, size)) abort();
    while (got && n < MOST) {
        size_t want = step < MOST - n ? step : MOST - n;
        ls_status status = ls__input_read(in, out + n, want, &got);
        if (status && status != LS_EFORMAT) abort();
        if (status) got = 0;
        if (got > want) __builtin_trap();
        n += got;
    }
    *cut = ls__input_is_cut(in);
    ls__input_free(&in);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char one[MOST], other[MOST];
    bool cut, other_cut;
    if (!size) return 0;
    size_t step = 1 + data[size - 1] % 97u, n = read_text(data, size, MOST, one, &cut),
           m = read_text(data, size, step, other, &other_cut);
    if (memcmp(one, other, n < m ? n : m)) __builtin_trap();
    if (n < MOST && m < MOST && (cut != other_cut || (!cut && n != m))) __builtin_trap();
    return 0;
}
