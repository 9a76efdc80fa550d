/* Fuzz target: any bytes as a chat template, after a 0 byte perhaps its messages. It is refused, or it gives text with spans inside
 * of it, the same text every time. */
#include <stdlib.h>
#include <string.h>
#include "data/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char usual[] = "[{\"role\": \"system\", \"content\": \" s\\n\"}, {\"role\": \"user\", \"content\": "
                            "\"\\u00e9 1\"}, {\"role\": \"assistant\", "
                            "\"content\": \"<think>a</think> b\", \"tool_calls\": [{\"function\": {\"name\": \"f\", "
                            "\"arguments\": {\"x\": [1, 2.5, "
                            "null, true]}}}]}]";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t bytes = end ? (size_t)(end - data) : size;
    json_t *messages = end ? json_loadb((const char *)end + 1, size - bytes - 1, 0, NULL) : NULL;
    if (!messages) messages = json_loads(usual, 0, NULL);
    json_t *variables = json_pack("{s:o, s:b, s:s, s:s, s:n}", "messages", messages, "add_generation_prompt", 1,
                                  "bos_token", "<s>", "eos_token", "</s>", "tools");
    char *before = json_dumps(variables, JSON_COMPACT);
    ls__jinja *j;
    ls__jinja_text out = { 0 }, again = { 0 };
    ls_status status = ls__jinja_parse(&j, "template", (const char *)data, bytes);
    if (status && (j || !strstr(ls_error(), "line "))) abort();
    if (!status) {
        status = ls__jinja_render(j, variables, &out);
        if (status && !strstr(ls_error(), "line ")) abort();
        if (status != ls__jinja_render(j, variables, &again)) abort();
        if (!status &&
            (out.count != again.count || memcmp(out.bytes, again.bytes, out.count) != 0 || out.bytes[out.count]))
            abort();
        for (size_t i = 0; i < out.n_spans && !status; i++)
            if (out.spans[i].begin > out.spans[i].end || out.spans[i].end > out.count) abort();
    }
    char *after = json_dumps(variables, JSON_COMPACT);
    if (before && after && strcmp(before, after) != 0) abort();
    free(before);
    free(after);
    ls__jinja_text_free(&out);
    ls__jinja_text_free(&again);
    ls__jinja_free(&j);
    json_decref(variables);
    return 0;
}
