/* See math.h. Series, summed from the smallest term. */
#include "base/math.h"

#include <string.h>

/* ln 2 in two parts: the first has zeros at its end, so that its product with an exponent is exact. */
static const double LN2_HIGH = 6.93147180369123816490e-01, LN2_LOW = 1.90821492927058770002e-10;

double ls__math_log(double x)
{
    if (!(x <= 0x1.fffffffffffffp1023)) return x;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    /* x = m 2^e with m in [sqrt(1/2), sqrt(2)), and ln m = 2 (s + s^3/3 + s^5/5 + ...) with s = (m - 1) / (m + 1) */
    int64_t e = (int64_t)(bits - 0x3fe6a09e667f3bcdu) >> 52;
    bits -= (uint64_t)e << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    double s = (m - 1) / (m + 1), z = s * s, sum = 0;
    for (int i = 23; i > 1; i -= 2) sum = (sum + 1.0 / i) * z;
    return (double)e * LN2_HIGH + (2 * s + (2 * s * sum + (double)e * LN2_LOW));
}

double ls__math_exp(double x)
{
    if (x < -708) return 0;
    /* x = n ln 2 + r with |r| <= ln 2 / 2 */
    double n = (double)(int64_t)(x * 1.4426950408889634 + (x < 0 ? -0.5 : 0.5));
    double r = (x - n * LN2_HIGH) - n * LN2_LOW, sum = 1;
    for (int i = 14; i > 0; i--) sum = sum * r / i + 1;
    uint64_t bits = (uint64_t)((int64_t)n + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}

double ls__math_cos(double x)
{
    double z = x * x, sum = 1;
    for (int i = 24; i > 0; i -= 2) sum = 1 - sum * z / (i * (i - 1));
    return sum;
}

void ls__math_sin_cos(double x, double *sine, double *cosine)
{
    /* x = n pi/2 + r with |r| <= pi/4. pi/2 is in three parts, the first two with zeros at their ends. */
    double n = (double)(int64_t)(x * 0.63661977236758138 + (x < 0 ? -0.5 : 0.5));
    double r = ((x - n * 1.57079632673412561417e+00) - n * 6.07710050630396597660e-11) - n * 2.02226624879595063154e-21;
    double z = r * r, s = 1, c = 1;
    for (int i = 18; i > 0; i -= 2) {
        s = 1 - s * z / (i * (i + 1));
        c = 1 - c * z / (i * (i - 1));
    }
    s *= r;
    int64_t quarter = (int64_t)n & 3;
    *sine = quarter & 1 ? c : s;
    *cosine = quarter & 1 ? s : c;
    if (quarter & 2) *sine = -*sine;
    if (quarter == 1 || quarter == 2) *cosine = -*cosine;
}

double ls__math_power(double base, int64_t number)
{
    double result = 1;
    for (; number > 0; number /= 2, base *= base)
        if (number % 2) result *= base;
    return result;
}
