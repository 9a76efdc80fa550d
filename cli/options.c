/* Reading options by a table. See options.h. */
#include "cli/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/help.h"
#include "cli/suggest.h"

void options_describe(const option_row *r, char *out, size_t room)
{
    const char *mark = r->kind == OPTION_CHOICE ? strstr(r->help, "{}") : NULL;
    size_t n = (size_t)snprintf(out, room, "%.*s", mark ? (int)(mark - r->help) : (int)strlen(r->help), r->help);
    for (int i = 0; mark && r->choices[i] && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, "%s%s", i ? ", " : "", r->choices[i]);
    if (mark && n < room) snprintf(out + n, room - n, "%s", mark + 2);
}

static void print_help(const char *intro, const option_row *rows)
{
    char line[OPTION_HELP + 100], help[OPTION_HELP];
    size_t n = strlen(intro);
    help_print(stdout, intro);
    if (rows->kind != OPTION_HEADING && (n < 2 || intro[n - 2] != '\n')) printf("\n");
    for (const option_row *r = rows; r->name; r++) {
        char left[64];
        if (r->kind == OPTION_HEADING) printf("\n%s\n", r->name);
        if (r->kind == OPTION_HEADING || r->kind == OPTION_FILES || !r->help) continue;
        snprintf(left, sizeof left, "%s%s%s", r->name, r->value ? " " : "", r->value ? r->value : "");
        options_describe(r, help, sizeof help);
        snprintf(line, sizeof line, "  %-23s  %s\n", left, help);
        help_print(stdout, line);
    }
    printf("  %-23s  %s\n", "-h, --help", "this text");
}

static int refuse(const char *command, const char *name, const char *value, const char *must)
{
    fprintf(stderr, "lockstep %s: %s %s: %s\n", command, name, *value ? printable(value) : "''", must);
    return EXIT_USAGE;
}

static int refuse_range(const char *command, const option_row *r, const char *value, const char *what)
{
    char must[120];
    if (r->low == 0 && r->high == 0)
        snprintf(must, sizeof must, "must be %s", what);
    else if (r->high >= 1e18)
        snprintf(must, sizeof must, "must be %s \u2265 %.10g", what, r->low);
    else
        snprintf(must, sizeof must, "must be %s from %.10g to %.10g", what, r->low, r->high);
    return refuse(command, r->name, value, must);
}

static bool in_range(const option_row *r, double x)
{
    return isfinite(x) && ((r->low == 0 && r->high == 0) || (x >= r->low && x <= r->high));
}

/* The factor of a unit after a number; 0: unknown unit. */
static uint64_t unit_of(const char *text)
{
    static const struct {
        const char *suffix;
        uint64_t factor;
    } units[] = { { "", 1 },           { "k", 1000 },          { "M", 1000000 },
                  { "G", 1000000000 }, { "T", 1000000000000 }, { "Ki", 1 << 10 },
                  { "Mi", 1 << 20 },   { "Gi", 1 << 30 },      { "Ti", UINT64_C(1) << 40 } };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(text, units[i].suffix)) return units[i].factor;
    return 0;
}

/* Computed in integers, so that no digit is lost: a double cannot hold 0.1e19 exactly. */
bool options_parse_size(const char *text, uint64_t *out)
{
    uint64_t value = 0, factor;
    int digits = 0, power = 0; /* of ten, that the digits are to be multiplied by */
    bool fraction = false;
    for (; (*text >= '0' && *text <= '9') || (*text == '.' && !fraction); text++) {
        if (*text == '.') {
            fraction = true;
            continue;
        }
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
            return false;
        digits++;
        power -= fraction;
    }
    if (!digits) return false;
    if (*text == 'e' || *text == 'E') {
        char *end;
        long e = strtol(text + 1, &end, 10);
        if (end == text + 1 || text[1] == ' ' || e < -30 || e > 30) return false;
        power += (int)e;
        text = end;
    }
    factor = unit_of(text);
    if (!factor || __builtin_mul_overflow(value, factor, &value)) return false;
    for (; power > 0 && value; power--)
        if (__builtin_mul_overflow(value, 10, &value)) return false;
    for (; power < 0 && value; power++) {
        if (value % 10) return false;
        value /= 10;
    }
    *out = value;
    return true;
}

static int read_whole(const char *command, const option_row *r, const char *text)
{
    uint64_t size;
    bool negative = *text == '-', good = options_parse_size(text + negative, &size) && size <= INT64_MAX;
    int64_t x = !good ? 0 : negative ? -(int64_t)size : (int64_t)size;
    if (!good || !in_range(r, (double)x) || (r->kind != OPTION_LONG && x != (int)x))
        return refuse_range(command, r, text, r->kind == OPTION_AUTO ? "auto, or an integer" : "an integer");
    if (r->kind != OPTION_LONG)
        *(int *)r->to = (int)x;
    else
        *(int64_t *)r->to = x;
    return -1;
}

static int read_real(const char *command, const option_row *r, const char *text)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || !in_range(r, x)) return refuse_range(command, r, text, "a number");
    if (r->kind == OPTION_FLOAT)
        *(float *)r->to = (float)x;
    else
        *(double *)r->to = x;
    return -1;
}

static int read_seed(const char *command, const option_row *r, const char *text)
{
    if (options_parse_size(text, r->to)) return -1;
    return refuse(command, r->name, text, "must be an integer \u2265 0");
}

static int read_size(const char *command, const option_row *r, const char *text)
{
    if (options_parse_size(text, r->to) && *(uint64_t *)r->to) return -1;
    return refuse(command, r->name, text,
                  "must be an integer \u2265 1, optionally followed by k, M, G, T, Ki, Mi, Gi or Ti");
}

static int read_choice(const char *command, const option_row *r, const char *text)
{
    char must[300] = "";
    near_word near = { .asked = text, .length = strlen(text) };
    for (int i = 0; r->choices[i]; i++) {
        if (strcmp(text, r->choices[i]) == 0) {
            *(int *)r->to = i;
            return -1;
        }
        near_offer(&near, r->choices[i]);
        size_t n = strlen(must);
        snprintf(must + n, sizeof must - n, "%s%s", i ? ", " : "must be one of ", r->choices[i]);
    }
    size_t n = strlen(must);
    snprintf(must + n, sizeof must - n, "%s", near_text(&near));
    return refuse(command, r->name, text, must);
}

static int read_value(const char *command, const option_row *r, const char *text)
{
    switch (r->kind) {
    case OPTION_INT:
    case OPTION_LONG: return read_whole(command, r, text);
    case OPTION_FLOAT:
    case OPTION_DOUBLE: return read_real(command, r, text);
    case OPTION_SEED: return read_seed(command, r, text);
    case OPTION_SIZE: return read_size(command, r, text);
    case OPTION_AUTO:
        if (strcmp(text, "auto")) return read_whole(command, r, text);
        *(int *)r->to = -1;
        return -1;
    case OPTION_CHOICE: return read_choice(command, r, text);
    case OPTION_PERHAPS:
    case OPTION_TEXT: *(const char **)r->to = text; return -1;
    default: return -1;
    }
}

/* Length of the option's name in an argument: up to '=' or its end; of -n2, up to the number. */
static size_t name_length(const char *argument)
{
    if (argument[0] == '-' && argument[1] && argument[1] != '-' && argument[2] >= '0' && argument[2] <= '9') return 2;
    return strcspn(argument, "=");
}

/* The value within an argument, as in --steps=3 and -n2, or NULL. */
static char *joined_value(char *argument)
{
    char *end = argument + name_length(argument);
    return *end == '=' ? end + 1 : *end ? end : NULL;
}

const option_row *options_find(const option_row *rows, const char *argument)
{
    size_t n = name_length(argument);
    for (const option_row *r = rows; r->name; r++)
        if (r->kind != OPTION_HEADING && r->kind != OPTION_FILES && strlen(r->name) == n &&
            memcmp(r->name, argument, n) == 0)
            return r;
    return NULL;
}

bool options_takes_next(const option_row *r, const char *argument)
{
    bool always = r->kind != OPTION_FLAG && r->kind != OPTION_LIST && r->kind != OPTION_PERHAPS;
    return always && !argument[name_length(argument)];
}

static bool is_option(const char *argument)
{
    return argument[0] == '-' && argument[1];
}

static int lacks_value(const char *command, const option_row *r)
{
    fprintf(stderr, "lockstep %s: %s needs a value: %s %s\n", command, r->name, r->name, r->value);
    return EXIT_USAGE;
}

static int refuse_unknown(const char *command, const option_row *rows, const char *argument)
{
    near_word near = { .asked = argument, .length = name_length(argument) };
    for (const option_row *r = rows; r->name; r++)
        if (r->kind != OPTION_HEADING && r->kind != OPTION_FILES) near_offer(&near, r->name);
    near_offer(&near, "--help");
    fprintf(stderr, "lockstep %s: %s '%s'%s%s 'lockstep %s --help' lists the options\n", command,
            is_option(argument) ? "unknown option" : "unexpected argument", printable(argument), near_text(&near),
            near.nearest ? "" : ";", command);
    return EXIT_USAGE;
}

/* Whether the list was filled from these arguments already. What it has from elsewhere, such as a run's settings, is replaced. */
static bool has_items_of(const option_list *list, int argc, char **argv)
{
    uintptr_t at = (uintptr_t)list->items;
    return list->count && at >= (uintptr_t)argv && at < (uintptr_t)(argv + argc);
}

/* The option at argv[*i] with its value or values; *i moves to its last argument. */
static int read_option(const char *command, const option_row *r, int argc, char **argv, int *i)
{
    char *joined = joined_value(argv[*i]);
    if (r->kind == OPTION_FLAG) {
        bool off = joined && !strcmp(joined, "false");
        if (joined && !off && strcmp(joined, "true") != 0)
            return refuse(command, r->name, joined, "takes no value, or true or false");
        *(bool *)r->to = !off;
        return -1;
    }
    if (r->kind == OPTION_LIST && has_items_of(r->to, argc, argv)) {
        fprintf(stderr, "lockstep %s: %s is given twice; put all of %s after one %s\n", command, r->name, r->value,
                r->name);
        return EXIT_USAGE;
    }
    if (r->kind == OPTION_LIST && !joined) {
        option_list *list = r->to;
        list->items = argv + *i + 1;
        list->count = 0;
        while (*i + 1 < argc && !is_option(argv[*i + 1])) {
            list->count++;
            ++*i;
        }
        return list->count ? -1 : lacks_value(command, r);
    }
    if (r->kind == OPTION_PERHAPS && !joined) {
        *(const char **)r->to = *i + 1 < argc && !is_option(argv[*i + 1]) ? argv[++*i] : "";
        return -1;
    }
    if (!joined && *i + 1 >= argc) return lacks_value(command, r);
    char *text = joined ? joined : argv[++*i];
    if (r->kind != OPTION_LIST) return read_value(command, r, text);
    argv[*i] = text; /* the argument has been read: its place may hold the one item of the list */
    *(option_list *)r->to = (option_list){ .items = &argv[*i], .count = 1 };
    return -1;
}

static const option_row *files_row(const option_row *rows)
{
    while (rows->name && rows->kind != OPTION_FILES) rows++;
    return rows->name ? rows : NULL;
}

int options_read(const char *command, const char *intro, const option_row *rows, const char **plain, int argc,
                 char **argv)
{
    const option_row *files = files_row(rows);
    option_list *list = files ? files->to : NULL;
    bool only_files = false; /* after "--" */
    if (list) *list = (option_list){ .items = argv + 1 };
    for (int i = 1; i < argc; i++) {
        if (list && !only_files && strcmp(argv[i], "--") == 0) {
            only_files = true;
            continue;
        }
        if (list && (only_files || !is_option(argv[i]))) { /* what came before has been read: its place is free */
            list->items[list->count++] = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(intro, rows);
            return EXIT_DONE;
        }
        if (!is_option(argv[i]) && plain && !*plain) {
            *plain = argv[i];
            continue;
        }
        const option_row *r = is_option(argv[i]) ? options_find(rows, argv[i]) : NULL;
        if (!r) return refuse_unknown(command, rows, argv[i]);
        int code = read_option(command, r, argc, argv, &i);
        if (code >= 0) return code;
    }
    if (!list || list->count || !files->value) return -1;
    fprintf(stderr, "lockstep %s: %s is missing; see 'lockstep %s --help'\n", command, files->value, command);
    return EXIT_USAGE;
}
