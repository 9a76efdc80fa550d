/* lockstep import: traces of the PyTorch profiler, or dumps of its Flight Recorder, as a run folder that report, trace and top read. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/text.h"
#include "cli/amount.h"
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/options.h"
#include "lockstep/import.h"

static const char intro[] =
    "usage: lockstep import FILE... -o RUN [OPTIONS]\n"
    "       lockstep import --flight-recorder DUMP... -o RUN\n\n"
    "Reads traces of the PyTorch profiler (prof.export_chrome_trace(), one per rank; plain, .gz or .zst; - is "
    "standard\n"
    "input) or folders of them, joins their collectives, aligns their clocks, and writes the run folder RUN for\n"
    "'lockstep report', 'trace', 'predict' and 'top --once'. With --flight-recorder the files are dumps\n"
    "of a job that hangs, and 'lockstep report RUN' shows which ranks are missing where.\n\n";

static void show_progress(void *user, uint64_t done, uint64_t all)
{
    enum { WIDTH = 40 };
    char bar[WIDTH + 1];
    bool *shown = user;
    int filled = all ? (int)((double)done / (double)all * WIDTH) : 0;
    if (filled > WIDTH) filled = WIDTH;
    memset(bar, ' ', WIDTH);
    memset(bar, '#', (size_t)filled);
    bar[WIDTH] = 0;
    fprintf(stderr, "\r[%s] %.0f of %.0f MB ", bar, (double)done / 1e6, (double)all / 1e6);
    fflush(stderr);
    *shown = true;
}

static void print_summary(const ls_import_result *r, const char *out)
{
    printf("%s: %d rank%s", printable(out), r->present, ls__s(r->present));
    if (r->present < r->ranks) printf(" of %d", r->ranks);
    printf(", %" PRId64 " step%s, %" PRId64 " joined collective%s, from %" PRIu64 " events", r->steps, ls__s(r->steps),
           r->collectives, ls__s(r->collectives), r->events);
    if (r->present > 1 && r->collectives && r->uncertainty)
        printf("; clocks agree within %s", amount_ns((double)r->uncertainty).text);
    else if (r->present > 1 && r->collectives)
        printf("; all on one clock");
    printf("\n");
    for (size_t i = 0; i < r->n_notes; i++) printf("note: %s\n", printable(r->notes[i]));
    printf("see 'lockstep report %s'\n", printable(out));
}

static void tell_flight(const ls_import_result *r, const char *out)
{
    printf("%s: dumps of %d of %d rank%s, %" PRIu64 " entries\n", printable(out), r->present, r->ranks, ls__s(r->ranks),
           r->events);
    for (size_t i = 0; i < r->n_notes; i++) printf("note: %s\n", printable(r->notes[i]));
    printf("see 'lockstep report %s'\n", printable(out));
}

int import_command(int argc, char **argv)
{
    option_list files = { 0 };
    bool quiet = false, shown = false, flight = false;
    ls_import_options o = { .user = &shown };
    const option_row rows[] = {
        { OPTION_TEXT, "-o", &o.out, "RUN", "run folder to write; an earlier import is replaced", 0, 0, NULL },
        { OPTION_TEXT, "--out", &o.out, "RUN", NULL, 0, 0, NULL },
        { OPTION_FLAG, "--flight-recorder", &flight, NULL, "the files are dumps of the Flight Recorder", 0, 0, NULL },
        { OPTION_INT, "--threads", &o.threads, "N", "files read at the same time (one per core)", 1, 64, NULL },
        { OPTION_FLAG, "--quiet", &quiet, NULL, "do not show progress", 0, 0, NULL },
        { OPTION_FILES, "FILE", &files, "FILE", NULL, 0, 0, NULL },
        { 0 },
    };
    int code = options_read("import", intro, rows, NULL, argc, argv);
    if (code >= 0) return code;
    if (!o.out) {
        fprintf(stderr, "lockstep import: -o RUN is missing; it is the run folder to write\n");
        return EXIT_USAGE;
    }
    ls_import_result result;
    o.files = (const char *const *)files.items;
    o.count = files.count;
    if (flight) o.kind = LS_IMPORT_FLIGHT_RECORDER;
    if (!quiet && isatty(STDERR_FILENO)) o.progress = show_progress;
    ls_status status = ls_import(&o, &result);
    if (shown) fprintf(stderr, "\r%60s\r", "");
    if (!status && flight)
        tell_flight(&result, o.out);
    else if (!status)
        print_summary(&result, o.out);
    ls_import_result_free(&result);
    return status ? exit_failure("import", status) : EXIT_DONE;
}
