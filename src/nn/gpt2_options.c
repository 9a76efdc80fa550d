/* What a GPT-2 may look like: sizes by name, defaults, limits. */
#include <string.h>
#include "base/status.h"
#include "lockstep/nn.h"

static const struct {
    const char *name;
    ls_gpt2_options options;
} presets[] = {
    { "gpt2", { .layers = 12, .width = 768, .heads = 12, .vocab = 50257, .context = 1024 } },
    { "gpt2-medium", { .layers = 24, .width = 1024, .heads = 16, .vocab = 50257, .context = 1024 } },
    { "gpt2-large", { .layers = 36, .width = 1280, .heads = 20, .vocab = 50257, .context = 1024 } },
    { "gpt2-xl", { .layers = 48, .width = 1600, .heads = 25, .vocab = 50257, .context = 1024 } },
};
enum { PRESETS = sizeof presets / sizeof *presets };

ls_status ls_gpt2_preset(const char *name, ls_gpt2_options *out)
{
    for (int i = 0; i < PRESETS; i++) {
        if (strcmp(name, presets[i].name) == 0) {
            *out = presets[i].options;
            return ls_gpt2_options_check(out);
        }
    }
    return ls__fail(LS_EINVAL, "there is no model '%.60s'; known are gpt2, gpt2-medium, gpt2-large and gpt2-xl", name);
}

static ls_status check_range(const char *name, int value, int low, int high)
{
    if (value >= low && value <= high) return LS_OK;
    return ls__fail(LS_EINVAL, "gpt2: %s is %d; it must be from %d to %d", name, value, low, high);
}

ls_status ls_gpt2_options_check(ls_gpt2_options *options)
{
    ls_gpt2_options o = *options;
    ls_status status;
    if (!o.layers) o.layers = 12;
    if (!o.width) o.width = 768;
    if (!o.heads) o.heads = o.width % 64 == 0 ? o.width / 64 : 1;
    if (!o.vocab) o.vocab = 50257;
    if (!o.context) o.context = 1024;
    if (o.norm_eps == 0) o.norm_eps = 1e-5f;
    if ((status = check_range("layers", o.layers, 1, 10000))) return status;
    if ((status = check_range("width", o.width, 1, 1 << 20))) return status;
    if ((status = check_range("heads", o.heads, 1, o.width))) return status;
    if ((status = check_range("vocab", o.vocab, 1, 1 << 26))) return status;
    if ((status = check_range("context", o.context, 1, 1 << 26))) return status;
    if (o.width % o.heads)
        return ls__fail(LS_EINVAL, "gpt2: width %d cannot be divided among %d heads", o.width, o.heads);
    if (!(o.dropout >= 0 && o.dropout < 1))
        return ls__fail(LS_EINVAL, "gpt2: dropout is %g; it must be from 0 and below 1", (double)o.dropout);
    if (!(o.embd_dropout < 1) || !(o.attn_dropout < 1))
        return ls__fail(LS_EINVAL,
                        "gpt2: dropout of embeddings is %g and of attention weights %g; they must be below 1",
                        (double)o.embd_dropout, (double)o.attn_dropout);
    if (!(o.norm_eps > 0 && o.norm_eps < 1))
        return ls__fail(LS_EINVAL, "gpt2: norm_eps is %g; it must be above 0 and below 1", (double)o.norm_eps);
    *options = o;
    return LS_OK;
}
