/* lockstep data order: prints the samples that a rank gets, one per line, in order. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "cli/commands.h"
#include "cli/data.h"
#include "cli/escape.h"
#include "cli/options.h"
#include "lockstep/data.h"
#include "lockstep/ddp.h"

static const char intro[] = "usage: lockstep data order --samples N [OPTIONS]\n\n"
                            "Prints the indices of the samples that a rank gets in an epoch, one per line.\n\n";

typedef struct order_options {
    ls_sampler_options sampler;
    uint64_t rank, epoch, from, steps;
    const char *lengths_path;
    bool work;
} order_options;

/* -1 to continue, or an exit code. */
static int parse(int argc, char **argv, order_options *o)
{
#define X(name, value, text) text,
    static const char *const orders[] = { LS_ORDER_LIST(X) NULL };
#undef X
    ls_sampler_options *s = &o->sampler;
    int order = 0, rank = 0, batch_size = 1;
    int64_t epoch = 0, from = 0, steps = INT64_MAX;
    const double many = 1 << 20, any = 1e18;
    s->world_size = 1;
    const option_row table[] = {
        { OPTION_SIZE, "--samples", &s->samples, "N", "number of samples", 0, 0, NULL },
        { OPTION_CHOICE, "--order", &order, "ORDER", "{} (shuffled); balanced needs --lengths", 0, 0, orders },
        { OPTION_INT, "--ranks", &s->world_size, "W", "number of ranks (1)", 1, many, NULL },
        { OPTION_INT, "--rank", &rank, "R", "rank to print (0)", 0, many, NULL },
        { OPTION_INT, "--slots", &s->slots, "V", "micro-batches per step over all ranks (one each)", 1, many, NULL },
        { OPTION_INT, "--batch-size", &batch_size, "B", "micro-batch size per rank (1)", 1, many, NULL },
        { OPTION_SEED, "--seed", &s->seed, "S", "seed of the permutation (0)", 0, 0, NULL },
        { OPTION_LONG, "--epoch", &epoch, "E", "epoch, from 0 (0)", 0, 281474976710656, NULL },
        { OPTION_LONG, "--from", &from, "STEP", "first step (0)", 0, any, NULL },
        { OPTION_LONG, "--steps", &steps, "COUNT", "number of steps (to the end of the epoch)", 0, any, NULL },
        { OPTION_FLAG, "--drop-last", &s->drop_last, NULL,
          "drop samples that do not fill a step (torch: its drop_last)", 0, 0, NULL },
        { OPTION_FLAG, "--drop-step", &s->drop_step, NULL, "torch: DataLoader's drop_last", 0, 0, NULL },
        { OPTION_FLAG, "--no-shuffle", &s->no_shuffle, NULL, "torch: DistributedSampler(shuffle=False)", 0, 0, NULL },
        { OPTION_TEXT, "--lengths", &o->lengths_path, "FILE", "lengths of the samples, one number per line", 0, 0,
          NULL },
        { OPTION_FLAG, "--work", &o->work, NULL, "print padded work and critical path instead; needs --lengths", 0, 0,
          NULL },
        { 0 },
    };
    int code = options_read("data order", intro, table, NULL, argc, argv);
    if (code >= 0) return code;
    if (!s->samples) return data_missing("order", "--samples N");
    s->order = (ls_order)order;
    s->batch_size = (size_t)batch_size;
    o->rank = (uint64_t)rank;
    o->epoch = (uint64_t)epoch;
    o->from = (uint64_t)from;
    o->steps = (uint64_t)steps;
    if (s->order == LS_ORDER_BALANCED && !o->lengths_path)
        return data_missing("order", "--lengths FILE, which --order balanced needs,");
    if (o->work && !o->lengths_path) return data_missing("order", "--lengths FILE, which --work needs,");
    if (s->no_shuffle && s->order != LS_ORDER_TORCH) {
        fprintf(stderr, "lockstep data order: --no-shuffle is for --order torch; use --order sequential\n");
        return EXIT_USAGE;
    }
    if (rank < s->world_size) return -1;
    fprintf(stderr, "lockstep data order: --rank %d: must be less than --ranks %d\n", rank, s->world_size);
    return EXIT_USAGE;
}

/* The lengths of the samples, one per line; NULL after printing an error. */
static uint64_t *read_lengths(const char *path, uint64_t samples)
{
    FILE *f = fopen(path, "r");
    if (!f) {
        fprintf(stderr, "lockstep data order: %s: %m\n", printable(path));
        return NULL;
    }
    uint64_t *lengths = calloc(samples, sizeof *lengths), n = 0;
    char word[24] = "", *end;
    while (lengths && n < samples && fscanf(f, "%23s", word) == 1) {
        errno = 0;
        lengths[n] = strtoull(word, &end, 10);
        if (*end || errno || *word < '0' || *word > '9') break;
        n++;
    }
    bool more = n == samples && fscanf(f, "%23s", word) == 1;
    fclose(f);
    if (lengths && n == samples && !more) return lengths;
    if (more) {
        fprintf(stderr, "lockstep data order: %s: has more than %" PRIu64 " length%s; --samples must be their number\n",
                printable(path), samples, ls__s((int64_t)samples));
        free(lengths);
        return NULL;
    }
    fprintf(stderr, "lockstep data order: %s: %" PRIu64 " length%s needed; line %" PRIu64 " is not a number\n",
            printable(path), samples, samples == 1 ? " is" : "s are", n + 1);
    free(lengths);
    return NULL;
}

static uint64_t length_of(void *user, uint64_t sample)
{
    return ((const uint64_t *)user)[sample];
}

static ls_status print(ls_sampler *sampler, const order_options *o)
{
    int slots = o->sampler.slots ? o->sampler.slots : o->sampler.world_size, first = 0, own = 0;
    uint64_t *samples = malloc(o->sampler.batch_size * sizeof *samples);
    uint64_t steps = ls_sampler_steps(sampler);
    ls_status status = samples ? ls_slots_of_rank(slots, o->sampler.world_size, (int)o->rank, &first, &own) : LS_ENOMEM;
    for (uint64_t step = o->from; !status && step < steps && step - o->from < o->steps; step++) {
        for (int slot = 0; !status && slot < own; slot++) {
            size_t count = 0;
            status = ls_sampler_get_samples(sampler, o->epoch, step, first + slot, samples, &count);
            for (size_t i = 0; !status && i < count; i++) printf("%" PRIu64 "\n", samples[i]);
        }
    }
    free(samples);
    return status;
}

/* The work of an epoch if every micro-batch is padded to its longest sample: a step takes as long as its slowest rank. */
static ls_status print_work(ls_sampler *sampler, const order_options *o, const uint64_t *lengths)
{
    int slots = o->sampler.slots ? o->sampler.slots : o->sampler.world_size, ranks = o->sampler.world_size;
    uint64_t *samples = malloc(o->sampler.batch_size * sizeof *samples);
    uint64_t steps = ls_sampler_steps(sampler);
    double tokens = 0, padded = 0, critical = 0;
    ls_status status = samples ? LS_OK : LS_ENOMEM;
    for (uint64_t step = o->from; !status && step < steps && step - o->from < o->steps; step++) {
        double slowest = 0, work = 0;
        int rank = 0, first = 0, own = 0; /* whose slots these are */
        for (int slot = 0; !status && slot < slots; slot++) {
            size_t count = 0;
            uint64_t longest = 0;
            status = ls_sampler_get_samples(sampler, o->epoch, step, slot, samples, &count);
            for (size_t i = 0; !status && i < count; i++) {
                uint64_t length = lengths[samples[i]];
                tokens += (double)length;
                if (length > longest) longest = length;
            }
            if (slot == first + own) {
                if (!status) status = ls_slots_of_rank(slots, ranks, rank++, &first, &own);
                work = 0;
            }
            work += (double)count * (double)longest;
            padded += (double)count * (double)longest;
            if (work > slowest) slowest = work;
        }
        critical += slowest;
    }
    double least = tokens / ranks;
    if (!status)
        printf("tokens %.0f\npadded %.0f (%.3fx)\ncritical path %.0f (%.3fx)\n", tokens, padded,
               tokens > 0 ? padded / tokens : 1, critical, least > 0 ? critical / least : 1);
    free(samples);
    return status;
}

int data_order(int argc, char **argv)
{
    order_options o = { 0 };
    ls_sampler *sampler = NULL;
    int code = parse(argc, argv, &o);
    if (code >= 0) return code;
    code = EXIT_DONE;
    uint64_t *lengths = NULL;
    if (o.lengths_path) {
        lengths = read_lengths(o.lengths_path, o.sampler.samples);
        if (!lengths) return EXIT_USAGE;
        o.sampler.length = length_of;
        o.sampler.user = lengths;
    }
    ls_status status = ls_sampler_open(&sampler, &o.sampler);
    if (!status) status = o.work ? print_work(sampler, &o, lengths) : print(sampler, &o);
    if (status) {
        code = exit_failure("data order", status);
    }
    ls_sampler_free(&sampler);
    free(lengths);
    return code;
}
