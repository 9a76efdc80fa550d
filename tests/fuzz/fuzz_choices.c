/* Fuzz target: any bytes as HellaSwag's JSON lines or llm.c's questions. They are refused with a place, or give questions
 * whose right ending exists. */
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
        const ls__question *item = &q.items[i];
        const uint16_t *p = item->tokens;
        unsigned sum = 0;
        if (item->count < 2 || item->count > LS__CHOICES_MAX || item->right < 0 || item->right >= item->count) abort();
        if (!p && (!json_is_string(item->context) || json_array_size(item->endings) != (size_t)item->count)) abort();
        for (int k = 0; k < item->count; k++)
            if (!p && !json_is_string(json_array_get(item->endings, (size_t)k))) abort();
        for (int k = 0; p && k <= item->count; k++, p += 1 + *p)
            for (int t = 1; t <= *p; t++) sum += p[t]; /* the sanitizer's business */
        if (sum == 0xffffffffu) abort();
    }
    ls__questions_free(&q);
    return 0;
}
