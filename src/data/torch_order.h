/* torch.randperm on the CPU, bit for bit. */
#ifndef LS_DATA_TORCH_ORDER_H
#define LS_DATA_TORCH_ORDER_H

#include "lockstep/base.h"

/* What torch.randperm(n, generator=torch.Generator().manual_seed(seed)) gives: in `small` (n <= 2^32) or in `large`;
 * the other is NULL. */
void ls__torch_randperm(uint64_t n, uint64_t seed, uint32_t *small, uint64_t *large);

#endif
