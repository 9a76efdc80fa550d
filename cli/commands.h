/* The commands of the program. Each is one file, cli/NAME.c, with one entry point: argv[0] is the command's name, and
 * the result is the program's exit code. */
#ifndef LS_CLI_COMMANDS_H
#define LS_CLI_COMMANDS_H

#include "cli/exit_codes.h"

int data_command(int argc, char **argv);
int eval_command(int argc, char **argv);
int import_command(int argc, char **argv);
int chat_command(int argc, char **argv);
int generate_command(int argc, char **argv);
int checkpoint_command(int argc, char **argv);
int merge_command(int argc, char **argv);
int report_command(int argc, char **argv);
int train_command(int argc, char **argv);
int predict_command(int argc, char **argv);
int profile_command(int argc, char **argv);
int top_command(int argc, char **argv);
int tune_command(int argc, char **argv);
int trace_command(int argc, char **argv);
int resize_command(int argc, char **argv);
int keep_command(int argc, char **argv); /* not for users: see keeper.c */
int run_command(int argc, char **argv);
int doctor_command(int argc, char **argv);
int bench_command(int argc, char **argv);

#endif
