/* Options of `lockstep train` that would have no effect together with other options. They are refused, since the user expects an
 * effect. */
#include "cli/train_options.h"

#include <string.h>
#include "cli/commands.h"

static bool is_sgd(const train_arguments *a)
{
    return a->train.optimizer.kind == LS_SGD;
}

static bool is_adamw(const train_arguments *a)
{
    return a->train.optimizer.kind == LS_ADAMW;
}

static bool is_constant(const train_arguments *a)
{
    return a->train.schedule.kind == LS_SCHEDULE_CONSTANT;
}

static bool never_evaluates(const train_arguments *a)
{
    return !a->train.eval_every && !a->train.n_val_data && !(a->train.val_fraction > 0);
}

static bool has_no_checkpoints(const train_arguments *a)
{
    return a->train.no_checkpoint;
}

static bool has_no_workers(const train_arguments *a)
{
    return a->train.workers < 0;
}

static bool has_no_sample(const train_arguments *a)
{
    return !a->sample_tokens;
}

static bool is_not_elastic(const train_arguments *a)
{
    return !a->elastic;
}

static const struct {
    const char *option;
    bool (*is_idle)(const train_arguments *a);
    const char *why;
} rows[] = {
    { "--beta1", is_sgd, "it is for adamw; sgd has --momentum" },
    { "--beta2", is_sgd, "it is for adamw; sgd has --momentum" },
    { "--adam-eps", is_sgd, "it is for adamw; sgd has --momentum" },
    { "--momentum", is_adamw, "it is for sgd; add --optimizer sgd, or use --beta1" },
    { "--lr-end", is_constant, "the schedule is constant; choose another with --schedule" },
    { "--eval-batches", never_evaluates, "evaluation is off; turn it on with --eval-every" },
    { "--keep", has_no_checkpoints, "--no-checkpoint is set" },
    { "--prefetch", has_no_workers, "--workers is 0" },
    { "--prompt", has_no_sample, "--sample-tokens is 0" },
    { "--max-restarts", is_not_elastic, "it is for --elastic" },
};

bool train_option_given(const char *option, int argc, char **argv)
{
    size_t n = strlen(option);
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], option, n) && (!argv[i][n] || argv[i][n] == '=')) return true;
    return false;
}

bool train_option_is_idle(const char *option, const train_arguments *a)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].option, option) && rows[i].is_idle(a)) return true;
    return false;
}

int train_arguments_check(const train_arguments *a, int argc, char **argv)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].is_idle(a) && train_option_given(rows[i].option, argc, argv)) {
            fprintf(stderr, "lockstep train: %s has no effect: %s\n", rows[i].option, rows[i].why);
            return EXIT_USAGE;
        }
    return -1;
}
