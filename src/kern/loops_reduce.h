/* Reducing arrays of one element type; loops.h includes this once per type.
 *
 * Two ways. The sum (or mean) of 2 to 4 arrays, into one or into all, is one loop that holds the tree in registers:
 * that is a training step's all-reduce. Everything else goes block by block: leaves of up to 8 inputs in one loop,
 * larger trees by recursion over blocks that stay in the L1 cache, and the finished block to every output.
 *
 * `op`, and where it says so `p` and `outs`, are constants once the compiler has inlined: the switches cost nothing. */

INLINE ACC FN(combine)(ls_op op, ACC a, ACC b)
{
    switch (op) {
    case LS_SUM:
    case LS_MEAN: return (ACC)((WRAP)a + (WRAP)b);
    case LS_PROD: return (ACC)((WRAP)a * (WRAP)b);
    /* Of equal values and of NaNs the first stays. */
    case LS_MIN: return (IS_NAN(a) | (a <= b)) ? a : b;
    case LS_MAX: return (IS_NAN(a) | (a >= b)) ? a : b;
#if !FLOATING
    case LS_AND: return (ACC)((WRAP)a & (WRAP)b);
    case LS_OR: return (ACC)((WRAP)a | (WRAP)b);
    case LS_XOR: return (ACC)((WRAP)a ^ (WRAP)b);
#else
    case LS_AND:
    case LS_OR:
    case LS_XOR: break;
#endif
    }
    return a;
}

/* Element i of the tree over 2, 3, 4 and 8 inputs. Written out: the compiler does not unroll a loop over the levels. */
INLINE ACC FN(tree2)(ls_op op, const T *const *in, size_t i)
{
    return FN(combine)(op, LOAD(in[0][i]), LOAD(in[1][i]));
}

INLINE ACC FN(tree3)(ls_op op, const T *const *in, size_t i)
{
    return FN(combine)(op, FN(tree2)(op, in, i), LOAD(in[2][i]));
}

INLINE ACC FN(tree4)(ls_op op, const T *const *in, size_t i)
{
    return FN(combine)(op, FN(tree2)(op, in, i), FN(tree2)(op, in + 2, i));
}

INLINE ACC FN(tree8)(ls_op op, const T *const *in, size_t i)
{
    return FN(combine)(op, FN(tree4)(op, in, i), FN(tree4)(op, in + 4, i));
}

/* Of p = 1, 2, 3, 4 or 8, a constant. */
INLINE ACC FN(small_tree)(ls_op op, const T *const *in, int p, size_t i)
{
    switch (p) {
    case 2: return FN(tree2)(op, in, i);
    case 3: return FN(tree3)(op, in, i);
    case 4: return FN(tree4)(op, in, i);
    case 8: return FN(tree8)(op, in, i);
    default: return LOAD(in[0][i]);
    }
}

INLINE void FN(fused_element)(ls_op op, T *const *out, int outs, const T *const *in, int p, size_t i, ACC scale)
{
    ACC v = FN(small_tree)(op, in, p, i);
    if (op == LS_MEAN) v = (ACC)(v * scale);
    for (int k = 0; k < outs; k++) out[k][i] = STORE(v);
}

/* The whole work for a constant p (2 to 4) and a constant number of outputs (1 or p), at two places at a time: see
 * APART. */
INLINE void FN(fused)(ls_op op, T *const *out, int outs, const T *const *in, int p, size_t count, ACC scale)
{
    enum { STEP = APART / sizeof(T) };
    const T *x[4]; /* copies, which no store can change */
    T *y[4];
    for (int k = 0; k < p; k++) x[k] = in[k];
    for (int k = 0; k < outs; k++) y[k] = out[k];
    size_t at = 0;
    for (; count - at >= 2 * STEP; at += 2 * STEP) {
#pragma omp simd
        for (size_t i = at; i < at + STEP; i++) {
            FN(fused_element)(op, y, outs, x, p, i, scale);
            FN(fused_element)(op, y, outs, x, p, i + STEP, scale);
        }
    }
#pragma omp simd
    for (size_t i = at; i < count; i++) FN(fused_element)(op, y, outs, x, p, i, scale);
}

/* False: no such loop here. */
INLINE bool FN(try_fused)(ls_op op, T *const *out, int outs, const T *const *in, int p, size_t count, ACC scale)
{
    if (p == 2 && outs == 2)
        FN(fused)(op, out, 2, in, 2, count, scale);
    else if (p == 2 && outs == 1)
        FN(fused)(op, out, 1, in, 2, count, scale);
    else if (p == 3 && outs == 3)
        FN(fused)(op, out, 3, in, 3, count, scale);
    else if (p == 3 && outs == 1)
        FN(fused)(op, out, 1, in, 3, count, scale);
    else if (p == 4 && outs == 4)
        FN(fused)(op, out, 4, in, 4, count, scale);
    else if (p == 4 && outs == 1)
        FN(fused)(op, out, 1, in, 4, count, scale);
    else
        return false;
    return true;
}

/* acc = the tree over p = 1, 2, 3, 4 or 8 inputs, elements at..at+n. */
INLINE void FN(leaf_of)(ls_op op, ACC *acc, const T *const *in, int p, size_t at, size_t n)
{
    const T *x[8];
    for (int k = 0; k < p; k++) x[k] = in[k] + at;
#pragma omp simd
    for (size_t i = 0; i < n; i++) acc[i] = FN(small_tree)(op, x, p, i);
}

INLINE void FN(leaf_op)(ls_op op, ACC *acc, const T *const *in, int p, size_t at, size_t n)
{
    switch (p) {
    case 1: FN(leaf_of)(op, acc, in, 1, at, n); break;
    case 2: FN(leaf_of)(op, acc, in, 2, at, n); break;
    case 3: FN(leaf_of)(op, acc, in, 3, at, n); break;
    case 4: FN(leaf_of)(op, acc, in, 4, at, n); break;
    case 8: FN(leaf_of)(op, acc, in, 8, at, n); break;
    }
}

static void FN(leaf)(ls_op op, ACC *acc, const T *const *in, int p, size_t at, size_t n)
{
    switch (op) {
    case LS_SUM:
    case LS_MEAN: FN(leaf_op)(LS_SUM, acc, in, p, at, n); break;
    case LS_PROD: FN(leaf_op)(LS_PROD, acc, in, p, at, n); break;
    case LS_MIN: FN(leaf_op)(LS_MIN, acc, in, p, at, n); break;
    case LS_MAX: FN(leaf_op)(LS_MAX, acc, in, p, at, n); break;
    case LS_AND: FN(leaf_op)(LS_AND, acc, in, p, at, n); break;
    case LS_OR: FN(leaf_op)(LS_OR, acc, in, p, at, n); break;
    case LS_XOR: FN(leaf_op)(LS_XOR, acc, in, p, at, n); break;
    }
}

INLINE void FN(merge_op)(ls_op op, ACC *left, const ACC *right, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) left[i] = FN(combine)(op, left[i], right[i]);
}

static void FN(merge)(ls_op op, ACC *left, const ACC *right, size_t n)
{
    switch (op) {
    case LS_SUM:
    case LS_MEAN: FN(merge_op)(LS_SUM, left, right, n); break;
    case LS_PROD: FN(merge_op)(LS_PROD, left, right, n); break;
    case LS_MIN: FN(merge_op)(LS_MIN, left, right, n); break;
    case LS_MAX: FN(merge_op)(LS_MAX, left, right, n); break;
    case LS_AND: FN(merge_op)(LS_AND, left, right, n); break;
    case LS_OR: FN(merge_op)(LS_OR, left, right, n); break;
    case LS_XOR: FN(merge_op)(LS_XOR, left, right, n); break;
    }
}

/* acc = the tree over any number of inputs. As deep as the logarithm of p, one block of stack a level. */
static void FN(tree)(ls_op op, ACC *acc, const T *const *in, int p, size_t at, size_t n)
{
    if (p <= 4 || p == 8) {
        FN(leaf)(op, acc, in, p, at, n);
        return;
    }
    int m = (int)ls__tree_split((size_t)p);
    _Alignas(64) ACC right[BLOCK];
    FN(tree)(op, acc, in, m, at, n);
    FN(tree)(op, right, in + m, p - m, at, n);
    FN(merge)(op, acc, right, n);
}

static void FN(finish)(ls_op op, T *out, const ACC *acc, size_t n, ACC scale)
{
    if (op == LS_MEAN) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) out[i] = STORE((ACC)(acc[i] * scale));
    } else {
#pragma omp simd
        for (size_t i = 0; i < n; i++) out[i] = STORE(acc[i]);
    }
}

static void FN(blocks)(ls_op op, T *const *out, int outs, const T *const *in, int p, size_t count, ACC scale,
                       bool streaming)
{
    _Alignas(64) ACC acc[BLOCK];
    _Alignas(64) T staged[BLOCK];
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < BLOCK ? count - at : BLOCK;
        FN(tree)(op, acc, in, p, at, n);
        T *first = streaming ? staged : out[0] + at;
        FN(finish)(op, first, acc, n, scale);
        if (streaming)
            for (int k = 0; k < outs; k++) stream(out[k] + at, staged, n * sizeof(T));
        else
            for (int k = 1; k < outs; k++) memcpy(out[k] + at, first, n * sizeof(T));
    }
    if (streaming) stream_fence();
}

static void FN(reduce)(ls_op op, void *const *to, int outs, const void *const *from, int p, size_t count, bool hint)
{
    T *const *out = (T *const *)to;
    const T *const *in = (const T *const *)from;
    if (outs == 0) return;
    if (TYPE == LS_BOOL) op = ls__bool_op(op);
    if (p == 1 || (op == LS_MEAN && !FLOATING)) {
        ls__reduce_reference(TYPE, op, to, outs, from, p, count, hint);
        return;
    }
    ACC scale = (ACC)(FLOATING ? (ACC)1 / (ACC)p : 1);
    bool streaming = hint && !any_in_place(to, outs, from, p);
    if (!streaming && op == LS_SUM && FN(try_fused)(LS_SUM, out, outs, in, p, count, scale)) return;
    if (!streaming && op == LS_MEAN && FN(try_fused)(LS_MEAN, out, outs, in, p, count, scale)) return;
    FN(blocks)(op, out, outs, in, p, count, scale, streaming);
}

#undef FN
#undef TYPE
#undef T
#undef ACC
#undef WRAP
#undef LOAD
#undef STORE
#undef IS_NAN
#undef FLOATING
