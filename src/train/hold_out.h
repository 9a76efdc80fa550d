/* Data held out for evaluation. */
#ifndef LS_TRAIN_HOLD_OUT_H
#define LS_TRAIN_HOLD_OUT_H

#include "lockstep/data.h"
#include "lockstep/train.h"

/* Which samples are held out: blocks of neighbouring ones, chosen at random by seed, one out of each of `groups` equal parts of
 * the data. A function of these numbers alone, in constant memory. */
typedef struct ls__sample_split {
    uint64_t samples, seed;
    uint64_t block;  /* samples of a block */
    uint64_t groups; /* blocks that are held out */
} ls__sample_split;

/* A plan that holds out about that fraction of `samples`, of which there must be 2; at least one sample, and never all. */
ls__sample_split ls__hold_out_plan(uint64_t samples, double fraction, uint64_t seed);
/* How many samples either part has. */
uint64_t ls__hold_out_count(const ls__sample_split *h, bool held_out);
/* Sample number i of a part, as a sample of the whole. Either part is in the order of the whole. */
uint64_t ls__hold_out_at(const ls__sample_split *h, bool held_out, uint64_t i);

/* One of the parts of a dataset, which stays the caller's. groups 0: all of it. */
LS_MUST_CHECK ls_status ls__part_open(ls_dataset **out, const ls_dataset *whole, const ls__sample_split *h,
                                      bool held_out);

/* The data of a run, and what is held out of them. */
typedef struct ls__parts {
    ls_dataset *data;       /* all that is read for training */
    ls_dataset *train;      /* what is trained on: `data`, or a part of it */
    ls_dataset *val;        /* what is held out; NULL: nothing */
    uint64_t val_documents; /* of `val`, if that is a separate dataset; 0: it is a part of `data` */
} ls__parts;

/* Opens the options' data and holds out their val_fraction, unless it is 0 or there are validation data: documents of text, or
 * blocks of sequences where there are no documents, or hardly any. On failure *out is empty. */
LS_MUST_CHECK ls_status ls__parts_open(ls__parts *out, const ls_train_options *o, const ls_tokenizer *tokenizer,
                                       bool is_text);
void ls__parts_free(ls__parts *p);

#endif
