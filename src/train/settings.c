/* Writing and comparing settings. See settings.h.
 *
 * File names may be any bytes, but JSON has only Unicode: text that is not UTF-8 is an object {"bytes": "caf%E9.txt"}. Paths are
 * relative to the folder in which the run was started, which is in run.json, too. */
#include "train/settings.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/status.h"
#include "base/text.h"
#include "data/format.h"
#include "ddp/on_sum.h"
#include "kern/select.h"
#include "train/training.h"

/* ---- Values. */

static const void *place(const ls_train_options *o, const ls__setting *s)
{
    return (const char *)o + s->at;
}

static const char *text_of(const ls_train_options *o, const ls__setting *s)
{
    return *(const char *const *)place(o, s);
}

/* The shortest decimal number that is read as the same float: 0.1f is written as 0.1. */
static double shortest(float x)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x) break;
    }
    return strtod(text, NULL);
}

/* Numbers and flags as in the options. */
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
    case LS__SET_FLAG: x = *(const bool *)p; break;
    case LS__SET_CHOICE: x = *(const int *)p; break;
    case LS__SET_FORMAT: x = *(const ls_data_format *)p; break;
    default: break;
    }
    return x;
}

/* And as on the command line. */
static double number_of(const ls_train_options *o, const ls__setting *s)
{
    double x = value_of(o, s);
    return s->flags & LS__SET_NONE && x < 0 ? 0 : x;
}

/* What is compared: with LS__SET_AUTO, 0 and none differ. */
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

int ls__settings_values(const ls_train *t, ls__setting_value *out)
{
    int n = 0;
    for (int i = 0; i < ls__n_settings; i++) {
        const ls__setting *s = &ls__settings[i];
        /* Different paths may name the same files, so their contents are compared instead. */
        if (!(s->flags & (LS__SET_FIXED | LS__SET_SHARED)) || s->kind == LS__SET_PATH) continue;
        bool text = s->kind == LS__SET_TEXT;
        out[n++] = (ls__setting_value){ .name = ls__setting_name(s),
                                        .value = text ? hash_text(&t->options, s) : compared(&t->options, s),
                                        .fixed = s->flags & LS__SET_FIXED,
                                        .hashed = text };
        if (s->kind == LS__SET_SIZE) { /* all bits of a seed count, more than a double has */
            uint64_t x = *(const uint64_t *)place(&t->options, s);
            if (x >> 53) out[n - 1].value = (double)((x ^ x >> 52) & ((UINT64_C(1) << 52) - 1)) + 0.5;
        }
    }
    out[n++] = (ls__setting_value){ .name = "samples of training data",
                                    .value = (double)t->parts.train->count,
                                    .fixed = true };
    out[n++] = (ls__setting_value){ .name = "training data", .value = t->data_hash, .fixed = true, .hashed = true };
    out[n++] = (ls__setting_value){ .name = "resume", .value = t->options.run_dir_mode == LS_RUN_DIR_RESUME };
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
    case LS__SET_CHOICE: return json_string(s->words[(int)x]);
    case LS__SET_FORMAT: return json_string(ls__format_name(*(const ls_data_format *)p));
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

/* The delay as on the command line; null for none. */
static json_t *inject_json(const ls_train_delay *d)
{
    if (!(d->ms > 0)) return json_null();
    return json_sprintf("%d:%s:%g:%lld:%lld:%s", d->rank, ls_phase_name(d->phase), d->ms, (long long)d->every,
                        (long long)d->first, d->off_cpu ? "sleep" : "work");
}

char *ls__settings_text(const ls_train *t)
{
    ls_train_options shown = t->options;
    if (t->threads_found) shown.threads = 0;
    if (!shown.tokenizer && t->tokenizer) shown.tokenizer = t->tokenizer_name;
    bool good = true;
    json_t *all = json_object(), *root = NULL;
    good = !json_object_set_new(all, "ranks", json_integer(t->parallel.size));
    for (int i = 0; i < ls__n_settings && good; i++)
        good = !json_object_set_new(all, ls__setting_name(&ls__settings[i]), setting_json(&shown, &ls__settings[i]));
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

/* For a message; the caller frees it. */
static char *show(const ls_train_options *o, const ls__setting *s)
{
    json_t *value = setting_json(o, s);
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(value);
    return text;
}

ls_status ls__settings_compare(const ls_train *t, const ls_train_options *saved)
{
    for (int i = 0; i < ls__n_settings; i++) {
        const ls__setting *s = &ls__settings[i];
        if (!(s->flags & LS__SET_FIXED) || is_same(&t->options, saved, s)) continue;
        char *before = show(saved, s), *now = show(&t->options, s);
        ls_status status = ls__fail(LS_EINVAL,
                                    "%s: the run has %s=%s, got %s; a run must be resumed with its own settings: leave "
                                    "this one out, or start a new run",
                                    t->options.run_dir, ls__setting_name(s), before ? before : "?", now ? now : "?");
        free(before);
        free(now);
        return status;
    }
    return LS_OK;
}
