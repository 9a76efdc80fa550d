/* lockstep bench allreduce: its options; starts the ranks, or measures as one of them.
 *
 * Started alone, the program checks its options and starts itself once per rank; inside a world (its own children's,
 * `lockstep run`'s, mpirun's) it measures. Both read the same command line. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "base/thread.h"
#include "cli/bench/allreduce.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/launch.h"
#include "comm/launcher.h"
#include "comm/job.h"

#define NAME "lockstep bench allreduce"

static const char help_text[] =
    "usage: lockstep bench allreduce [OPTIONS]\n"
    "\n"
    "All-reduces float32 arrays in place among the ranks of this machine. Reports the time, bytes per\n"
    "second, and % of peak bandwidth: the bound is T >= 2*p*n/B, where B is the rate at which all ranks copy at once\n"
    "with streaming stores, the best of the same run. Buffers are rewritten between rounds.\n"
    "\n"
    "  -n N             ranks to start; default: one per core, at least 2. Under 'lockstep run' or mpirun: its ranks\n"
    "  --sizes LIST     array sizes, e.g. 4,1K,25M (powers of 1024); default: 4 B to 100 MiB\n"
    "  --seconds S      measuring time; default: 3\n  --user-owned     buffers that the caller allocated, not job "
    "memory\n"
    "  --against PEER   also measure a peer, alternating: mpi (Open MPI), mpich, or a command (see the manual)\n"
    "  --figure ddp     60 million float32 in chunks of 10 thousand to 20 million, as in the DDP paper\n"
    "  --plot FILE      draw the result: FILE.svg, or FILE.png where rsvg-convert is installed\n"
    "  --json           print one JSON object per line instead of a table\n"
    "  --help           this text\n";

static const char default_sizes[] = "4,64,1K,4K,16K,64K,256K,1M,4M,25M,100M";

/* "25M" becomes a number of bytes. */
static ls_status parse_size(const char *text, size_t length, size_t *out)
{
    char copy[32];
    if (length == 0 || length >= sizeof copy) goto fail;
    memcpy(copy, text, length);
    copy[length] = 0;
    char *end;
    errno = 0;
    unsigned long long n = strtoull(copy, &end, 10);
    if (errno || end == copy || copy[0] == '-' || copy[0] == '+') goto fail;
    static const struct {
        const char *unit;
        int shift;
    } units[] = { { "", 0 },   { "B", 0 },    { "K", 10 }, { "KiB", 10 }, { "k", 10 },
                  { "M", 20 }, { "MiB", 20 }, { "G", 30 }, { "GiB", 30 } };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(end, units[i].unit)) {
            if (n == 0 || n > ((1ull << 40) >> units[i].shift))
                return ls__fail(LS_EINVAL, "--sizes: '%s' is not between 4 bytes and 1024 GiB", copy);
            *out = (size_t)n << units[i].shift;
            if (*out % 4) return ls__fail(LS_EINVAL, "--sizes: '%s' must be a multiple of 4 bytes (a float32)", copy);
            return LS_OK;
        }
fail:
    return ls__fail(LS_EINVAL, "--sizes: invalid size '%.*s'; must be like 4, 16K, 25M or 1G, separated by commas",
                    (int)(length < 100 ? length : 100), text);
}

static ls_status parse_sizes(bench_options *o, const char *list)
{
    o->row_count = 0;
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ","), bytes = 0;
        ls_status status = parse_size(at, length, &bytes);
        if (status) return status;
        if (o->row_count == BENCH_MAX_ROWS) return ls__fail(LS_EINVAL, "--sizes: more than %d sizes", BENCH_MAX_ROWS);
        o->rows[o->row_count++] = (bench_row){ .total = bytes, .chunk = bytes };
        at += length;
        if (!*at) return LS_OK;
    }
}

/* The DDP paper's figure of communication delay. */
static ls_status set_figure(bench_options *o, const char *which)
{
    if (strcmp(which, "ddp")) return ls__fail(LS_EINVAL, "--figure: unknown figure '%s'; must be ddp", which);
    static const int thousands[] = { 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000 };
    o->figure = true;
    o->row_count = 0;
    for (size_t i = 0; i < sizeof thousands / sizeof *thousands; i++)
        o->rows[o->row_count++] =
            (bench_row){ .total = (size_t)60000000 * 4, .chunk = (size_t)thousands[i] * 1000 * 4 };
    return LS_OK;
}

static ls_status parse_number(const char *option, const char *text, double least, double most, double *out)
{
    char *end;
    *out = strtod(text, &end);
    if (end == text || *end || !(*out >= least && *out <= most))
        return ls__fail(LS_EINVAL, "%s: '%s' must be a number from %g to %g", option, text, least, most);
    return LS_OK;
}

static ls_status check_plot(const char *file)
{
    size_t n = strlen(file);
    if (n > 4 && (!strcmp(file + n - 4, ".svg") || !strcmp(file + n - 4, ".png"))) return LS_OK;
    return ls__fail(LS_EINVAL, "--plot: '%s' must end in .svg or .png", file);
}

/* LS_END: help was asked for. */
static ls_status parse(bench_options *o, int argc, char **argv)
{
    enum { SIZES = 256, SECONDS, USER_OWNED, AGAINST, FIGURE, PLOT, JSON };
    static const struct option longs[] = {
        { "sizes", required_argument, NULL, SIZES },
        { "seconds", required_argument, NULL, SECONDS },
        { "user-owned", no_argument, NULL, USER_OWNED },
        { "against", required_argument, NULL, AGAINST },
        { "figure", required_argument, NULL, FIGURE },
        { "plot", required_argument, NULL, PLOT },
        { "json", no_argument, NULL, JSON },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    const char *sizes = NULL;
    double number;
    ls_status status = LS_OK;
    optind = 1;
    opterr = 0;
    for (int c; !status && (c = getopt_long(argc, argv, "+:n:h", longs, NULL)) != -1;) {
        switch (c) {
        case 'n':
            status = parse_number("-n", optarg, 1, LS__JOB_MAX_RANKS, &number);
            if (!status && number != (int)number) status = ls__fail(LS_EINVAL, "-n: '%s' must be an integer", optarg);
            if (!status) o->ranks = (int)number;
            break;
        case SIZES: status = parse_sizes(o, sizes = optarg); break;
        case SECONDS: status = parse_number("--seconds", optarg, 0, 1e9, &o->seconds); break;
        case USER_OWNED: o->user_owned = true; break;
        case AGAINST: status = bench_peer_check(o->against = optarg); break;
        case FIGURE: status = set_figure(o, optarg); break;
        case PLOT: status = check_plot(o->plot = optarg); break;
        case JSON: o->json = true; break;
        case 'h': return LS_END;
        case ':': return ls__fail(LS_EINVAL, "%s needs a value", argv[optind - 1]);
        default: return ls__fail(LS_EINVAL, "unknown option '%s'", argv[optind - 1]);
        }
    }
    if (!status && optind < argc) status = ls__fail(LS_EINVAL, "unexpected argument '%s'", argv[optind]);
    if (!status && sizes && o->figure) status = ls__fail(LS_EINVAL, "--figure sets the sizes; leave out --sizes");
    if (!status && !o->row_count) status = parse_sizes(o, default_sizes);
    return status;
}

/* Inside a world: measures, and on rank 0 reports. */
static int run(bench_options *o)
{
    int rank = 0;
    ls_status status = bench_measure(o, &rank);
    if (!status && rank == 0) {
        bench_report(o, stdout);
        if (o->plot) status = bench_report_plot(o);
    }
    if (status) fprintf(stderr, NAME ": %s\n", ls_error());
    return exit_code(status);
}

static const char *environment(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

/* Outside a world: starts the same command once per rank. */
static int start(const bench_options *o, int argc, char **argv)
{
    int cores = ls__cpu_count();
    launch_options launch = { .ranks = o->ranks    ? o->ranks
                                       : cores < 2 ? 2
                                                   : cores,
                              .no_prefix = true,
                              .no_stdin = true };
    /* A peer's turn may take long, and the ranks that wait meanwhile are not missing. */
    if (o->against) launch.timeout = -1;
    const char **words = calloc((size_t)argc + 3, sizeof *words);
    if (!words) {
        fprintf(stderr, NAME ": out of memory\n");
        return EXIT_FAILED;
    }
    words[0] = launch_self();
    words[1] = "bench";
    for (int i = 0; i < argc; i++) words[2 + i] = argv[i];
    int code = launch_ranks(&launch, (char **)words);
    free(words);
    return code;
}

int bench_allreduce(int argc, char **argv)
{
    bench_options o = { .seconds = 3 };
    ls__launch_info identity;
    ls_status status = parse(&o, argc, argv);
    if (status == LS_END) {
        help_print(stdout, help_text);
        return EXIT_DONE;
    }
    if (!status) status = ls__launch_info_read(&identity, environment, NULL);
    if (status) {
        fprintf(stderr, NAME ": %s; see '" NAME " --help'\n", ls_error());
        return EXIT_USAGE;
    }
    int code = identity.launcher == LS__LAUNCHER_NONE && o.ranks != 1 ? start(&o, argc, argv) : run(&o);
    bench_options_release(&o);
    return code;
}
