/* lockstep checkpoint verify FILES: whether checkpoints are intact. */
#include <stdio.h>
#include <string.h>
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/help.h"
#include "lockstep/train.h"

static const char help_text[] =
    "usage: lockstep checkpoint verify FILE...\n"
    "\n"
    "Reads checkpoints (RUN/checkpoints/*.ckpt) from beginning to end and compares them with their\n"
    "checksums. Prints one line per file; exits with 1 if a file is corrupt, with 2 if it does not exist.\n";

int checkpoint_command(int argc, char **argv)
{
    if (argc >= 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        help_print(stdout, help_text);
        return EXIT_DONE;
    }
    if (argc < 3 || strcmp(argv[1], "verify") != 0) {
        fprintf(stderr,
                "lockstep checkpoint: usage: lockstep checkpoint verify FILE...; see 'lockstep checkpoint --help'\n");
        return EXIT_USAGE;
    }
    int code = EXIT_DONE;
    for (int i = 2; i < argc; i++) {
        ls_checkpoint_info info;
        ls_status status = ls_checkpoint_verify(argv[i], &info);
        if (status) {
            fprintf(stderr, "lockstep checkpoint: %s\n", ls_error());
            if (!code) code = exit_code_of_check(status);
        } else {
            printf("%s: intact; step %lld, %.2fM elements, %.1f MiB\n", printable(argv[i]), (long long)info.step,
                   (double)info.elements / 1e6, (double)info.bytes / (1 << 20));
        }
    }
    return code;
}
