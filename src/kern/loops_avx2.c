/* The loops for x86-64 with AVX2 and FMA. */
#define LS__TABLE      ls__kernels_avx2
#define LS__TABLE_NAME "avx2"
#include "kern/loops.h"
