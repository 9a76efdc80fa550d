/* lockstep data stage: copies files to a disk of this machine, ahead of a run or just to see whether it pays. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "cli/commands.h"
#include "cli/data.h"
#include "lockstep/data.h"

static const char usage[] =
    "usage: lockstep data stage --to FOLDER [OPTIONS] FILE...\n\n"
    "Copies files to a folder on a disk of this machine, where a run with --stage FOLDER finds them; measures how "
    "fast\n"
    "both are read, and says whether it pays.\n\n"
    "  --to FOLDER      where copies live\n"
    "  --limit BYTES    what all copies together may take, like 200G; those not used for longest go first\n"
    "                   (what the disk has room for)\n"
    "  --verify         check the checksums of copies that are there already\n"
    "  --print          print where each file is to be read\n"
    "  --quiet          no progress\n";

int data_stage(int argc, char **argv)
{
    enum { TO = 256, LIMIT, VERIFY, PRINT, QUIET, HELP };
    static const struct option options[] = { { "to", 1, NULL, TO },
                                             { "limit", 1, NULL, LIMIT },
                                             { "verify", 0, NULL, VERIFY },
                                             { "print", 0, NULL, PRINT },
                                             { "quiet", 0, NULL, QUIET },
                                             { "help", 0, NULL, HELP },
                                             { 0 } };
    int64_t begin = ls_now();
    ls_stage_options o = { .strict = true, .progress = data_show_progress, .user = &begin };
    bool print = false;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        switch (c) {
        case 'h':
        case HELP: fputs(usage, stdout); return EXIT_DONE;
        case TO: o.folder = optarg; break;
        case LIMIT:
            if (!data_parse_number("limit", optarg, 1, UINT64_MAX, &o.limit)) return EXIT_USAGE;
            break;
        case VERIFY: o.verify = true; break;
        case PRINT: print = true; break;
        case QUIET: o.progress = NULL; break;
        default: return EXIT_USAGE;
        }
    }
    if (!o.folder || optind == argc) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    ls_stage *stage;
    ls_log_set(data_show_log, NULL);
    ls_status status = ls_stage_open(&stage, (const char *const *)(argv + optind), (size_t)(argc - optind), &o);
    if (status) {
        fprintf(stderr, "lockstep data stage: %s\n", ls_error());
        return EXIT_FAILED;
    }
    ls_stage_report r = ls_stage_report_get(stage);
    char verdict[200];
    ls_stage_verdict(&r, verdict, sizeof verdict);
    for (size_t i = 0; print && i < r.files; i++) printf("%s\n", ls_stage_path(stage, i));
    fprintf(print ? stderr : stdout, "%zu files, %" PRIu64 " bytes: %zu copied, %zu were there, %.1f s\n%s\n", r.files,
            r.bytes, r.copied, r.found, r.seconds, verdict);
    ls_stage_free(&stage);
    return EXIT_DONE;
}
