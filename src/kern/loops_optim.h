/* Loops over the update kernels of optim.h, and sums of squares; loops.h includes this. */

/* States that a kernel does not have are local variables, which the compiler removes. */
#define UPDATE(name, function, n_states)                                                        \
    static void update_##function(float *w, const float *g, float *const *states, size_t count, \
                                  const ls__optim_args *args)                                   \
    {                                                                                           \
        const ls__optim_args a = *args;                                                         \
        float *m = (n_states) > 0 ? states[0] : NULL, *v = (n_states) > 1 ? states[1] : NULL;   \
        _Pragma("omp simd") for (size_t i = 0; i < count; i++)                                  \
        {                                                                                       \
            float m_i = (n_states) > 0 ? m[i] : 0, v_i = (n_states) > 1 ? v[i] : 0;             \
            w[i] = ls__##function##_element(w[i], g[i] * a.grad_scale, &m_i, &v_i, &a);         \
            if ((n_states) > 0) m[i] = m_i;                                                     \
            if ((n_states) > 1) v[i] = v_i;                                                     \
        }                                                                                       \
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
