/* lockstep data stage: copies files to a local disk, before a run or to measure whether staging pays. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/text.h"
#include "cli/commands.h"
#include "cli/data.h"
#include "cli/escape.h"
#include "cli/options.h"
#include "lockstep/data.h"

static const char intro[] =
    "usage: lockstep data stage --to FOLDER [OPTIONS] FILE...\n\n"
    "Copies data files to a folder on a local disk, where a run with --stage FOLDER finds them. Measures how fast\n"
    "originals and copies are read, and reports whether staging pays.\n\n";

static void print_verdict(FILE *to, const ls_stage_report *r)
{
    if (r->verdict == LS_STAGE_UNMEASURED) {
        fprintf(to, r->files == r->found ? "all copies existed already\n" : "not measured\n");
        return;
    }
    fprintf(to, "source %.1f MB/s, local %.1f MB/s: ", r->source_rate * 1e-6, r->local_rate * 1e-6);
    if (r->verdict == LS_STAGE_FASTER)
        fprintf(to, "%.1f times as fast; saves %.1f s of reading per epoch, took %.1f s\n",
                r->local_rate / r->source_rate, r->saved_seconds, r->seconds);
    else
        fprintf(to, "does not pay, the source is as fast\n");
}

int data_stage(int argc, char **argv)
{
    int64_t begin = ls_now();
    ls_stage_options o = { .strict = true, .progress = data_show_progress, .user = &begin };
    option_list files = { 0 };
    bool print = false, quiet = false;
    const option_row rows[] = {
        { OPTION_TEXT, "--to", &o.folder, "FOLDER", "folder for the copies", 0, 0, NULL },
        { OPTION_SIZE, "--limit", &o.limit, "BYTES",
          "limit of all copies, e.g. 200G; the oldest are removed first (the free space)", 0, 0, NULL },
        { OPTION_FLAG, "--verify", &o.verify, NULL, "check the checksums of existing copies", 0, 0, NULL },
        { OPTION_FLAG, "--print", &print, NULL, "print the path to read each file from", 0, 0, NULL },
        { OPTION_FLAG, "--quiet", &quiet, NULL, "do not show progress", 0, 0, NULL },
        { OPTION_FILES, "FILE", &files, "FILE", NULL, 0, 0, NULL },
        { 0 },
    };
    int code = options_read("data stage", intro, rows, NULL, argc, argv);
    if (code >= 0) return code;
    if (!o.folder) return data_missing("stage", "--to FOLDER");
    if (quiet) o.progress = NULL;
    ls_stage *stage;
    ls_log_set(data_show_log, NULL);
    ls_status status = ls_stage_open(&stage, (const char *const *)files.items, files.count, &o);
    if (status) return exit_failure("data stage", status);
    ls_stage_report r = ls_stage_get_report(stage);
    /* A program that reads the names gets them as they are. */
    bool people = isatty(STDOUT_FILENO);
    for (size_t i = 0; print && i < r.files; i++)
        printf("%s\n", people ? printable(ls_stage_path(stage, i)) : ls_stage_path(stage, i));
    FILE *to = print ? stderr : stdout;
    fprintf(to, "%zu file%s, %" PRIu64 " byte%s: %zu copied, %zu existed, %.1f s\n", r.files, ls__s((int64_t)r.files),
            r.bytes, ls__s((int64_t)r.bytes), r.copied, r.found, r.seconds);
    print_verdict(to, &r);
    ls_stage_free(&stage);
    return EXIT_DONE;
}
