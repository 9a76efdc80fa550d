/* lockstep: finds the command and runs it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/suggest.h"
#include "cli/openmp_spin.h"
#include "lockstep/base.h"

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} command;

static int version(int argc, char **argv)
{
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        printf("usage: lockstep version\n\nPrints the version.\n");
        return EXIT_DONE;
    }
    if (argc > 1) {
        fprintf(stderr, "lockstep version: unexpected argument '%s'; it takes none\n", printable(argv[1]));
        return EXIT_USAGE;
    }
    printf("lockstep %s\n", ls_version());
    return EXIT_DONE;
}

static const command commands[] = {
    { "run", run_command, "launch a program as N ranks on this machine" },
    { "train", train_command, "train a model" },
    { "resize", resize_command, "change the number of ranks of an elastic run" },
    { "report", report_command, "show where the time went, who waits for whom, what to change" },
    { "predict", predict_command, "predict the step time of other set-ups" },
    { "tune", tune_command, "find the fastest settings for a training run" },
    { "checkpoint", checkpoint_command, "verify the checkpoints of a training run" },
    { "eval", eval_command, "compute loss, perplexity and bits per byte of a trained model" },
    { "generate", generate_command, "generate text with a trained model" },
    { "chat", chat_command, "talk with a trained model" },
    { "merge", merge_command, "add a LoRA adapter to its base model" },
    { "top", top_command, "monitor a training run live" },
    { "trace", trace_command, "export a run to Perfetto" },
    { "import", import_command, "convert PyTorch profiler traces to a run" },
    { "profile", profile_command, "show the time of each operation of a training run" },
    { "data", data_command, "tokenize, describe, stage and order training data" },
    { "bench", bench_command, "benchmark against MPI and Gloo" },
    { "doctor", doctor_command, "check the environment, report what is missing" },
    { "version", version, "print the version" },
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void help(FILE *to)
{
    fprintf(to, "usage: lockstep COMMAND [OPTIONS]\n\n"
                "Data-parallel training: the same bits on one rank or many.\n\n");
    for (int i = 0; i < COMMANDS; i++) fprintf(to, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fprintf(to, "\n'lockstep COMMAND --help' describes a command; 'man lockstep' is the manual.\n");
}

/* Shards may be many, and each that is read or staged takes a descriptor: what the system allows is used. */
static void allow_many_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* A file that we open must not become a standard stream: closed ones are opened such that reading or writing them fails. */
static void hold_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
}

static void ignore(int number)
{
    (void)number;
}

static int refuse(const char *name)
{
    near_word near = { .asked = name, .length = strlen(name) };
    for (int i = 0; i < COMMANDS; i++) near_offer(&near, commands[i].name);
    near_offer(&near, "--help");
    near_offer(&near, "--version");
    fprintf(stderr, "lockstep: unknown command '%s'%s%s 'lockstep --help' lists the commands\n", printable(name),
            near_text(&near), near.nearest ? "" : ";");
    return EXIT_USAGE;
}

static int run(int argc, char **argv)
{
    hold_descriptors();
    leave_first_place();
    /* Beyond 'ulimit -f' a write fails, and that is reported. A handler, unlike SIG_IGN, does not pass on to programs that we
     * start. */
    sigaction(SIGXFSZ, &(struct sigaction){ .sa_handler = ignore }, NULL);
    if (argc < 2) {
        help(stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    char *of_command[] = { argv[0], argc > 2 ? argv[2] : NULL, "--help", NULL }; /* 'lockstep help train' */
    if (!strcmp(name, "help") && argc > 2) {
        name = argv[2];
        argv = of_command;
        argc = 3;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        help(stdout);
        return EXIT_DONE;
    }
    if (!strcmp(name, "--version") || !strcmp(name, "-V")) name = "version";
    if (!strcmp(name, "keep")) return keep_command(argc - 1, argv + 1);
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(name, commands[i].name)) {
            bool trains = commands[i].run == train_command || commands[i].run == eval_command;
            bool generates = commands[i].run == generate_command || commands[i].run == chat_command;
            if (trains || generates) limit_openmp_spin(argv);
            if (trains || commands[i].run == data_command) allow_many_files();
            return commands[i].run(argc - 1, argv + 1);
        }
    return refuse(name);
}

int main(int argc, char **argv)
{
    /* One that started itself again has the name of the link in /proc that it was started by. */
    if (*program_invocation_short_name) prctl(PR_SET_NAME, program_invocation_short_name);
    return exit_closing_output(run(argc, argv));
}
