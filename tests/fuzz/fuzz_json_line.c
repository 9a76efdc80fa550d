/* Fuzz target: any bytes as a line of JSON lines. Strings that are found are UTF-8. What jansson, which is strict, accepts is
 * accepted with the same text and the same number. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "data/json_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_utf8(const ls__json_field *f)
{
    char *copy = malloc(f->bytes + 1);
    if (!copy) return;
    memcpy(copy, f->text, f->bytes);
    copy[f->bytes] = 0;
    for (size_t at = 0; at < f->bytes;) {
        int n = ls__utf8_length(copy + at);
        if (!n) abort();
        at += (size_t)n;
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls__json_line reader = { 0 };
    ls__json_field f[2] = { { .name = "a" }, { .name = "w", .is_number = true } };
    size_t at = 0;
    const char *problem = NULL;
    ls_status status = ls__json_line_read(&reader, (const char *)data, size, f, 2, &at, &problem);
    if (status == LS_ENOMEM) return 0;
    if (at > size || (status == LS_EFORMAT) != (problem != NULL)) abort();
    if (!status && f[0].found) check_utf8(&f[0]);
    /* jansson takes line ends, which a line does not have, for white space, and a 0 after a number, too. */
    bool comparable = !memchr(data, '\n', size) && !memchr(data, 0, size);
    json_error_t error;
    json_t *root =
        !comparable ? NULL : json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (root && json_is_object(root)) {
        const json_t *text = json_object_get(root, "a"), *number = json_object_get(root, "w");
        if (status) abort();
        if (f[0].found != json_is_string(text) || f[1].found != json_is_number(number)) abort();
        if (f[0].found &&
            (f[0].bytes != json_string_length(text) || memcmp(f[0].text, json_string_value(text), f[0].bytes)))
            abort();
        if (json_is_real(number) && f[1].number != json_real_value(number)) abort();
    }
    json_decref(root);
    ls__json_line_free(&reader);
    return 0;
}
