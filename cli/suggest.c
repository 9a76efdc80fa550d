/* Similar words. See suggest.h.
 *
 * The distance counts insertions, deletions, substitutions and swaps of neighbours (Damerau-Levenshtein). A word is similar if a third
 * of its letters at most is wrong, or if it begins with what was typed. */
#include "cli/suggest.h"

#include <stdio.h>
#include <string.h>
#include "cli/escape.h"

enum { LONGEST = 40 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int distance(const char *a, size_t n, const char *b, size_t m)
{
    int d[LONGEST + 1][LONGEST + 1];
    for (size_t i = 0; i <= n; i++) d[i][0] = (int)i;
    for (size_t k = 0; k <= m; k++) d[0][k] = (int)k;
    for (size_t i = 1; i <= n; i++)
        for (size_t k = 1; k <= m; k++) {
            int x = least(d[i - 1][k], d[i][k - 1]) + 1;
            x = least(x, d[i - 1][k - 1] + (a[i - 1] != b[k - 1]));
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1]) x = least(x, d[i - 2][k - 2] + 1);
            d[i][k] = x;
        }
    return d[n][m];
}

void near_offer(near_word *near, const char *word)
{
    size_t n = near->length, m = strlen(word), dashes = strspn(word, "-");
    if (n > LONGEST || m > LONGEST || m <= dashes) return;
    size_t letters = m - dashes;
    bool begins = n >= dashes + 2 && n < m && !memcmp(word, near->asked, n);
    int d = begins ? 1 : distance(near->asked, n, word, m), most = letters < 4 ? 1 : (int)(letters + 2) / 3;
    if (d > most || (near->nearest && d >= near->distance)) return;
    near->nearest = word;
    near->distance = d;
}

const char *near_text(const near_word *near)
{
    static char text[80];
    *text = 0;
    if (near->nearest) snprintf(text, sizeof text, "; did you mean '%s'?", near->nearest);
    return text;
}
