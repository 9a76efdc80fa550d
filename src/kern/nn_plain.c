/* The loops of nn.h for any CPU of the architecture: without an instruction for fused multiply-add. */
#define LS__TABLE      ls__nn_kernels_plain
#define LS__TABLE_NAME "plain"
#include "kern/nn_loops.h"
