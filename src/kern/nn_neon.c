/* The loops of nn.h for 64-bit Arm, all of which has NEON and FMA. */
#define LS__TABLE      ls__nn_kernels_neon
#define LS__TABLE_NAME "neon"
#define LS__NEON
#include "kern/nn_loops.h"
