/* Status codes, their texts, and the message of the last failure.
 *
 * The message is thread-local: of fixed size, so that failing never allocates, and truncated with "..." if longer. It may contain
 * names from files, so it is made printable: one line without control characters. */
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/text.h"

enum { MESSAGE_BYTES = 1024 };
static _Thread_local char message[MESSAGE_BYTES];

const char *ls_status_text(ls_status status)
{
    switch (status) {
#define X(name, value, text) \
    case name: return text;
        LS_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

const char *ls_status_name(ls_status status)
{
    switch (status) {
#define X(name, value, text) \
    case name: return #name;
        LS_STATUS_LIST(X)
#undef X
    }
    return "LS_UNKNOWN";
}

const char *ls_error(void)
{
    return message;
}

const char *ls_version(void)
{
#define TEXT2(x) #x
#define TEXT(x)  TEXT2(x)
    return TEXT(LS_VERSION_MAJOR) "." TEXT(LS_VERSION_MINOR) "." TEXT(LS_VERSION_PATCH);
#undef TEXT
#undef TEXT2
}

/* Replaces the message, in at most `bytes`. The arguments may point into the old one, so the raw text is formatted first. Its buffer
 * is larger than the message, so truncation there is never visible. */
static void put(size_t bytes, const char *format, va_list args)
{
    char raw[MESSAGE_BYTES + 8];
    vsnprintf(raw, sizeof raw, format, args);
    ls__printable(message, bytes, raw);
}

/* Appends ": text" to the message. */
static void append(const char *text)
{
    size_t used = strlen(message);
    if (used + 8 > MESSAGE_BYTES) return;
    memcpy(message + used, ": ", 2);
    ls__printable(message + used + 2, MESSAGE_BYTES - used - 2, text);
}

ls_status ls__vfail(ls_status status, const char *format, va_list args)
{
    put(MESSAGE_BYTES, format, args);
    return status;
}

ls_status ls__fail(ls_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put(MESSAGE_BYTES, format, args);
    va_end(args);
    return status;
}

ls_status ls__fail_errno(const char *format, ...)
{
    int error = errno;
    va_list args;
    va_start(args, format);
    put(MESSAGE_BYTES - 100, format, args); /* leaves room for the reason after a long path */
    va_end(args);
    append(strerror(error));
    errno = error;
    switch (error) {
    case ENOENT: return LS_ENOENT;
    case ENOMEM: return LS_ENOMEM;
    case ENOTDIR: /* a path that cannot exist */
    case EISDIR:
    case EEXIST:
    case ENAMETOOLONG: return LS_EINVAL;
    case EIO:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EROFS: return LS_EIO;
    default: return LS_ESYS;
    }
}

ls_status ls__fail_within(ls_status status, const char *format, ...)
{
    char inner[MESSAGE_BYTES];
    memcpy(inner, message, sizeof inner);
    va_list args;
    va_start(args, format);
    put(MESSAGE_BYTES, format, args);
    va_end(args);
    append(*inner ? inner : ls_status_text(status));
    return status;
}

size_t ls_dtype_size(ls_dtype type)
{
    switch (type) {
    case LS_F32: return 4;
    case LS_F64: return 8;
    case LS_BF16: return 2;
    case LS_I32: return 4;
    case LS_I64: return 8;
    case LS_F16: return 2;
    case LS_I8: return 1;
    case LS_I16: return 2;
    case LS_U8:
    case LS_BOOL: return 1;
    }
    return 0;
}

const char *ls_dtype_name(ls_dtype type)
{
    switch (type) {
    case LS_F32: return "float32";
    case LS_F64: return "float64";
    case LS_BF16: return "bfloat16";
    case LS_I32: return "int32";
    case LS_I64: return "int64";
    case LS_U8: return "uint8";
    case LS_F16: return "float16";
    case LS_I8: return "int8";
    case LS_I16: return "int16";
    case LS_BOOL: return "bool";
    }
    return "unknown type";
}

ls_status ls_error_set(ls_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    status = ls__vfail(status, format, args);
    va_end(args);
    return status;
}
