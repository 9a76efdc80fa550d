/* The plain version of the sum of squares; those of the update kernels are in the test. And what is not done often. */
#include "kern/optim.h"

#include <string.h>

void ls__undo_restore(float *copy, size_t n, int array, float *to)
{
    for (size_t at = 0; at < n; at += LS__UNDO_GROUP) {
        size_t some = n - at < LS__UNDO_GROUP ? n - at : LS__UNDO_GROUP;
        memcpy(to + at, ls__undo_at(copy, at, array), some * sizeof(float));
    }
}

double ls__sum_squares_reference(const float *x, size_t count)
{
    double lane[16] = { 0 };
    for (size_t i = 0; i < count; i++) lane[i % 16] += (double)x[i] * (double)x[i];
    for (int half = 8; half; half /= 2)
        for (int k = 0; k < half; k++) lane[k] += lane[k + half];
    return lane[0];
}
