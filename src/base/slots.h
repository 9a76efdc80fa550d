/* Which slots a rank has: a contiguous run, as even as possible. The first slots % ranks ranks have one more than the others.
 *
 * This is the one definition. (Tests have copies of their own, as oracles.) */
#ifndef LS_BASE_SLOTS_H
#define LS_BASE_SLOTS_H

/* The first slot of a rank; for rank == ranks, the number of slots. */
static inline int ls__slots_first(int slots, int ranks, int rank)
{
    int more = slots % ranks;
    return slots / ranks * rank + (rank < more ? rank : more);
}
static inline int ls__slots_count(int slots, int ranks, int rank)
{
    return slots / ranks + (rank < slots % ranks);
}

#endif
