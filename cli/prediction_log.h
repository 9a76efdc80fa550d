/* RUN/predictions.jsonl: predictions made from a run, and what other runs then recorded. Bands follow from it. */
#ifndef LS_CLI_PREDICTION_LOG_H
#define LS_CLI_PREDICTION_LOG_H

#include <jansson.h>
#include "lockstep/predict.h"

/* A prediction as JSON; NULL: out of memory. */
json_t *prediction_json(const ls_prediction *p);

/* Adds a comparison with the run `other`; its copies have the same `id`. `factor`: of the band, which was set. */
LS_MUST_CHECK ls_status prediction_log_add(const char *run, const char *other, const char *id,
                                           const ls_prediction *said, double measured, double factor);
/* By what factor bands should be wider, or narrower, so that nine of ten of the logged comparisons are within; 1: too few to
 * know. Of several with the same run, the newest counts. */
double prediction_log_band(const char *run);

#endif
