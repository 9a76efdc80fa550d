/* Reading run.json. Every value is validated. See settings.h. */
#include <errno.h>
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/file.h"
#include "base/status.h"
#include "data/format.h"
#include "train/data_files.h"
#include "train/settings.h"

enum { MAX_BYTES = 64 << 20 };

typedef struct kept {
    struct kept *next;
    char text[];
} kept;

/* What ls_train_saved_open() returns: the public part comes first. */
typedef struct saved {
    ls_train_saved public;
    json_t *root;          /* texts of the options are in it, */
    kept *texts;           /* or here, */
    const char **lists[2]; /* and lists here */
    int n_lists;
    const char *path;   /* for messages, while it is read */
    const char *folder; /* that relative paths belong to; NULL: this one */
} saved;

static char *keep_text(saved *v, size_t bytes)
{
    kept *k = malloc(sizeof *k + bytes);
    if (!k) return NULL;
    k->next = v->texts;
    v->texts = k;
    return k->text;
}

static ls_status bad_value(const saved *v, const char *name)
{
    return ls__fail(LS_EFORMAT, "%s: setting '%s' has an invalid value", v->path, name);
}

/* The text of a JSON value; NULL for null. */
static ls_status read_text(saved *v, const char *name, const json_t *value, const char **out)
{
    *out = NULL;
    if (json_is_null(value)) return LS_OK;
    if ((*out = json_string_value(value))) return LS_OK;
    const char *escaped = json_string_value(json_object_get(value, "bytes"));
    if (!escaped) return bad_value(v, name);
    char *text = keep_text(v, strlen(escaped) + 1), *end = text;
    if (!text) return ls__fail(LS_ENOMEM, "%s: out of memory", v->path);
    for (unsigned byte; *escaped; escaped++) {
        if (*escaped != '%') {
            *end++ = *escaped;
            continue;
        }
        if (sscanf(escaped + 1, "%2x", &byte) != 1 || !byte || !escaped[2]) return bad_value(v, name);
        *end++ = (char)byte;
        escaped += 2;
    }
    *end = 0;
    *out = text;
    return LS_OK;
}

static ls_status read_path(saved *v, const char *name, const json_t *value, const char **out)
{
    ls_status status = read_text(v, name, value, out);
    bool plain = !*out || **out == '/' || (!strcmp(name, "tokenizer") && !strcmp(*out, "bytes"));
    if (status || plain || !v->folder) return status;
    size_t bytes = strlen(v->folder) + strlen(*out) + 2;
    char *path = keep_text(v, bytes);
    if (!path) return ls__fail(LS_ENOMEM, "%s: out of memory", v->path);
    snprintf(path, bytes, "%s/%s", v->folder, *out);
    *out = path;
    return LS_OK;
}

static ls_status read_list(saved *v, const ls__setting *s, const json_t *value)
{
    size_t n = json_array_size(value);
    void *to = (char *)&v->public.options + s->at;
    if (!json_is_array(value)) return bad_value(v, ls__setting_name(s));
    if (!n) return LS_OK;
    const char **list = calloc(n, sizeof *list);
    if (!list) return ls__fail(LS_ENOMEM, "%s: out of memory", v->path);
    v->lists[v->n_lists++] = list;
    ls_status status = LS_OK;
    for (size_t i = 0; i < n && !status; i++) {
        status = read_path(v, ls__setting_name(s), json_array_get(value, i), &list[i]);
        if (!status && !list[i]) status = bad_value(v, ls__setting_name(s));
    }
    *(const char ***)to = list;
    memcpy((char *)to + sizeof list, &n, sizeof n);
    return status;
}

static ls_status read_word(const saved *v, const ls__setting *s, const json_t *value, int *out)
{
    const char *word = json_string_value(value);
    for (int i = 0; word && s->words[i]; i++)
        if (!strcmp(word, s->words[i])) {
            *out = i;
            return LS_OK;
        }
    return bad_value(v, ls__setting_name(s));
}

static ls_status read_number(const saved *v, const ls__setting *s, const json_t *value, void *to)
{
    bool automatic = s->flags & LS__SET_AUTO && json_is_string(value) && !strcmp(json_string_value(value), "auto");
    double x = automatic ? 0 : json_number_value(value);
    if (s->kind == LS__SET_SIZE && json_is_string(value) && !automatic) {
        char *end;
        errno = 0;
        *(uint64_t *)to = strtoull(json_string_value(value), &end, 10);
        return *end || errno || end == json_string_value(value) ? bad_value(v, ls__setting_name(s)) : LS_OK;
    }
    if ((!automatic && !json_is_number(value)) || !isfinite(x) || x < 0) return bad_value(v, ls__setting_name(s));
    bool integer = json_is_integer(value) || automatic;
    json_int_t n = json_integer_value(value);
    if (s->flags & LS__SET_NONE && x == 0 && !automatic) x = -1, n = -1;
    switch (s->kind) {
    case LS__SET_INT:
        if (!integer || n > INT32_MAX) return bad_value(v, ls__setting_name(s));
        *(int *)to = (int)n;
        break;
    case LS__SET_LONG:
        if (!integer) return bad_value(v, ls__setting_name(s));
        *(int64_t *)to = n;
        break;
    case LS__SET_SIZE:
        if (!integer) return bad_value(v, ls__setting_name(s));
        *(uint64_t *)to = (uint64_t)n;
        break;
    case LS__SET_FLOAT:
        if (x > (double)FLT_MAX) return bad_value(v, ls__setting_name(s));
        *(float *)to = (float)x;
        break;
    default: *(double *)to = x;
    }
    return LS_OK;
}

static ls_status read_setting(saved *v, const ls__setting *s, const json_t *value)
{
    /* A default warm-up stays as it was, also if the run is extended. */
    if (!strcmp(ls__setting_name(s), "warmup") && json_is_string(value) && !strcmp(json_string_value(value), "auto"))
        value = json_object_get(json_object_get(v->root, "found"), "warmup");
    void *to = (char *)&v->public.options + s->at;
    switch (s->kind) {
    case LS__SET_FLAG:
        if (!json_is_boolean(value)) return bad_value(v, ls__setting_name(s));
        *(bool *)to = json_is_true(value);
        return LS_OK;
    case LS__SET_CHOICE: return read_word(v, s, value, to);
    case LS__SET_FORMAT:
        if (!json_is_string(value) || ls__format_parse(json_string_value(value), to))
            return bad_value(v, ls__setting_name(s));
        return LS_OK;
    case LS__SET_TEXT: return read_text(v, ls__setting_name(s), value, to);
    case LS__SET_PATH: return read_path(v, ls__setting_name(s), value, to);
    case LS__SET_PATHS: return read_list(v, s, value);
    default: return read_number(v, s, value, to);
    }
}

/* Paths are relative to the folder in which the run was started, if that still exists and is not this one. */
static ls_status find_folder(saved *v)
{
    struct stat there, here;
    const json_t *folder = json_object_get(v->root, "folder");
    ls_status status = folder ? read_text(v, "folder", folder, &v->folder) : LS_OK;
    if (!v->folder || stat(v->folder, &there) || !S_ISDIR(there.st_mode)) v->folder = NULL;
    if (v->folder && !stat(".", &here) && here.st_dev == there.st_dev && here.st_ino == there.st_ino) v->folder = NULL;
    return status;
}

static const ls__setting *find(const char *name)
{
    for (int i = 0; i < ls__n_settings; i++)
        if (!strcmp(ls__setting_name(&ls__settings[i]), name)) return &ls__settings[i];
    return NULL;
}

static ls_status read_all(saved *v)
{
    const char *name;
    json_t *value, *all = json_object_get(v->root, "settings");
    if (!json_is_object(all))
        return ls__fail(LS_EFORMAT, "%s: has no settings: not a run's file, or of an older version of lockstep",
                        v->path);
    ls_status status = find_folder(v);
    json_object_foreach(all, name, value)
    {
        const ls__setting *s = find(name);
        if (status) break;
        if (s)
            status = read_setting(v, s, value);
        else if (!strcmp(name, "ranks"))
            v->public.ranks =
                json_is_integer(value) && json_integer_value(value) <= INT32_MAX ? (int)json_integer_value(value) : 0;
        else if (strcmp(name, "inject") != 0) /* for tests; not restored */
            status = ls__fail(LS_EFORMAT, "%s: unknown setting '%s' in this version of lockstep", v->path, name);
    }
    if (!status && v->public.ranks < 1) status = bad_value(v, "ranks");
    return status;
}

ls_status ls__settings_parse(ls_train_saved **out, const char *path, const char *text, size_t bytes)
{
    json_error_t error;
    ls_status status = LS_OK;
    *out = NULL;
    saved *v = calloc(1, sizeof *v);
    if (!v) return ls__fail(LS_ENOMEM, "%s: out of memory", path);
    v->path = path;
    if (!(v->root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error)))
        status = ls__fail(LS_EFORMAT, "%s: not valid JSON: %s", path, error.text);
    if (!status) status = read_all(v);
    v->path = NULL;
    *out = &v->public;
    if (status) ls_train_saved_free(out);
    return status;
}

ls_status ls_train_saved_open(ls_train_saved **out, const char *run_dir)
{
    LS__NEED(out, "out");
    char *path, *text = NULL;
    size_t bytes;
    *out = NULL;
    LS__NEED(run_dir, "run_dir");
    if (asprintf(&path, "%s/run.json", run_dir) < 0) return ls__fail(LS_ENOMEM, "%s: out of memory", run_dir);
    ls_status status = ls__file_read(path, MAX_BYTES, &text, &bytes);
    if (!status) status = ls__settings_parse(out, path, text, bytes);
    free(text);
    free(path);
    return status;
}

ls_status ls__settings_check_files(const ls_train_saved *public, bool val, const json_t *now)
{
    const saved *v = (const saved *)public;
    const json_t *files = json_object_get(v->root, "files");
    return ls__data_files_compare(json_object_get(files, val ? "val-data" : "data"), now);
}

void ls_train_saved_free(ls_train_saved **out)
{
    saved *v = out ? (saved *)*out : NULL;
    if (!v) return;
    for (int i = 0; i < v->n_lists; i++) free(v->lists[i]);
    for (kept *k = v->texts, *next; k; k = next) {
        next = k->next;
        free(k);
    }
    json_decref(v->root);
    free(v);
    *out = NULL;
}
