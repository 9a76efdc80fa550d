/* The canonical tree: tree(n) = tree(m) + tree(n - m), with m the largest power of two below n.
 *
 * Every sum of the library that must not depend on the number of ranks or threads is added in this order. This is the one
 * definition of m. (Tests have copies of their own, as oracles.) */
#ifndef LS_BASE_TREE_H
#define LS_BASE_TREE_H

#include <stddef.h>

/* The number of values in the left subtree of n values: the largest power of two below n. n must be at least 2. */
static inline size_t ls__tree_split(size_t n)
{
    size_t m = 1;
    while (2 * m < n) m *= 2;
    return m;
}

#endif
