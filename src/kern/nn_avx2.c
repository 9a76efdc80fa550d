/* The loops of nn.h for x86-64 with AVX2 and FMA. */
#define LS__TABLE      ls__nn_kernels_avx2
#define LS__TABLE_NAME "avx2"
#define LS__AVX2
#include "kern/nn_loops.h"
