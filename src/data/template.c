/* Templates of special tokens. See template.h. tokenizer.json has them as TemplateProcessing, a list of tokens and texts, or in two older
 * forms that name the tokens alone. */
#include "data/template.h"

#include <string.h>
#include "base/status.h"
#include "data/tokenizer.h"

/* ---- Reading. */

static ls_status invalid(const char *path, const char *what)
{
    return ls__fail(LS_EFORMAT, "%s: post_processor: %s", path, what);
}

static ls_status add(ls__template *t, const char *path, int32_t token, json_int_t type)
{
    if (t->count == LS__TEMPLATE_MAX) return invalid(path, "a template has more than 16 parts");
    if (type < 0 || type > 255) return invalid(path, "a type_id is not a number from 0 to 255");
    t->item[t->count++] = (ls__template_item){ token, (int32_t)type };
    return LS_OK;
}

/* The ids of a special token of a TemplateProcessing. */
static ls_status add_special(ls__template *t, const char *path, const json_t *processor, const json_t *special)
{
    const char *name = json_string_value(json_object_get(special, "id"));
    const json_t *all = json_object_get(processor, "special_tokens");
    const json_t *ids = name ? json_object_get(json_object_get(all, name), "ids") : NULL, *id;
    json_int_t type = json_integer_value(json_object_get(special, "type_id"));
    ls_status status = json_array_size(ids) ? LS_OK : invalid(path, "a special token of a template has no ids");
    size_t i;
    json_array_foreach(ids, i, id)
    {
        json_int_t token = json_integer_value(id);
        if (!status && (!json_is_integer(id) || token < 0 || token >= LS__BPE_MAX_TOKENS))
            status = invalid(path, "the id of a special token is not a token");
        if (!status) status = add(t, path, (int32_t)token, type);
    }
    return status;
}

static ls_status read_list(ls__template *t, const char *path, const json_t *processor, const char *key)
{
    const json_t *list = json_object_get(processor, key), *item;
    ls_status status = json_is_array(list) ? LS_OK : invalid(path, "a template is not a list");
    size_t i;
    t->count = 0;
    json_array_foreach(list, i, item)
    {
        const json_t *special = json_object_get(item, "SpecialToken"), *text = json_object_get(item, "Sequence");
        const char *id = json_string_value(json_object_get(text, "id"));
        if (status) break;
        if (special)
            status = add_special(t, path, processor, special);
        else if (id && (!strcmp(id, "A") || !strcmp(id, "B")))
            status = add(t, path, *id == 'A' ? LS__TEMPLATE_A : LS__TEMPLATE_B,
                         json_integer_value(json_object_get(text, "type_id")));
        else
            status = invalid(path, "a part of a template is neither a special token nor the text A or B");
    }
    return status;
}

/* ["[SEP]", 102] */
static bool token_of(const json_t *processor, const char *key, int32_t *out)
{
    const json_t *id = json_array_get(json_object_get(processor, key), 1);
    json_int_t token = json_integer_value(id);
    *out = (int32_t)token;
    return json_is_integer(id) && token >= 0 && token < LS__BPE_MAX_TOKENS;
}

/* first A separator, and for a pair (RoBERTa: separator) B separator. */
static ls__templates around(int32_t first, int32_t separator, bool roberta)
{
    int32_t type = roberta ? 0 : 1;
    ls__templates out = { .single = { .item = { { first, 0 }, { LS__TEMPLATE_A, 0 }, { separator, 0 } }, .count = 3 } };
    out.pair = out.single;
    if (roberta) out.pair.item[out.pair.count++] = (ls__template_item){ separator, 0 };
    out.pair.item[out.pair.count++] = (ls__template_item){ LS__TEMPLATE_B, type };
    out.pair.item[out.pair.count++] = (ls__template_item){ separator, type };
    return out;
}

ls_status ls__templates_parse(ls__templates *out, const char *path, const json_t *p)
{
    const char *type = json_string_value(json_object_get(p, "type"));
    if (!type) return LS_OK;
    if (!strcmp(type, "Sequence")) {
        const json_t *item;
        size_t i;
        ls_status status = LS_OK;
        json_array_foreach(json_object_get(p, "processors"), i, item) if (!status) status =
            json_string_value(json_object_get(item, "type")) &&
                    !strcmp(json_string_value(json_object_get(item, "type")), "Sequence")
                ? invalid(path, "a Sequence in a Sequence")
                : ls__templates_parse(out, path, item);
        return status;
    }
    bool bert = !strcmp(type, "BertProcessing"), roberta = !strcmp(type, "RobertaProcessing");
    if (bert || roberta) {
        int32_t first, separator;
        if (!token_of(p, "cls", &first) || !token_of(p, "sep", &separator))
            return invalid(path, "'cls' and 'sep' must be a text and a token");
        *out = around(first, separator, roberta);
        return LS_OK;
    }
    if (strcmp(type, "TemplateProcessing") != 0) return LS_OK;
    ls_status status = read_list(&out->single, path, p, "single");
    return status ? status : read_list(&out->pair, path, p, "pair");
}

/* ---- Using. */

int32_t ls__tokenizer_find(const ls_tokenizer *t, const char *text)
{
    if (!t->bpe) return -1;
    const ls__added_token *added = ls__added_find(&t->added, text, strlen(text));
    uint32_t id = added ? added->id : ls__bpe_find(t->bpe, text, strlen(text));
    return id == LS__BPE_NONE ? -1 : (int32_t)id;
}

ls__template ls__template_of(const ls_tokenizer *t, bool pair)
{
    static const char *const usual[][2] = { { "[CLS]", "[SEP]" }, { "<s>", "</s>" } };
    const ls__template *own = pair ? &t->rules.templates.pair : &t->rules.templates.single;
    if (own->count) return *own;
    for (int i = 0; i < 2; i++) {
        int32_t first = ls__tokenizer_find(t, usual[i][0]), separator = ls__tokenizer_find(t, usual[i][1]);
        ls__templates made = around(first, separator, i == 1);
        if (first >= 0 && separator >= 0) return pair ? made.pair : made.single;
    }
    ls__template plain = { .item = { { LS__TEMPLATE_A, 0 } }, .count = 1 };
    int32_t end = ls_tokenizer_end_token(t);
    if (end >= 0) plain.item[plain.count++] = (ls__template_item){ end, 0 };
    if (pair) plain.item[plain.count++] = (ls__template_item){ LS__TEMPLATE_B, 1 };
    if (pair && end >= 0) plain.item[plain.count++] = (ls__template_item){ end, 1 };
    return plain;
}

size_t ls__template_begin(const ls_tokenizer *t, int32_t tokens[LS__TEMPLATE_MAX])
{
    const ls__template *single = &t->rules.templates.single;
    size_t n = 0;
    while (n < (size_t)single->count && single->item[n].token >= 0) {
        tokens[n] = single->item[n].token;
        n++;
    }
    return n;
}

int ls__template_tokens(const ls__template *t)
{
    int n = 0;
    for (int i = 0; i < t->count; i++) n += t->item[i].token >= 0;
    return n;
}

void ls__truncate_pair(size_t room, size_t *a, size_t *b)
{
    size_t *shorter = *a <= *b ? a : b, *longer = *a <= *b ? b : a;
    if (*a + *b <= room) return;
    if (*shorter > room / 2) {
        *shorter = room / 2;
        *longer = room - room / 2;
    } else {
        *longer = room - *shorter;
    }
}

size_t ls__template_fill(const ls__template *t, const int32_t *a, size_t n_a, const int32_t *b, size_t n_b,
                         int32_t *tokens, int32_t *types)
{
    size_t n = 0;
    for (int i = 0; i < t->count; i++) {
        const ls__template_item *item = &t->item[i];
        const int32_t *text = item->token == LS__TEMPLATE_A ? a : item->token == LS__TEMPLATE_B ? b : &item->token;
        size_t count = item->token == LS__TEMPLATE_A ? n_a : item->token == LS__TEMPLATE_B ? (b ? n_b : 0) : 1;
        for (size_t k = 0; k < count; k++, n++) {
            tokens[n] = text[k];
            types[n] = item->type;
        }
    }
    return n;
}
