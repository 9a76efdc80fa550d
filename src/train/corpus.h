/* A corpus that needs no download: small stories, made by a grammar. */
#ifndef LS_TRAIN_CORPUS_H
#define LS_TRAIN_CORPUS_H

#include "lockstep/base.h"

/* Fills `out` with stories, cut off after `bytes`. A function of the seed alone: the same text everywhere. */
void ls__corpus_fill(char *out, size_t bytes, uint64_t seed);

#endif
