/* Copying memory. */
#ifndef LS_KERN_COPY_H
#define LS_KERN_COPY_H

#include <stdbool.h>
#include "lockstep/base.h"

/* `dst` and `src` do not overlap; any alignment. `stream`: dst will not be read soon and goes past the cache, which
 * saves reading its lines before they are overwritten. A thread that sees a later store also sees what was streamed. */
void ls__copy_bytes(void *dst, const void *src, size_t bytes, bool stream);
void ls__copy_reference(void *dst, const void *src, size_t bytes, bool stream);

#endif
