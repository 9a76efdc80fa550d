/* The commands of the program. Each is one file, cli/NAME.c, with one entry point: argv[0] is the command's name, and
 * the result is the program's exit code. */
#ifndef LS_CLI_COMMANDS_H
#define LS_CLI_COMMANDS_H

/* Exit codes that all commands share; those of `run` that pass on a rank's fate are in lockstep-run(1). */
enum {
    EXIT_DONE = 0,
    EXIT_FAILED = 1, /* the work was begun and failed */
    EXIT_USAGE = 2,  /* the command line or its input cannot be right; nothing was begun */
};

int data_command(int argc, char **argv);
int generate_command(int argc, char **argv);
int checkpoint_command(int argc, char **argv);
int report_command(int argc, char **argv);
int train_command(int argc, char **argv);
int profile_command(int argc, char **argv);
int top_command(int argc, char **argv);
int trace_command(int argc, char **argv);
int run_command(int argc, char **argv);
int doctor_command(int argc, char **argv);
int bench_command(int argc, char **argv);

#endif
