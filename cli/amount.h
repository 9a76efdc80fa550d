/* Numbers as people read them: "12.3 ms", "4.0 MiB", "20.1k". */
#ifndef LS_CLI_AMOUNT_H
#define LS_CLI_AMOUNT_H

#include <stdbool.h>

typedef struct amount {
    char text[32];
} amount;

amount amount_ns(double ns);
amount amount_bytes(double bytes);
amount amount_count(double count);
/* Bytes a ns: "3.20 GB/s"; of a network, as its makers count, "108 Mbit/s". */
amount amount_rate(double bytes_per_ns, bool network);
/* A share as a percentage, with the digits that matter: "0.4%", "12%". */
amount amount_share(double share);

#endif
