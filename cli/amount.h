/* Numbers as people read them: "12.3 ms", "4.0 MiB", "20.1k". */
#ifndef LS_CLI_AMOUNT_H
#define LS_CLI_AMOUNT_H

#include <stdbool.h>

typedef struct amount {
    char text[32];
} amount;

/* "41.0 ms", "8.42 µs". The only formatter of durations. */
amount amount_ns(double ns);
amount amount_bytes(double bytes);
/* The same for sizes that are mostly round: "4 B", "25 MiB", "23.5 GiB". */
amount amount_size(double bytes);
amount amount_count(double count);
/* Bytes per ns: "3.20 GB/s"; of a network, as its makers count, "108 Mbit/s". */
amount amount_rate(double bytes_per_ns, bool network);
/* Padded on the left to `width` columns, at most 24. (printf() counts the bytes of "µ", which are two.) */
amount amount_field(amount a, int width);
/* A share as a percentage, with the digits that matter: "0.4%", "12%". */
amount amount_share(double share);
/* A change as a percentage: "+12.3%", "-0.4%", and "0.0%" if that is what is left of it. */
amount amount_change(double share);

#endif
