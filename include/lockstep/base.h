/* lockstep/base.h: what all other headers use: status codes, element types, log messages.
 *
 * Failure  every function that can fail returns an ls_status: 0 done, > 0 pending or end, < 0 error. ls_error() of the same
 *          thread describes what failed, where, and what to do, until that thread's next failing call.
 *          A handle or another pointer that must be given and is NULL is LS_EINVAL. Functions that return no status need
 *          valid handles.
 * Options  structs named *_options are initialized with zeros, which are the defaults: (ls_world_options){ .timeout_ms = 5000 }.
 *          A NULL pointer to options means all defaults; where an option has none and is required, it is LS_EINVAL. Their layout may
 *          change with the library's SOVERSION. Structs that may get more members have `reserved`; initialize it with zeros.
 * Freeing  ls_..._free() functions set the caller's pointer to NULL. They do nothing if it is NULL, or its address is.
 * Output   the library never prints and never exits. Warnings and notes go to the log callback. */
#ifndef LOCKSTEP_BASE_H
#define LOCKSTEP_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LS_VERSION_MAJOR 0
#define LS_VERSION_MINOR 1
#define LS_VERSION_PATCH 0

#define LS_API        __attribute__((visibility("default")))
#define LS_MUST_CHECK __attribute__((warn_unused_result))

/* The one list of status codes: name, value, text. */
#define LS_STATUS_LIST(X)                                      \
    X(LS_OK, 0, "done")                                        \
    X(LS_PENDING, 1, "not finished yet")                       \
    X(LS_END, 2, "end of data")                                \
    X(LS_EINVAL, -1, "invalid argument")                       \
    X(LS_ENOMEM, -2, "out of memory")                          \
    X(LS_ESYS, -3, "a system call failed")                     \
    X(LS_EIO, -4, "read or write error")                       \
    X(LS_ENOENT, -5, "no such file")                           \
    X(LS_EFORMAT, -6, "invalid file or message")               \
    X(LS_ESTATE, -7, "the call is not possible in this state") \
    X(LS_EUNSUPPORTED, -8, "not supported here")               \
    X(LS_EMISMATCH, -9, "ranks do not agree")                  \
    X(LS_EPEER, -10, "another rank died or left")              \
    X(LS_ETIMEOUT, -11, "timed out waiting for another rank")  \
    X(LS_EABORTED, -12, "aborted")                             \
    X(LS_ENOTFINITE, -13, "a value is not finite")

typedef enum ls_status {
#define X(name, value, text) name = (value),
    LS_STATUS_LIST(X)
#undef X
} ls_status;

/* A short text for a code; never NULL, also for invalid codes. */
LS_API const char *ls_status_text(ls_status status);
/* The name of a code ("LS_EINVAL"); never NULL. */
LS_API const char *ls_status_name(ls_status status);
/* The message of this thread's last failed call: what, where, what to do. "" if none has failed. */
LS_API const char *ls_error(void);
/* For callbacks that fail (datasets, hooks, stores): sets this thread's ls_error() and returns `status`. */
LS_API ls_status ls_error_set(ls_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The library's version as text, "0.1.0". */
LS_API const char *ls_version(void);

/* Element types of buffers and tensors. */
typedef enum ls_dtype {
    LS_F32 = 0,
    LS_F64 = 1,
    LS_BF16 = 2,
    LS_I32 = 3,
    LS_I64 = 4,
    LS_U8 = 5,
    LS_F16 = 6,
    LS_I8 = 7,
    LS_I16 = 8,
    LS_BOOL = 9, /* a byte: 0 is false, anything else true; results are 0 or 1 */
} ls_dtype;
#define LS_DTYPE_COUNT 10

/* Bytes of one element; 0 for an invalid type. */
LS_API size_t ls_dtype_size(ls_dtype type);
/* "float32", "bfloat16"...; never NULL. */
LS_API const char *ls_dtype_name(ls_dtype type);

/* Reductions. */
typedef enum ls_op {
    LS_SUM = 0,  /* integer sums and products wrap around; of LS_BOOL: whether any is true */
    LS_MEAN = 1, /* the sum times 1/p, in floating point; for integers the sum (which does not wrap) divided by p,
                    rounded towards zero, so that the mean of LS_BOOL is 1 only if all are true */
    LS_MIN = 2,  /* min and max: NaN if a value is NaN; of equal values (-0 and +0) the first */
    LS_MAX = 3,
    LS_PROD = 4, /* of LS_BOOL: whether all are true */
    LS_AND = 5,  /* bitwise, of integers; of LS_BOOL logical */
    LS_OR = 6,
    LS_XOR = 7,
} ls_op;
#define LS_OP_COUNT 8

/* Counts the entries of a list: enum { COUNT = 0 LIST(LS_COUNT_ENTRY) }. */
#define LS_COUNT_ENTRY(...) +1

/* The one list of activation functions: name, value, short name. */
#define LS_ACTIVATION_LIST(X)                              \
    X(LS_IDENTITY, 0, identity)                            \
    X(LS_GELU_TANH, 1, gelu_tanh) /* GPT-2's "gelu_new" */ \
    X(LS_GELU_ERF, 2, gelu_erf)                            \
    X(LS_SILU, 3, silu)                                    \
    X(LS_RELU, 4, relu)                                    \
    X(LS_TANH, 5, hyperbolic)

typedef enum ls_activation {
#define X(name, value, kernel) name = (value),
    LS_ACTIVATION_LIST(X)
#undef X
} ls_activation;
enum { LS_ACTIVATION_COUNT = 0 LS_ACTIVATION_LIST(LS_COUNT_ENTRY) };

typedef enum ls_log_level {
    LS_LOG_DEBUG = 0,
    LS_LOG_INFO = 1,
    LS_LOG_WARNING = 2,
} ls_log_level;

/* Called from any thread of the library, one message per call, without a newline. */
typedef void (*ls_log_fn)(void *user, ls_log_level level, const char *text);
/* Sets the log callback; NULL, the default, drops messages. */
LS_API void ls_log_set(ls_log_fn fn, void *user);

/* Nanoseconds on the monotonic clock, which all processes of a machine share. */
LS_API int64_t ls_now(void);

#ifdef __cplusplus
}
#endif
#endif
