/* What all language models share: the list of kinds, options, and opening. */
#include "nn/model.h"

#include <stdio.h>
#include <string.h>
#include "base/status.h"
#include "nn/lora.h"
#include "tensor/hooks.h"

#define X(name, value, type) extern const ls__lm_type ls__lm_##type;
LS_LM_LIST(X)
#undef X

#define X(name, value, type) [name] = &ls__lm_##type,
static const ls__lm_type *const types[LS_LM_COUNT] = { LS_LM_LIST(X) };
#undef X

const ls__lm_type *ls__lm_type_of(ls_lm_kind kind)
{
    return (unsigned)kind < LS_LM_COUNT ? types[kind] : NULL;
}

ls_status ls__lm_preset(int i, ls_model_options *out, const char **name)
{
    *name = NULL;
    for (int kind = 0; kind < LS_LM_COUNT; kind++) {
        int n = (int)types[kind]->n_presets;
        if (i < n) {
            *name = types[kind]->presets[i].name;
            if (!out) return LS_OK;
            out->lm = types[kind]->presets[i].options;
            return ls__lm_options_check(&out->lm);
        }
        i -= n;
    }
    return LS_OK;
}

static ls_status check_range(const char *model, const char *name, int value, int low, int high)
{
    if (value >= low && value <= high) return LS_OK;
    return ls__fail(LS_EINVAL, "%s: %s is %d; it must be from %d to %d", model, name, value, low, high);
}

ls_status ls__lm_options_check(ls_lm_options *options)
{
    ls_lm_options o = *options;
    const ls__lm_type *type = ls__lm_type_of(o.kind);
    if (!type) return ls__fail(LS_EINVAL, "model: invalid kind %d", (int)o.kind);
    const ls_lm_options *defaults = &type->presets[0].options;
    const char *name = type->model.name;
    ls_status status;
    if (!o.layers) o.layers = defaults->layers;
    if (!o.width) o.width = defaults->width;
    if (!o.heads) o.heads = o.width % 64 == 0 ? o.width / 64 : 1;
    if (!o.vocab_size) o.vocab_size = defaults->vocab_size;
    if (!o.context) o.context = defaults->context;
    if (o.norm_eps == 0) o.norm_eps = defaults->norm_eps;
    if ((status = check_range(name, "layers", o.layers, 1, 10000))) return status;
    if ((status = check_range(name, "width", o.width, 1, 1 << 20))) return status;
    if ((status = check_range(name, "heads", o.heads, 1, o.width))) return status;
    if ((status = check_range(name, "vocab_size", o.vocab_size, 1, 1 << 26))) return status;
    if ((status = check_range(name, "context", o.context, 1, 1 << 26))) return status;
    if (!(o.dropout >= 0 && o.dropout < 1))
        return ls__fail(LS_EINVAL, "%s: dropout is %g; it must be >= 0 and < 1", name, (double)o.dropout);
    if (!(o.embd_dropout < 1) || !(o.attn_dropout < 1))
        return ls__fail(LS_EINVAL, "%s: dropout of embeddings is %g and of attention weights %g; both must be < 1",
                        name, (double)o.embd_dropout, (double)o.attn_dropout);
    if (!(o.norm_eps > 0 && o.norm_eps < 1))
        return ls__fail(LS_EINVAL, "%s: norm_eps is %g; it must be > 0 and < 1", name, (double)o.norm_eps);
    if ((unsigned)o.head > LS_HEAD_UNTIED) return ls__fail(LS_EINVAL, "%s: unknown head %d", name, (int)o.head);
    if ((status = type->check(&o))) return status;
    *options = o;
    return LS_OK;
}

ls_status ls__lm_check_no_encoder(const ls_lm_options *o)
{
    const char *wrong = o->types ? "types" : o->classes ? "classes" : o->head_dropout != 0 ? "head_dropout" : NULL;
    if (!wrong) return LS_OK;
    return ls__fail(LS_EINVAL,
                    "%s: %s is an option of bert, distilbert and roberta; choose another model or leave it out",
                    ls__lm_type_of(o->kind)->model.name, wrong);
}

ls_status ls__lm_check_no_llama(const ls_lm_options *o)
{
    const struct {
        const char *name;
        bool given;
    } others[] = { { "kv_heads", o->kv_heads != 0 },
                   { "head_dim", o->head_dim != 0 },
                   { "an untied head", o->head == LS_HEAD_UNTIED },
                   { "attention_bias", o->attention_bias },
                   { "mlp_bias", o->mlp_bias },
                   { "window", o->window != 0 || o->window_first != 0 },
                   { "rope", o->rope.kind || o->rope.theta != 0 } };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].given)
            return ls__fail(LS_EINVAL, "%s: %s is an option of the Llama family; choose another model or leave it out",
                            ls__lm_type_of(o->kind)->model.name, others[i].name);
    return LS_OK;
}

ls_status ls__lm_open(ls_model **out, const ls_lm_options *options)
{
    ls_lm_options o = *options;
    ls_status status = ls__lm_options_check(&o);
    if (status) return status;
    const ls__lm_type *type = types[o.kind];
    ls_model *m = ls__model_make(&type->model);
    if (!m) return LS_ENOMEM;
    m->lm = o;
    type->list(m);
    status = ls__model_finish(&m);
    *out = m;
    return status;
}

/* ---- Forward */

ls_tensor *ls__lm_project(ls_model *m, ls_tape *t, ls_tensor *x)
{
    return ls_linear(t, x, &m->params[m->type->lm->head(m)], NULL, &(ls_linear_options){ .transposed = true });
}

ls_tensor *ls__lm_loss(ls_model *m, ls_tape *t, const ls_model_batch *b)
{
    ls_tensor *x = m->type->lm->hidden(m, t, b->tokens, b->batch_size, b->seq_len, NULL);
    ls_cross_entropy_options targets = ls__batch_targets(b);
    return ls_linear_cross_entropy(t, x, &m->params[m->type->lm->head(m)], &targets);
}

ls_tensor *ls__lm_logits(ls_model *m, ls_tape *t, const ls_model_batch *b)
{
    return ls__lm_project(m, t, m->type->lm->hidden(m, t, b->tokens, b->batch_size, b->seq_len, NULL));
}

ls_tensor *ls__lm_block(ls_model *m, ls_tape *t, ls_tensor *x, ls_block_fn fn, void *user, size_t user_bytes,
                        ls_param *params, int n_params)
{
    if (!m->recompute && !ls__tape_is_eval(t)) return fn(user, t, x);
    if (m->lora.options.r) params = ls__lora_params(m, params, n_params, &n_params); /* the others are frozen */
    return ls_recompute_block(t, x, fn, user, user_bytes, params, n_params);
}

const int64_t *ls__lm_first(ls_tape *t, const ls_kv_cache *caches, int64_t B)
{
    int64_t *first = caches && B > 0 ? ls__tape_array(t, (size_t)B, sizeof *first) : NULL;
    for (int64_t b = 0; first && b < B; b++) first[b] = caches[b].length;
    return first;
}

double ls__lm_flops_per_token(const ls_lm_options *options, int64_t seq_len)
{
    return ls__lm_type_of(options->kind)->flops_per_token(options, seq_len);
}
