/* See tune_trials.h. */
#include "cli/tune_trials.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "cli/escape.h"
#include "cli/exit_codes.h"
#include "cli/launch.h"
#include "kern/select.h"

enum { MAX_BYTES = 1 << 24, MAX_STEPS = 1 << 16, WARM_UP = 3 };

int tune_option_words(const char *name, int words, int argc, char **argv, int i)
{
    size_t n = strlen(name);
    if (strncmp(argv[i], name, n) != 0) return 0;
    if (argv[i][n] == '=') return 1;
    return argv[i][n] ? 0 : words == 2 && i + 1 < argc ? 2 : 1;
}

int tune_trial_ignores(int argc, char **argv, int i)
{
    static const struct {
        const char *name;
        int words;
    } rows[] = { { "--steps", 2 },         { "--epochs", 2 },         { "--warmup", 2 },  { "--run-dir", 2 },
                 { "--name", 2 },          { "--overwrite", 1 },      { "--keep", 2 },    { "--checkpoint-every", 2 },
                 { "--no-checkpoint", 1 }, { "--quiet", 1 },          { "--prompt", 2 },  { "--sample-tokens", 2 },
                 { "--eval-every", 2 },    { "--metrics-every", 2 },  { "--profile", 1 }, { "--log-every", 2 },
                 { "--no-record", 1 },     { "--no-tensorboard", 1 }, { "--no-save", 1 } };
    int found = 0;
    for (size_t k = 0; k < sizeof rows / sizeof *rows && !found; k++)
        found = tune_option_words(rows[k].name, rows[k].words, argc, argv, i);
    return found;
}

/* ---- Signals. */

/* A signal to us alone reaches the run, too: it stops after its step, and so do we. */
static volatile sig_atomic_t stop_signal, child;

static void on_signal(int number)
{
    int error = errno;
    stop_signal = number;
    if (child > 0) kill((pid_t)child, number);
    errno = error;
}

void tune_catch_signals(void)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
    for (int i = 0; i < 3; i++) sigaction(numbers[i], &(struct sigaction){ .sa_handler = on_signal }, NULL);
}

int tune_stop_signal(void)
{
    return stop_signal;
}

static char *path_in(const tune_trials *t, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", t->dir, name) < 0 ? NULL : path;
}

/* ---- The folder. Two locks keep others out: `tune.lock` is ours alone, and `trial.lock` is inherited by the short run and its ranks.
 * A run may live a little longer than a tune that was killed, and would disturb the next one. */

enum { TUNE_WAIT_MS = 500, TRIAL_WAIT_MS = 5000, POLL_MS = 10 }; /* of processes that are dying */

/* Where the file system has no locks, nothing keeps a second process out. */
static ls_status take_lock(const tune_trials *t, const char *name, int wait_ms, const char *who, int *fd)
{
    char *path = path_in(t, name);
    if (!path) return ls__fail(LS_ENOMEM, "%s: out of memory", t->dir);
    ls_status status = LS_OK;
    *fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (*fd < 0) status = ls__fail_errno("cannot open %s", path);
    free(path);
    for (int ms = 0; !status && flock(*fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK; ms += POLL_MS) {
        if (stop_signal) status = ls__fail(LS_EABORTED, "stopped by a signal");
        if (!status && ms >= wait_ms)
            status = ls__fail(LS_EINVAL, "%s: %s in this folder; wait for its end, or choose another with --tune-dir",
                              t->dir, who);
        nanosleep(&(struct timespec){ 0, POLL_MS * 1000000 }, NULL);
    }
    return status;
}

/* The choice would replace the run's config.toml. */
static ls_status refuse_run_folder(const tune_trials *t)
{
    char *path = path_in(t, "run.json");
    if (!path) return ls__fail(LS_ENOMEM, "%s: out of memory", t->dir);
    bool found = !access(path, F_OK);
    free(path);
    return found ? ls__fail(LS_EINVAL,
                            "--tune-dir %s: is the folder of a run: it has a run.json; choose another folder", t->dir)
                 : LS_OK;
}

static ls_status lock_folder(tune_trials *t)
{
    ls_status status = take_lock(t, "tune.lock", TUNE_WAIT_MS, "another 'lockstep tune' is in progress", &t->lock);
    return status ? status
                  : take_lock(t, "trial.lock", TRIAL_WAIT_MS,
                              "a short run of an earlier 'lockstep tune' is in progress", &t->trial_lock);
}

/* ---- The file of results: the first line says what they are of. */

static json_t *words_json(char **words)
{
    json_t *list = json_array();
    for (; *words; words++) json_array_append_new(list, json_stringn(*words, strlen(*words)));
    return list;
}

/* Texts that are not UTF-8 cannot be compared in JSON: such results are of nobody. */
static char *first_line(const tune_trials *t, int cores)
{
    json_t *j = json_pack("{s:o, s:o, s:s, s:i}", "options", words_json(t->options), "launcher",
                          words_json(t->launcher), "kernels", ls__instruction_set_used()->name, "cores", cores);
    char *text = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(j);
    return text;
}

static void read_line(tune_trials *t, const char *line, size_t length)
{
    const char *key;
    json_t *step, *j = json_loadb(line, length, 0, NULL);
    bool valid = j && !json_unpack(j, "{s:s, s:o}", "key", &key, "step", &step);
    if (valid && json_real_value(step) > 0) json_object_set(t->done, key, step);
    json_decref(j);
}

ls_status tune_trials_open(tune_trials *t, int cores)
{
    char *path = path_in(t, "tune.jsonl"), *first = first_line(t, cores), *text = NULL;
    size_t bytes;
    ls_status status = LS_OK;
    t->done = json_object();
    t->lock = t->trial_lock = -1;
    if (!path || !first || !t->done) status = ls__fail(LS_ENOMEM, "%s: out of memory", t->dir);
    if (!status) status = refuse_run_folder(t);
    if (!status) status = ls__file_make_own_dir(t->dir);
    if (!status) status = lock_folder(t);
    bool same = !status && !ls__file_read(path, MAX_BYTES, &text, &bytes) && !strncmp(text, first, strlen(first)) &&
                text[strlen(first)] == '\n';
    if (!status && same)
        for (const char *at = text + strlen(first) + 1; *at; at += strcspn(at, "\n"), at += *at == '\n')
            read_line(t, at, strcspn(at, "\n"));
    else if (!status) {
        size_t n = strlen(first);
        first[n] = '\n'; /* in place of the 0 */
        status = ls__file_write(path, first, n + 1);
    }
    free(text);
    free(path);
    free(first);
    if (status) tune_trials_close(t);
    return status;
}

void tune_trials_close(tune_trials *t)
{
    json_decref(t->done);
    t->done = NULL;
    if (t->trial_lock >= 0) close(t->trial_lock);
    if (t->lock >= 0) close(t->lock);
    t->lock = t->trial_lock = -1;
}

static ls_status keep(tune_trials *t, const char *key, double step)
{
    char *path = path_in(t, "tune.jsonl");
    json_t *value = json_real(step), *j = json_pack("{s:s, s:O}", "key", key, "step", value);
    char *line = j ? json_dumps(j, JSON_COMPACT) : NULL;
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW) : -1;
    bool written = line && fd >= 0 && dprintf(fd, "%s\n", line) > 0 && !fsync(fd);
    ls_status status = written ? LS_OK : ls__fail(LS_EIO, "%s/tune.jsonl: %s", t->dir, strerror(errno));
    if (fd >= 0) close(fd);
    if (value) json_object_set_new(t->done, key, value);
    json_decref(j);
    free(line);
    free(path);
    return status;
}

/* ---- Runs. */

static size_t count_of(char **words)
{
    size_t n = 0;
    while (words[n]) n++;
    return n;
}

/* The command, in one allocation with the words of `options`, which are separated by spaces. */
static char **make_command(const tune_trials *t, const char *options, const char *folder, const char *steps)
{
    const char *fixed[] = { "--steps",   steps,  "--no-save",   "--quiet",
                            "--run-dir", folder, "--overwrite", "--no-tensorboard" };
    size_t room = count_of(t->launcher) + count_of(t->options) + strlen(options) + sizeof fixed / sizeof *fixed + 3,
           n = 0;
    char **words = malloc(room * sizeof *words + strlen(options) + 1);
    if (!words) return NULL;
    char *copy = (char *)(words + room), *rest;
    memcpy(copy, options, strlen(options) + 1);
    for (char **w = t->launcher; *w; w++) words[n++] = *w;
    words[n++] = (char *)launch_self();
    words[n++] = (char *)"train";
    for (char **w = t->options; *w; w++) words[n++] = *w;
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) words[n++] = word;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) words[n++] = (char *)fixed[i];
    words[n] = NULL;
    return words;
}

/* What a run has printed: into trial.log, and its last line to `out`. */
static void read_output(const tune_trials *t, int fd, char *out, size_t bytes)
{
    off_t all = lseek(fd, 0, SEEK_END);
    size_t n = all > 0 && all < MAX_BYTES ? (size_t)all : 0;
    char *text = calloc(1, n + 1), *log = path_in(t, "trial.log");
    snprintf(out, bytes, "no message");
    if (text && pread(fd, text, n, 0) == (ssize_t)n && n) {
        ls_status written = log ? ls__file_write(log, text, n) : LS_ENOMEM;
        (void)
            written; /* a full disk is no reason to lose the message, which is why the run itself does not write there */
        while (n && text[n - 1] == '\n') text[--n] = 0;
        const char *line = strrchr(text, '\n');
        if (n) snprintf(out, bytes, "%s", printable(line ? line + 1 : text));
    }
    free(log);
    free(text);
}

/* What the child needs, made ready before it exists: it is made with vfork, and until exec it may only make system calls. */
typedef struct start {
    char **words;
    pid_t parent;
    int output, lock, death_signal;
    volatile int error; /* set by the child, in our memory */
} start;

static void __attribute__((noreturn)) become_run(start *s)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(s->output, STDOUT_FILENO) < 0 ||
        dup2(s->output, STDERR_FILENO) < 0 || fcntl(s->lock, F_SETFD, 0) || prctl(PR_SET_PDEATHSIG, s->death_signal))
        goto fail;
    if (getppid() != s->parent) _exit(EXIT_FAILED); /* the parent ended before prctl() */
    execvp(s->words[0], s->words);
fail:
    s->error = errno;
    _exit(EXIT_FAILED);
}

/* Apart from everything else, so that no variable lives across the vfork. */
static pid_t __attribute__((noinline)) start_child(start *s)
{
    pid_t pid = vfork();
    if (pid == 0) become_run(s);
    return pid;
}

static ls_status run(const tune_trials *t, char **words)
{
    char message[300];
    int code = 0, output = memfd_create("trial.log", MFD_CLOEXEC);
    if (output < 0) return ls__fail(LS_ESYS, "%s: a file in memory: %s", t->dir, strerror(errno));
    /* If we are killed, the run ends, too. A launcher has ranks of its own to end, and must get to do so. */
    start s = { .words = words,
                .parent = getpid(),
                .output = output,
                .lock = t->trial_lock,
                .death_signal = *t->launcher ? SIGTERM : SIGKILL };
    pid_t pid = start_child(&s);
    int error = pid < 0 ? errno : 0;
    child = error ? 0 : pid;
    if (stop_signal && !error) kill(pid, stop_signal); /* it came before there was a child to pass it on to */
    while (!error && waitpid(pid, &code, 0) < 0)
        if (errno != EINTR) error = errno;
    child = 0;
    if (!error) error = s.error;
    read_output(t, output, message, sizeof message);
    close(output);
    ls_status status = LS_OK;
    if (stop_signal)
        status = ls__fail(LS_EABORTED, "stopped by a signal");
    else if (error)
        status = ls__fail(LS_EIO, "%s: %s", words[0], strerror(error));
    else if (code)
        status = ls__fail(LS_ESYS, "a run failed: %s", message);
    return status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of metrics.jsonl's step_ms, without the first steps. */
static ls_status read_median(const char *folder, double *step)
{
    char *path, *text = NULL;
    size_t bytes, n = 0, seen = 0;
    double *found = malloc(MAX_STEPS * sizeof *found), ms;
    int made = asprintf(&path, "%s/metrics.jsonl", folder);
    ls_status status = found && made >= 0 ? ls__file_read(path, MAX_BYTES, &text, &bytes)
                                          : ls__fail(LS_ENOMEM, "%s: out of memory", folder);
    for (const char *at = text; !status && at && *at; at += strcspn(at, "\n"), at += *at == '\n') {
        json_t *j = json_loadb(at, strcspn(at, "\n"), 0, NULL);
        if (j && !json_unpack(j, "{s:F}", "step_ms", &ms) && seen++ >= WARM_UP && n < MAX_STEPS) found[n++] = ms * 1e6;
        json_decref(j);
    }
    if (!status && !n) status = ls__fail(LS_EFORMAT, "%s: it has too few steps", path);
    if (!status) {
        qsort(found, n, sizeof *found, by_value);
        *step = (found[(n - 1) / 2] + found[n / 2]) / 2;
    }
    free(text);
    free(found);
    if (made >= 0) free(path);
    return status;
}

/* When a run has last written there. */
static struct timespec written_at(const char *folder)
{
    struct stat st = { 0 };
    char *path;
    if (asprintf(&path, "%s/metrics.jsonl", folder) < 0) return st.st_mtim;
    if (stat(path, &st)) st.st_mtim = (struct timespec){ 0 };
    free(path);
    return st.st_mtim;
}

/* What ends without an error may have run nothing: then there are no steps, or those of an earlier run. */
static ls_status check_run(const tune_trials *t, const char *folder, struct timespec before)
{
    struct timespec after = written_at(folder);
    if (after.tv_sec != before.tv_sec || after.tv_nsec != before.tv_nsec) return LS_OK;
    if (!*t->launcher) return ls__fail(LS_ESYS, "%s: the run has written no metrics.jsonl", folder);
    return ls__fail(LS_ESYS,
                    "--launcher: '%s' ended without an error, but started no run: there is no new %s/metrics.jsonl; it "
                    "must run the command that is appended to it, in this file system",
                    *t->launcher, folder);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

ls_status tune_trial(tune_trials *t, const char *key, const char *options, const char *name, int steps, double *step)
{
    json_t *had = json_object_get(t->done, key);
    char number[16], *folder = path_in(t, name);
    *step = NAN;
    if (had) {
        free(folder);
        *step = json_real_value(had);
        t->reused++;
        return LS_OK;
    }
    snprintf(number, sizeof number, "%d", steps);
    char **words = folder ? make_command(t, options, folder, number) : NULL;
    struct timespec before = words ? written_at(folder) : (struct timespec){ 0 };
    double from = now();
    ls_status status = words ? run(t, words) : ls__fail(LS_ENOMEM, "%s: out of memory", t->dir);
    t->made++;
    t->seconds += now() - from;
    if (!status) status = check_run(t, folder, before);
    if (!status) status = read_median(folder, step);
    free(words);
    free(folder);
    return status ? status : keep(t, key, *step);
}
