/* See settings.h.
 *
 * Names of files may be any bytes, and JSON holds only Unicode: text that is not UTF-8 is an object {"bytes": "caf%E9.txt"}.
 * Relative paths are those of the folder that the run was started in, which is kept, too. */
#include "train/settings.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/status.h"
#include "base/text.h"
#include "ddp/on_sum.h"
#include "kern/select.h"
#include "train/training.h"

static const char *const updates[] = { "sharded", "replicated", NULL };
static const char *const sums[] = { "canonical", "any", NULL };
static const char *const wires[] = { "float32", "bfloat16", NULL };
static const char *const orders[] = { "shuffled", "sequential", "torch", "balanced", NULL };
static const char *const on_bad[] = { "stop", "skip", NULL };
static const char *const lasts[] = { "default", "drop", "keep", "drop-step", NULL };
static const char *const schedules[] = { "constant", "linear", "cosine", NULL };
#define X(name, value, text) text,
static const char *const optimizers[] = { LS_OPTIMIZER_LIST(X) NULL };
#undef X
#define X(name, value, type) #type,
static const char *const models[] = { LS_LM_LIST(X) NULL };
#undef X
static const char *const default_field[] = { "text", NULL };

#define AT(member) offsetof(ls_train_options, member)
const ls__setting ls__settings[LS__SETTINGS] = {
    { "data", LS__SET_PATHS, 0, AT(data), NULL },
    { "val-data", LS__SET_PATHS, 0, AT(val_data), NULL },
    { "val-fraction", LS__SET_DOUBLE, LS__SET_FIXED, AT(val_fraction), NULL },
    { "tokenizer", LS__SET_PATH, 0, AT(tokenizer), NULL },
    { "end-token", LS__SET_TEXT, LS__SET_FIXED, AT(end_token), NULL },
    { "data-format", LS__SET_FORMAT, LS__SET_FIXED, AT(data_format), NULL },
    { "on-bad", LS__SET_PAIR, LS__SET_FIXED, AT(skip_bad), on_bad },
    { "field", LS__SET_TEXT, LS__SET_FIXED, AT(field), default_field },
    { "pad", LS__SET_FLAG, LS__SET_FIXED, AT(padded), NULL },
    { "prompt-field", LS__SET_TEXT, LS__SET_FIXED, AT(prompt_field), NULL },
    { "weight-field", LS__SET_TEXT, LS__SET_FIXED, AT(weight_field), NULL },
    { "order", LS__SET_CHOICE, LS__SET_FIXED, AT(order), orders },
    { "torch-ranks", LS__SET_INT, LS__SET_FIXED, AT(torch_ranks), NULL },
    { "last", LS__SET_CHOICE, LS__SET_FIXED, AT(last), lasts },
    { "workers", LS__SET_INT, LS__SET_NONE | LS__SET_AUTO, AT(workers), NULL },
    { "prefetch", LS__SET_INT, LS__SET_AUTO, AT(prefetch), NULL },
    { "stage", LS__SET_PATH, 0, AT(stage), NULL },
    { "stage-limit", LS__SET_SIZE, LS__SET_AUTO, AT(stage_limit), NULL },
    { "read-delay-us", LS__SET_INT, 0, AT(read_delay_us), NULL },
    { "batch-size", LS__SET_INT, LS__SET_FIXED, AT(rows), NULL },
    { "seq-len", LS__SET_INT, LS__SET_FIXED, AT(length), NULL },
    { "slots", LS__SET_INT, LS__SET_FIXED, AT(slots), NULL },
    { "sum-order", LS__SET_CHOICE, LS__SET_SHARED, AT(sum_order), sums },
    { "update", LS__SET_CHOICE, LS__SET_SHARED, AT(update), updates },
    { "bucket-mb", LS__SET_MEBIBYTES, LS__SET_AUTO, AT(bucket_bytes), NULL },
    { "wire", LS__SET_CHOICE, LS__SET_FIXED, AT(wire), wires },
    { "no-overlap", LS__SET_FLAG, 0, AT(no_overlap), NULL },
    { "init", LS__SET_PATH, LS__SET_FIXED, AT(init), NULL },
    { "model-type", LS__SET_CHOICE, LS__SET_FIXED, AT(model.kind), models },
    { "layers", LS__SET_INT, LS__SET_FIXED, AT(model.layers), NULL },
    { "width", LS__SET_INT, LS__SET_FIXED, AT(model.width), NULL },
    { "heads", LS__SET_INT, LS__SET_FIXED, AT(model.heads), NULL },
    { "vocab-size", LS__SET_INT, LS__SET_FIXED, AT(model.vocab_size), NULL },
    { "context", LS__SET_INT, LS__SET_FIXED, AT(model.context), NULL },
    { "dropout", LS__SET_FLOAT, LS__SET_FIXED, AT(model.dropout), NULL },
    { "embd-dropout", LS__SET_FLOAT, LS__SET_FIXED | LS__SET_NONE | LS__SET_AUTO, AT(model.embd_dropout), NULL },
    { "attn-dropout", LS__SET_FLOAT, LS__SET_FIXED | LS__SET_NONE | LS__SET_AUTO, AT(model.attn_dropout), NULL },
    { "norm-eps", LS__SET_FLOAT, LS__SET_FIXED, AT(model.norm_eps), NULL },
    { "steps", LS__SET_LONG, LS__SET_SHARED, AT(steps), NULL },
    { "lr", LS__SET_FLOAT, LS__SET_FIXED, AT(schedule.lr), NULL },
    { "lr-end", LS__SET_FLOAT, LS__SET_FIXED | LS__SET_NONE, AT(schedule.lr_end), NULL },
    { "schedule", LS__SET_CHOICE, LS__SET_FIXED, AT(schedule.kind), schedules },
    { "warmup", LS__SET_LONG, LS__SET_FIXED, AT(schedule.warmup), NULL },
    { "optimizer", LS__SET_CHOICE, LS__SET_FIXED, AT(optimizer.kind), optimizers },
    { "weight-decay", LS__SET_FLOAT, LS__SET_FIXED | LS__SET_NONE, AT(optimizer.weight_decay), NULL },
    { "beta1", LS__SET_FLOAT, LS__SET_FIXED, AT(optimizer.beta1), NULL },
    { "beta2", LS__SET_FLOAT, LS__SET_FIXED, AT(optimizer.beta2), NULL },
    { "momentum", LS__SET_FLOAT, LS__SET_FIXED | LS__SET_NONE, AT(optimizer.momentum), NULL },
    { "eps", LS__SET_FLOAT, LS__SET_FIXED, AT(optimizer.eps), NULL },
    { "clip", LS__SET_DOUBLE, LS__SET_FIXED | LS__SET_NONE, AT(clip), NULL },
    { "eval-every", LS__SET_LONG, LS__SET_SHARED, AT(eval_every), NULL },
    { "eval-batches", LS__SET_INT, LS__SET_SHARED, AT(eval_batches), NULL },
    { "seed", LS__SET_SIZE, LS__SET_FIXED, AT(seed), NULL },
    { "threads", LS__SET_INT, LS__SET_AUTO, AT(threads), NULL },
    { "checkpoint-every", LS__SET_LONG, LS__SET_SHARED, AT(checkpoint_every), NULL },
    { "no-checkpoint", LS__SET_FLAG, LS__SET_SHARED, AT(no_checkpoint), NULL },
    { "keep", LS__SET_INT, 0, AT(keep), NULL },
    { "metrics-every", LS__SET_LONG, 0, AT(metrics_every), NULL },
    { "no-tensorboard", LS__SET_FLAG, 0, AT(no_tensorboard), NULL },
    { "profile", LS__SET_FLAG, 0, AT(profile), NULL },
    { "no-record", LS__SET_FLAG, 0, AT(no_record), NULL },
    { "barriers", LS__SET_FLAG, LS__SET_SHARED, AT(barriers), NULL },
};
_Static_assert(LS__SETTINGS + 3 <= LS__MAX_FACTS, "room for all facts");
_Static_assert(sizeof(ls_order) == sizeof(int) && sizeof(ls_last) == sizeof(int), "enums are read as int");

/* ---- Values. */

static const void *place(const ls_train_options *o, const ls__setting *s)
{
    return (const char *)o + s->at;
}

static const char *text_of(const ls_train_options *o, const ls__setting *s)
{
    return *(const char *const *)place(o, s);
}

/* 0.1f is written as 0.1: the shortest decimal number that is read as the same float. */
static double shortest(float x)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x) break;
    }
    return strtod(text, NULL);
}

/* Numbers and flags as the options have them. */
static double value_of(const ls_train_options *o, const ls__setting *s)
{
    const void *p = place(o, s);
    double x = 0;
    switch (s->kind) {
    case LS__SET_INT: x = *(const int *)p; break;
    case LS__SET_LONG: x = (double)*(const int64_t *)p; break;
    case LS__SET_SIZE: x = (double)*(const uint64_t *)p; break;
    case LS__SET_FLOAT: x = shortest(*(const float *)p); break;
    case LS__SET_DOUBLE: x = *(const double *)p; break;
    case LS__SET_MEBIBYTES: x = (double)*(const size_t *)p / (1 << 20); break;
    case LS__SET_FLAG:
    case LS__SET_PAIR: x = *(const bool *)p; break;
    case LS__SET_CHOICE: x = *(const int *)p; break;
    case LS__SET_FORMAT: x = *(const ls_data_format *)p; break;
    default: break;
    }
    return x;
}

/* And as one would write them. */
static double number_of(const ls_train_options *o, const ls__setting *s)
{
    double x = value_of(o, s);
    return s->flags & LS__SET_NONE && x < 0 ? 0 : x;
}

/* What is compared: where 0 is left to the program, it is another thing than none. */
static double compared(const ls_train_options *o, const ls__setting *s)
{
    return s->flags & LS__SET_AUTO ? value_of(o, s) : number_of(o, s);
}

static double hash(const char *text)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (; *text; text++) h = (h ^ (uint8_t)*text) * UINT64_C(1099511628211);
    return (double)(h >> 12);
}

static double hash_text(const ls_train_options *o, const ls__setting *s)
{
    const char *text = text_of(o, s);
    if (!text && s->words) text = s->words[0];
    return text ? hash(text) : 0;
}

int ls__settings_facts(const ls_train *t, ls__fact *out)
{
    int n = 0;
    for (int i = 0; i < LS__SETTINGS; i++) {
        const ls__setting *s = &ls__settings[i];
        /* Whether a path leads to the same place only its contents can tell. */
        if (!(s->flags & (LS__SET_FIXED | LS__SET_SHARED)) || s->kind == LS__SET_PATH) continue;
        bool text = s->kind == LS__SET_TEXT;
        out[n++] = (ls__fact){ .name = s->name,
                               .value = text ? hash_text(&t->options, s) : compared(&t->options, s),
                               .fixed = s->flags & LS__SET_FIXED,
                               .hashed = text };
        if (s->kind == LS__SET_SIZE) { /* all of a seed's bits count, and a double has not so many */
            uint64_t x = *(const uint64_t *)place(&t->options, s);
            if (x >> 53) out[n - 1].value = (double)((x ^ x >> 52) & ((UINT64_C(1) << 52) - 1)) + 0.5;
        }
    }
    out[n++] = (ls__fact){ .name = "samples of training data", .value = (double)t->parts.train->count, .fixed = true };
    out[n++] = (ls__fact){ .name = "training data", .value = t->data_hash, .fixed = true, .hashed = true };
    out[n++] = (ls__fact){ .name = "resume", .value = t->options.resume };
    return n;
}

/* ---- Writing. */

/* Text as JSON. Bytes that are not UTF-8 are escaped. */
json_t *ls__settings_name(const char *text)
{
    if (!text) return json_null();
    const char *at = text;
    for (int n; *at && (n = ls__utf8_length(at)); at += n) {
    }
    if (!*at) return json_string(text);
    char *escaped = malloc(3 * strlen(text) + 1), *end = escaped;
    if (!escaped) return NULL;
    for (at = text; *at; at++) {
        if (*at > ' ' && *at < 0x7f && *at != '%')
            *end++ = *at;
        else
            end += sprintf(end, "%%%02X", (unsigned)(uint8_t)*at);
    }
    *end = 0;
    json_t *out = json_pack("{s:s}", "bytes", escaped);
    free(escaped);
    return out;
}

static json_t *list_json(const char *const *list, size_t count)
{
    json_t *out = json_array();
    for (size_t i = 0; i < count && out; i++)
        if (json_array_append_new(out, ls__settings_name(list[i]))) {
            json_decref(out);
            out = NULL;
        }
    return out;
}

static json_t *setting_json(const ls_train_options *o, const ls__setting *s)
{
    double x = number_of(o, s);
    const void *p = place(o, s);
    if (s->flags & LS__SET_AUTO && value_of(o, s) == 0) return json_string("auto");
    switch (s->kind) {
    case LS__SET_INT: return json_integer((json_int_t)x);
    case LS__SET_LONG: return json_integer(*(const int64_t *)p);
    case LS__SET_SIZE: {
        char digits[24];
        uint64_t size = *(const uint64_t *)p;
        snprintf(digits, sizeof digits, "%llu", (unsigned long long)size);
        return size <= INT64_MAX ? json_integer((json_int_t)size) : json_string(digits);
    }
    case LS__SET_FLAG: return json_boolean(x != 0);
    case LS__SET_PAIR:
    case LS__SET_CHOICE: return json_string(s->words[(int)x]);
    case LS__SET_FORMAT: return json_string(ls_data_format_name(*(const ls_data_format *)p));
    case LS__SET_TEXT:
    case LS__SET_PATH: return ls__settings_name(text_of(o, s));
    case LS__SET_PATHS: {
        size_t count;
        memcpy(&count, (const char *)p + sizeof(char *), sizeof count);
        return list_json(*(const char *const *const *)p, count);
    }
    default: return json_real(x);
    }
}

/* What stands on the command line for the delay; NULL JSON for none. */
static json_t *inject_json(const ls_train_delay *d)
{
    if (!(d->ms > 0)) return json_null();
    return json_sprintf("%d:%s:%g:%lld:%lld:%s", d->rank, ls_phase_name(d->phase), d->ms, (long long)d->every,
                        (long long)d->first, d->asleep ? "sleep" : "work");
}

char *ls__settings_text(const ls_train *t)
{
    ls_train_options shown = t->options;
    if (t->threads_found) shown.threads = 0;
    if (!shown.tokenizer && t->tokenizer) shown.tokenizer = t->tokenizer_name;
    bool good = true;
    json_t *all = json_object(), *root = NULL;
    good = !json_object_set_new(all, "ranks", json_integer(t->parallel.size));
    for (int i = 0; i < LS__SETTINGS && good; i++)
        good = !json_object_set_new(all, ls__settings[i].name, setting_json(&shown, &ls__settings[i]));
    if (good && t->warmup_found) good = !json_object_set_new(all, "warmup", json_string("auto"));
    if (good) good = !json_object_set_new(all, "inject", inject_json(&shown.inject));
    char *here = getcwd(NULL, 0), *text = NULL;
    if (good)
        root = json_pack("{s:s, s:s, s:o, s:I, s:{s:I, s:i, s:f, s:I}, s:{s:O, s:O}, s:O}", "lockstep", ls_version(),
                         "kernels", ls__instruction_set_used()->name, "folder", ls__settings_name(here), "parameters",
                         (json_int_t)ls_model_param_count(t->model), "found", "warmup",
                         (json_int_t)t->options.schedule.warmup, "threads", t->options.threads, "bucket-mb",
                         (double)ls__ddp_bucket_bytes(t->parallel.ddp) / (1 << 20), "buckets",
                         (json_int_t)ls_ddp_get_stats(t->parallel.ddp).buckets, "files", "data", t->files[0],
                         "val-data", t->files[1], "settings", all);
    /* 15 digits: what was written as 0.1 stays 0.1. */
    if (root) text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    free(here);
    json_decref(root);
    json_decref(all);
    return text;
}

/* ---- Comparing. */

static bool same_place(const char *a, const char *b)
{
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool is_same(const ls_train_options *a, const ls_train_options *b, const ls__setting *s)
{
    if (s->kind == LS__SET_TEXT) return hash_text(a, s) == hash_text(b, s);
    if (s->kind != LS__SET_PATH) return compared(a, s) == compared(b, s);
    const char *x = text_of(a, s), *y = text_of(b, s);
    return x && y ? !strcmp(x, y) || same_place(x, y) : x == y;
}

/* As a message shows it; the caller frees it. */
static char *show(const ls_train_options *o, const ls__setting *s)
{
    json_t *value = setting_json(o, s);
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(value);
    return text;
}

ls_status ls__settings_compare(const ls_train *t, const ls_train_options *saved)
{
    for (int i = 0; i < LS__SETTINGS; i++) {
        const ls__setting *s = &ls__settings[i];
        if (!(s->flags & LS__SET_FIXED) || is_same(&t->options, saved, s)) continue;
        char *before = show(saved, s), *now = show(&t->options, s);
        ls_status status = ls__fail(LS_EINVAL,
                                    "%s: the run has %s=%s, got %s; a run is resumed with the settings that it was "
                                    "started with: leave that one out, or start a new run",
                                    t->options.run_dir, s->name, before ? before : "?", now ? now : "?");
        free(before);
        free(now);
        return status;
    }
    return LS_OK;
}
