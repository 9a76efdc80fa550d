/* Failing with a message, which is thread-local. */
#ifndef LS_BASE_STATUS_H
#define LS_BASE_STATUS_H

#include <stdarg.h>
#include "lockstep/base.h"

/* Sets this thread's message and returns `status`: `return ls__fail(LS_EINVAL, "...", ...)`. */
ls_status ls__fail(ls_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
ls_status ls__vfail(ls_status status, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

/* The same for a failed system call: appends ": " and strerror(errno). ENOENT, ENOMEM and the like get their own
 * status; everything else is LS_ESYS. errno is read first, so the format's arguments may change it. */
ls_status ls__fail_errno(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Puts "context: " before this thread's message, or the text of the status if there is none; for a caller that knows more about
 * where it happened. */
ls_status ls__fail_within(ls_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For public functions: LS_EINVAL if a pointer that must be given is NULL. `name` is the argument's name in the header. */
#define LS__NEED(pointer, name)                                                                \
    do {                                                                                       \
        if (!(pointer)) return ls__fail(LS_EINVAL, "%s: " name " must not be NULL", __func__); \
    } while (0)

#endif
