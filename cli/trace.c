/* lockstep trace: a recorded run for Perfetto and chrome://tracing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/findings_text.h"
#include "cli/last_run.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/trace_write.h"

static const char intro[] =
    "usage: lockstep trace [RUN] [-o FILE] [OPTIONS]\n"
    "\n"
    "Exports the record of a run as trace events (JSON), for ui.perfetto.dev or\n"
    "chrome://tracing: one process per rank with its steps, phases and collectives, arrows from a full bucket\n"
    "to its reduction, causes of waiting, and counters. RUN is the run folder (runs/last).\n\n";

/* "A:B", "A:", ":B" or "A". */
static bool read_steps(const char *text, trace_options *o)
{
    char *end;
    if (!text) return true;
    errno = 0;
    if (*text != ':') {
        o->first = strtoll(text, &end, 10);
        if (end == text || o->first < 0) return false;
        o->last = o->first;
        if (!*end) return !errno;
        text = end;
        o->last = INT64_MAX;
    }
    if (*text++ != ':') return false;
    if (!*text) return !errno;
    o->last = strtoll(text, &end, 10);
    return end != text && !*end && !errno && o->last >= o->first;
}

static ssize_t pass_on(void *to, const char *data, size_t bytes)
{
    ls__file_writer *w = to;
    return ls__file_writer_add(w, data, bytes) ? -1 : (ssize_t)bytes;
}

/* Writes the trace to a file, whole or not at all, or to standard output; *written is how many steps are in it. */
static ls_status write_trace(const ls_run *run, const trace_options *o, const char *out, int64_t *written)
{
    bool plain = !strcmp(out, "-");
    ls__file_writer *file = NULL;
    ls_status status = plain ? LS_OK : ls__file_writer_open_named(&file, out);
    if (status) return status;
    FILE *to = plain ? stdout : fopencookie(file, "w", (cookie_io_functions_t){ .write = pass_on });
    *written = to ? trace_write(to, run, o) : -1;
    bool failed = to && !plain && ferror(to);
    if (to && !plain && fclose(to)) failed = true;
    if (plain)
        exit_check_output(NULL);
    else if (failed)
        status = LS_EIO; /* the writer has said why */
    if (!status && *written < 0) status = ls__fail(LS_ENOMEM, "%s: out of memory", out);
    if (status || !*written)
        ls__file_writer_cancel(&file);
    else if (file)
        status = ls__file_writer_commit(&file);
    return status;
}

int trace_command(int argc, char **argv)
{
    const char *path = NULL, *out = "trace.json", *steps = NULL;
    const option_row rows[] = {
        { OPTION_TEXT, "-o", &out, "FILE", "output file; -: standard output (trace.json)", 0, 0, NULL },
        { OPTION_TEXT, "--steps", &steps, "A:B", "only steps A to B (all that were recorded)", 0, 0, NULL },
        { OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, NULL },
    };
    trace_options o = { .first = INT64_MIN, .last = INT64_MAX };
    int code = options_read("trace", intro, rows, &path, argc, argv);
    if (code >= 0) return code;
    if (!read_steps(steps, &o)) {
        fprintf(stderr, "lockstep trace: --steps %s: must be A:B, A:, :B or A, with A <= B\n", printable(steps));
        return EXIT_USAGE;
    }
    ls_run *run;
    if (!(path = last_run_or(path, "trace"))) return EXIT_USAGE;
    ls_status status = ls_run_open(&run, path, NULL);
    if (status) return exit_failure("trace", status);
    int64_t written = 0;
    status = write_trace(run, &o, out, &written);
    code = status ? exit_failure("trace", status) : EXIT_DONE;
    for (size_t i = 0; i < run->n_notes; i++) fprintf(stderr, "note: %s\n", note_describe(run, &run->notes[i]).text);
    if (code == EXIT_DONE && !written) {
        if (run->n_steps)
            fprintf(stderr, "lockstep trace: %s: none of these steps was recorded; it has steps %lld to %lld\n",
                    printable(path), (long long)run->steps[0].number, (long long)run->steps[run->n_steps - 1].number);
        else
            fprintf(stderr, "lockstep trace: %s: no complete step was recorded\n", printable(path));
        code = EXIT_FAILED;
    } else if (code == EXIT_DONE && strcmp(out, "-")) {
        int ranks = report_recorded(run);
        printf("%s: %lld step%s of %d rank%s; open it in ui.perfetto.dev\n", printable(out), (long long)written,
               written == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s");
    }
    ls_run_free(&run);
    return code;
}
