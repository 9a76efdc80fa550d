/* Robust statistics on arrays of doubles. */
#ifndef LS_MEASURE_STATS_H
#define LS_MEASURE_STATS_H

#include <stddef.h>

/* Ascending. */
void ls__sort(double *values, size_t n);
/* 0 if n is 0. Sorts the values, too. */
double ls__median(double *values, size_t n);
/* The median of n sorted values without one occurrence of `value`, which is among them (leave-one-out); 0 if n < 2. */
double ls__median_without(const double *sorted, size_t n, double value);
/* The median absolute deviation from `center`, scaled to the standard deviation of a normal distribution. `scratch` is [n]. */
double ls__mad(const double *values, size_t n, double center, double *scratch);
/* The largest value once the top one in `one_in` is removed; 0 if n is 0. Sorts the values, too. */
double ls__trimmed_max(double *values, size_t n, size_t one_in);
/* The value below which `percent` of the values are; 0 if n is 0. Sorts the values, too. */
double ls__percentile(double *values, size_t n, int percent);
/* The same of n sorted values without one occurrence of `value`, which is among them; 0 if n < 2. */
double ls__percentile_without(const double *sorted, size_t n, double value, int percent);

#endif
