/* The loops of the Llama family, part of nn_loops.h: gates and rotary positions. */

/* out = silu(gate) up */
static void swiglu(float *out, const float *gate, const float *up, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) out[i] = silu(gate[i]) * up[i];
}

static void swiglu_back(float *dgate, float *dup, bool add, const float *dy, const float *gate, const float *up,
                        size_t n)
{
    if (add)
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            float s = 1.0f / (1.0f + ls__expf(-gate[i])), d = dy[i];
            dgate[i] = dgate[i] + d * up[i] * (s * (1.0f + gate[i] * (1.0f - s)));
            dup[i] = dup[i] + d * (gate[i] * s);
        }
    else
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            float s = 1.0f / (1.0f + ls__expf(-gate[i])), d = dy[i];
            dgate[i] = d * up[i] * (s * (1.0f + gate[i] * (1.0f - s)));
            dup[i] = d * (gate[i] * s);
        }
}

/* The pairs (x[i], x[half + i]) are rotated by the angles whose cosines and sines are given. */
static void rotate(float *x, const float *cosines, const float *sines, size_t half, bool back)
{
    float *y = x + half;
    if (back)
#pragma omp simd
        for (size_t i = 0; i < half; i++) {
            float a = x[i], b = y[i];
            x[i] = a * cosines[i] + b * sines[i];
            y[i] = b * cosines[i] - a * sines[i];
        }
    else
#pragma omp simd
        for (size_t i = 0; i < half; i++) {
            float a = x[i], b = y[i];
            x[i] = a * cosines[i] - b * sines[i];
            y[i] = b * cosines[i] + a * sines[i];
        }
}
