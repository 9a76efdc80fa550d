/* A command with -n N starts itself once per rank. */
#ifndef LS_CLI_START_RANKS_H
#define LS_CLI_START_RANKS_H

struct launch_options;

/* `argv[0]` is the command. When a rank fails, the others have `grace` seconds to end by themselves (0: launch.h's default),
 * and their own handlers for signals (launch.h's hold_signals). Returns an exit code when all ranks have ended. */
int start_ranks(int ranks, double grace, int argc, char **argv);
/* The same with options of the launcher; `ranks` and `grace` are among them. */
int start_ranks_with(const struct launch_options *options, int argc, char **argv);

#endif
