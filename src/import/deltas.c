/* See deltas.h. Differences are LEB128 numbers with the sign in the lowest bit. Pages come from the kernel and not from malloc(),
 * which would keep what is given back while the next list is unpacked. */
#include "import/deltas.h"

#include <string.h>
#include <sys/mman.h>

enum { FIRST = 1 << 16, LONGEST = 10 * LS__DELTAS_FIELDS, GIVE_BACK = 1 << 20 };

static bool grow(ls__deltas *d)
{
    size_t room = d->room ? 2 * d->room : FIRST;
    void *bytes = d->bytes ? mremap(d->bytes, d->room, room, MREMAP_MAYMOVE)
                           : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) return false;
    d->bytes = bytes;
    d->room = room;
    return true;
}

bool ls__deltas_add(ls__deltas *d, const int64_t fields[LS__DELTAS_FIELDS])
{
    if (d->room - d->used < LONGEST && !grow(d)) return false;
    uint8_t *p = d->bytes + d->used;
    for (int i = 0; i < LS__DELTAS_FIELDS; i++) {
        int64_t step = (int64_t)((uint64_t)fields[i] - (uint64_t)d->last[i]);
        uint64_t value = (uint64_t)step << 1 ^ (uint64_t)(step >> 63);
        for (; value >= 0x80; value >>= 7) *p++ = (uint8_t)(value | 0x80);
        *p++ = (uint8_t)value;
        d->last[i] = fields[i];
    }
    d->used = (size_t)(p - d->bytes);
    d->count++;
    return true;
}

bool ls__deltas_take(ls__deltas *d, int64_t fields[LS__DELTAS_FIELDS])
{
    if (!d->reading) {
        d->reading = true;
        d->left = d->count;
        memset(d->last, 0, sizeof d->last);
    }
    if (!d->left) {
        ls__deltas_free(d);
        return false;
    }
    const uint8_t *p = d->bytes + d->at;
    for (int i = 0; i < LS__DELTAS_FIELDS; i++) {
        uint64_t value = 0;
        int shift = 0;
        for (; *p & 0x80; shift += 7) value |= (uint64_t)(*p++ & 0x7f) << shift;
        value |= (uint64_t)*p++ << shift;
        d->last[i] = (int64_t)((uint64_t)d->last[i] + (value >> 1 ^ -(value & 1)));
        fields[i] = d->last[i];
    }
    size_t at = (size_t)(p - d->bytes), before = d->at / GIVE_BACK, now = at / GIVE_BACK;
    if (now > before) madvise(d->bytes + before * GIVE_BACK, (now - before) * GIVE_BACK, MADV_DONTNEED);
    d->at = at;
    d->left--;
    return true;
}

void ls__deltas_free(ls__deltas *d)
{
    if (d->bytes) munmap(d->bytes, d->room);
    *d = (ls__deltas){ 0 };
}
