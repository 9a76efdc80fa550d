/* The loops for any CPU of the architecture. */
#define LS__TABLE      ls__kernels_baseline
#define LS__TABLE_NAME "baseline"
#include "kern/loops.h"
