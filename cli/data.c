/* lockstep data: finds the subcommand and runs it. */
#include "cli/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/commands.h"
#include "cli/options.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} subcommands[] = {
    { "train-bpe", data_train_bpe, "learn a tokenizer from text" },
    { "tokenize", data_tokenize, "turn text into shards of tokens" },
    { "info", data_info, "describe and check files" },
    { "stage", data_stage, "copy files to a disk of this machine" },
    { "order", data_order, "print which samples come in which order" },
};
enum { SUBCOMMANDS = sizeof subcommands / sizeof *subcommands };

static void help(FILE *to)
{
    fprintf(to, "usage: lockstep data SUBCOMMAND [OPTIONS]\n\n");
    for (int i = 0; i < SUBCOMMANDS; i++) fprintf(to, "  %-12s %s\n", subcommands[i].name, subcommands[i].summary);
    fprintf(to, "\n'lockstep data SUBCOMMAND --help' explains one; lockstep-data(1) tells the whole story.\n");
}

int data_parse_number(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    uint64_t value;
    if (options_parse_size(text, &value) && value >= least && value <= most) {
        *out = value;
        return 1;
    }
    fprintf(stderr, "lockstep data: --%s '%s': not a whole number from %ju to %ju\n", option, text, (uintmax_t)least,
            (uintmax_t)most);
    return 0;
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
    fprintf(stderr, "\r[%s] %3d %%  %.1f of %.1f MB, %.1f MB/s ", bar, total ? (int)(done * 100 / total) : 100,
            (double)done * 1e-6, (double)total * 1e-6, (double)done * 1e3 / (double)(now - *begin + 1));
    if (done >= total) fputc('\n', stderr);
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
    fprintf(stderr, "lockstep data: there is no subcommand '%s'; 'lockstep data --help' lists them\n", argv[1]);
    return EXIT_USAGE;
}
