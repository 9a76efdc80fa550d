/* Options of `lockstep train` that would have no effect together with other options. They are refused, since the user expects an
 * effect. */
#include "cli/train_options.h"

#include <string.h>
#include "cli/commands.h"

/* ---- Options of some optimizers. */

static const struct {
    const char *option, *member; /* of ls_optimizer_options */
} optimizer_options[] = {
    { "--beta1", "beta1" }, { "--beta2", "beta2" }, { "--adam-eps", "eps" }, { "--momentum", "momentum" }
};

#define X(name, value, text, members) [name] = { text, members },
static const struct {
    const char *name, *members;
} optimizers[] = { LS_OPTIMIZER_LIST(X) };
#undef X

static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return true;
    return false;
}

/* False: the option has an effect. Otherwise `why` is the reason. */
static bool is_for_another(const char *member, int kind, char *why, size_t bytes)
{
    if (has_word(optimizers[kind].members, member)) return false;
    size_t at = (size_t)snprintf(why, bytes, "it is for ");
    for (size_t i = 0, n = 0; i < LS_OPTIMIZER_COUNT && at < bytes; i++)
        if (has_word(optimizers[i].members, member))
            at += (size_t)snprintf(why + at, bytes - at, "%s%s", n++ ? ", " : "", optimizers[i].name);
    if (at < bytes) snprintf(why + at, bytes - at, "; choose it with --optimizer");
    return true;
}

/* ---- Other options. */

static bool is_constant(const train_arguments *a)
{
    return a->train.schedule.kind == LS_SCHEDULE_CONSTANT;
}

static bool never_evaluates(const train_arguments *a)
{
    return !a->train.eval_every && !a->train.n_val_data && !(a->train.val_fraction > 0) && !a->train.best &&
           !a->train.patience;
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
    return a->train.sample_tokens < 0;
}

static bool is_not_chat(const train_arguments *a)
{
    return !a->train.chat;
}

static bool is_not_elastic(const train_arguments *a)
{
    return !a->elastic;
}

static bool is_on_one_machine(const train_arguments *a)
{
    return !a->hosts && !a->hostfile;
}

static const struct {
    const char *option;
    bool (*is_idle)(const train_arguments *a);
    const char *why;
} rows[] = {
    { "--lr-end", is_constant, "the schedule is constant; choose another with --schedule" },
    { "--eval-batches", never_evaluates, "evaluation is off; turn it on with --eval-every" },
    { "--keep", has_no_checkpoints, "--no-checkpoint is set" },
    { "--prefetch", has_no_workers, "--workers is 0" },
    { "--sample-every", has_no_sample, "--sample-tokens is 0" },
    { "--prompt", has_no_sample, "--sample-tokens is 0" },
    { "--chat-template", is_not_chat, "it is for --chat" },
    { "--max-restarts", is_not_elastic, "it is for --elastic" },
    { "--rsh", is_on_one_machine, "it is for --hosts and --hostfile" },
    { "--machine-timeout", is_on_one_machine, "it is for --hosts and --hostfile" },
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
    char why[200];
    for (size_t i = 0; i < sizeof optimizer_options / sizeof *optimizer_options; i++)
        if (!strcmp(optimizer_options[i].option, option) &&
            is_for_another(optimizer_options[i].member, (int)a->train.optimizer.kind, why, sizeof why))
            return true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].option, option) && rows[i].is_idle(a)) return true;
    return false;
}

static int refuse(const char *option, const char *why)
{
    fprintf(stderr, "lockstep train: %s has no effect: %s\n", option, why);
    return EXIT_USAGE;
}

int train_arguments_check(const train_arguments *a, int argc, char **argv)
{
    char why[200];
    for (size_t i = 0; i < sizeof optimizer_options / sizeof *optimizer_options; i++)
        if (train_option_given(optimizer_options[i].option, argc, argv) &&
            is_for_another(optimizer_options[i].member, (int)a->train.optimizer.kind, why, sizeof why))
            return refuse(optimizer_options[i].option, why);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].is_idle(a) && train_option_given(rows[i].option, argc, argv))
            return refuse(rows[i].option, rows[i].why);
    return -1;
}
