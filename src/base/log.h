/* Log messages to the user of the library. See ls_log_set(). */
#ifndef LS_BASE_LOG_H
#define LS_BASE_LOG_H

#include "lockstep/base.h"

void ls__log(ls_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
