/* Functions whose last bits differ between CPUs and versions of libm, in plain arithmetic that has the same bits everywhere. Within
 * a few units in the last place of float64. */
#ifndef LS_BASE_MATH_H
#define LS_BASE_MATH_H

#include <stdint.h>

double ls__math_log(double x); /* x is positive and normal; infinity and NaN are returned */
double ls__math_exp(double x); /* 0 below -708; x is at most 709 */
double ls__math_cos(double x); /* x is from 0 to pi / 2 */
void ls__math_sin_cos(double x, double *sine, double *cosine); /* |x| is at most 2^27 */
double ls__math_power(double base, int64_t number);            /* number >= 0 */

#endif
