/* 3x3 convolutions without stride by Winograd's algorithm, with 16 products instead of 36 for four results: for wide layers,
 * forward and the gradient of the image. The shape alone decides whether it is used, so results have the same bits everywhere; they
 * are a few roundings less exact than those of the plain way, and a NaN or an infinity reaches all four results of each tile that it is
 * in. */
#ifndef LS_TENSOR_WINOGRAD_H
#define LS_TENSOR_WINOGRAD_H

#include "tensor/conv.h"
#include "tensor/tape.h"

/* Whether a sweep is computed so. */
bool ls__winograd_serves(const ls__sweep *p);
/* Floats that ls__winograd_run() needs. */
size_t ls__winograd_floats(const ls_tape *t, const ls__sweep *p);
/* All images; back: with mirrored weights. */
void ls__winograd_run(const ls_tape *t, const ls__conv *s, const ls__sweep *p, bool back, const float *w,
                      const float *source, float *result, bool add, float *memory);

#endif
