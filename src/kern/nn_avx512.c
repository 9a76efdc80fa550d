/* The loops of nn.h for x86-64 with AVX-512 (F, BW, DQ, VL). */
#define LS__TABLE      ls__nn_kernels_avx512
#define LS__TABLE_NAME "avx512"
#define LS__AVX512
#include "kern/nn_loops.h"
