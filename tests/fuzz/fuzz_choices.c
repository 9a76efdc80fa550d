/* Fuzz target: any bytes as HellaSwag's JSON lines. They are refused with a line, or give questions whose right ending exists. */
#include <stdlib.h>
#include <string.h>
#include "data/choices.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls__questions q;
    if (ls__questions_parse(&q, "fuzz", (const char *)data, size)) {
        if (q.count || strncmp(ls_error(), "fuzz: ", 6) != 0) abort();
        return 0;
    }
    if (!q.count) abort();
    for (size_t i = 0; i < q.count; i++) {
        size_t count = json_array_size(q.items[i].endings);
        if (!json_is_string(q.items[i].context) || count < 2 || count > LS__CHOICES_MAX) abort();
        if (q.items[i].right < 0 || (size_t)q.items[i].right >= count) abort();
        for (size_t k = 0; k < count; k++)
            if (!json_is_string(json_array_get(q.items[i].endings, k))) abort();
    }
    ls__questions_free(&q);
    return 0;
}
