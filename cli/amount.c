/* Numbers as people read them. See amount.h. */
#include "cli/amount.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Three digits that matter, followed by a unit. */
static amount three(double x, const char *unit)
{
    amount a;
    double size = fabs(x);
    snprintf(a.text, sizeof a.text, "%.*f%s", size < 9.995 ? 2 : size < 99.95 ? 1 : 0, x, unit);
    return a;
}

amount amount_ns(double ns)
{
    double size = fabs(ns);
    if (!isfinite(ns)) return (amount){ "-" };
    if (size == 0) return (amount){ "0 s" };
    if (size < 999.5) {
        amount a;
        snprintf(a.text, sizeof a.text, "%.0f ns", ns);
        return a;
    }
    if (size < 999.5e3) return three(ns / 1e3, " \u00b5s");
    if (size < 999.5e6) return three(ns / 1e6, " ms");
    if (size < 600e9) return three(ns / 1e9, " s");
    return three(ns / 60e9, " min");
}

amount amount_field(amount a, int width)
{
    int columns = 0, bytes = (int)strlen(a.text);
    for (const char *c = a.text; *c; c++) columns += ((unsigned char)*c & 0xc0) != 0x80;
    int pad = width - columns, room = (int)sizeof a.text - 1 - bytes;
    if (pad > room) pad = room;
    if (pad <= 0) return a;
    memmove(a.text + pad, a.text, (size_t)bytes + 1);
    memset(a.text, ' ', (size_t)pad);
    return a;
}

static const char *const byte_units[] = { " B", " KiB", " MiB", " GiB", " TiB" };

amount amount_bytes(double bytes)
{
    int i = 0;
    if (!isfinite(bytes)) return (amount){ "-" };
    for (; fabs(bytes) >= 1000 && i < 4; i++) bytes /= 1024;
    amount a;
    if (i) return three(bytes, byte_units[i]);
    snprintf(a.text, sizeof a.text, "%.0f B", bytes);
    return a;
}

amount amount_size(double bytes)
{
    int i = 0;
    for (; bytes >= 1024 && i < 4; i++) bytes /= 1024;
    amount a;
    snprintf(a.text, sizeof a.text, "%.*f%s", bytes < 100 && bytes != floor(bytes) ? 1 : 0, bytes, byte_units[i]);
    return a;
}

amount amount_count(double count)
{
    static const char *const units[] = { "", "k", "M", "G", "T" };
    int i = 0;
    if (!isfinite(count)) return (amount){ "-" };
    for (; fabs(count) >= (i ? 1000 : 10000) && i < 4; i++) count /= 1000;
    if (i) return three(count, units[i]);
    amount a;
    snprintf(a.text, sizeof a.text, "%.*f", count == floor(count) || count >= 100 ? 0 : count >= 10 ? 1 : 2, count);
    return a;
}

amount amount_rate(double bytes_per_ns, bool network)
{
    static const char *const bits[] = { " bit/s", " kbit/s", " Mbit/s", " Gbit/s", " Tbit/s" };
    static const char *const bytes[] = { " B/s", " kB/s", " MB/s", " GB/s", " TB/s" };
    double x = bytes_per_ns * (network ? 8e9 : 1e9);
    int i = 0;
    if (!isfinite(x) || x <= 0) return (amount){ "-" };
    for (; x >= 999.5 && i < 4; i++) x /= 1000;
    return three(x, network ? bits[i] : bytes[i]);
}

amount amount_share(double share)
{
    amount a;
    double p = 100 * share;
    if (!isfinite(p)) return (amount){ "-" };
    snprintf(a.text, sizeof a.text, "%.*f%%", fabs(p) < 9.95 && fabs(p) >= 0.05 ? 1 : 0, p);
    return a;
}

amount amount_change(double share)
{
    amount a;
    double p = 100 * share;
    if (!isfinite(p)) return (amount){ "-" };
    if (fabs(p) < 0.05) return (amount){ "0.0%" };
    snprintf(a.text, sizeof a.text, "%+.1f%%", p);
    return a;
}
