/* Fuzz target: any bytes as a config.json (of language models, ResNets and vision transformers), a generation_config.json and an
 * index of weights. What is accepted must be a model that can be made (without memory for its values), and settings that are read
 * again as the same, also after they were written with another end of text. */
#include <stdlib.h>
#include <string.h>
#include "nn/files.h"
#include "nn/model.h"
#include "nn/resnet.h"
#include "nn/vit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_lm_options options, again;
    ls_generation generation = { 0 };
    ls__shards shards;
    if (!ls__generation_parse("fuzz", (const char *)data, size, true, &generation) &&
        (generation.n_ends > 16 || generation.options.top_k < 0))
        abort();
    ls_resnet_options images, images_again;
    if (!ls__resnet_config_parse("fuzz", (const char *)data, size, &images)) {
        images_again = images;
        if (ls__resnet_check(&images_again) || memcmp(&images_again, &images, sizeof images)) abort();
    }
    ls_vit_options vit, vit_again;
    if (!ls__vit_config_parse("fuzz", (const char *)data, size, &vit)) {
        vit_again = vit;
        if (ls__vit_check(&vit_again) || memcmp(&vit_again, &vit, sizeof vit)) abort();
    }
    if (!ls__shards_parse("fuzz", "/nonexistent", (const char *)data, size, &shards)) abort();
    if (ls__hf_config_parse("fuzz", (const char *)data, size, &options)) {
        if (!ls_error()[0]) abort();
        return 0;
    }
    again = options;
    if (ls__lm_options_check(&again) || memcmp(&again, &options, sizeof again)) abort();
    char *base = strndup((const char *)data, size), *text = NULL;
    if (base && !ls__hf_config_text(base, &options, 3, &text) &&
        (ls__hf_config_parse("written", text, strlen(text), &again) || memcmp(&again, &options, sizeof again)))
        abort();
    free(text);
    /* Without the text that was read: another text of the same kind of model. */
    if (ls__hf_config_text(NULL, &options, 3, &text) || ls__hf_config_parse("new", text, strlen(text), &again) ||
        again.kind != options.kind || again.layers != options.layers || again.head != options.head ||
        again.window != options.window || again.window_first != options.window_first ||
        again.rope.kind != options.rope.kind)
        abort();
    free(text);
    free(base);
    if (options.layers < 1 || options.vocab_size < 1 || options.context < 1) abort();
    return 0;
}
