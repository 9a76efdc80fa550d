/* lockstep run: starts a program as the ranks of a world on this machine. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/thread.h"
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/help.h"
#include "cli/launch.h"
#include "cli/options.h"
#include "cli/suggest.h"

static const char help[] =
    "usage: lockstep run -n N [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
    "\n"
    "Launches PROGRAM as N ranks on this machine and waits until all have ended.\n"
    "\n"
    "  -n, --nproc-per-node N  ranks to start; 'cpu' or 'auto': one per core (default 1)\n"
    "      --timeout SECONDS   how long a rank may be missing or stopped; 'none': forever (default 30)\n"
    "      --grace SECONDS     time for the other ranks to end after one failed (default 0.5)\n"
    "      --max-restarts K    restart all ranks after a failure, at most K times (default 0)\n"
    "      --elastic           when a rank is killed, restart at once from the last ls_elastic_commit(); up to "
    "--max-restarts\n"
    "                          lost ranks are replaced, after that the job continues with fewer\n"
    "      --no-prefix         do not prefix output lines with '[RANK] '\n"
    "      --log-dir DIR       write output to DIR/rank_R/stdout.log and stderr.log instead\n"
    "  -r, --redirects SPEC    which output: 0 none, 1 stdout, 2 stderr, 3 both; or per rank: 0:3,1:2\n"
    "  -t, --tee SPEC          which output to both files and terminal, in the same form\n"
    "      --stdin 0|none      which rank reads standard input: 0 (default) or none\n"
    "      --no-bind           do not divide the cores among the ranks\n"
    "  -v, --verbose           print the process id and cores of each rank\n  -h, --help              this text\n"
    "\n"
    "torchrun's options are accepted: --nproc_per_node, --max_restarts, --standalone, --nnodes 1,\n"
    "--master-addr, --master-port, --rdzv-id, --role ... torchrun's variables (RANK, WORLD_SIZE...) are set.\n"
    "\n"
    "Exit code: 0; the code of the first rank that failed, or 128 + N if signal N killed it; 124: timeout,\n"
    "126: not executable, 127: program not found, 2: invalid usage. See lockstep-run(1).\n";

/* Long options beyond those with a letter. */
enum {
    TIMEOUT = 256,
    GRACE,
    MAX_RESTARTS,
    ELASTIC,
    NO_PREFIX,
    LOG_DIR,
    STDIN,
    NO_BIND,
    MASTER_ADDR,
    MASTER_PORT,
    RUN_ID,
    ROLE,
    NNODES,
    NODE_RANK,
    IGNORED,
};

static const struct option options[] = {
    { "nproc-per-node", required_argument, NULL, 'n' },
    { "timeout", required_argument, NULL, TIMEOUT },
    { "grace", required_argument, NULL, GRACE },
    { "max-restarts", required_argument, NULL, MAX_RESTARTS },
    { "elastic", no_argument, NULL, ELASTIC },
    { "no-prefix", no_argument, NULL, NO_PREFIX },
    { "log-dir", required_argument, NULL, LOG_DIR },
    { "redirects", required_argument, NULL, 'r' },
    { "tee", required_argument, NULL, 't' },
    { "stdin", required_argument, NULL, STDIN },
    { "no-bind", no_argument, NULL, NO_BIND },
    { "verbose", no_argument, NULL, 'v' },
    { "help", no_argument, NULL, 'h' },
    { "master-addr", required_argument, NULL, MASTER_ADDR },
    { "master-port", required_argument, NULL, MASTER_PORT },
    { "rdzv-id", required_argument, NULL, RUN_ID },
    { "role", required_argument, NULL, ROLE },
    { "nnodes", required_argument, NULL, NNODES },
    { "node-rank", required_argument, NULL, NODE_RANK },
    /* torchrun's, with nothing to do here: one machine, no rendezvous, no Python of our own. */
    { "standalone", no_argument, NULL, IGNORED },
    { "no-python", no_argument, NULL, IGNORED },
    { "rdzv-backend", required_argument, NULL, IGNORED },
    { "rdzv-endpoint", required_argument, NULL, IGNORED },
    { "rdzv-conf", required_argument, NULL, IGNORED },
    { "local-addr", required_argument, NULL, IGNORED },
    { "start-method", required_argument, NULL, IGNORED },
    { "monitor-interval", required_argument, NULL, IGNORED },
    { NULL, 0, NULL, 0 },
};

static int refuse_option(const char *argument, const char *why)
{
    near_word near = { .asked = argument + strspn(argument, "-"), .length = strcspn(argument, "=") };
    near.length -= strspn(argument, "-");
    for (const struct option *o = options; o->name; o++) near_offer(&near, o->name);
    if (near.nearest && strlen(near.nearest) == near.length && !near.distance) near.nearest = NULL;
    fprintf(stderr, "lockstep run: %s %s%s%s 'lockstep run --help' lists the options\n", printable(argument), why,
            near_text(&near), near.nearest ? "" : ";");
    return EXIT_USAGE;
}

static int wrong(const char *option, const char *value, const char *expected)
{
    fprintf(stderr, "lockstep run: %s %s: must be %s\n", option, *value ? printable(value) : "''", expected);
    return EXIT_USAGE;
}

static int read_int(const char *option, const char *text, long low, long high, int *out)
{
    char expected[64];
    uint64_t v;
    if (!options_parse_size(text, &v) || v < (uint64_t)low || v > (uint64_t)high) {
        snprintf(expected, sizeof expected, low == high ? "%ld" : "a number from %ld to %ld", low, high);
        return wrong(option, text, expected);
    }
    *out = (int)v;
    return 0;
}

static int read_seconds(const char *option, const char *text, double *out)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !(v >= 0.001 && v <= 1e6))
        return wrong(option, text,
                     !strcmp(option, "--timeout") ? "seconds from 0.001 to 1000000, or none"
                                                  : "seconds from 0.001 to 1000000");
    *out = v;
    return 0;
}

static int read_ranks(const char *text, int *out)
{
    if (!strcmp(text, "cpu") || !strcmp(text, "auto")) {
        *out = ls__cpu_count();
        return 0;
    }
    if (!strcmp(text, "gpu")) return wrong("-n", text, "a number, 'cpu' or 'auto'; lockstep trains on CPUs");
    return read_int("-n", text, 1, LAUNCH_MAX_RANKS, out);
}

static int set_option(launch_options *o, int option, const char *value)
{
    int ignored;
    switch (option) {
    case 'n': return read_ranks(value, &o->ranks);
    case 'r': o->redirects = value; return 0;
    case 't': o->tee = value; return 0;
    case 'v': o->verbose = true; return 0;
    case TIMEOUT:
        if (!strcmp(value, "none")) {
            o->timeout = -1;
            return 0;
        }
        return read_seconds("--timeout", value, &o->timeout);
    case GRACE: return read_seconds("--grace", value, &o->grace);
    case MAX_RESTARTS: return read_int("--max-restarts", value, 0, 1000000, &o->max_restarts);
    case ELASTIC: o->elastic = true; return 0;
    case NO_PREFIX: o->no_prefix = true; return 0;
    case LOG_DIR: o->log_dir = value; return *value ? 0 : wrong("--log-dir", value, "a folder");
    case STDIN:
        if (strcmp(value, "0") && strcmp(value, "none")) return wrong("--stdin", value, "'0' or 'none'");
        o->no_stdin = *value == 'n';
        return 0;
    case NO_BIND: o->no_bind = true; return 0;
    case MASTER_ADDR: o->master_addr = value; return 0;
    case MASTER_PORT: o->master_port = value; return read_int("--master-port", value, 1, 65535, &ignored);
    case RUN_ID: o->run_id = value; return 0;
    case ROLE: o->role = value; return 0;
    case NNODES:
        if (!strcmp(value, "1") || !strcmp(value, "1:1")) return 0;
        return wrong("--nnodes", value,
                     "1; lockstep run starts ranks on this machine only, across machines use mpirun or srun");
    case NODE_RANK: return read_int("--node-rank", value, 0, 0, &ignored);
    default: return 0;
    }
}

/* torchrun takes --max_restarts for --max-restarts: dashes for underscores in the names of long options. Only
 * arguments before the program are changed, and getopt stops there. */
static void plain_dashes(char *argument)
{
    if (strncmp(argument, "--", 2)) return;
    for (char *c = argument; *c && *c != '='; c++)
        if (*c == '_') *c = '-';
}

int run_command(int argc, char **argv)
{
    launch_options o = { .ranks = 1 };
    opterr = 0;
    for (;;) {
        if (optind < argc) plain_dashes(argv[optind]);
        int at = optind, option = getopt_long(argc, argv, "+:n:r:t:vh", options, NULL);
        if (option == -1) break;
        if (option == 'h') {
            help_print(stdout, help);
            return EXIT_DONE;
        }
        if (option == ':' || option == '?') {
            return option == ':'
                       ? refuse_option(argv[at], "needs a value")
                       : refuse_option(argv[at], strchr(argv[at], '=') ? "is an unknown option, or takes no value"
                                                                       : "is an unknown option");
        }
        int code = set_option(&o, option, optarg);
        if (code) return code;
    }
    if (optind >= argc) {
        fprintf(stderr, "lockstep run: no program to run; usage: lockstep run -n N -- PROGRAM ARGUMENTS\n");
        return EXIT_USAGE;
    }
    return launch_ranks(&o, argv + optind);
}
