/* The plain version of the sum of squares. Those of the update kernels are in the test. */
#include "kern/optim.h"

double ls__sum_squares_reference(const float *x, size_t count)
{
    double lane[16] = { 0 };
    for (size_t i = 0; i < count; i++) lane[i % 16] += (double)x[i] * (double)x[i];
    for (int half = 8; half; half /= 2)
        for (int k = 0; k < half; k++) lane[k] += lane[k + half];
    return lane[0];
}
