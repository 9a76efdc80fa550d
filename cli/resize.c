/* lockstep resize [RUN] -n N: another number of ranks for an elastic run that is in progress.
 *
 * The request is a file in the run folder, RUN/resize, which the first rank takes at the end of a step (train/kept.c). The answer
 * is the line that the next generation writes to RUN/generations.jsonl. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
#include "base/text.h"
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/help.h"
#include "cli/last_run.h"
#include "cli/options.h"
#include "lockstep/train.h"

static const char intro[] = "usage: lockstep resize [RUN] -n N\n"
                            "\n"
                            "Changes the number of ranks of a run in progress that was started with 'lockstep train "
                            "--elastic', at the end of a\n"
                            "step and without changing its result. RUN is its folder (runs/last). Waits until the new "
                            "ranks have made a step.\n";

enum { POLL_MS = 20, BETWEEN_MS = 1000 };
static const double OTHER_S =
    10; /* after another request was carried out, this one may still be in the step that follows */

/* Whether a process trains in the folder: it holds a lock on metrics.jsonl. */
static bool is_in_progress(const char *run)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    if (fd >= 0) close(fd);
    return locked;
}

/* The last line of generations.jsonl. False: there is none. */
static bool read_last(const char *run, int *generation, int *ranks, double *ms, bool *resized)
{
    char path[4200], line[1024], last[1024] = "";
    snprintf(path, sizeof path, "%s/generations.jsonl", run);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    while (fgets(line, sizeof line, f))
        if (strchr(line, '\n')) memcpy(last, line, sizeof last);
    fclose(f);
    json_t *o = json_loads(last, 0, NULL);
    *generation = (int)json_integer_value(json_object_get(o, "generation"));
    *ranks = (int)json_integer_value(json_object_get(o, "ranks"));
    *ms = json_number_value(json_object_get(o, "recovery_ms"));
    const char *why = json_string_value(json_object_get(o, "why"));
    *resized = why && strstr(why, "resize from ");
    json_decref(o);
    return o != NULL;
}

static bool request(const char *run, int ranks)
{
    char path[4200], temporary[4230];
    snprintf(path, sizeof path, "%s/resize", run);
    snprintf(temporary, sizeof temporary, "%s.tmp-%d", path, (int)getpid());
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    bool good = fd >= 0 && dprintf(fd, "%d\n", ranks) > 0;
    if (fd >= 0) good = !close(fd) && good;
    good = good && !rename(temporary, path);
    if (!good) {
        fprintf(stderr, "lockstep resize: %s: %s\n", printable(path), strerror(errno));
        unlink(temporary);
    }
    return good;
}

static int wait_for(const char *run, int wanted, double timeout)
{
    char path[4200];
    int generation = -1, before = -1, ranks = 0;
    double ms = 0;
    double other = 0; /* seconds since another request was carried out in place of this one */
    bool resized = false;
    int idle = 0; /* ms */
    snprintf(path, sizeof path, "%s/resize", run);
    if (read_last(run, &before, &ranks, &ms, &resized) && ranks == wanted) {
        printf("%s has %d rank%s already\n", printable(run), wanted, ls__s(wanted));
        return EXIT_DONE;
    }
    if (!request(run, wanted)) return EXIT_FAILED;
    for (double waited = 0; waited < timeout && other < OTHER_S; waited += POLL_MS / 1e3) {
        nanosleep(&(struct timespec){ 0, POLL_MS * 1000000 }, NULL);
        if (!access(path, F_OK)) continue;
        bool changed = read_last(run, &generation, &ranks, &ms, &resized) && generation > before;
        if (changed && ranks == wanted) {
            printf("%s: %d rank%s; changed in %.0f ms\n", printable(run), wanted, ls__s(wanted), ms);
            return EXIT_DONE;
        }
        other = changed && resized ? other + POLL_MS / 1e3 : 0;
        idle = is_in_progress(run) ? 0 : idle + POLL_MS;
        if (idle > 2 * BETWEEN_MS) break;
    }
    if (other >= OTHER_S) {
        fprintf(stderr, "lockstep resize: %s: another request came at the same time: the run has %d rank%s\n",
                printable(run), ranks, ls__s(ranks));
        return EXIT_FAILED;
    }
    bool taken = unlink(path) != 0;
    fprintf(stderr, "lockstep resize: %s: %s\n", printable(run),
            taken ? "the run accepted the request but has not completed a step since; it may have ended"
                  : "the request was not accepted: the run was not started with --elastic, or a step takes longer than "
                    "--timeout");
    return EXIT_FAILED;
}

int resize_command(int argc, char **argv)
{
    int ranks = INT_MIN; /* not given */
    double timeout = 60;
    const char *run = NULL;
    const option_row rows[] = {
        { OPTION_INT, "-n", &ranks, "N", "ranks, from 1 to the slots of the run", -1e9, 1e9, NULL },
        { OPTION_DOUBLE, "--timeout", &timeout, "S", "seconds to wait for it (60)", 0.1, 1e6, NULL },
        { .name = NULL },
    };
    int code = options_read("resize", intro, rows, &run, argc, argv);
    if (code >= 0) return code;
    if (!(run = last_run_or(run, "resize"))) return EXIT_USAGE;
    ls_train_saved *saved;
    ls_status status = ls_train_saved_open(&saved, run);
    if (status) return exit_failure("resize", status);
    int slots = saved->options.slots;
    ls_train_saved_free(&saved);
    if (ranks == INT_MIN) {
        fprintf(stderr, "lockstep resize: -n N is missing: the new number of ranks\n");
        return EXIT_USAGE;
    }
    if (ranks < 1 || (slots && ranks > slots) || ranks > 512) {
        fprintf(stderr,
                "lockstep resize: -n %d: must be from 1 to the %d slots of the run; the run continues unchanged\n",
                ranks, slots);
        return EXIT_USAGE;
    }
    bool busy = is_in_progress(run);
    for (int waited = 0; !busy && waited < BETWEEN_MS;
         waited += POLL_MS) { /* nobody has the lock between two generations */
        nanosleep(&(struct timespec){ 0, POLL_MS * 1000000 }, NULL);
        busy = is_in_progress(run);
    }
    if (!busy) {
        fprintf(stderr,
                "lockstep resize: %s: no run is in progress there; 'lockstep train --resume' takes another -n\n",
                printable(run));
        return EXIT_USAGE;
    }
    return wait_for(run, ranks, timeout);
}
