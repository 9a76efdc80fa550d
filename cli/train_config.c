/* The configuration file of `lockstep train`: its entries become words of the command line, and options are written as entries.
 *
 * One reader then serves both, so that a value means the same in the file and on the command line. Each entry is read on its own first, for
 * messages that have its line. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/commands.h"
#include "cli/config_file.h"
#include "cli/escape.h"
#include "cli/suggest.h"
#include "cli/train_options.h"
#include "train/settings.h"

/* ---- Names. */

/* -n has the name that run.json has for it. */
static const char *name_of(const option_row *r)
{
    return strcmp(r->name, "-n") ? r->name + 2 : "ranks";
}

/* Options for one command, and another name of an option. */
static bool is_entry(const option_row *r)
{
    static const char *const others[] = { "--config", "--print-config", "--resume", "--tune" };
    if (r->kind == OPTION_HEADING || r->kind == OPTION_FILES || !r->help) return false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(r->name, others[i])) return false;
    return true;
}

static const option_row *find_entry(const option_row *rows, const char *name)
{
    for (; rows->name; rows++)
        if (is_entry(rows) && !strcmp(name_of(rows), name)) return rows;
    return NULL;
}

/* A heading of --help in lower case. */
static void heading_name(const option_row *r, char out[32])
{
    size_t n = 0;
    for (; r->name[n] && n < 31; n++) out[n] = (char)tolower((unsigned char)r->name[n]);
    out[n] = 0;
}

/* ---- Checks of a file. */

typedef struct merge {
    const option_row *rows;
    const config_file *file;
    const char *path;
    bool *given; /* rows that the command line has */
} merge;

static int refuse(const merge *m, int line, const char *name, const char *what)
{
    fprintf(stderr, "lockstep train: %s:%d: '%s' %s\n", printable(m->path), line, printable(name), what);
    return EXIT_USAGE;
}

static int refuse_name(const merge *m, const config_entry *e)
{
    char what[300];
    near_word near = { .asked = e->name, .length = strlen(e->name) };
    if (!strcmp(e->name, "config") || !strcmp(e->name, "print-config") || !strcmp(e->name, "resume"))
        return refuse(m, e->line, e->name, "is for the command line alone");
    for (const option_row *r = m->rows; r->name; r++)
        if (is_entry(r)) near_offer(&near, name_of(r));
    snprintf(what, sizeof what, "is not an option of train%s%s 'lockstep train --print-config' lists all",
             near_text(&near), near.nearest ? "" : ";");
    return refuse(m, e->line, e->name, what);
}

static int check_headings(const merge *m)
{
    for (size_t i = 0; i < m->file->n_headings; i++) {
        const config_heading *h = &m->file->headings[i];
        char what[300] = "is not a heading; there are", name[32];
        bool found = false;
        for (const option_row *r = m->rows; r->name && !found; r++) {
            if (r->kind != OPTION_HEADING) continue;
            heading_name(r, name);
            found = !strcmp(name, h->name);
            size_t n = strlen(what);
            snprintf(what + n, sizeof what - n, " [%s]", name);
        }
        if (!found) return refuse(m, h->line, h->name, what);
    }
    return -1;
}

static int check_kind(const merge *m, const option_row *r, const config_entry *e)
{
    bool boolean = e->kind == CONFIG_TRUE || e->kind == CONFIG_FALSE;
    bool text = r->kind == OPTION_TEXT || r->kind == OPTION_CHOICE || r->kind == OPTION_LIST;
    if (r->kind == OPTION_FLAG) return boolean ? -1 : refuse(m, e->line, e->name, "must be true or false");
    if (r->kind == OPTION_LIST && e->kind == CONFIG_LIST)
        return e->count ? -1 : refuse(m, e->line, e->name, "is an empty list; leave it out");
    if (text && e->kind != CONFIG_TEXT)
        return refuse(m, e->line, e->name,
                      r->kind == OPTION_LIST ? "must be text in quotes or a list of such"
                                             : "must be one text in quotes");
    if (!text && e->kind != CONFIG_NUMBER && e->kind != CONFIG_TEXT)
        return refuse(m, e->line, e->name, "must be one number");
    return -1;
}

/* Whether the option has this value's form and range. The value goes to where all are written, and is overwritten. */
static int check_value(const merge *m, const option_row *r, const config_entry *e)
{
    char place[300], *word = NULL;
    if (r->kind == OPTION_FLAG || r->kind == OPTION_LIST) return -1;
    snprintf(place, sizeof place, "train: %s:%d", printable(m->path), e->line);
    if (asprintf(&word, "%s=%s", r->name, e->items[0]) < 0) return EXIT_FAILED;
    int code = options_read(place, "", m->rows, NULL, 2, (char *[]){ place, word });
    free(word);
    return code;
}

static int check_entries(const merge *m)
{
    int code = check_headings(m);
    for (size_t i = 0; i < m->file->count && code < 0; i++) {
        const config_entry *e = &m->file->entries[i];
        const option_row *r = find_entry(m->rows, e->name);
        code = r ? check_kind(m, r, e) : refuse_name(m, e);
        if (code < 0) code = check_value(m, r, e);
    }
    return code;
}

/* ---- Joining it with the command line. */

/* Those of which one replaces the other. */
static const char *const opposites[][2] = {
    { "--steps", "--epochs" },     { "--slots", "--accumulate" },
    { "--run-dir", "--name" },     { "--no-checkpoint", "--checkpoint-every" },
    { "--run-dir", "--resume" },   { "--name", "--resume" },
    { "--overwrite", "--resume" },
};

static bool is_given(const merge *m, const char *option)
{
    const option_row *r = options_find(m->rows, option);
    return r && m->given[r - m->rows];
}

static bool is_replaced(const merge *m, const option_row *r)
{
    if (m->given[r - m->rows]) return true;
    for (size_t i = 0; i < sizeof opposites / sizeof *opposites; i++)
        for (int side = 0; side < 2; side++)
            if (!strcmp(r->name, opposites[i][side]) && is_given(m, opposites[i][!side])) return true;
    return false;
}

/* Appends text to the block; returns where it is. */
static char *put_text(char **to, const char *a, const char *b, const char *c)
{
    char *at = *to;
    *to = stpcpy(stpcpy(stpcpy(at, a), b), c) + 1;
    return at;
}

static void put_entry(const option_row *r, const config_entry *e, char ***words, char **text)
{
    if (e->kind == CONFIG_FALSE) return;
    if (r->kind == OPTION_FLAG) {
        *(*words)++ = put_text(text, r->name, "", "");
    } else if (e->count == 1) {
        *(*words)++ = put_text(text, r->name, "=", e->items[0]);
    } else {
        *(*words)++ = put_text(text, r->name, "", "");
        /* A file whose name begins with a dash is not an option. */
        for (size_t i = 0; i < e->count; i++)
            *(*words)++ = put_text(text, e->items[i][0] == '-' ? "./" : "", e->items[i], "");
    }
}

/* Copies the command line without --config, and notes which options it has. */
static void put_command_line(const merge *m, int argc, char **argv, char ***words)
{
    for (int i = 1; i < argc; i++) {
        const option_row *r = argv[i][0] == '-' ? options_find(m->rows, argv[i]) : NULL;
        bool config = r && !strcmp(r->name, "--config");
        bool with_next = r && i + 1 < argc && options_takes_next(r, argv[i]);
        if (r) m->given[r - m->rows] = true;
        if (!config) *(*words)++ = argv[i];
        if (with_next && !config) *(*words)++ = argv[i + 1];
        i += with_next;
    }
}

static int join(train_arguments *a, const merge *m, int argc, char **argv)
{
    const config_file *f = m->file;
    size_t n_words = (size_t)argc + 1, bytes = 1;
    for (size_t i = 0; i < f->count; i++) {
        n_words += f->entries[i].count + 1;
        bytes += strlen(f->entries[i].name) + 8;
        for (size_t k = 0; k < f->entries[i].count; k++) bytes += strlen(f->entries[i].items[k]) + 8;
    }
    char **words = a->merged = calloc(n_words, sizeof *words), *text = a->merged_text = malloc(bytes);
    char **line = calloc((size_t)argc + 1, sizeof *line), **line_end = line;
    if (!words || !text || !line) {
        fprintf(stderr, "lockstep train: out of memory\n");
        free(line);
        return EXIT_FAILED;
    }
    put_command_line(m, argc, argv, &line_end);
    *words++ = argv[0];
    for (size_t i = 0; i < f->count; i++) {
        const option_row *r = find_entry(m->rows, f->entries[i].name);
        if (!is_replaced(m, r)) put_entry(r, &f->entries[i], &words, &text);
    }
    for (char **w = line; w < line_end; w++) *words++ = *w;
    a->argc = (int)(words - a->merged);
    a->argv = a->merged;
    free(line);
    return -1;
}

int train_config_merge(train_arguments *a, int argc, char **argv)
{
    config_file file;
    train_arguments scratch = train_arguments_defaults();
    ls_status status = config_file_read(&file, a->config);
    if (status) return exit_failure("train", status);
    int code = EXIT_FAILED;
    size_t n = 0;
    option_row *rows = train_rows(&scratch);
    while (rows && rows[n].name) n++;
    merge m = { .rows = rows, .file = &file, .path = a->config, .given = calloc(n + 1, sizeof(bool)) };
    if (rows && m.given) code = check_entries(&m);
    if (rows && m.given && code < 0) code = join(a, &m, argc, argv);
    free(m.given);
    free(rows);
    config_file_free(&file);
    return code;
}

/* ---- Writing. */

static const ls__setting *setting_of(const option_row *r)
{
    for (int i = 0; i < ls__n_settings; i++)
        if (!strcmp(ls__settings[i].option, r->name)) return &ls__settings[i];
    return NULL;
}

/* The shortest decimal number that is read as the same one. */
static void put_number(FILE *to, double x, bool single)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (single ? strtof(text, NULL) == (float)x : strtod(text, NULL) == x) break;
    }
    fputs(text, to);
}

static void put_list(FILE *to, const char *const *items, size_t count)
{
    fputc('[', to);
    for (size_t i = 0; i < count; i++) {
        if (i) fputs(", ", to);
        config_put_text(to, items[i]);
    }
    fputc(']', to);
}

/* The value at r->to. In the library none is negative, and on the command line it is 0. */
static void put_value(FILE *to, const option_row *r)
{
    switch (r->kind) {
    case OPTION_FLAG: fputs(*(const bool *)r->to ? "true" : "false", to); break;
    case OPTION_INT:
    case OPTION_AUTO: fprintf(to, "%d", *(const int *)r->to < 0 ? 0 : *(const int *)r->to); break;
    case OPTION_LONG: fprintf(to, "%lld", (long long)*(const int64_t *)r->to); break;
    case OPTION_SEED:
    case OPTION_SIZE: {
        unsigned long long x = *(const uint64_t *)r->to;
        fprintf(to, x > INT64_MAX ? "\"%llu\"" : "%llu", x); /* TOML's integers have 63 bits */
        break;
    }
    case OPTION_FLOAT: put_number(to, fmax(0, (double)*(const float *)r->to), true); break;
    case OPTION_DOUBLE: put_number(to, fmax(0, *(const double *)r->to), false); break;
    case OPTION_CHOICE: config_put_text(to, r->choices[*(const int *)r->to]); break;
    default: config_put_text(to, *(const char *const *)r->to);
    }
}

static bool differs(const option_row *a, const option_row *b)
{
    switch (a->kind) {
    case OPTION_FLAG: return *(const bool *)a->to != *(const bool *)b->to;
    case OPTION_LONG:
    case OPTION_SEED:
    case OPTION_SIZE: return *(const int64_t *)a->to != *(const int64_t *)b->to;
    case OPTION_FLOAT: return *(const float *)a->to != *(const float *)b->to;
    case OPTION_DOUBLE: return *(const double *)a->to != *(const double *)b->to;
    case OPTION_TEXT: {
        const char *x = *(const char *const *)a->to, *y = *(const char *const *)b->to;
        return x && (!y || strcmp(x, y) != 0);
    }
    default: return *(const int *)a->to != *(const int *)b->to;
    }
}

/* What follows from the folder of --init, or from the run that is resumed. */
static bool is_implied(const train_arguments *a, const option_row *r, const ls__setting *s)
{
    bool of_model = s && s->at >= offsetof(ls_train_options, model) &&
                    s->at < offsetof(ls_train_options, model) + sizeof(ls_lm_options);
    if (of_model && a->train.init) return !strstr(s->option, "dropout");
    if (train_option_is_idle(r->name, a)) return true; /* a run's settings have values for all */
    /* The default warm-up may be longer than a short run; one that is given may not. */
    int64_t warmup = a->train.schedule.warmup, tenth = a->train.steps / 10;
    if (a->saved && !strcmp(r->name, "--warmup") && (warmup == 150 || warmup == tenth)) return true;
    return a->resume && (!strcmp(r->name, "--run-dir") || !strcmp(r->name, "--name"));
}

static void put_row(FILE *to, const train_arguments *a, const option_row *r, const option_row *standard)
{
    char help[OPTION_HELP];
    const ls__setting *s = setting_of(r);
    bool list = r->kind == OPTION_LIST, val = list && !strcmp(r->name, "--val-data");
    size_t count = val ? a->train.n_val_data : a->train.n_data;
    bool set = (list ? count > 0 : differs(r, standard)) && !is_implied(a, r, s);
    if (set) {
        fprintf(to, "%s = ", name_of(r));
        if (list)
            put_list(to, val ? a->train.val_data : a->train.data, count);
        else
            put_value(to, r);
        fputc('\n', to);
        return;
    }
    options_describe(r, help, sizeof help);
    fprintf(to, "# %s = %s  # %s\n", name_of(r), r->kind == OPTION_FLAG ? "true" : r->value, help);
}

/* The kind of model, which is also the name of a size. */
static const char *kind_name(const train_arguments *a)
{
    const ls__setting *s = setting_of(&(option_row){ .name = "--model-type" });
    return s ? s->words[a->train.model.kind] : NULL;
}

void train_config_write(const train_arguments *a, FILE *to)
{
    train_arguments standard = train_arguments_defaults(), shown = *a;
    char heading[32], *here = getcwd(NULL, 0);
    /* A resumed run has no name of a size, but a kind of model. */
    if (a->saved && !a->model && !a->train.init) shown.model = kind_name(a);
    option_row *rows = train_rows(&shown), *defaults = train_rows(&standard);
    fprintf(to, "# lockstep train --config FILE; lockstep %s, in %s\n", ls_version(), here ? printable(here) : "?");
    for (size_t i = 0; rows && defaults && rows[i].name; i++) {
        heading_name(&rows[i], heading);
        if (rows[i].kind == OPTION_HEADING)
            fprintf(to, "\n[%s]\n", heading);
        else if (is_entry(&rows[i]))
            put_row(to, &shown, &rows[i], &defaults[i]);
    }
    free(rows);
    free(defaults);
    free(here);
}

char *train_config_text(const train_arguments *a)
{
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) return NULL;
    train_config_write(a, to);
    if (!fclose(to)) return text;
    free(text);
    return NULL;
}
