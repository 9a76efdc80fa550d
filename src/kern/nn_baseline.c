/* The loops of nn.h for any CPU of the architecture. */
#define LS__TABLE      ls__nn_kernels_baseline
#define LS__TABLE_NAME "baseline"
#include "kern/nn_loops.h"
