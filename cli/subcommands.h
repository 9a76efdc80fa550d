/* Commands that consist of subcommands: `lockstep data`, `lockstep bench`. */
#ifndef LS_CLI_SUBCOMMANDS_H
#define LS_CLI_SUBCOMMANDS_H

typedef struct subcommand {
    const char *name;                  /* NULL ends a list */
    int (*run)(int argc, char **argv); /* argv[0] is the name */
    const char *summary;
} subcommand;

/* Runs the one that argv[1] names, or prints help. Returns the exit code. `command`: "data". */
int subcommand_run(const char *command, const subcommand *list, int argc, char **argv);

#endif
