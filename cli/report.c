/* lockstep report RUN: where the time of a training run went, who made whom wait and why, and what to change. The answers come from the
 * library (lockstep/measure.h); here they are put into words. */
#include "cli/report.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "cli/commands.h"
#include "cli/html.h"
#include "cli/last_run.h"
#include "cli/options.h"
#include "cli/report_import.h"

static const char intro[] =
    "usage: lockstep report [RUN] [OPTIONS]\n"
    "\n"
    "Reports where the time of a training run was spent, from the events that its ranks recorded: the phases of a step "
    "on each\n"
    "rank, who waited for whom and why, and what to change, most expensive first. RUN is the run folder\n"
    "(runs/last). For a run that is still running, was killed, or lacks ranks, the report covers what was recorded.\n";

static report_form form_of(FILE *to)
{
    struct winsize size;
    report_form form = { .to = to, .width = 100 };
    if (isatty(fileno(to))) {
        form.color = !getenv("NO_COLOR");
        if (!ioctl(fileno(to), TIOCGWINSZ, &size) && size.ws_col >= 40)
            form.width = size.ws_col < 140 ? size.ws_col : 140;
    }
    return form;
}

int report_command(int argc, char **argv)
{
    bool json = false;
    const char *path = NULL, *other = NULL, *html = NULL;
    const option_row rows[] = {
        { OPTION_FLAG, "--json", &json, NULL, "print everything as one JSON object", 0, 0, NULL },
        { OPTION_TEXT, "--compare", &other, "RUN2", "compare RUN with RUN2", 0, 0, NULL },
        { OPTION_TEXT, "--html", &html, "FILE", "write one self-contained HTML page with charts; -: standard output", 0,
          0, NULL },
        { OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, NULL },
    };
    int code = options_read("report", intro, rows, &path, argc, argv);
    if (code >= 0) return code;
    if (json && html) {
        fprintf(stderr, "lockstep report: --json and --html exclude each other\n");
        return EXIT_USAGE;
    }
    if (json && other) {
        fprintf(stderr, "lockstep report: --json and --compare exclude each other\n");
        return EXIT_USAGE;
    }
    ls_run *run = NULL, *second = NULL;
    if (!(path = last_run_or(path, "report"))) return EXIT_USAGE;
    report_form form = form_of(stdout);
    if (!html && !other && report_flight(path, &form, json)) return EXIT_DONE;
    ls_status status = ls_run_open(&run, path, NULL);
    if (!status && other) status = ls_run_open(&second, other, NULL);
    if (status) {
        ls_run_free(&run);
        return exit_failure("report", status);
    }
    if (html)
        status = html_write(run, second, html);
    else if (json)
        status = report_json(run, stdout);
    else if (second)
        report_compare(run, second, &form);
    else
        report_text(run, &form);
    code = status ? exit_failure("report", status) : EXIT_DONE;
    ls_run_free(&run);
    ls_run_free(&second);
    return code;
}
