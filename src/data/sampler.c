/* The sampler: which samples are in slot s of step t of epoch e.
 *
 * An order is a function from a position in the epoch to a sample; steps and slots divide the positions: step t has the next
 * batch_size * slots of them, and slot s the s-th part. A short last step is divided in the same way, so that every slot has work.
 * torch is the exception: position p belongs to rank p mod W, so the slots of a rank together have every W-th position, and
 * each rank's last batch is short.
 *
 * shuffled and sequential are computed. torch needs the whole permutation of an epoch and balanced a table of a window of
 * steps. Such tables are made when first needed; two are kept, because workers that run ahead read the next one while others
 * finish the last. One lock covers the tables; it is held while one is made. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/random.h"
#include "base/status.h"
#include "base/text.h"
#include "data/balance.h"
#include "data/permute.h"
#include "data/torch_order.h"
#include "lockstep/data.h"

/* Random numbers of the data layer are streams of the user's seed; the high bits are their purpose. (3 and 4 choose what
 * is held out: documents.c, train/hold_out.c.) */
#define STREAM_SHUFFLE (UINT64_C(1) << 56)
#define STREAM_DEAL    (UINT64_C(2) << 56)

/* Samples that are sorted by length together: enough that neighbours are nearly equal, few enough to sort in
 * milliseconds. A window has several steps, and an epoch several windows: each is another random part of the samples in
 * every epoch, so that batches are not made of the same samples again. */
enum { WINDOW_SAMPLES = 1 << 15, WINDOW_STEPS = 16, EPOCH_WINDOWS = 2 };

/* A table of samples, and of what. */
typedef struct table {
    uint64_t epoch, window;
    uint64_t used; /* when; 0: empty */
    uint32_t *small;
    uint64_t *large;
} table;

struct ls_sampler {
    ls_sampler_options o;
    uint64_t positions;    /* of an epoch */
    uint64_t per_step;     /* rows * slots */
    uint64_t steps;        /* of an epoch */
    uint64_t window_steps; /* balanced */
    pthread_mutex_t lock;
    table tables[2];      /* under lock */
    uint64_t clock;       /* under lock */
    ls__weighed *weighed; /* balanced: a window and its scratch; under lock */
};

#define X(name, value, text) text,
static const char *const names[] = { LS_ORDER_LIST(X) };
#undef X

static ls_status check_options(ls_sampler_options *o)
{
    if (!o->samples) return ls__fail(LS_EINVAL, "sampler: the number of samples must be >= 1");
    if (o->samples > UINT64_C(1) << 62) return ls__fail(LS_EINVAL, "sampler: more than 2^62 samples");
    if ((unsigned)o->order >= LS_ORDER_COUNT) return ls__fail(LS_EINVAL, "sampler: unknown order %d", o->order);
    if (o->slots < 0 || o->world_size < 0)
        return ls__fail(LS_EINVAL, "sampler: slots and world_size must not be negative");
    if (!o->batch_size) o->batch_size = 1;
    if (!o->world_size) o->world_size = 1;
    if (!o->slots) o->slots = o->world_size;
    if (o->order == LS_ORDER_TORCH && o->slots % o->world_size)
        return ls__fail(LS_EINVAL,
                        "sampler: the torch order cannot divide %d slot%s among %d ranks; the number of ranks must "
                        "divide the number of slots",
                        o->slots, ls__s(o->slots), o->world_size);
    if (o->batch_size > (UINT64_C(1) << 40) / (uint64_t)o->slots)
        return ls__fail(LS_EINVAL, "sampler: a batch size of %zu with %d slots is too large", o->batch_size, o->slots);
    if (o->order == LS_ORDER_BALANCED && !o->length)
        return ls__fail(
            LS_EINVAL,
            "sampler: the balanced order needs the lengths of the samples, which this dataset does not have");
    return LS_OK;
}

/* How many positions an epoch has, and how they fall into steps. */
static void plan(ls_sampler *s)
{
    uint64_t n = s->o.samples, w = (uint64_t)s->o.world_size;
    s->per_step = s->o.batch_size * (uint64_t)s->o.slots;
    bool torch = s->o.order == LS_ORDER_TORCH;
    s->positions = !torch ? n : (s->o.drop_last ? n / w : (n + w - 1) / w) * w;
    if (torch ? s->o.drop_step : s->o.drop_last || s->o.drop_step) s->positions -= s->positions % s->per_step;
    s->steps = (s->positions + s->per_step - 1) / s->per_step;
    uint64_t window = s->per_step * WINDOW_STEPS;
    if (window < WINDOW_SAMPLES) window = WINDOW_SAMPLES;
    uint64_t windows = (s->positions + window - 1) / window;
    if (windows < EPOCH_WINDOWS && s->steps >= 2 * EPOCH_WINDOWS) windows = EPOCH_WINDOWS;
    s->window_steps = windows ? (s->steps + windows - 1) / windows : 1;
}

ls_status ls_sampler_open(ls_sampler **out, const ls_sampler_options *options)
{
    LS__NEED(out, "out");
    *out = NULL;
    LS__NEED(options, "options");
    ls_sampler *s = calloc(1, sizeof *s);
    if (!s) return ls__fail(LS_ENOMEM, "sampler: out of memory");
    s->o = *options;
    pthread_mutex_init(&s->lock, NULL);
    ls_status status = check_options(&s->o);
    if (status) goto fail;
    plan(s);
    if (s->o.order == LS_ORDER_BALANCED) {
        s->weighed = calloc(2 * s->window_steps * s->per_step, sizeof *s->weighed);
        if (!s->weighed) {
            status = ls__fail(LS_ENOMEM, "sampler: no memory to balance %zu samples per step", (size_t)s->per_step);
            goto fail;
        }
    }
    *out = s;
    return LS_OK;
fail:
    ls_sampler_free(&s);
    return status;
}

void ls_sampler_free(ls_sampler **sampler)
{
    ls_sampler *s = sampler ? *sampler : NULL;
    if (!s) return;
    for (int i = 0; i < 2; i++) {
        free(s->tables[i].small);
        free(s->tables[i].large);
    }
    free(s->weighed);
    pthread_mutex_destroy(&s->lock);
    free(s);
    *sampler = NULL;
}

uint64_t ls_sampler_steps(const ls_sampler *s)
{
    return s->steps;
}

/* Room for `n` samples in a table, 4 bytes each where that is enough. */
static ls_status table_room(const ls_sampler *s, table *t, uint64_t n)
{
    if (t->small || t->large) return LS_OK;
    if (s->o.samples <= UINT64_C(1) << 32)
        t->small = malloc(n * sizeof *t->small);
    else
        t->large = malloc(n * sizeof *t->large);
    if (t->small || t->large) return LS_OK;
    return ls__fail(LS_ENOMEM, "sampler: no memory for the %s order of %zu samples%s", names[s->o.order], (size_t)n,
                    s->o.order == LS_ORDER_TORCH ? "; the shuffled order needs none" : "");
}

/* The steps of a window are balanced together. */
static void deal_window(ls_sampler *s, const table *t)
{
    uint64_t first = t->window * s->window_steps * s->per_step;
    uint64_t count = s->window_steps * s->per_step;
    if (count > s->positions - first) count = s->positions - first;
    ls__permutation p;
    ls__permutation_init(&p, s->o.samples, s->o.seed, STREAM_SHUFFLE + t->epoch);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t sample = ls__permute(&p, first + i);
        s->weighed[i] = (ls__weighed){ .sample = sample, .length = s->o.length(s->o.user, sample) };
    }
    uint64_t key = ls__random_u64(s->o.seed, STREAM_DEAL + t->epoch, t->window);
    ls__balance(s->weighed, s->weighed + s->window_steps * s->per_step, count, (size_t)s->o.slots, s->o.batch_size,
                key);
    for (uint64_t i = 0; i < count; i++) {
        if (t->small)
            t->small[i] = (uint32_t)s->weighed[i].sample;
        else
            t->large[i] = s->weighed[i].sample;
    }
}

/* The table of (epoch, window), made if need be. The lock is held when called. */
static ls_status find_table(ls_sampler *s, uint64_t epoch, uint64_t window, const table **out)
{
    table *oldest = &s->tables[0];
    for (table *t = s->tables; t < s->tables + 2; t++) {
        if (t->used < oldest->used) oldest = t;
        if (!t->used || t->epoch != epoch || t->window != window) continue;
        t->used = ++s->clock;
        *out = t;
        return LS_OK;
    }
    bool torch = s->o.order == LS_ORDER_TORCH;
    ls_status status = table_room(s, oldest, torch ? s->o.samples : s->window_steps * s->per_step);
    if (status) return status;
    oldest->epoch = epoch;
    oldest->window = window;
    oldest->used = ++s->clock;
    if (torch)
        ls__torch_randperm(s->o.samples, s->o.seed + epoch, oldest->small, oldest->large);
    else
        deal_window(s, oldest);
    *out = oldest;
    return LS_OK;
}

static uint64_t table_at(const table *t, uint64_t i)
{
    return t->small ? t->small[i] : t->large[i];
}

/* torch: the slots of a rank share its batch of the step; row i of the rank's batches is position i * W + rank. */
static ls_status get_torch(ls_sampler *s, uint64_t epoch, uint64_t step, int slot, uint64_t *samples, size_t *count)
{
    uint64_t ranks = (uint64_t)s->o.world_size, rank_slots = (uint64_t)s->o.slots / ranks;
    uint64_t rank = (uint64_t)slot / rank_slots, part = (uint64_t)slot % rank_slots;
    uint64_t first = step * rank_slots * s->o.batch_size, rows = s->positions / ranks - first;
    if (rows > rank_slots * s->o.batch_size) rows = rank_slots * s->o.batch_size;
    uint64_t begin = rows * part / rank_slots, end = rows * (part + 1) / rank_slots;
    *count = end - begin;

    const table *t = NULL;
    ls_status status = LS_OK;
    if (!s->o.no_shuffle) {
        pthread_mutex_lock(&s->lock);
        status = find_table(s, epoch, 0, &t);
    }
    for (uint64_t i = begin; !status && i < end; i++) {
        uint64_t position = ((first + i) * ranks + rank) % s->o.samples; /* padding starts over */
        samples[i - begin] = t ? table_at(t, position) : position;
    }
    if (!s->o.no_shuffle) pthread_mutex_unlock(&s->lock);
    return status;
}

static ls_status get_balanced(ls_sampler *s, uint64_t epoch, uint64_t position, uint64_t *samples, size_t count)
{
    uint64_t per_window = s->window_steps * s->per_step;
    const table *t;
    pthread_mutex_lock(&s->lock);
    ls_status status = find_table(s, epoch, position / per_window, &t);
    for (size_t i = 0; !status && i < count; i++) samples[i] = table_at(t, position % per_window + i);
    pthread_mutex_unlock(&s->lock);
    return status;
}

ls_status ls_sampler_get_samples(ls_sampler *s, uint64_t epoch, uint64_t step, int slot, uint64_t *samples,
                                 size_t *count)
{
    LS__NEED(s, "sampler");
    LS__NEED(samples, "samples");
    LS__NEED(count, "count");
    if (step >= s->steps || slot < 0 || slot >= s->o.slots)
        return ls__fail(LS_EINVAL, "sampler: step %zu, slot %d does not exist; an epoch has %zu step%s of %d slot%s",
                        (size_t)step, slot, (size_t)s->steps, ls__s((int64_t)s->steps), s->o.slots, ls__s(s->o.slots));
    if (s->o.order == LS_ORDER_TORCH) return get_torch(s, epoch, step, slot, samples, count);

    uint64_t first = step * s->per_step, slots = (uint64_t)s->o.slots;
    uint64_t rows = s->positions - first < s->per_step ? s->positions - first : s->per_step;
    uint64_t begin = first + rows * (uint64_t)slot / slots, end = first + rows * ((uint64_t)slot + 1) / slots;
    *count = end - begin;
    if (s->o.order == LS_ORDER_BALANCED) return get_balanced(s, epoch, begin, samples, *count);
    ls__permutation p;
    if (s->o.order == LS_ORDER_SHUFFLED) ls__permutation_init(&p, s->o.samples, s->o.seed, STREAM_SHUFFLE + epoch);
    for (uint64_t i = begin; i < end; i++)
        samples[i - begin] = s->o.order == LS_ORDER_SHUFFLED ? ls__permute(&p, i) : i;
    return LS_OK;
}
