/* Fuzz target: any bytes as a safetensors file. What is accepted must hold together: every byte of every tensor can be
 * read, and written again it gives the same tensors. */
#include <stdlib.h>
#include <string.h>
#include "nn/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls__st_reader *reader;
    if (ls__st_parse(&reader, "fuzz", data, size)) {
        if (reader || !ls_error()[0]) abort();
        return 0;
    }
    size_t total = 0;
    for (size_t i = 0; i < ls__st_count(reader); i++) {
        const ls__st_tensor *t = ls__st_get(reader, i);
        unsigned sum = 0;
        for (size_t k = 0; k < t->bytes; k++) sum += ((const uint8_t *)t->data)[k];
        total += t->bytes + (sum & 0);
        if (ls__st_find(reader, t->name) != t) abort();
        size_t count = t->bytes / ls__st_type_size(t->type);
        float *values = malloc(count * sizeof *values + 1);
        (void)!ls__st_to_f32(t, 0, count, values);
        free(values);
        char text[24];
        if (strlen(ls__st_shape_text(t->rank, t->shape, text, sizeof text)) >= sizeof text) abort();
    }
    if (total > size) abort();
    ls__st_free(&reader);
    return 0;
}
