/* What the tests share: cmocka with its required headers, and checks that print both sides. */
#ifndef LS_TESTS_CHECK_H
#define LS_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "lockstep/base.h"

/* The call succeeds; otherwise its message is printed. */
#define check_ok(call)                                                                                        \
    do {                                                                                                      \
        ls_status check_status_ = (call);                                                                     \
        if (check_status_ != LS_OK) fail_msg("%s: %s: %s", #call, ls_status_name(check_status_), ls_error()); \
    } while (0)

/* The call fails with this status, and its message contains this text. */
#define check_fails(call, expected, text)                                                                  \
    do {                                                                                                   \
        ls_status check_status_ = (call);                                                                  \
        if (check_status_ != (expected))                                                                   \
            fail_msg("%s: %s, expected %s (message: %s)", #call, ls_status_name(check_status_), #expected, \
                     ls_error());                                                                          \
        if (!strstr(ls_error(), text)) fail_msg("%s: message '%s' lacks '%s'", #call, ls_error(), text);   \
    } while (0)

#endif
