"""Memory that is freed and allocated again in every step."""

import ctypes

# Of <malloc.h>.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_NEVER = 2**31 - 1  # bytes; mallopt() takes an int


def keep_memory():
    """Memory that this process frees stays with it, to be allocated again. By default the C library gives large tensors back to the kernel, which
    must fill their pages with zeros again in the next step: with a large vocabulary that is a sixth of a step. The process then keeps the most
    memory that it ever needed, and, as freed pieces are not always where they fit, some more. Whether that was set: it needs glibc's allocator."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _NEVER))
