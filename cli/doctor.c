/* lockstep doctor: checks this machine, and prints what is missing and the command that installs it.
 *
 * Every check adds one line. A line is ok, a note (lockstep could be faster or do more), or missing (lockstep needs it); the last
 * two have a remedy. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <jansson.h>
#include "cli/commands.h"
#include "cli/doctor_checks.h"
#include "cli/options.h"

static const char intro[] = "usage: lockstep doctor [--json]\n"
                            "\n"
                            "Checks this machine: cores, caches, memory, limits, MPI; reports what is missing. "
                            "Exits with 1 if something is missing that lockstep needs.\n"
                            "\n";

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
    if (!lines) return; /* out of memory: the line is omitted */
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
                     : any      ? "Everything that lockstep needs is present; see the notes above for more."
                                : "Everything that lockstep needs is present.");
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
    bool json = false;
    const option_row rows[] = {
        { OPTION_FLAG, "--json", &json, NULL, "one JSON object instead of text", 0, 0, NULL },
        { OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, NULL },
    };
    int code = options_read("doctor", intro, rows, NULL, argc, argv);
    if (code >= 0) return code;
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
    code = json ? print_json(&d) : (print_text(&d), 0);
    if (d.missing) code = EXIT_FAILED;
    free_lines(&d);
    return code;
}
