/* lockstep bench WHAT: measures, beside a peer if wanted. */
#include "cli/bench.h"

#include <string.h>
#include "cli/commands.h"
#include "cli/escape.h"

static void help(FILE *to)
{
    fprintf(to, "usage: lockstep bench WHAT [OPTIONS]\n\n"
                "  allreduce    all-reduce among ranks: time, bandwidth, share of what the memory allows\n"
                "  ddp          a training step on several ranks: overlap, buckets, skipped and accumulated gradients\n"
                "  loader       batches a second by workers and prefetch, and how long a trainer waits for them\n\n"
                "'lockstep bench WHAT --help' explains one; see also lockstep-bench(1).\n");
}

int bench_command(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        help(stdout);
        return EXIT_DONE;
    }
    if (!strcmp(argv[1], "allreduce")) return bench_allreduce(argc - 1, argv + 1);
    if (!strcmp(argv[1], "ddp")) return bench_ddp(argc - 1, argv + 1);
    if (!strcmp(argv[1], "loader")) return bench_loader(argc - 1, argv + 1);
    fprintf(stderr, "lockstep bench: there is no benchmark '%s'; 'lockstep bench --help' lists them\n",
            printable(argv[1]));
    return EXIT_USAGE;
}
