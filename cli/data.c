/* lockstep data: its subcommands, and what they share. */
#include "cli/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/commands.h"
#include "cli/subcommands.h"

int data_missing(const char *name, const char *what)
{
    fprintf(stderr, "lockstep data %s: %s is missing; see 'lockstep data %s --help'\n", name, what, name);
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
    static const subcommand subcommands[] = {
        { "train-bpe", data_train_bpe, "train a tokenizer on text" },
        { "tokenize", data_tokenize, "convert text to token shards" },
        { "info", data_info, "describe and check data files" },
        { "stage", data_stage, "copy data files to a local disk" },
        { "order", data_order, "print the order of the samples" },
        { NULL, NULL, NULL },
    };
    return subcommand_run("data", subcommands, argc, argv);
}
