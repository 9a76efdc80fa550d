/* Fuzz target: any bytes as an adapter_config.json. What is accepted has a rank, a base, and targets that can be written again. */
#include <stdlib.h>
#include <string.h>
#include "nn/lora.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_lora_options o;
    char *base;
    if (ls__lora_parse_config("fuzz", (const char *)data, size, &o, &base)) {
        if (base || !ls_error()[0]) abort();
        return 0;
    }
    if (!base || !*base || o.r < 1 || !(o.alpha > 0) || !(o.dropout >= 0 && o.dropout < 1)) abort();
    if (strlen(o.target) >= LS_LORA_TARGET || strchr(o.target, ',')) abort();
    free(base);
    return 0;
}
