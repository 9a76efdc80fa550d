/* See start_ranks.h. */
#include "cli/start_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include "cli/launch.h"

int start_ranks(int ranks, double grace, int argc, char **argv)
{
    return start_ranks_with(&(launch_options){ .ranks = ranks, .grace = grace }, argc, argv);
}

int start_ranks_with(const launch_options *options, int argc, char **argv)
{
    launch_options launch = *options;
    launch.no_prefix = launch.no_stdin = launch.own_voice = true;
    launch.hold_signals = launch.grace > 0;
    const char **words = calloc((size_t)argc + 2, sizeof *words);
    if (!words) {
        fprintf(stderr, "lockstep %s: out of memory\n", argv[0]);
        return EXIT_FAILED;
    }
    words[0] = launch_self();
    for (int i = 0; i < argc; i++) words[1 + i] = argv[i];
    int code = launch_ranks(&launch, (char **)words);
    free(words);
    return code;
}
