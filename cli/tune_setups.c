/* See tune_setups.h. */
#include "cli/tune_setups.h"

#include <stdio.h>
#include <string.h>
#include "base/text.h"

enum { FEW_CORES = 4 }; /* on more, layouts that leave half of them idle are left out */

void tune_setup_options(const tune_setup *s, char *out, size_t bytes)
{
    *out = 0;
    if (s->ranks) ls__append(out, bytes, " -n %d", s->ranks);
    if (s->threads) ls__append(out, bytes, " --threads %d", s->threads);
    if (s->slots) ls__append(out, bytes, " --slots %d --batch-size %d", s->slots, s->batch_size);
    if (s->bucket_mb > 0) ls__append(out, bytes, " --bucket-mb %g", s->bucket_mb);
    if (s->workers == TUNE_AUTO) ls__append(out, bytes, " --workers auto");
    if (s->workers > 0) ls__append(out, bytes, " --workers %d", s->workers);
    if (s->prefetch) ls__append(out, bytes, " --prefetch %d", s->prefetch);
    if (s->bfloat16) ls__append(out, bytes, " --wire bfloat16");
}

ls_setup tune_setup_question(const tune_setup *s, const tune_space *space)
{
    return (ls_setup){ .ranks = s->ranks,
                       .slots = s->slots ? s->slots : space->slots,
                       .threads = s->threads,
                       .bucket_bytes = (size_t)(s->bucket_mb * (1 << 20)),
                       .workers = s->workers > 0 ? s->workers : 0,
                       .prefetch = s->prefetch,
                       .wire_bytes = s->bfloat16 ? 2 : 0 };
}

/* The ranks and threads of one division into micro-batches. */
static size_t divide(const tune_space *space, tune_setup s, int slots, tune_setup *out, size_t limit)
{
    size_t n = 0;
    int most = slots < space->cores ? slots : space->cores;
    for (int ranks = space->ranks ? 1 : space->given_ranks; ranks <= (space->ranks ? most : space->given_ranks);
         ranks++)
        for (int threads = space->threads ? 1 : space->given_threads;
             threads <= (space->threads ? space->cores / (ranks ? ranks : 1) : space->given_threads); threads++) {
            int used = ranks * threads;
            if (used && space->cores > FEW_CORES && used * 2 <= space->cores) continue;
            s.ranks = space->ranks ? ranks : 0;
            s.threads = space->threads ? threads : 0;
            if (n < limit) out[n++] = s;
        }
    return n;
}

size_t tune_layouts(const tune_space *space, tune_setup *out, size_t limit)
{
    size_t n = divide(space, (tune_setup){ 0 }, space->slots, out, limit);
    for (int part = 2; space->batch && part <= space->cores * 2;
         part *= 2) { /* more and smaller micro-batches, fewer and larger ones */
        if (space->batch_size % part == 0)
            n += divide(space, (tune_setup){ .slots = space->slots * part, .batch_size = space->batch_size / part },
                        space->slots * part, out + n, limit - n);
        if (space->slots % part == 0 && space->slots / part >= (space->given_ranks ? space->given_ranks : 1))
            n += divide(space, (tune_setup){ .slots = space->slots / part, .batch_size = space->batch_size * part },
                        space->slots / part, out + n, limit - n);
    }
    return n;
}

size_t tune_variants(const tune_space *space, const tune_setup *from, tune_setup *out, size_t limit)
{
    static const double buckets[] = { 0.25, 1, 4, 16, 64 };
    static const int workers[] = { 1, 2, 4, 8 }, prefetch[] = { 2, 8 };
    size_t n = 0;
    bool alone = (from->ranks ? from->ranks : space->given_ranks) == 1; /* 0: a launcher's */
    for (size_t i = 0; space->bucket && !alone && i < sizeof buckets / sizeof *buckets && n < limit; i++) {
        out[n] = *from;
        out[n++].bucket_mb = buckets[i];
    }
    for (size_t i = 0; space->loader && i < sizeof workers / sizeof *workers; i++)
        for (size_t k = 0; k < sizeof prefetch / sizeof *prefetch && n < limit; k++) {
            out[n] = *from;
            out[n].workers = workers[i];
            out[n++].prefetch = prefetch[k];
        }
    if (space->wire && !alone && n < limit) {
        out[n] = *from;
        out[n++].bfloat16 = true;
    }
    return n;
}
