/* See hosts.h. */
#include "cli/hosts.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/escape.h"

enum { MAX_RANKS = 512, NUMBER = 6 }; /* digits of a host's number */

static bool is_name(const char *name, size_t n)
{
    if (!n || n >= HOST_NAME || *name == '-') return false; /* ssh would take it for an option */
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("._-@", name[i])) return false;
    return true;
}

static bool add(hosts *h, const char *name, size_t n, long ranks, char *why, size_t bytes)
{
    char text[HOST_NAME];
    snprintf(text, sizeof text, "%.*s", n < HOST_NAME ? (int)n : HOST_NAME - 1, name);
    const char *wrong = NULL;
    if (!is_name(name, n))
        wrong = "is not the name of a machine";
    else if (ranks < 1 || ranks > MAX_RANKS)
        wrong = "the number of ranks must be from 1 to 512";
    else if (h->n == MAX_HOSTS)
        wrong = "is one machine too many: at most 256 are possible";
    for (int i = 0; i < h->n && !wrong; i++)
        if (!strcmp(h->host[i].name, text)) wrong = "is listed twice";
    if (wrong) {
        snprintf(why, bytes, "'%s' %s", printable(text), wrong);
        return false;
    }
    snprintf(h->host[h->n].name, HOST_NAME, "%s", text);
    h->host[h->n++].ranks = (int)ranks;
    return true;
}

/* A number after `at`; -1: none, or more after it. */
static long number(const char *at, const char *end)
{
    char *rest;
    errno = 0;
    if (!isdigit((unsigned char)*at)) return -1;
    long n = strtol(at, &rest, 10);
    return errno || rest != end ? -1 : n;
}

/* "node0:2" or "node0". */
static bool add_word(hosts *h, const char *word, size_t n, char *why, size_t bytes)
{
    const char *colon = memchr(word, ':', n);
    long ranks = colon ? number(colon + 1, word + n) : 1;
    return add(h, word, colon ? (size_t)(colon - word) : n, ranks, why, bytes);
}

/* Numbers "0-2,7" between brackets, each between `prefix` and nothing. */
static bool add_numbers(hosts *h, const char *prefix, size_t n, const char *list, const char *end, int ranks, char *why,
                        size_t bytes)
{
    char name[HOST_NAME + NUMBER + 2];
    while (list < end) {
        const char *next = memchr(list, ',', (size_t)(end - list));
        if (!next) next = end;
        const char *dash = memchr(list, '-', (size_t)(next - list));
        int width = (int)((dash ? dash : next) - list);
        long from = number(list, dash ? dash : next), to = dash ? number(dash + 1, next) : from;
        if (from < 0 || to < from || to - from >= MAX_HOSTS || width > NUMBER || n >= HOST_NAME) {
            snprintf(why, bytes, "'%.*s' is not a list of numbers", (int)(end - list), list);
            return false;
        }
        for (long i = from; i <= to; i++) {
            int length = snprintf(name, sizeof name, "%.*s%0*ld", (int)n, prefix, width, i);
            if (!add(h, name, (size_t)length, ranks, why, bytes)) return false;
        }
        list = next + 1;
    }
    return true;
}

bool hosts_expand(hosts *h, const char *text, int ranks, char *why, size_t bytes)
{
    h->n = 0;
    while (*text) {
        size_t n = strcspn(text, ",[");
        bool good;
        if (text[n] == '[') {
            const char *end = strchr(text + n, ']');
            good = end && (!end[1] || end[1] == ',');
            if (!good)
                snprintf(why, bytes, "'%s' is not a list of machines that is understood; give --hosts",
                         printable(text));
            else
                good = add_numbers(h, text, n, text + n + 1, end, ranks, why, bytes);
            text = good ? end + 1 : text;
        } else {
            good = add(h, text, n, ranks, why, bytes);
            text += n;
        }
        if (!good) return false;
        text += *text == ',';
    }
    if (!h->n) snprintf(why, bytes, "no machine is listed");
    return h->n > 0;
}

static bool from_slurm(hosts *h, char *why, size_t bytes)
{
    const char *list = getenv("SLURM_JOB_NODELIST"), *each = getenv("SLURM_NTASKS_PER_NODE");
    if (!list) {
        snprintf(why, bytes, "SLURM_JOB_NODELIST is not set: this is not an allocation of Slurm's");
        return false;
    }
    return hosts_expand(h, list, each ? atoi(each) : 1, why, bytes);
}

bool hosts_parse(hosts *h, const char *text, char *why, size_t bytes)
{
    h->n = 0;
    if (!strcmp(text, "slurm")) return from_slurm(h, why, bytes);
    for (;;) {
        size_t n = strcspn(text, ",");
        if (!add_word(h, text, n, why, bytes)) return false;
        if (!text[n]) return true;
        text += n + 1;
    }
}

bool hosts_read(hosts *h, const char *path, char *why, size_t bytes)
{
    char line[1024];
    h->n = 0;
    FILE *f = fopen(path, "re");
    if (!f) {
        snprintf(why, bytes, "%s", strerror(errno));
        return false;
    }
    bool good = true;
    for (int at = 1; good && fgets(line, sizeof line, f); at++) {
        char *rest, inner[200] = "", *word, *slots;
        line[strcspn(line, "#\r\n")] = 0;
        if (!(word = strtok_r(line, " \t", &rest))) continue;
        slots = strtok_r(NULL, " \t", &rest);
        if (slots && strncmp(slots, "slots=", 6) != 0) {
            snprintf(inner, sizeof inner, "'%s' is not understood; use 'slots=N'", printable(slots));
            good = false;
        } else if (slots) {
            good = add(h, word, strlen(word), number(slots + 6, slots + strlen(slots)), inner, sizeof inner);
        } else {
            good = add_word(h, word, strlen(word), inner, sizeof inner);
        }
        if (!good) snprintf(why, bytes, "line %d: %s", at, inner);
    }
    fclose(f);
    if (good && !h->n) snprintf(why, bytes, "no machine is listed");
    return good && h->n > 0;
}
