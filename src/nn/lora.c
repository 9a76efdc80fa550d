/* Adapters in a model: options, places, and the layers that use them. See lora.h. */
#include "nn/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "tensor/lora.h"

/* ---- Options. */

static ls_status check(const ls_lora_options *o)
{
    if (o->r < 1 || o->r > 1 << 16) return ls__fail(LS_EINVAL, "lora: r is %d; it must be from 1 to 65536", o->r);
    if (!(o->alpha > 0 && isfinite(o->alpha)))
        return ls__fail(LS_EINVAL, "lora: alpha is %g; it must be above 0", (double)o->alpha);
    if (!(o->dropout >= 0 && o->dropout < 1))
        return ls__fail(LS_EINVAL, "lora: dropout is %g; it must be >= 0 and < 1", (double)o->dropout);
    return LS_OK;
}

static ls_status parse_word(const char *word, size_t n, ls_lora_options *o)
{
    char text[512], more;
    int used = 0;
    if (n >= sizeof text) return ls__fail(LS_EINVAL, "lora: '%.40s...' is too long", word);
    snprintf(text, sizeof text, "%.*s", (int)n, word);
    if (!strncmp(text, "target=", 7) && text[7]) {
        if (strlen(text + 7) >= sizeof o->target) return ls__fail(LS_EINVAL, "lora: the list of targets is too long");
        strcpy(o->target, strcmp(text + 7, "all") ? text + 7 : "");
        return LS_OK;
    }
    if (sscanf(text, "r=%d%c", &o->r, &more) == 1 || sscanf(text, "alpha=%f%c", &o->alpha, &more) == 1 ||
        sscanf(text, "dropout=%f%c", &o->dropout, &more) == 1 || (sscanf(text, "rslora%n", &used) == 0 && used == 6)) {
        o->rslora = o->rslora || used == 6;
        return LS_OK;
    }
    if (!strcmp(text, "base=bf16") || !strcmp(text, "base=f32")) {
        o->bf16 = text[5] == 'b';
        return LS_OK;
    }
    return ls__fail(
        LS_EINVAL,
        "lora: '%.60s' is not known; there are r=N, alpha=X, 'dropout=P', target=NAME+NAME (or all), rslora, "
        "base=bf16",
        text);
}

ls_status ls__lora_parse(const char *text, ls_lora_options *out)
{
    ls_lora_options o = { .r = 16 };
    ls_status status = LS_OK;
    for (const char *p = text; *p && !status;) {
        size_t n = strcspn(p, ",");
        if (n) status = parse_word(p, n, &o);
        p += n + (p[n] == ',');
    }
    if (o.alpha == 0) o.alpha = 2 * (float)o.r;
    if (!status) status = check(&o);
    if (!status) *out = o;
    return status;
}

bool ls__lora_is_same(const ls_lora_options *a, const ls_lora_options *b)
{
    return a->r == b->r && a->alpha == b->alpha && a->rslora == b->rslora && !strcmp(a->target, b->target);
}

static float scale_of(const ls_lora_options *o)
{
    double r = (double)o->r;
    return (float)((double)o->alpha / (o->rslora ? sqrt(r) : r));
}

/* ---- Places. */

/* "h.0.attn.c_attn.weight" is the weight of the module h.0.attn.c_attn. */
static size_t module_length(const ls_place *p)
{
    static const char weight[] = ".weight";
    size_t n = strlen(p->name), w = sizeof weight - 1;
    bool is_weight = p->dims == 2 && !p->is_table && n > w && !strcmp(p->name + n - w, weight);
    return is_weight ? n - w : 0;
}

/* Whether a module's name is `target` or ends with it, after a dot. */
static bool ends_with(const char *name, size_t n, const char *target, size_t length)
{
    if (length > n || memcmp(name + n - length, target, length) != 0) return false;
    return length == n || name[n - length - 1] == '.';
}

static bool is_target(const ls_lora_options *o, const ls_place *p)
{
    size_t n = module_length(p);
    if (!n || !*o->target) return n > 0;
    for (const char *t = o->target; *t;) {
        size_t length = strcspn(t, "+");
        if (length && ends_with(p->name, n, t, length)) return true;
        t += length + (t[length] == '+');
    }
    return false;
}

/* A target that no module has is a mistake. */
static ls_status check_targets(const ls_model *m, const ls_lora_options *o)
{
    for (const char *t = o->target; *t;) {
        size_t length = strcspn(t, "+");
        bool found = !length;
        char known[256] = "";
        for (size_t i = 0; i < m->places.count && !found; i++) {
            const ls_place *p = &m->places.list[i];
            size_t n = module_length(p);
            if (!n) continue;
            found = ends_with(p->name, n, t, length);
            const char *last = memrchr(p->name, '.', n);
            last = last ? last + 1 : p->name;
            size_t width = n - (size_t)(last - p->name), at = strlen(known);
            char word[64];
            snprintf(word, sizeof word, "%.*s", (int)width, last);
            if (!strstr(known, word)) snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "", word);
        }
        if (!found)
            return ls__fail(LS_EINVAL, "lora: %s has no layer '%.*s'; it has %s", m->type->name, (int)length, t, known);
        t += length + (t[length] == '+');
    }
    return LS_OK;
}

static const char *file_prefix(const ls_model *m)
{
    return m->type->lm->weights.prefix ? m->type->lm->weights.prefix : "";
}

/* Two places per target, with PEFT's names. A file of a GPT-2 stores its weights (in, out). */
static void list_adapters(ls_model *m, ls__places *to)
{
    const ls_lora_options *o = &m->lora.options;
    for (size_t i = 0; i < m->places.count; i++) {
        const ls_place *p = &m->places.list[i];
        m->lora.of[i] = -1;
        if (!is_target(o, p)) continue;
        int64_t in = p->shape[m->type->lm->stores_in_first ? 0 : 1],
                out = p->shape[m->type->lm->stores_in_first ? 1 : 0];
        int n = (int)module_length(p);
        m->lora.of[i] = m->lora.count++;
        /* The variance of PEFT's initial values: uniform up to 1 / sqrt(in). */
        ls__places_add(to, (float)(1 / sqrt(3.0 * (double)in)), o->r, in, 0, 0, "base_model.model.%s%.*s.lora_A.weight",
                       file_prefix(m), n, p->name);
        ls__places_add(to, LS__INIT_ZEROS, out, o->r, 0, 0, "base_model.model.%s%.*s.lora_B.weight", file_prefix(m), n,
                       p->name);
    }
}

enum { FROZEN_ALIGN = 64 };

static size_t frozen_bytes_of(const ls_place *p)
{
    size_t bytes = p->count * (p->dims == 2 ? sizeof(uint16_t) : sizeof(float));
    return (bytes + FROZEN_ALIGN - 1) / FROZEN_ALIGN * FROZEN_ALIGN;
}

size_t ls__model_frozen_bytes(const ls_model *m)
{
    size_t n = m->frozen_places.count;
    if (!m->frozen_at) return m->frozen_places.elements * sizeof(float);
    return m->frozen_at[n - 1] + frozen_bytes_of(&m->frozen_places.list[n - 1]);
}

void ls__frozen_at(const ls_model *m, size_t i, float **full, const uint16_t **half)
{
    const ls_place *p = &m->frozen_places.list[i];
    char *at = (char *)m->frozen + (m->frozen_at ? m->frozen_at[i] : p->offset * sizeof(float));
    bool is_half = m->frozen_at && p->dims == 2;
    *full = is_half ? NULL : (float *)(void *)at;
    *half = is_half ? (const uint16_t *)(const void *)at : NULL;
}

/* Matrices in bfloat16, one after the other, with the rest between them. */
static void place_frozen(ls_model *m)
{
    size_t at = 0;
    for (size_t i = 0; i < m->frozen_places.count; i++) {
        m->frozen_at[i] = at;
        at += frozen_bytes_of(&m->frozen_places.list[i]);
    }
}

ls_status ls__model_add_lora(ls_model *m, const ls_lora_options *given)
{
    ls_lora_options o = *given, *options = &o;
    if (o.alpha == 0) o.alpha = 2 * (float)o.r;
    if (!m->type->lm || !m->type->lm->adapts)
        return ls__fail(LS_EUNSUPPORTED, "lora: is for GPT-2 and the Llama family, not for %s", m->type->name);
    if (m->values || m->lora.options.r)
        return ls__fail(LS_ESTATE, "lora: adapters are added once, before the model is bound");
    ls_status status = check(options);
    if (!status) status = check_targets(m, options);
    if (status) return status;
    ls__places adapters = { 0 };
    size_t own = m->places.count;
    m->lora.options = *options;
    m->lora.of = malloc(own * sizeof *m->lora.of);
    if (m->lora.of) list_adapters(m, &adapters);
    if (m->lora.of && options->bf16 && !(m->frozen_at = malloc(own * sizeof *m->frozen_at))) adapters.failed = true;
    ls_param *params = m->lora.of && !adapters.failed ? calloc(own + adapters.count, sizeof *params) : NULL;
    if (!params) {
        ls__places_free(&adapters);
        ls__lora_free(m);
        return ls__fail(LS_ENOMEM, "lora: out of memory");
    }
    memcpy(params, m->params, own * sizeof *params);
    for (size_t i = 0; i < adapters.count; i++) {
        params[own + i] = (ls_param){ .name = adapters.list[i].name, .dims = adapters.list[i].dims };
        memcpy(params[own + i].shape, adapters.list[i].shape, sizeof params->shape);
    }
    free(m->params);
    m->params = params;
    m->frozen_places = m->places;
    m->places = adapters;
    if (m->frozen_at) place_frozen(m);
    return LS_OK;
}

size_t ls__model_frozen(const ls_model *m)
{
    return m->frozen_places.count;
}

size_t ls__model_frozen_elements(const ls_model *m)
{
    return m->frozen_places.elements;
}

void ls__model_bind_frozen(ls_model *m, float *values)
{
    m->frozen = values;
}

void ls__lora_free(ls_model *m)
{
    free(m->lora.of);
    free(m->lora.base);
    free(m->frozen_at);
    m->frozen_at = NULL;
    m->lora = (ls__lora_state){ 0 };
}

/* ---- Forward. */

/* The part of an adapter of a weight; false: it has none. */
static bool part_of(const ls_model *m, const ls_param *w, int64_t first, ls__lora_part *out)
{
    int k = m->lora.of[w - m->params];
    ls_param *a = m->params + m->frozen_places.count + 2 * (size_t)(k < 0 ? 0 : k);
    *out = (ls__lora_part){ .a = a, .b = a + 1, .first = first };
    return k >= 0;
}

static ls__lora_args args_of(const ls_model *m)
{
    return (ls__lora_args){ .scale = scale_of(&m->lora.options), .dropout = m->lora.options.dropout };
}

ls_tensor *ls__lm_linear(const ls_model *m, ls_tape *t, ls_tensor *x, ls_param *w, ls_param *b,
                         const ls_linear_options *options)
{
    ls_tensor *y = ls_linear(t, x, w, b, options);
    if (!m->lora.options.r) return y;
    ls__lora_args args = args_of(m);
    if (!part_of(m, w, 0, &args.parts[0])) return y;
    args.count = 1;
    if (options) args.input_activation = options->input_activation;
    return ls__lora(t, x, y, &args);
}

ls_tensor *ls__lm_joint(const ls_model *m, ls_tape *t, ls_tensor *x, ls_param *const *w, ls_param *const *b, int count)
{
    ls_tensor *y = ls_linear_joint(t, x, w, b, count);
    if (!m->lora.options.r) return y;
    ls__lora_args args = args_of(m);
    int64_t first = 0;
    for (int i = 0; i < count; first += w[i++]->shape[0])
        if (part_of(m, w[i], first, &args.parts[args.count])) args.count++;
    return args.count ? ls__lora(t, x, y, &args) : y;
}

ls_param *ls__lora_params(const ls_model *m, const ls_param *params, int n_params, int *count)
{
    ls_param *first = NULL;
    ls__lora_part part;
    *count = 0;
    for (int i = 0; i < n_params; i++) {
        if (!part_of(m, &params[i], 0, &part)) continue;
        if (!first) first = part.a;
        *count += 2;
    }
    return first;
}
