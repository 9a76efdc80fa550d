/* lockstep bench WHAT: benchmarks, also of other libraries for comparison. */
#include "cli/bench/allreduce.h"

#include <string.h>
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/help.h"
#include "cli/suggest.h"

static const struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} benchmarks[] = {
    { "allreduce", "all-reduce: time, bandwidth, % of peak bandwidth", bench_allreduce },
    { "ddp", "a training step on several ranks: overlap, bucket size, skipped and accumulated gradients", bench_ddp },
    { "loader", "batches per second by workers and prefetch, and waiting time of the trainer", bench_loader },
};
enum { BENCHMARKS = sizeof benchmarks / sizeof *benchmarks };

static void help(FILE *to)
{
    help_print(to, "usage: lockstep bench WHAT [OPTIONS]\n\n");
    for (int i = 0; i < BENCHMARKS; i++) {
        char line[200];
        snprintf(line, sizeof line, "  %-11s  %s\n", benchmarks[i].name, benchmarks[i].summary);
        help_print(to, line);
    }
    help_print(to, "\n'lockstep bench WHAT --help' describes one; see also lockstep-bench(1).\n");
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
    near_word near = { .asked = argv[1], .length = strlen(argv[1]) };
    for (int i = 0; i < BENCHMARKS; i++) {
        if (!strcmp(argv[1], benchmarks[i].name)) return benchmarks[i].run(argc - 1, argv + 1);
        near_offer(&near, benchmarks[i].name);
    }
    fprintf(stderr, "lockstep bench: unknown benchmark '%s'%s%s 'lockstep bench --help' lists the benchmarks\n",
            printable(argv[1]), near_text(&near), near.nearest ? "" : ";");
    return EXIT_USAGE;
}
