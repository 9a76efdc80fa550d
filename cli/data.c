/* lockstep data: finds the subcommand and runs it. */
#include "cli/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/suggest.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} subcommands[] = {
    { "train-bpe", data_train_bpe, "train a tokenizer on text" },
    { "tokenize", data_tokenize, "convert text to token shards" },
    { "info", data_info, "describe and check data files" },
    { "stage", data_stage, "copy data files to a local disk" },
    { "order", data_order, "print the order of the samples" },
};
enum { SUBCOMMANDS = sizeof subcommands / sizeof *subcommands };

static void help(FILE *to)
{
    fprintf(to, "usage: lockstep data SUBCOMMAND [OPTIONS]\n\n");
    for (int i = 0; i < SUBCOMMANDS; i++) fprintf(to, "  %-12s %s\n", subcommands[i].name, subcommands[i].summary);
    fprintf(to, "\n'lockstep data SUBCOMMAND --help' describes one; see also lockstep-data(1).\n");
}

int data_missing(const char *subcommand, const char *what)
{
    fprintf(stderr, "lockstep data %s: %s is missing; see 'lockstep data %s --help'\n", subcommand, what, subcommand);
    return EXIT_USAGE;
}

void data_show_progress(void *user, uint64_t done, uint64_t total)
{
    const int64_t *begin = user;
    static int64_t shown;
    int64_t now = ls_now();
    if (!isatty(2) || (done < total && now - shown < 100000000)) return;
    shown = now;
    char bar[31];
    int full = total ? (int)(done * 30 / total) : 30;
    for (int i = 0; i < 30; i++) bar[i] = i < full ? '#' : '.';
    bar[30] = 0;
    double seconds = (double)(now - *begin + 1) * 1e-9, rate = (double)done / seconds;
    int left = rate > 0 ? (int)((double)(total - done) / rate + 0.5) : 0;
    fprintf(stderr, "\r[%s] %3d %%  %.1f of %.1f MB, %.1f MB/s", bar, total ? (int)(done * 100 / total) : 100,
            (double)done * 1e-6, (double)total * 1e-6, rate * 1e-6);
    if (done < total)
        fprintf(stderr, ", %d:%02d left\033[K", left / 60, left % 60);
    else
        fprintf(stderr, "\033[K\n");
}

void data_show_log(void *user, ls_log_level level, const char *text)
{
    (void)user;
    if (level >= LS_LOG_WARNING) fprintf(stderr, "lockstep data: %s\n", text);
}

int data_command(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        help(stdout);
        return EXIT_DONE;
    }
    for (int i = 0; i < SUBCOMMANDS; i++)
        if (!strcmp(argv[1], subcommands[i].name)) return subcommands[i].run(argc - 1, argv + 1);
    near_word near = { .asked = argv[1], .length = strlen(argv[1]) };
    for (int i = 0; i < SUBCOMMANDS; i++) near_offer(&near, subcommands[i].name);
    fprintf(stderr, "lockstep data: unknown subcommand '%s'%s%s 'lockstep data --help' lists the subcommands\n",
            printable(argv[1]), near_text(&near), near.nearest ? "" : ";");
    return EXIT_USAGE;
}
