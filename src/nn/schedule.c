/* The learning rate, a pure function of the step: resuming needs no state. */
#include "lockstep/nn.h"

#include "base/math.h"

float ls_schedule_at(const ls_schedule *s, int64_t step)
{
    if (step < 0) step = 0;
    if (step < s->warmup) return (float)((double)s->lr * (double)(step + 1) / (double)s->warmup);
    if (s->kind == LS_SCHEDULE_CONSTANT) return s->lr;
    /* The first step after warm-up has the peak rate, the last step of the run `lr_end`. */
    int64_t span = s->steps - 1 - s->warmup;
    double done = span > 0 ? (double)(step - s->warmup) / (double)span : 1;
    if (done > 1) done = 1;
    double quarter = ls__math_cos(1.5707963267948966 * done); /* (1 + cos(pi x)) / 2 is the square of cos(pi / 2 x) */
    double share = s->kind == LS_SCHEDULE_COSINE ? quarter * quarter : 1 - done;
    return (float)((double)s->lr_end + share * ((double)s->lr - (double)s->lr_end));
}
