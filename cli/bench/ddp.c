/* lockstep bench ddp: options, and the choice between starting ranks and being one.
 *
 * Started alone, it starts itself twice: with ranks on this machine, and with one rank on each of two hosts made of network
 * namespaces, joined by a slow link (the script `cluster` makes them). Inside a world it measures. */
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/status.h"
#include "base/thread.h"
#include "cli/bench/allreduce.h"
#include "cli/bench/ddp.h"
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/launch.h"
#include "cli/options.h"
#include "comm/launcher.h"

#define NAME "lockstep bench ddp"

static const char intro[] =
    "usage: lockstep bench ddp [OPTIONS]\n\n"
    "Trains a GPT on several ranks. Reports the phases of a step with and without overlap, the effect of the\n"
    "bucket size, what skipping synchronization saves, and what accumulating gradients without no_sync would\n"
    "cost. First on this machine, then on two simulated hosts with a slow link, made of network namespaces (needs\n"
    "root or user namespaces, iproute2 and Open MPI). Under 'lockstep run' or mpirun: on its ranks.\n";

const char *const ddp_part_names[DDP_PARTS + 1] = { "breakdown", "buckets", "skip", "accumulate", NULL };

/* ---- Options. */

static bool parse_parts(ddp_bench *b)
{
    for (const char *p = b->parts_text; *p; p += *p == ',') {
        size_t n = strcspn(p, ",");
        int k = 0;
        while (k < DDP_PARTS && (strlen(ddp_part_names[k]) != n || strncmp(p, ddp_part_names[k], n) != 0)) k++;
        if (k == DDP_PARTS) {
            fprintf(stderr, NAME ": --parts: unknown part '%.*s'; must be breakdown, buckets, skip or accumulate\n",
                    (int)n, p);
            return false;
        }
        b->parts[k] = true;
        p += n;
    }
    return true;
}

static bool parse_buckets(ddp_bench *b)
{
    for (const char *p = b->buckets_text; b->n_buckets < DDP_MAX_LIST; p++) {
        char *end;
        double mib = strtod(p, &end);
        if (end == p || !(mib >= 1e-3 && mib <= 1e6) || (*end && *end != ',')) break;
        b->buckets[b->n_buckets++] = mib;
        if (!*end) return true;
        p = end;
    }
    fprintf(stderr, NAME ": --buckets %s: must be up to %d numbers of MiB >= 0.001, separated by commas\n",
            b->buckets_text, DDP_MAX_LIST);
    return false;
}

/* -1 to continue, or an exit code. */
static int parse(ddp_bench *b, int argc, char **argv)
{
    const option_row rows[] = {
        { OPTION_INT, "-n", &b->ranks, "N", "ranks on this machine (one per core, at least 2)", 1, LAUNCH_MAX_RANKS,
          NULL },
        { OPTION_TEXT, "--parts", &b->parts_text, "LIST", "parts: breakdown, buckets, skip, accumulate (all)", 0, 0,
          NULL },
        { OPTION_TEXT, "--buckets", &b->buckets_text, "LIST", "bucket sizes in MiB (0.05,0.25,1,4,25,100)", 0, 0,
          NULL },
        { OPTION_TEXT, "--link", &b->link, "RATE", "rate of the link between the hosts, as in tc(8) (500mbit)", 0, 0,
          NULL },
        { OPTION_FLAG, "--one-node", &b->one_node, NULL, "only on this machine, without the two hosts", 0, 0, NULL },
        { OPTION_INT, "--layers", &b->layers, "N", "transformer blocks (6)", 1, 1e4, NULL },
        { OPTION_INT, "--width", &b->width, "N", "embedding dimension (256)", 1, 1e5, NULL },
        { OPTION_INT, "--vocab-size", &b->vocab_size, "N", "vocabulary size (1024)", 2, 1e7, NULL },
        { OPTION_INT, "--seq-len", &b->seq_len, "N", "sequence length in tokens (64)", 1, 1e6, NULL },
        { OPTION_INT, "--batch-size", &b->batch_size, "N", "micro-batch size per rank, for breakdown and buckets (24)",
          1, 1e6, NULL },
        { OPTION_INT, "--micro-batch-size", &b->micro_batch_size, "N",
          "micro-batch size per rank, for skip and accumulate (1)", 1, 1e6, NULL },
        { OPTION_INT, "--threads", &b->threads, "N", "threads per rank (1)", 1, 4096, NULL },
        { OPTION_INT, "--steps", &b->steps, "N", "steps to measure per row, in three rounds (6)", 1, 1e6, NULL },
        { OPTION_TEXT, "--plot", &b->plot, "NAME", "draw each part: NAME-breakdown.svg and so on; NAME.png: as PNG", 0,
          0, NULL },
        { OPTION_FLAG, "--json", &b->json, NULL, "print one JSON object per line instead of tables", 0, 0, NULL },
        { OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, NULL },
    };
    int code = options_read("bench ddp", intro, rows, NULL, argc, argv);
    if (code >= 0) return code;
    if (!parse_parts(b) || !parse_buckets(b)) return EXIT_USAGE;
    if (strspn(b->link, "0123456789abcdefghijklmnopqrstuvwxyzGKM") != strlen(b->link) || !*b->link) {
        fprintf(stderr, NAME ": --link: invalid rate '%s'; must be like 1gbit or 500mbit\n", printable(b->link));
        return EXIT_USAGE;
    }
    return -1;
}

static void add_row(ddp_bench *b, ddp_row row)
{
    if (b->parts[row.part]) b->table[b->n_rows++] = row;
}

/* All rows that were asked for. */
static void make_rows(ddp_bench *b)
{
    for (int overlap = 0; overlap < 2; overlap++)
        add_row(b,
                (ddp_row){
                    .part = DDP_BREAKDOWN, .no_overlap = !overlap, .micro_batches = 1, .batch_size = b->batch_size });
    for (int i = 0; i < b->n_buckets; i++)
        add_row(b, (ddp_row){ .part = DDP_BUCKETS,
                              .bucket_bytes = (size_t)(b->buckets[i] * (1 << 20)),
                              .micro_batches = 1,
                              .batch_size = b->batch_size });
    for (int n = 1; n <= 8; n *= 2)
        add_row(b, (ddp_row){ .part = DDP_SKIP, .micro_batches = n, .batch_size = b->micro_batch_size });
    for (int no_sync = 0; no_sync < 2; no_sync++)
        add_row(b, (ddp_row){ .part = DDP_ACCUMULATE,
                              .micro_batches = DDP_MICRO_BATCHES,
                              .sync_each = !no_sync,
                              .batch_size = b->micro_batch_size });
}

/* ---- Inside a rank. */

static int measure(ddp_bench *b)
{
    int rank = 0;
    make_rows(b);
    ls_status status = ddp_measure(b, &rank);
    if (!status && rank == 0) {
        ddp_report(b, stdout);
        if (b->plot) status = ddp_report_plots(b);
    }
    for (int i = 0; i < b->n_rows; i++) free(b->table[i].samples);
    return status ? exit_failure("bench ddp", status) : EXIT_DONE;
}

/* ---- Starting ranks. */

/* The script that makes hosts, in the source folder of a build or where it was installed. */
static bool find_cluster(char *out, size_t room)
{
    static const char *const places[] = { "../bench/cluster", "../libexec/lockstep/cluster" };
    const char *self = launch_self(), *slash = strrchr(self, '/');
    for (int i = 0; i < 2; i++) {
        snprintf(out, room, "%.*s/%s", slash ? (int)(slash - self) : 0, self, places[i]);
        if (!access(out, X_OK)) return true;
    }
    return false;
}

static int wait_for(const char *const *words)
{
    pid_t pid;
    int how;
    if (posix_spawnp(&pid, words[0], NULL, NULL, (char *const *)(uintptr_t)words, environ) ||
        waitpid(pid, &how, 0) != pid)
        return EXIT_FAILED;
    return WIFEXITED(how) ? WEXITSTATUS(how) : EXIT_FAILED;
}

static int on_hosts(const ddp_bench *b, int argc, char **argv)
{
    char script[4096], hosts[64];
    if (!find_cluster(script, sizeof script)) {
        fprintf(stderr, NAME ": two hosts: the script 'cluster' was not found; only this machine was measured\n");
        return EXIT_DONE;
    }
    const char *check[] = { script, "check", NULL };
    fflush(stdout);
    int code = wait_for(check); /* says itself why not */
    if (code) {
        fprintf(stderr, NAME ": cannot simulate two hosts here; only this machine was measured\n");
        return EXIT_DONE;
    }
    snprintf(hosts, sizeof hosts, "2:%s", b->link);
    const char *const begin[] = { script,
                                  "run",
                                  hosts,
                                  script,
                                  "openmpi",
                                  "--host",
                                  "node0:1,node1:1",
                                  "-n",
                                  "2",
                                  "-x",
                                  "OMP_NUM_THREADS",
                                  launch_self(),
                                  "bench" };
    enum { BEGIN = sizeof begin / sizeof *begin };
    const char **words = calloc((size_t)argc + BEGIN + 1, sizeof *words);
    if (!words) return EXIT_FAILED;
    memcpy(words, begin, sizeof begin);
    int n = BEGIN;
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "-n"))
            i++; /* of this machine */
        else
            words[n++] = argv[i];
    }
    setenv("OMP_NUM_THREADS", "1", 0);
    code = wait_for(words);
    free(words);
    return code;
}

static int on_this_machine(const ddp_bench *b, int argc, char **argv)
{
    int cores = ls__cpu_count();
    launch_options launch = { .ranks = b->ranks    ? b->ranks
                                       : cores < 2 ? 2
                                                   : cores,
                              .no_prefix = true,
                              .no_stdin = true,
                              .own_voice = true };
    const char **words = calloc((size_t)argc + 3, sizeof *words);
    if (!words) return EXIT_FAILED;
    words[0] = launch_self();
    words[1] = "bench";
    for (int i = 0; i < argc; i++) words[2 + i] = argv[i];
    int code = launch_ranks(&launch, (char **)(uintptr_t)words);
    free(words);
    return code;
}

static const char *environment(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

int bench_ddp(int argc, char **argv)
{
    static ddp_bench b;
    ls__launch_info identity;
    b = (ddp_bench){ .layers = 6,
                     .width = 256,
                     .vocab_size = 1024,
                     .seq_len = 64,
                     .batch_size = 24,
                     .micro_batch_size = 1,
                     .threads = 1,
                     .steps = 6,
                     .parts_text = "breakdown,buckets,skip,accumulate",
                     .buckets_text = "0.05,0.25,1,4,25,100",
                     .link = "500mbit" };
    int code = parse(&b, argc, argv);
    if (code >= 0) return code;
    ls_status status = ls__launch_info_read(&identity, environment, NULL);
    if (status) return exit_failure("bench ddp", status);
    if (identity.launcher != LS__LAUNCHER_NONE) return measure(&b);
    code = on_this_machine(&b, argc, argv);
    if (!code && !b.one_node) code = on_hosts(&b, argc, argv);
    return code;
}
