/* See hold_out.h. The full blocks are divided into groups of equal size, and one block of each group is held out: so what is held out is
 * spread over all of the data, and any sample of either part is found without a table. What remains after the last full block is
 * trained on. */
#include "train/hold_out.h"

#include <stdlib.h>
#include "base/random.h"
#include "base/status.h"
#include "base/text.h"
#include "data/datasets.h"
#include "train/task.h"

#define STREAM_HOLD_OUT (UINT64_C(4) << 56)

enum { MAX_BLOCK = 16, BLOCKS = 16 }; /* larger blocks overlap less with what is trained on; many are a better sample */

ls__sample_split ls__hold_out_plan(uint64_t samples, double fraction, uint64_t seed)
{
    ls__sample_split h = { .samples = samples, .seed = seed, .block = 1 };
    uint64_t held = (uint64_t)((double)samples * fraction + 0.5);
    if (held < 1) held = 1;
    if (held > samples - 1) held = samples - 1;
    if (held / BLOCKS > 1) h.block = held / BLOCKS < MAX_BLOCK ? held / BLOCKS : MAX_BLOCK;
    h.groups = held / h.block;
    if (h.groups >= samples / h.block) h.groups = samples / h.block - 1;
    return h;
}

uint64_t ls__hold_out_count(const ls__sample_split *h, bool held_out)
{
    uint64_t held = h->groups * h->block;
    return held_out ? held : h->samples - held;
}

/* The first block of a group. */
static uint64_t first_of(const ls__sample_split *h, uint64_t group)
{
    uint64_t blocks = h->samples / h->block;
    return (uint64_t)((unsigned __int128)blocks * group / h->groups);
}

/* The block of a group that is held out. */
static uint64_t held_of(const ls__sample_split *h, uint64_t group)
{
    uint64_t first = first_of(h, group), size = first_of(h, group + 1) - first;
    return first + ls__random_u64(h->seed, STREAM_HOLD_OUT, group) % size;
}

/* Number `i` of the blocks that are trained on. */
static uint64_t trained_block(const ls__sample_split *h, uint64_t i)
{
    uint64_t low = 0, high = h->groups; /* before group g are first_of(g) - g of them */
    while (high - low > 1) {
        uint64_t middle = (low + high) / 2;
        if (first_of(h, middle) - middle <= i)
            low = middle;
        else
            high = middle;
    }
    uint64_t block = i + low;
    return block + (block >= held_of(h, low));
}

uint64_t ls__hold_out_at(const ls__sample_split *h, bool held_out, uint64_t i)
{
    if (!h->groups) return i;
    uint64_t block = i / h->block, within = i % h->block, trained = h->samples / h->block - h->groups;
    if (held_out) return held_of(h, block) * h->block + within;
    if (block < trained) return trained_block(h, block) * h->block + within;
    return i + h->groups * h->block;
}

/* ---- A part as a dataset. */

typedef struct part {
    ls_dataset dataset;
    const ls_dataset *whole;
    ls__sample_split plan;
    bool held_out;
} part;

static ls_status part_get(void *self, void *worker, uint64_t sample, ls_row *row)
{
    const part *p = self;
    return p->whole->get(p->whole->self, worker, ls__hold_out_at(&p->plan, p->held_out, sample), row);
}

static uint64_t part_length(void *self, uint64_t sample)
{
    const part *p = self;
    return p->whole->length(p->whole->self, ls__hold_out_at(&p->plan, p->held_out, sample));
}

static ls_status part_worker_open(void *self, int worker, void **state)
{
    const part *p = self;
    return p->whole->worker_open(p->whole->self, worker, state);
}

static void part_worker_free(void *self, void *state)
{
    const part *p = self;
    p->whole->worker_free(p->whole->self, state);
}

static ls_status part_redirect(void *self, size_t file, const char *path)
{
    const part *p = self;
    return p->whole->redirect(p->whole->self, file, path);
}

ls_status ls__part_open(ls_dataset **out, const ls_dataset *whole, const ls__sample_split *h, bool held_out)
{
    part *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return ls__fail(LS_ENOMEM, "data: out of memory");
    p->whole = whole;
    p->plan = *h;
    p->held_out = held_out;
    p->dataset = *whole;
    p->dataset.count = ls__hold_out_count(h, held_out);
    p->dataset.self = p;
    p->dataset.get = part_get;
    p->dataset.length = whole->length ? part_length : NULL;
    p->dataset.worker_open = whole->worker_open ? part_worker_open : NULL;
    p->dataset.worker_free = whole->worker_free ? part_worker_free : NULL;
    p->dataset.redirect = whole->redirect ? part_redirect : NULL;
    p->dataset.free = free;
    *out = &p->dataset;
    return LS_OK;
}

/* ---- The data of a run. */

/* Fewer documents than this are too small a sample. */
enum { FEW_DOCUMENTS = 4 };

void ls__parts_free(ls__parts *p)
{
    ls_dataset_free(&p->train);
    ls_dataset_free(&p->val);
    ls_dataset_free(&p->data);
    *p = (ls__parts){ 0 };
}

/* Documents for training and others to evaluate on. LS_EINVAL if there are too few to choose from. */
static ls_status open_documents(ls__parts *p, const ls_train_options *o, const ls_tokenizer *tokenizer)
{
    ls_hold_out choice = { .fraction = o->val_fraction, .seed = o->seed };
    ls_status status = ls__task_of(o->task)->open_data(&p->data, o->data, o->n_data, tokenizer, o, &choice);
    choice.held_out = true;
    if (!status) status = ls__task_of(o->task)->open_data(&p->val, o->data, o->n_data, tokenizer, o, &choice);
    if (!status) p->val_documents = ls__text_documents(p->val);
    if (!status && p->val_documents < FEW_DOCUMENTS) status = LS_EINVAL;
    if (status) ls__parts_free(p);
    return status;
}

static ls_status open_blocks(ls__parts *p, const ls_train_options *o, const ls_tokenizer *tokenizer,
                             ls__sample_split *plan)
{
    ls_status status = ls__task_of(o->task)->open_data(&p->data, o->data, o->n_data, tokenizer, o, NULL);
    if (status || !(o->val_fraction > 0)) return status;
    if (p->data->count < 2)
        return ls__fail(LS_EINVAL, "the data is one sequence of %d token%s; none can be held out for evaluation",
                        o->seq_len, ls__s(o->seq_len));
    *plan = ls__hold_out_plan(p->data->count, o->val_fraction, o->seed);
    return ls__part_open(&p->val, p->data, plan, true);
}

ls_status ls__parts_open(ls__parts *out, const ls_train_options *o, const ls_tokenizer *tokenizer, bool is_text)
{
    ls__sample_split plan = { 0 };
    *out = (ls__parts){ 0 };
    bool choose = !o->n_val_data && o->val_fraction > 0 && is_text && o->n_data;
    ls_status status = choose ? open_documents(out, o, tokenizer) : LS_EINVAL;
    if (status == LS_EINVAL) status = open_blocks(out, o, tokenizer, &plan);
    if (!status && !plan.groups) plan.samples = out->data->count;
    if (!status) status = ls__part_open(&out->train, out->data, &plan, false);
    if (status) ls__parts_free(out);
    return status;
}
