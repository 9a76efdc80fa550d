/* A rank that prints many lines in parts that never end where a line ends: to stdout in odd blocks, to stderr in two
 * parts per line. Usage: rank_lines LINES */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int lines = argc > 1 ? atoi(argv[1]) : 100, rank = atoi(getenv("RANK"));
    static char block[7919]; /* a prime: blocks and lines drift apart */
    size_t used = 0;
    for (int i = 0; i < lines; i++) {
        char line[256];
        int n = snprintf(line, sizeof line, "rank %d line %d ", rank, i);
        int fill = i * 7 % 150 + 1;
        memset(line + n, 'a' + i % 26, (size_t)fill);
        n += fill;
        line[n++] = '\n';
        int cut = i % n;
        if (write(2, line, (size_t)cut) != cut || write(2, line + cut, (size_t)(n - cut)) != n - cut) return 1;
        for (int k = 0; k < n; k++) {
            block[used++] = line[k];
            if (used == sizeof block || (i == lines - 1 && k == n - 1)) {
                if (write(1, block, used) != (ssize_t)used) return 1;
                used = 0;
            }
        }
    }
    return 0;
}
