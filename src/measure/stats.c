/* See stats.h. */
#include "measure/stats.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void ls__sort(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_value);
}

double ls__median(double *values, size_t n)
{
    if (!n) return 0;
    ls__sort(values, n);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* The first that is not smaller. */
static size_t place_of(const double *sorted, size_t n, double value)
{
    size_t low = 0, high = n - 1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (sorted[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

double ls__median_without(const double *sorted, size_t n, double value)
{
    if (n < 2) return 0;
    size_t at = place_of(sorted, n, value), h = (n - 1) / 2;
    double upper = sorted[h < at ? h : h + 1];
    return (n - 1) % 2 ? upper : (sorted[h - 1 < at ? h - 1 : h] + upper) / 2;
}

double ls__mad(const double *values, size_t n, double center, double *scratch)
{
    for (size_t i = 0; i < n; i++) scratch[i] = fabs(values[i] - center);
    return 1.4826 * ls__median(scratch, n);
}

double ls__percentile(double *values, size_t n, int percent)
{
    if (!n) return 0;
    size_t at = n * (size_t)percent / 100;
    ls__sort(values, n);
    return values[at < n ? at : n - 1];
}

double ls__percentile_without(const double *sorted, size_t n, double value, int percent)
{
    if (n < 2) return 0;
    size_t at = (n - 1) * (size_t)percent / 100;
    if (at > n - 2) at = n - 2;
    return sorted[at < place_of(sorted, n, value) ? at : at + 1];
}

double ls__trimmed_max(double *values, size_t n, size_t one_in)
{
    if (!n) return 0;
    ls__sort(values, n);
    return values[n - 1 - n / one_in];
}
