/* Loops over the update kernels of optim.h, and sums of squares; loops.h includes this. */

/* A killed process has executed a prefix of its instructions, so what orders them for the compiler is enough. */
static inline void note_copied(const ls__optim_undo *undo, size_t n)
{
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(undo->copied, (int64_t)(undo->before + n), memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
}

/* For each kernel: a loop; the same for one group, which is copied first; and both behind one function. States that a kernel does
 * not have are local variables, which the compiler removes. */
#define UPDATE(name, function, n_states)                                                                          \
    INLINE void some_##function(float *w, const float *g, float *m, float *v, size_t count,                       \
                                const ls__optim_args *args)                                                       \
    {                                                                                                             \
        const ls__optim_args a = *args;                                                                           \
        _Pragma("omp simd") for (size_t i = 0; i < count; i++)                                                    \
        {                                                                                                         \
            float m_i = (n_states) > 0 ? m[i] : 0, v_i = (n_states) > 1 ? v[i] : 0;                               \
            w[i] = ls__##function##_element(w[i], g[i] * a.grad_scale, &m_i, &v_i, &a);                           \
            if ((n_states) > 0) m[i] = m_i;                                                                       \
            if ((n_states) > 1) v[i] = v_i;                                                                       \
        }                                                                                                         \
    }                                                                                                             \
    INLINE void group_##function(float *w, const float *g, float *m, float *v, size_t count,                      \
                                 const ls__optim_args *args, const ls__optim_undo *undo, float *copy, size_t end) \
    {                                                                                                             \
        memcpy(copy, w, count * sizeof(float));                                                                   \
        if ((n_states) > 0) memcpy(copy + LS__UNDO_GROUP, m, count * sizeof(float));                              \
        if ((n_states) > 1) memcpy(copy + 2 * LS__UNDO_GROUP, v, count * sizeof(float));                          \
        note_copied(undo, end);                                                                                   \
        some_##function(w, g, m, v, count, args);                                                                 \
    }                                                                                                             \
    static void update_##function(float *w, const float *g, float *const *states, size_t count,                   \
                                  const ls__optim_args *args, const ls__optim_undo *undo)                         \
    {                                                                                                             \
        float none[1] = { 0 }, *m = (n_states) > 0 ? states[0] : none, *v = (n_states) > 1 ? states[1] : none;    \
        if (!undo) some_##function(w, g, m, v, count, args);                                                      \
        for (size_t at = 0, n; undo && at < count; at += n) {                                                     \
            size_t place = undo->before + at, left = LS__UNDO_GROUP - place % LS__UNDO_GROUP;                     \
            size_t of_m = (n_states) > 0 ? at : 0, of_v = (n_states) > 1 ? at : 0;                                \
            float *copy = ls__undo_at(undo->copy, place, 0);                                                      \
            n = count - at < left ? count - at : left;                                                            \
            if (n == LS__UNDO_GROUP) /* a constant, for the compiler */                                           \
                group_##function(w + at, g + at, m + of_m, v + of_v, LS__UNDO_GROUP, args, undo, copy, at + n);   \
            else                                                                                                  \
                group_##function(w + at, g + at, m + of_m, v + of_v, n, args, undo, copy, at + n);                \
        }                                                                                                         \
    }
LS__OPTIM_LIST(UPDATE)

static double sum_squares(const float *x, size_t count)
{
    enum { LANES = 16 };
    double lane[LANES] = { 0 };
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
#pragma omp simd
        for (int k = 0; k < LANES; k++) lane[k] += (double)x[i + (size_t)k] * (double)x[i + (size_t)k];
    }
    for (size_t k = 0; i + k < count; k++) lane[k] += (double)x[i + k] * (double)x[i + k];
    for (int half = LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++) lane[k] += lane[k + half];
    return lane[0];
}
