/* Reads the rules of a tokenizer.json. Each of normalizer, pre_tokenizer and decoder is a tree of sequences, which becomes a list of
 * steps. What would change tokens or text and is not supported is refused, with its place in the file. */
#include "data/rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"

/* A member of the file, for messages. */
typedef struct place {
    const char *path;
    char name[160];
} place;

typedef ls_status (*step_fn)(const place *p, const json_t *value, const char *type, ls__step *step);

static ls_status unsupported(const place *p, const char *type, const char *supported)
{
    return ls__fail(LS_EUNSUPPORTED, "%s: %s: type '%s' is not supported; supported are %s", p->path, p->name, type,
                    supported);
}

static ls_status bad_option(const place *p, const char *type, const char *option)
{
    return ls__fail(LS_EUNSUPPORTED, "%s: %s: %s with this '%s' is not supported", p->path, p->name, type, option);
}

static void free_steps(ls__steps *steps)
{
    for (size_t i = 0; i < steps->count; i++) {
        free(steps->step[i].a);
        free(steps->step[i].b);
    }
    steps->count = 0;
}

static bool flag_of(const json_t *value, const char *name, bool otherwise)
{
    const json_t *flag = json_object_get(value, name);
    return json_is_boolean(flag) ? json_is_true(flag) : otherwise;
}

/* A copy of a text; `least` bytes at least. */
static ls_status text_of(const place *p, const json_t *value, const char *name, size_t least, uint8_t **out,
                         size_t *bytes)
{
    const json_t *text = json_object_get(value, name);
    *bytes = json_string_length(text);
    if (!json_is_string(text) || *bytes < least || *bytes > 1000)
        return ls__fail(LS_EFORMAT, "%s: %s: '%s' must be a text of %zu to 1000 bytes", p->path, p->name, name, least);
    *out = malloc(*bytes + 1);
    if (!*out) return ls__fail(LS_ENOMEM, "%s: out of memory", p->path);
    memcpy(*out, json_string_value(text), *bytes + 1);
    return LS_OK;
}

/* Adds a step, or those of a sequence. */
static ls_status add_steps(ls__steps *steps, const place *p, const json_t *value, const char *list, step_fn read)
{
    if (!value || json_is_null(value)) return LS_OK;
    const char *type = json_string_value(json_object_get(value, "type"));
    if (!type) return ls__fail(LS_EFORMAT, "%s: %s: has no type", p->path, p->name);
    if (strcmp(type, "Sequence") != 0) {
        if (steps->count == LS__STEPS_MAX)
            return ls__fail(LS_EUNSUPPORTED, "%s: %s: more than %d steps", p->path, p->name, LS__STEPS_MAX);
        ls__step *step = &steps->step[steps->count++];
        *step = (ls__step){ 0 };
        return read(p, value, type, step);
    }
    const json_t *items = json_object_get(value, list), *item;
    size_t i;
    if (!json_is_array(items)) return ls__fail(LS_EFORMAT, "%s: %s: has no list '%s'", p->path, p->name, list);
    json_array_foreach(items, i, item)
    {
        place inner = { .path = p->path };
        size_t used = (size_t)snprintf(inner.name, sizeof inner.name, "%s.%s[%zu]", p->name, list, i);
        if (used >= sizeof inner.name || json_is_null(item))
            return ls__fail(LS_EUNSUPPORTED, "%s: %s: item %zu is nested too deeply, or null", p->path, p->name, i);
        ls_status status = add_steps(steps, &inner, item, list, read);
        if (status) return status;
    }
    return LS_OK;
}

/* ---- Normalizers. */

/* {"pattern": {"String": a}, "content": b} */
static ls_status read_replace(const place *p, const json_t *value, ls__step *step)
{
    const json_t *pattern = json_object_get(value, "pattern");
    step->kind = LS__STEP_REPLACE;
    if (json_object_get(pattern, "Regex")) return bad_option(p, "Replace", "pattern");
    ls_status status = text_of(p, pattern, "String", 1, &step->a, &step->a_bytes);
    return status ? status : text_of(p, value, "content", 0, &step->b, &step->b_bytes);
}

static ls_status read_normalizer(const place *p, const json_t *value, const char *type, ls__step *step)
{
    step->kind = LS__STEP_NFC;
    if (!strcmp(type, "NFC")) return LS_OK;
    step->kind = LS__STEP_LOWERCASE;
    if (!strcmp(type, "Lowercase")) return LS_OK;
    step->kind = LS__STEP_PREPEND;
    if (!strcmp(type, "Prepend")) return text_of(p, value, "prepend", 1, &step->a, &step->a_bytes);
    if (!strcmp(type, "Replace")) return read_replace(p, value, step);
    if (strcmp(type, "BertNormalizer") != 0)
        return unsupported(p, type, "NFC, Lowercase, Prepend, Replace, BertNormalizer and Sequence");
    step->kind = LS__STEP_BERT_NORMALIZER;
    bool lower = flag_of(value, "lowercase", true);
    step->flags = (flag_of(value, "clean_text", true) ? LS__STEP_CLEAN : 0) |
                  (flag_of(value, "handle_chinese_chars", true) ? LS__STEP_CJK : 0) |
                  (flag_of(value, "strip_accents", lower) ? LS__STEP_ACCENTS : 0) | (lower ? LS__STEP_LOWER : 0);
    return LS_OK;
}

/* ---- Pre-tokenizers. */

static bool take(const char **p, const char *text)
{
    size_t n = strlen(text);
    if (strncmp(*p, text, n) != 0) return false;
    *p += n;
    return true;
}

/* The expressions that are written as code, in split.c. */
static bool known_pattern(const char *p, ls__step *step)
{
    step->kind = LS__STEP_SPLIT_GPT2;
    if (!strcmp(p, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+")) return true;
    step->kind = LS__STEP_SPLIT_LLAMA;
    if (!take(&p, "(?i:'s|'t|'re|'ve|'m|'ll|'d)|") && !take(&p, "'(?i:[sdmt]|ll|ve|re)|")) return false;
    if (!take(&p, "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|")) return false;
    if (take(&p, "\\p{N}{1,3}|"))
        step->number = 3;
    else if (take(&p, "\\p{N}|"))
        step->number = 1;
    else if (!take(&p, "\\p{N}+|"))
        return false;
    return !strcmp(p, " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+");
}

/* All text is part of some match, so it is the same whether matches are isolated or what is between them is removed. */
static ls_status read_split(const place *p, const json_t *value, ls__step *step)
{
    const char *pattern = json_string_value(json_object_get(json_object_get(value, "pattern"), "Regex"));
    const char *behavior = json_string_value(json_object_get(value, "behavior"));
    bool invert = flag_of(value, "invert", false);
    if (!pattern || !known_pattern(pattern, step))
        return ls__fail(LS_EUNSUPPORTED,
                        "%s: %s: Split with the pattern %s%.200s%s is not supported; supported are the regular "
                        "expressions of GPT-2, Llama 3 and Qwen2",
                        p->path, p->name, pattern ? "'" : "", pattern ? pattern : "(not a Regex)", pattern ? "'" : "");
    if (!behavior || !(!strcmp(behavior, "Isolated") || (!strcmp(behavior, "Removed") && invert)))
        return bad_option(p, "Split", "behavior");
    return LS_OK;
}

static ls_status read_metaspace(const place *p, const json_t *value, ls__step *step)
{
    const char *scheme = json_string_value(json_object_get(value, "prepend_scheme"));
    step->kind = LS__STEP_METASPACE;
    if (!scheme) scheme = flag_of(value, "add_prefix_space", true) ? "always" : "never";
    if (!strcmp(scheme, "always"))
        step->flags = LS__STEP_PREFIX;
    else if (!strcmp(scheme, "first"))
        step->flags = LS__STEP_PREFIX | LS__STEP_FIRST;
    else if (strcmp(scheme, "never") != 0)
        return bad_option(p, "Metaspace", "prepend_scheme");
    if (flag_of(value, "split", true)) step->flags |= LS__STEP_SINGLE;
    ls_status status = text_of(p, value, "replacement", 1, &step->a, &step->a_bytes);
    return !status && step->a_bytes > 4 ? bad_option(p, "Metaspace", "replacement") : status;
}

static ls_status read_pre_tokenizer(const place *p, const json_t *value, const char *type, ls__step *step)
{
    if (!strcmp(type, "Split")) return read_split(p, value, step);
    if (!strcmp(type, "Metaspace")) return read_metaspace(p, value, step);
    step->kind = LS__STEP_DIGITS;
    step->flags = flag_of(value, "individual_digits", false) ? LS__STEP_SINGLE : 0;
    if (!strcmp(type, "Digits")) return LS_OK;
    step->kind = LS__STEP_BERT_SPLIT;
    step->flags = 0;
    if (!strcmp(type, "BertPreTokenizer")) return LS_OK;
    if (strcmp(type, "ByteLevel") != 0)
        return unsupported(p, type, "ByteLevel, Split, Digits, Metaspace, BertPreTokenizer and Sequence");
    step->kind = LS__STEP_BYTE_LEVEL;
    step->flags = (flag_of(value, "add_prefix_space", true) ? LS__STEP_PREFIX : 0) |
                  (flag_of(value, "use_regex", true) ? LS__STEP_SINGLE : 0);
    return LS_OK;
}

/* ---- Decoders. */

static ls_status count_of(const place *p, const json_t *value, const char *name, uint32_t *out)
{
    const json_t *number = json_object_get(value, name);
    json_int_t n = json_integer_value(number);
    if (!json_is_integer(number) || n < 0 || n > 1000000) return bad_option(p, "Strip", name);
    *out = (uint32_t)n;
    return LS_OK;
}

static ls_status read_strip(const place *p, const json_t *value, ls__step *step)
{
    step->kind = LS__STEP_STRIP;
    ls_status status = text_of(p, value, "content", 1, &step->a, &step->a_bytes);
    if (!status) status = count_of(p, value, "start", &step->number);
    return status ? status : count_of(p, value, "stop", &step->number2);
}

static ls_status read_decoder(const place *p, const json_t *value, const char *type, ls__step *step)
{
    step->kind = LS__STEP_BYTE_LEVEL;
    if (!strcmp(type, "ByteLevel")) return LS_OK;
    step->kind = LS__STEP_BYTE_FALLBACK;
    if (!strcmp(type, "ByteFallback")) return LS_OK;
    step->kind = LS__STEP_FUSE;
    if (!strcmp(type, "Fuse")) return LS_OK;
    if (!strcmp(type, "Replace")) return read_replace(p, value, step);
    if (!strcmp(type, "Metaspace")) return read_metaspace(p, value, step);
    if (!strcmp(type, "Strip")) return read_strip(p, value, step);
    if (strcmp(type, "WordPiece") != 0)
        return unsupported(p, type, "ByteLevel, ByteFallback, Fuse, Replace, Metaspace, Strip, WordPiece and Sequence");
    step->kind = LS__STEP_WORDPIECE;
    step->flags = flag_of(value, "cleanup", true) ? LS__STEP_CLEAN : 0;
    return text_of(p, value, "prefix", 1, &step->a, &step->a_bytes);
}

/* ls_encode() adds nothing to texts; templates of special tokens are for tasks that ask for them (template.c). */
static ls_status read_post_processor(const place *p, const json_t *value, const char *type, ls__step *step)
{
    static const char *const known[] = { "ByteLevel", "TemplateProcessing", "BertProcessing", "RobertaProcessing" };
    (void)value;
    (void)step;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(type, known[i])) return LS_OK;
    return unsupported(p, type, "ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing and Sequence");
}

/* ---- The whole. */

/* True for what is absent, null, false or "". */
static bool is_nothing(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && !json_string_length(value));
}

static const ls__step *step_of(const ls__steps *steps, ls__step_kind kind)
{
    for (size_t i = 0; i < steps->count; i++)
        if (steps->step[i].kind == kind) return &steps->step[i];
    return NULL;
}

static ls_status copy_text(char **out, const char *path, const json_t *value)
{
    if (!json_is_string(value)) return LS_OK;
    *out = strdup(json_string_value(value));
    return *out ? LS_OK : ls__fail(LS_ENOMEM, "%s: out of memory", path);
}

static ls_status read_wordpiece(ls__rules *r, const char *path, const json_t *model)
{
    const json_t *limit = json_object_get(model, "max_input_chars_per_word");
    r->model = LS__MODEL_WORDPIECE;
    ls_status status = copy_text(&r->unknown, path, json_object_get(model, "unk_token"));
    if (!status) status = copy_text(&r->prefix, path, json_object_get(model, "continuing_subword_prefix"));
    if (status) return status;
    if (!r->unknown || !r->prefix || strlen(r->prefix) > 1000)
        return ls__fail(LS_EFORMAT, "%s: model: WordPiece needs unk_token and continuing_subword_prefix", path);
    if (limit && (!json_is_integer(limit) || json_integer_value(limit) < 1 || json_integer_value(limit) > 1000000))
        return ls__fail(LS_EFORMAT, "%s: model: max_input_chars_per_word must be an integer from 1 to 1000000", path);
    r->word_limit = limit ? (uint32_t)json_integer_value(limit) : 100;
    if (step_of(&r->split, LS__STEP_BYTE_LEVEL))
        return ls__fail(LS_EUNSUPPORTED, "%s: pre_tokenizer: ByteLevel with a WordPiece model is not supported", path);
    return LS_OK;
}

static ls_status read_bpe(ls__rules *r, const char *path, const json_t *model)
{
    static const char *const extras[] = { "continuing_subword_prefix", "end_of_word_suffix", "dropout" };
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++)
        if (!is_nothing(json_object_get(model, extras[i])))
            return ls__fail(LS_EUNSUPPORTED, "%s: model: '%s' of BPE is not supported", path, extras[i]);
    r->model = step_of(&r->split, LS__STEP_BYTE_LEVEL) ? LS__MODEL_BYTES : LS__MODEL_CHARS;
    r->ignore_merges = flag_of(model, "ignore_merges", false);
    if (r->model == LS__MODEL_BYTES) return LS_OK; /* all bytes are tokens, so there is nothing unknown */
    r->byte_fallback = flag_of(model, "byte_fallback", false);
    r->fuse_unk = flag_of(model, "fuse_unk", false);
    return copy_text(&r->unknown, path, json_object_get(model, "unk_token"));
}

static ls_status check_together(const ls__rules *r, const char *path)
{
    for (size_t i = 0; i < r->split.count; i++)
        if (r->split.step[i].kind == LS__STEP_BYTE_LEVEL && i + 1 < r->split.count)
            return ls__fail(LS_EUNSUPPORTED, "%s: pre_tokenizer: ByteLevel must be the last step", path);
    for (size_t i = 0; i < r->decode.count; i++)
        if ((r->decode.step[i].kind == LS__STEP_BYTE_LEVEL) != (r->model == LS__MODEL_BYTES) ||
            (r->model == LS__MODEL_BYTES && i))
            return ls__fail(LS_EUNSUPPORTED,
                            "%s: decoder: a byte-level pre_tokenizer needs the decoder ByteLevel, and only that", path);
    return LS_OK;
}

/* What a space becomes, if it marks the beginning of words. */
static void find_mark(ls__rules *r)
{
    const ls__step *s = step_of(&r->split, LS__STEP_METASPACE);
    if (s) {
        r->mark_bytes = s->a_bytes;
        memcpy(r->mark, s->a, s->a_bytes);
    } else if ((s = step_of(&r->normalize, LS__STEP_REPLACE)) && s->a_bytes == 1 && *s->a == ' ' && s->b_bytes <= 4) {
        r->mark_bytes = s->b_bytes;
        memcpy(r->mark, s->b, s->b_bytes);
    }
}

ls_status ls__rules_parse(ls__rules *r, const char *path, const json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    const char *type = json_string_value(json_object_get(model, "type"));
    ls__steps ignored = { .count = 0 };
    place p = { .path = path, .name = "normalizer" };
    *r = (ls__rules){ 0 };
    ls_status status = add_steps(&r->normalize, &p, json_object_get(root, p.name), "normalizers", read_normalizer);
    strcpy(p.name, "pre_tokenizer");
    if (!status) status = add_steps(&r->split, &p, json_object_get(root, p.name), "pretokenizers", read_pre_tokenizer);
    strcpy(p.name, "decoder");
    if (!status) status = add_steps(&r->decode, &p, json_object_get(root, p.name), "decoders", read_decoder);
    strcpy(p.name, "post_processor");
    if (!status) status = add_steps(&ignored, &p, json_object_get(root, p.name), "processors", read_post_processor);
    if (!status) status = ls__templates_parse(&r->templates, path, json_object_get(root, p.name));
    if (!status && type && !strcmp(type, "WordPiece"))
        status = read_wordpiece(r, path, model);
    else if (!status && (!type || !strcmp(type, "BPE")))
        status = read_bpe(r, path, model);
    else if (!status)
        status = ls__fail(LS_EUNSUPPORTED, "%s: model: type '%s' is not supported; supported are BPE and WordPiece",
                          path, type);
    if (!status) status = check_together(r, path);
    if (!status) find_mark(r);
    if (status) ls__rules_free(r);
    return status;
}

void ls__rules_free(ls__rules *r)
{
    free_steps(&r->normalize);
    free_steps(&r->split);
    free_steps(&r->decode);
    free(r->unknown);
    free(r->prefix);
    *r = (ls__rules){ 0 };
}

void ls__rules_gpt2(ls__rules *r)
{
    *r = (ls__rules){ 0 };
    r->split.step[0] = (ls__step){ .kind = LS__STEP_BYTE_LEVEL, .flags = LS__STEP_SINGLE };
    r->split.count = 1;
}

bool ls__rules_are_gpt2(const ls__rules *r)
{
    return r->model == LS__MODEL_BYTES && !r->ignore_merges && !r->normalize.count && r->split.count == 1 &&
           r->split.step[0].kind == LS__STEP_BYTE_LEVEL && r->split.step[0].flags == LS__STEP_SINGLE;
}

bool ls__rules_may_cut(const ls__rules *r, uint8_t space)
{
    bool splits = r->mark_bytes && space == ' ';
    for (size_t i = 0; i < r->normalize.count; i++) {
        const ls__step *s = &r->normalize.step[i];
        if (s->kind == LS__STEP_REPLACE && (s->a_bytes != 1 || *s->a != ' ')) return false;
    }
    for (size_t i = 0; i < r->split.count; i++) {
        const ls__step *s = &r->split.step[i];
        switch (s->kind) {
        case LS__STEP_SPLIT_LLAMA:
            if (space == '\r' || space == '\n') return false;
            splits = true;
            break;
        case LS__STEP_BYTE_LEVEL:
        case LS__STEP_METASPACE: /* nothing is put before a space */
            if (s->flags & LS__STEP_PREFIX && space != ' ') return false;
            splits = splits || (s->flags & LS__STEP_SINGLE && (s->kind == LS__STEP_BYTE_LEVEL || space == ' '));
            break;
        default: splits = splits || s->kind != LS__STEP_DIGITS;
        }
    }
    return splits;
}
