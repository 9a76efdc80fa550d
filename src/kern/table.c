/* The calls that go through the table of loops. */
#include "kern/table.h"

#include <string.h>
#include "kern/copy.h"
#include "kern/float_mode.h"
#include "kern/optim.h"
#include "kern/reduce.h"
#include "kern/vector.h"

void ls__reduce_arrays(ls_dtype type, ls_op op, void *const *out, int outs, const void *const *in, int p, size_t count,
                       bool stream)
{
    LS__KEEP_DENORMALS();
    ls__kernels_best()->reduce[type](op, out, outs, in, p, count, stream);
}

void ls__copy_bytes(void *dst, const void *src, size_t bytes, bool stream)
{
    if (stream)
        ls__kernels_best()->copy_stream(dst, src, bytes);
    else
        memcpy(dst, src, bytes);
}

void ls__add_f32(float *out, const float *a, const float *b, size_t count)
{
    LS__KEEP_DENORMALS();
    ls__kernels_best()->add_f32(out, a, b, count);
}

void ls__scale_f32(float *out, const float *a, float factor, size_t count)
{
    LS__KEEP_DENORMALS();
    ls__kernels_best()->scale_f32(out, a, factor, count);
}

void ls__f32_to_bf16(uint16_t *out, const float *a, size_t count)
{
    ls__kernels_best()->f32_to_bf16(out, a, count);
}

void ls__bf16_to_f32(float *out, const uint16_t *a, size_t count)
{
    ls__kernels_best()->bf16_to_f32(out, a, count);
}

void ls__f32_to_f16(uint16_t *out, const float *a, size_t count)
{
    LS__KEEP_DENORMALS();
    ls__kernels_best()->f32_to_f16(out, a, count);
}

void ls__f16_to_f32(float *out, const uint16_t *a, size_t count)
{
    LS__KEEP_DENORMALS();
    ls__kernels_best()->f16_to_f32(out, a, count);
}

#define X(name, function, states) [name] = (states),
const int ls__optim_states[LS__OPTIM_COUNT] = { LS__OPTIM_LIST(X) };
#undef X

void ls__optim_update(ls__optim_kernel kernel, float *w, const float *g, float *const *states, size_t count,
                      const ls__optim_args *args, const ls__optim_undo *undo)
{
    LS__FLUSH_DENORMALS();
    ls__kernels_best()->update[kernel](w, g, states, count, args, undo);
}

double ls__sum_squares(const float *x, size_t count)
{
    LS__FLUSH_DENORMALS();
    return ls__kernels_best()->sum_squares(x, count);
}
