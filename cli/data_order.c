/* lockstep data order: prints the samples that a rank gets, one a line, in the order in which it gets them. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/commands.h"
#include "cli/data.h"
#include "lockstep/data.h"

static const char usage[] =
    "usage: lockstep data order --samples N [OPTIONS]\n\n"
    "Prints the indices of the samples that a rank gets in an epoch, one a line.\n\n"
    "  --samples N       how many samples there are\n"
    "  --order ORDER     shuffled (default), sequential, torch, balanced (needs --lengths)\n"
    "  --ranks W         how many ranks there are (1)\n"
    "  --rank R          which one to print (0)\n"
    "  --slots V         micro-batches of a step over all ranks (W)\n"
    "  --batch-size B    samples of a micro-batch (1)\n"
    "  --seed S          (0)\n"
    "  --epoch E         (0)\n"
    "  --from STEP       begin at this step (0)\n"
    "  --steps COUNT     print so many steps (to the end of the epoch)\n"
    "  --drop-last       leave out what does not fill a step; torch: what the ranks cannot share evenly\n"
    "  --no-shuffle      torch: DistributedSampler(shuffle=False)\n"
    "  --lengths FILE    balanced: the samples' lengths, one number a line\n";

typedef struct order_options {
    ls_sampler_options sampler;
    uint64_t rank, epoch, from, steps;
    const char *lengths_path;
} order_options;

/* EXIT_DONE when all options are understood; otherwise what is wrong has been said. */
static int parse(int argc, char **argv, order_options *o)
{
    enum { SAMPLES, ORDER, RANKS, RANK, SLOTS, ROWS, SEED, EPOCH, FROM, STEPS, DROP_LAST, NO_SHUFFLE, LENGTHS, HELP };
    static const struct option options[] = {
        { "samples", 1, NULL, SAMPLES }, { "order", 1, NULL, ORDER },         { "ranks", 1, NULL, RANKS },
        { "rank", 1, NULL, RANK },       { "slots", 1, NULL, SLOTS },         { "batch-size", 1, NULL, ROWS },
        { "seed", 1, NULL, SEED },       { "epoch", 1, NULL, EPOCH },         { "from", 1, NULL, FROM },
        { "steps", 1, NULL, STEPS },     { "drop-last", 0, NULL, DROP_LAST }, { "no-shuffle", 0, NULL, NO_SHUFFLE },
        { "lengths", 1, NULL, LENGTHS }, { "help", 0, NULL, HELP },           { 0 },
    };
    static const struct {
        uint64_t least, most;
    } ranges[] = {
        [SAMPLES] = { 1, UINT64_C(1) << 62 },
        [RANKS] = { 1, 1 << 20 },
        [RANK] = { 0, 1 << 20 },
        [SLOTS] = { 1, 1 << 20 },
        [ROWS] = { 1, 1 << 20 },
        [SEED] = { 0, UINT64_MAX },
        [EPOCH] = { 0, UINT64_C(1) << 48 },
        [FROM] = { 0, UINT64_MAX },
        [STEPS] = { 0, UINT64_MAX },
    };
    uint64_t numbers[STEPS + 1] = { [RANKS] = 1, [ROWS] = 1, [STEPS] = UINT64_MAX };
    optind = 1;
    for (int c, index; (c = getopt_long(argc, argv, "", options, &index)) != -1;) {
        switch (c) {
        case HELP: fputs(usage, stdout); exit(EXIT_DONE);
        case ORDER:
            if (!ls_order_parse(optarg, &o->sampler.order)) break;
            fprintf(stderr, "lockstep data order: %s\n", ls_error());
            return EXIT_USAGE;
        case DROP_LAST: o->sampler.drop_last = true; break;
        case NO_SHUFFLE: o->sampler.no_shuffle = true; break;
        case LENGTHS: o->lengths_path = optarg; break;
        case '?': return EXIT_USAGE;
        default:
            if (!data_parse_number(options[index].name, optarg, ranges[c].least, ranges[c].most, &numbers[c]))
                return EXIT_USAGE;
        }
    }
    if (optind < argc || !numbers[SAMPLES]) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    o->sampler.samples = numbers[SAMPLES];
    o->sampler.ranks = (int)numbers[RANKS];
    o->sampler.slots = (int)numbers[SLOTS];
    o->sampler.rows = numbers[ROWS];
    o->sampler.seed = numbers[SEED];
    o->rank = numbers[RANK];
    o->epoch = numbers[EPOCH];
    o->from = numbers[FROM];
    o->steps = numbers[STEPS];
    if (o->rank < numbers[RANKS]) return EXIT_DONE;
    fprintf(stderr, "lockstep data order: there is no rank %" PRIu64 " among %" PRIu64 "\n", o->rank, numbers[RANKS]);
    return EXIT_USAGE;
}

/* The lengths of the samples, one a line; NULL after saying what is wrong. */
static uint64_t *read_lengths(const char *path, uint64_t samples)
{
    FILE *f = fopen(path, "r");
    if (!f) {
        fprintf(stderr, "lockstep data order: %s: %m\n", path);
        return NULL;
    }
    uint64_t *lengths = calloc(samples, sizeof *lengths), n = 0;
    while (lengths && n < samples && fscanf(f, "%" SCNu64, &lengths[n]) == 1) n++;
    fclose(f);
    if (lengths && n == samples) return lengths;
    fprintf(stderr, "lockstep data order: %s: %" PRIu64 " lengths are needed, line %" PRIu64 " is none\n", path,
            samples, n + 1);
    free(lengths);
    return NULL;
}

static uint64_t length_of(void *user, uint64_t sample)
{
    return ((const uint64_t *)user)[sample];
}

static ls_status print(ls_sampler *sampler, const order_options *o)
{
    int slots = o->sampler.slots ? o->sampler.slots : o->sampler.ranks, own = slots / o->sampler.ranks;
    uint64_t *samples = malloc(o->sampler.rows * sizeof *samples);
    uint64_t steps = ls_sampler_steps(sampler);
    ls_status status = samples ? LS_OK : LS_ENOMEM;
    for (uint64_t step = o->from; !status && step < steps && step - o->from < o->steps; step++) {
        for (int slot = 0; !status && slot < own; slot++) {
            size_t count = 0;
            status = ls_sampler_get(sampler, o->epoch, step, (int)o->rank * own + slot, samples, &count);
            for (size_t i = 0; !status && i < count; i++) printf("%" PRIu64 "\n", samples[i]);
        }
    }
    free(samples);
    return status;
}

int data_order(int argc, char **argv)
{
    order_options o = { 0 };
    ls_sampler *sampler = NULL;
    int code = parse(argc, argv, &o);
    if (code != EXIT_DONE) return code;
    uint64_t *lengths = NULL;
    if (o.lengths_path) {
        lengths = read_lengths(o.lengths_path, o.sampler.samples);
        if (!lengths) return EXIT_USAGE;
        o.sampler.length = length_of;
        o.sampler.user = lengths;
    }
    ls_status status = ls_sampler_open(&sampler, &o.sampler);
    if (!status) status = print(sampler, &o);
    if (status) {
        fprintf(stderr, "lockstep data order: %s\n", ls_error());
        code = status == LS_EINVAL ? EXIT_USAGE : EXIT_FAILED;
    } else if (fflush(stdout)) {
        perror("lockstep data order: writing");
        code = EXIT_FAILED;
    }
    ls_sampler_free(&sampler);
    free(lengths);
    return code;
}
