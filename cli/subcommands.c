/* See subcommands.h. */
#include "cli/subcommands.h"

#include <stdio.h>
#include <string.h>
#include "cli/escape.h"
#include "cli/exit_codes.h"
#include "cli/help.h"
#include "cli/suggest.h"

static void help(FILE *to, const char *command, const subcommand *list)
{
    char line[200];
    snprintf(line, sizeof line, "usage: lockstep %s SUBCOMMAND [OPTIONS]\n\n", command);
    help_print(to, line);
    for (const subcommand *s = list; s->name; s++) {
        snprintf(line, sizeof line, "  %-11s  %s\n", s->name, s->summary);
        help_print(to, line);
    }
    snprintf(line, sizeof line, "\n'lockstep %s SUBCOMMAND --help' describes one; see also lockstep-%s(1).\n", command,
             command);
    help_print(to, line);
}

int subcommand_run(const char *command, const subcommand *list, int argc, char **argv)
{
    if (argc < 2) {
        help(stderr, command, list);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        help(stdout, command, list);
        return EXIT_DONE;
    }
    near_word near = { .asked = argv[1], .length = strlen(argv[1]) };
    for (const subcommand *s = list; s->name; s++) {
        if (!strcmp(argv[1], s->name)) return s->run(argc - 1, argv + 1);
        near_offer(&near, s->name);
    }
    fprintf(stderr, "lockstep %s: unknown subcommand '%s'%s%s 'lockstep %s --help' lists the subcommands\n", command,
            printable(argv[1]), near_text(&near), near.nearest ? "" : ";", command);
    return EXIT_USAGE;
}
