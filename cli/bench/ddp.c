/* lockstep bench ddp: its options, and the choice between starting ranks (ddp_start.c) and being one (ddp_measure.c). */
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "cli/bench/allreduce.h"
#include "cli/bench/ddp.h"
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/launch.h"
#include "cli/options.h"
#include "comm/launcher.h"

#define NAME "lockstep bench ddp"

static const char intro[] = "usage: lockstep bench ddp [OPTIONS]\n\n"
                            "The figures of the paper on PyTorch's DistributedDataParallel and the table of "
                            "Accelerate's documentation, on this machine, with a small ResNet "
                            "and a small BERT; then some of them on two simulated hosts with a slow link, made of "
                            "network namespaces (needs root or user namespaces, iproute2 "
                            "and Open MPI). If python3 has torch, its numbers are shown beside ours. Under 'lockstep "
                            "run' or mpirun: on its ranks alone. docs/guide/reproduce.md "
                            "lists which figure is which.\n";

const char *const ddp_part_names[DDP_PARTS + 1] = {
#define X(name, text) #text,
    DDP_PART_LIST(X)
#undef X
        NULL
};

/* Turns a list of words into flags. */
static bool parse_words(const char *option, const char *text, const char *const *words, bool *flags)
{
    for (const char *p = text; *p; p += *p == ',') {
        size_t n = strcspn(p, ",");
        int k = 0;
        while (words[k] && (strlen(words[k]) != n || strncmp(p, words[k], n) != 0)) k++;
        if (!words[k]) {
            fprintf(stderr, NAME ": %s: unknown word '%.*s'; must be of", option, (int)n, printable(p));
            for (k = 0; words[k]; k++) fprintf(stderr, "%s %s", k ? "," : "", words[k]);
            fputc('\n', stderr);
            return false;
        }
        flags[k] = true;
        p += n;
    }
    return true;
}

static bool parse_buckets(ddp_bench *b)
{
    for (const char *p = b->buckets_text; b->n_buckets < DDP_MAX_LIST; p++) {
        char *end;
        double mib = strtod(p, &end);
        if (end == p || !(mib == 0 || (mib >= 1e-3 && mib <= 1e6)) || (*end && *end != ',')) break;
        b->buckets[b->n_buckets++] = mib;
        if (!*end) return true;
        p = end;
    }
    fprintf(stderr, NAME ": --buckets %s: must be up to %d numbers of MiB, 0 or >= 0.001, separated by commas\n",
            b->buckets_text, DDP_MAX_LIST);
    return false;
}

/* -1 to continue, or an exit code. */
static int parse(ddp_bench *b, int argc, char **argv)
{
    const option_row rows[] = {
        { OPTION_INT, "-n", &b->ranks, "N", "ranks on this machine (one per core, at least 2)", 1, LAUNCH_MAX_RANKS,
          NULL },
        { OPTION_TEXT, "--parts", &b->parts_text, "LIST",
          "allreduce, ready, breakdown, buckets, scaling, skip, accuracy, groups, accumulate (all; on the hosts "
          "breakdown, buckets, accumulate)",
          0, 0, NULL },
        { OPTION_TEXT, "--models", &b->models_text, "LIST", "resnet, bert (both; on the hosts bert)", 0, 0, NULL },
        { OPTION_FLAG, "--full", &b->full, NULL,
          "all parts and models on the hosts, too, more steps and ranks, 60 million parameters in all-reduce", 0, 0,
          NULL },
        { OPTION_TEXT, "--peer", &b->peer, "PYTHON", "interpreter with torch, or none (python3)", 0, 0, NULL },
        { OPTION_TEXT, "--buckets", &b->buckets_text, "LIST",
          "bucket sizes in MiB; 0: one per parameter (0,0.25,1,4,25)", 0, 0, NULL },
        { OPTION_TEXT, "--link", &b->link, "RATE", "rate of the link between the hosts, as in tc(8) (500mbit)", 0, 0,
          NULL },
        { OPTION_FLAG, "--one-node", &b->one_node, NULL, "only on this machine, without the two hosts", 0, 0, NULL },
        { OPTION_INT, "--layers", &b->layers, "N", "bert: transformer blocks (4)", 1, 1e4, NULL },
        { OPTION_INT, "--width", &b->width, "N",
          "bert: embedding dimension (128); resnet: an eighth are its first channels", 1, 1e5, NULL },
        { OPTION_INT, "--vocab-size", &b->vocab_size, "N", "bert: vocabulary size (2048)", 2, 1e7, NULL },
        { OPTION_INT, "--seq-len", &b->seq_len, "N", "bert: sequence length in tokens (64)", 2, 1e6, NULL },
        { OPTION_INT, "--batch-size", &b->batch_size, "N",
          "micro-batch size per rank (8); resnet: twice as many images", 1, 1e6, NULL },
        { OPTION_INT, "--threads", &b->threads, "N", "threads per rank (1)", 1, 4096, NULL },
        { OPTION_INT, "--steps", &b->steps, "N", "steps to measure per row, in three rounds (6; --full: 12)", 1, 1e6,
          NULL },
        { OPTION_TEXT, "--plot", &b->plot, "NAME",
          "draw each part: NAME-bert-breakdown.svg and so on; NAME.png: as PNG", 0, 0, NULL },
        { OPTION_FLAG, "--json", &b->json, NULL, "print one JSON object per line instead of tables", 0, 0, NULL },
        { OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, NULL },
    };
    int code = options_read("bench ddp", intro, rows, NULL, argc, argv);
    if (code >= 0) return code;
    if (b->parts_text && !parse_words("--parts", b->parts_text, ddp_part_names, b->parts)) return EXIT_USAGE;
    if (b->models_text && !parse_words("--models", b->models_text, ddp_model_names, b->models)) return EXIT_USAGE;
    if (!parse_buckets(b)) return EXIT_USAGE;
    if (strspn(b->link, "0123456789abcdefghijklmnopqrstuvwxyzGKM") != strlen(b->link) || !*b->link) {
        fprintf(stderr, NAME ": --link: invalid rate '%s'; must be like 1gbit or 500mbit\n", printable(b->link));
        return EXIT_USAGE;
    }
    for (int i = 0; i < DDP_PARTS; i++) b->parts[i] |= !b->parts_text;
    for (int i = 0; i < DDP_MODELS; i++) b->models[i] |= !b->models_text;
    return -1;
}

/* As a rank. */
static int measure(const ddp_bench *b)
{
    int rank = 0;
    json_t *rows = json_array();
    ls_status status = rows ? ddp_measure(b, &rank, rows) : ls__fail(LS_ENOMEM, "out of memory");
    if (!status && rank == 0) {
        ddp_report(b, rows, stdout);
        if (b->plot) status = ddp_plots(b, rows);
    }
    json_decref(rows);
    return status ? exit_failure("bench ddp", status) : EXIT_DONE;
}

static const char *environment(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

int bench_ddp(int argc, char **argv)
{
    ls__launch_info identity;
    ddp_bench b = { .layers = 4,
                    .width = 128,
                    .vocab_size = 2048,
                    .seq_len = 64,
                    .batch_size = 8,
                    .threads = 1,
                    .buckets_text = "0,0.25,1,4,25",
                    .link = "500mbit" };
    int code = parse(&b, argc, argv);
    if (code >= 0) return code;
    ls_status status = ls__launch_info_read(&identity, environment, NULL);
    if (status) return exit_failure("bench ddp", status);
    return identity.launcher != LS__LAUNCHER_NONE ? measure(&b) : ddp_start(&b);
}
