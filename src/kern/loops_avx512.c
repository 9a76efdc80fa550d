/* The loops for x86-64 with AVX-512 (F, BW, DQ, VL). */
#define LS__TABLE      ls__kernels_avx512
#define LS__TABLE_NAME "avx512"
#include "kern/loops.h"
