/* The loops for any CPU of the architecture. */
#define LS__TABLE      ls__kernels_plain
#define LS__TABLE_NAME "plain"
#include "kern/loops.h"
