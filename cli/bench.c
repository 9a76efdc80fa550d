/* lockstep bench: benchmarks, also of other libraries for comparison. */
#include "cli/bench/allreduce.h"

#include "cli/commands.h"
#include "cli/subcommands.h"

int bench_command(int argc, char **argv)
{
    static const subcommand benchmarks[] = {
        { "allreduce", bench_allreduce, "all-reduce: time, bandwidth, % of peak bandwidth" },
        { "ddp", bench_ddp,
          "a training step on several ranks: overlap, bucket size, skipped and accumulated gradients" },
        { "loader", bench_loader, "batches per second by workers and prefetch, and waiting time of the trainer" },
        { NULL, NULL, NULL },
    };
    return subcommand_run("bench", benchmarks, argc, argv);
}
