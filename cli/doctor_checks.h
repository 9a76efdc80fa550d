/* The checks of lockstep doctor, and what they fill in. */
#ifndef LS_CLI_DOCTOR_CHECKS_H
#define LS_CLI_DOCTOR_CHECKS_H

#include <stdbool.h>
#include <stddef.h>
#include "lockstep/base.h"

typedef enum doctor_state {
    DOCTOR_FINE,
    DOCTOR_NOTE,    /* something could be better */
    DOCTOR_MISSING, /* lockstep needs it */
} doctor_state;

typedef struct doctor_line {
    const char *section, *name;
    char *value, *remedy; /* malloc'ed; NULL: none */
    doctor_state state;
} doctor_line;

typedef struct doctor {
    doctor_line *lines;
    size_t count;
    int missing;
} doctor;

/* Adds a line that is fine. */
void doctor_add(doctor *d, const char *section, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The line just added is not fine; what to do about it. */
void doctor_advise(doctor *d, doctor_state state, const char *format, ...) __attribute__((format(printf, 3, 4)));

void doctor_check_cores(doctor *d);
void doctor_check_memory(doctor *d);
void doctor_check_limits(doctor *d);
void doctor_check_libraries(doctor *d); /* BLAS and MPI */
void doctor_check_kernel(doctor *d);    /* what the launcher, the tests and the measurements need of the system */

#endif
