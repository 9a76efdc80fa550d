/* Small arithmetic that several layers need. */
#ifndef LS_BASE_ARITH_H
#define LS_BASE_ARITH_H

#include <stdint.h>

static inline int64_t ls__min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t ls__max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
