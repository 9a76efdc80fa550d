/* lockstep doctor: what was found on this machine, what is missing, and the one command that mends it.
 *
 * Every check adds one line. A line is fine, a note (something that would make lockstep faster or able to do more), or
 * missing (something that it cannot do without); the last two say what to do. */
#include <stdarg.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <jansson.h>
#include "cli/commands.h"
#include "cli/doctor_checks.h"
#include "cli/escape.h"

static const char help[] =
    "usage: lockstep doctor [--json]\n"
    "\n"
    "Says what lockstep found on this machine: cores, caches, memory, limits, BLAS, MPI, and what\n"
    "is missing.\n"
    "\n"
    "      --json   one JSON object instead of text\n"
    "  -h, --help\n"
    "\n"
    "Exit code: 0 if nothing that lockstep needs is missing, 1 otherwise.\n";

static const char *const states[] = { [DOCTOR_FINE] = "ok", [DOCTOR_NOTE] = "note", [DOCTOR_MISSING] = "missing" };

static void free_lines(doctor *d)
{
    for (size_t i = 0; i < d->count; i++) {
        free(d->lines[i].value);
        free(d->lines[i].remedy);
    }
    free(d->lines);
}

static char *format_text(const char *format, va_list args)
{
    char *text = NULL;
    if (!format || vasprintf(&text, format, args) < 0) return NULL;
    return text;
}

void doctor_add(doctor *d, const char *section, const char *name, const char *format, ...)
{
    doctor_line *lines = realloc(d->lines, (d->count + 1) * sizeof *lines);
    if (!lines) return; /* a doctor without memory for a line has nothing useful to say */
    va_list args;
    va_start(args, format);
    d->lines = lines;
    d->lines[d->count++] = (doctor_line){ .section = section, .name = name, .value = format_text(format, args) };
    va_end(args);
}

void doctor_advise(doctor *d, doctor_state state, const char *format, ...)
{
    if (!d->count) return;
    doctor_line *line = &d->lines[d->count - 1];
    va_list args;
    va_start(args, format);
    line->state = state;
    free(line->remedy);
    line->remedy = format_text(format, args);
    va_end(args);
    if (state == DOCTOR_MISSING) d->missing++;
}

static void print_text(const doctor *d)
{
    const char *section = "";
    for (size_t i = 0; i < d->count; i++) {
        const doctor_line *l = &d->lines[i];
        if (strcmp(section, l->section)) printf("%s%s\n", i ? "\n" : "", l->section);
        section = l->section;
        printf("  %-7s %-17s %s\n", states[l->state], l->name, l->value ? l->value : "");
    }
    bool any = false;
    for (size_t i = 0; i < d->count; i++) {
        const doctor_line *l = &d->lines[i];
        if (!l->remedy) continue;
        if (!any) printf("\nwhat to do\n");
        any = true;
        printf("  %-7s %-17s %s\n", states[l->state], l->name, l->remedy);
    }
    printf("\n%s\n", d->missing ? "Something that lockstep needs is missing."
                     : any      ? "All that lockstep needs is here; the notes above are for more."
                                : "All that lockstep needs is here.");
}

static int print_json(const doctor *d)
{
    json_t *findings = json_array();
    for (size_t i = 0; i < d->count; i++) {
        const doctor_line *l = &d->lines[i];
        json_t *o = json_pack("{s:s, s:s, s:s, s:s?}", "section", l->section, "name", l->name, "state",
                              states[l->state], "value", l->value);
        if (l->remedy) json_object_set_new(o, "remedy", json_string(l->remedy));
        json_array_append_new(findings, o);
    }
    json_t *all = json_pack("{s:s, s:b, s:o}", "version", ls_version(), "fine", d->missing == 0, "findings", findings);
    int failed = !all || json_dumpf(all, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(all);
    return failed;
}

int doctor_command(int argc, char **argv)
{
    static const struct option options[] = {
        { "json", no_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    bool json = false;
    opterr = 0;
    for (int at = optind, option; (option = getopt_long(argc, argv, "+h", options, NULL)) != -1; at = optind) {
        if (option == 'h') {
            fputs(help, stdout);
            return EXIT_DONE;
        }
        if (option != 'j') {
            fprintf(stderr, "lockstep doctor: %s is unknown; 'lockstep doctor --help' lists the options\n",
                    printable(argv[at]));
            return EXIT_USAGE;
        }
        json = true;
    }
    if (optind < argc) {
        fprintf(stderr, "lockstep doctor: %s: takes no arguments\n", printable(argv[optind]));
        return EXIT_USAGE;
    }
    doctor d = { 0 };
    struct utsname host;
    uname(&host);
    doctor_add(&d, "machine", "lockstep", "%s", ls_version());
    doctor_add(&d, "machine", "kernel", "%s %s, %s", host.sysname, host.release, host.machine);
    doctor_check_cores(&d);
    doctor_check_memory(&d);
    doctor_check_limits(&d);
    doctor_check_libraries(&d);
    doctor_check_kernel(&d);
    int code = json ? print_json(&d) : (print_text(&d), 0);
    if (d.missing) code = EXIT_FAILED;
    free_lines(&d);
    return code;
}
