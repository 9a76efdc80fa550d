/* The program that the user starts, of `lockstep bench ddp`: starts ranks, hosts and torch, and collects their rows.
 *
 * Ranks are this program again, under `lockstep run`: with the number of ranks that was asked for, then with others for the
 * part `scaling`. Two hosts are network namespaces with a slow link, made by the script `cluster`, with one rank each under
 * mpirun. torch is a script, peers/torch_ddp.py, which reads our rows and writes its own figures of the same rows, after ours
 * and not in turns: ratios hold within what the machine's speed changes in a minute. All of them write JSON lines to a pipe. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/status.h"
#include "base/thread.h"
#include "cli/bench/ddp.h"
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/launch.h"

#define NAME "lockstep bench ddp"
enum { MAX_WORDS = 64 };

/* A command in the making. */
typedef struct words {
    const char *word[MAX_WORDS + 1];
    int count;
    char text[4096]; /* of numbers */
    size_t used;
} words;

static void add(words *w, const char *word)
{
    if (w->count < MAX_WORDS) w->word[w->count++] = word;
}

__attribute__((format(printf, 2, 3))) static void add_text(words *w, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    char *at = w->text + w->used;
    int n = vsnprintf(at, sizeof w->text - w->used, format, list);
    va_end(list);
    if (n < 0 || (size_t)n >= sizeof w->text - w->used) return;
    w->used += (size_t)n + 1;
    add(w, at);
}

/* A file of the build, or where it was installed. */
static bool find_file(const char *name, char *out, size_t room)
{
    static const char *const places[] = { "../bench", "../libexec/lockstep" };
    const char *self = launch_self(), *slash = strrchr(self, '/');
    for (int i = 0; i < 2; i++) {
        snprintf(out, room, "%.*s/%s/%s", slash ? (int)(slash - self) : 0, self, places[i], name);
        if (!access(out, R_OK)) return true;
    }
    return false;
}

/* ---- Commands. */

/* In the child: input and output, and the command. Does not return. */
static void become(const words *w, int input, int output)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(input < 0 ? null : input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    execvp(w->word[0], (char *const *)(uintptr_t)w->word);
    fprintf(stderr, NAME ": %s: %s\n", printable(w->word[0]), strerror(errno));
    _exit(127);
}

/* Runs a command and adds its JSON lines to `lines`; other lines go to stderr. Returns its exit code. */
static int collect(const words *w, int input, json_t *lines)
{
    int fd[2], how;
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    fflush(stdout);
    if (pipe2(fd, O_CLOEXEC)) return EXIT_FAILED;
    pid_t pid = fork();
    if (!pid) become(w, input, fd[1]);
    close(fd[1]);
    FILE *from = fdopen(fd[0], "r");
    while (pid > 0 && from && (n = getline(&line, &room, from)) > 0) {
        json_t *object = *line == '{' ? json_loadb(line, (size_t)n, 0, NULL) : NULL;
        if (!object)
            fprintf(stderr, "%s", line);
        else
            json_array_append_new(lines, object);
    }
    free(line);
    if (from)
        fclose(from);
    else
        close(fd[0]);
    if (pid < 0 || waitpid(pid, &how, 0) != pid || !WIFEXITED(how)) return EXIT_FAILED;
    return WEXITSTATUS(how);
}

static void progress(const char *text)
{
    if (isatty(STDERR_FILENO)) fprintf(stderr, NAME ": %s...\n", text);
}

/* ---- Our ranks. */

static void add_list(words *w, const char *option, const char *const *names, const bool *flags)
{
    char list[256] = "";
    for (int i = 0; names[i]; i++)
        if (flags[i]) snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? "," : "", names[i]);
    add(w, option);
    add_text(w, "%s", list);
}

static void add_self(words *w, const ddp_bench *b, const bool *parts, const bool *models)
{
    add(w, launch_self());
    add(w, "bench");
    add(w, "ddp");
    add(w, "--json");
    if (b->full) add(w, "--full");
    add_list(w, "--parts", ddp_part_names, parts);
    add_list(w, "--models", ddp_model_names, models);
    add(w, "--buckets");
    add(w, b->buckets_text);
    add(w, "--link");
    add(w, b->link);
    const struct {
        const char *option;
        int value;
    } numbers[] = { { "--layers", b->layers },   { "--width", b->width },           { "--vocab-size", b->vocab_size },
                    { "--seq-len", b->seq_len }, { "--batch-size", b->batch_size }, { "--threads", b->threads },
                    { "--steps", b->steps } };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value) add(w, numbers[i].option), add_text(w, "%d", numbers[i].value);
}

static int on_ranks(const ddp_bench *b, int ranks, const bool *parts, json_t *rows)
{
    words w = { .count = 0 };
    add(&w, launch_self());
    add(&w, "run");
    add(&w, "--no-prefix");
    add(&w, "-n");
    add_text(&w, "%d", ranks);
    add(&w, "--");
    add_self(&w, b, parts, b->models);
    return collect(&w, -1, rows);
}

/* One rank, two, four... up to those asked for, or twice as many. Those of `ranks` are measured with the other parts. */
static int on_other_ranks(const ddp_bench *b, int ranks, json_t *rows)
{
    bool parts[DDP_PARTS] = { [DDP_SCALING] = true };
    int code = EXIT_DONE;
    for (int n = 1; n <= (b->full ? 2 * ranks : ranks) && !code && b->parts[DDP_SCALING]; n *= 2)
        if (n != ranks) code = on_ranks(b, n, parts, rows);
    return code;
}

/* ---- Two hosts. */

static bool can_make_hosts(const char *script)
{
    words w = { .count = 0 };
    json_t *none = json_array();
    add(&w, script);
    add(&w, "check");
    int code = collect(&w, -1, none); /* prints itself why not */
    json_decref(none);
    if (code) fprintf(stderr, NAME ": cannot simulate two hosts here; only this machine was measured\n");
    return !code;
}

static int on_hosts(const ddp_bench *b, const char *script, json_t *rows)
{
    bool parts[DDP_PARTS], models[DDP_MODELS];
    words w = { .count = 0 };
    for (int i = 0; i < DDP_PARTS; i++)
        parts[i] = b->parts[i] && i != DDP_SCALING && i != DDP_READY && i != DDP_ACCURACY &&
                   (b->full || b->parts_text || i == DDP_BREAKDOWN || i == DDP_BUCKETS || i == DDP_ACCUMULATE);
    for (int i = 0; i < DDP_MODELS; i++) models[i] = b->models[i] && (b->full || b->models_text || i == DDP_BERT);
    add(&w, script);
    add(&w, "run");
    add_text(&w, "2:%s", b->link);
    add(&w, script);
    add(&w, "openmpi");
    add(&w, "--host");
    add(&w, "node0:1,node1:1");
    add(&w, "-n");
    add(&w, "2");
    add(&w, "-x");
    add(&w, "OMP_NUM_THREADS");
    add_self(&w, b, parts, models);
    setenv("OMP_NUM_THREADS", "1", 0);
    return collect(&w, -1, rows);
}

/* ---- torch. */

static bool has_torch(const char *python)
{
    words w = { .count = 0 };
    json_t *none = json_array();
    add(&w, python);
    add(&w, "-c");
    add(&w, "import importlib.util as u, sys; sys.exit(not u.find_spec('torch'))");
    int code = collect(&w, -1, none);
    json_decref(none);
    return !code;
}

/* Our rows as the peer's input. -1: no memory. */
static int rows_as_file(const ddp_bench *b, const json_t *rows)
{
    json_t *all = json_pack("{s:O, s:i, s:i, s:i, s:i, s:i}", "rows", rows, "layers", b->layers, "width", b->width,
                            "vocab_size", b->vocab_size, "threads", b->threads, "steps",
                            b->steps  ? b->steps
                            : b->full ? 12
                                      : 6);
    int fd = memfd_create("rows", MFD_CLOEXEC);
    if (fd >= 0 && (!all || json_dumpfd(all, fd, JSON_COMPACT) || lseek(fd, 0, SEEK_SET))) {
        close(fd);
        fd = -1;
    }
    json_decref(all);
    return fd;
}

/* Adds what torch measured for rows to them, as members peer_... */
static void join(json_t *rows, const json_t *lines)
{
    size_t i;
    json_t *line, *value;
    const char *key, *name = "";
    json_array_foreach(lines, i, line)
    {
        if (json_object_get(line, "peer")) name = ddp_text(line, "peer");
        const json_t *number = json_object_get(line, "row");
        json_t *row = json_is_integer(number) ? json_array_get(rows, (size_t)json_integer_value(number)) : NULL;
        if (!row) continue;
        json_object_set_new(row, "peer", json_string(name));
        json_object_foreach(line, key, value)
        {
            char long_key[64];
            snprintf(long_key, sizeof long_key, "peer_%s", key);
            if (strcmp(key, "row") != 0) json_object_set(row, long_key, value);
        }
    }
}

/* Measures the peer on all rows, which are of this machine or of the hosts (script is then that of the hosts). */
static void ask_peer(const ddp_bench *b, const char *script, json_t *rows)
{
    char file[4096];
    const char *python = b->peer ? b->peer : "python3";
    if (!strcmp(python, "none") || !json_array_size(rows)) return;
    if (!find_file("torch_ddp.py", file, sizeof file) || !has_torch(python)) {
        if (b->peer)
            fprintf(stderr, NAME ": --peer %s: has no torch, or torch_ddp.py was not found; no peer was measured\n",
                    printable(python));
        return;
    }
    words w = { .count = 0 };
    json_t *lines = json_array();
    int input = rows_as_file(b, rows);
    progress(script ? "torch on two hosts" : "torch");
    if (script) {
        add(&w, script);
        add(&w, "run");
        add_text(&w, "2:%s", b->link);
    }
    add(&w, python);
    add(&w, file);
    if (script) add(&w, script);
    int code = input < 0 ? EXIT_FAILED : collect(&w, input, lines);
    if (code)
        fprintf(stderr, NAME ": torch failed (%s exited with %d); rows without its numbers\n", printable(python), code);
    if (input >= 0) close(input);
    join(rows, lines);
    json_decref(lines);
}

static int show(const ddp_bench *b, const json_t *rows)
{
    ddp_report(b, rows, stdout);
    ls_status status = b->plot ? ddp_plots(b, rows) : LS_OK;
    return status ? exit_failure("bench ddp", status) : EXIT_DONE;
}

int ddp_start(ddp_bench *b)
{
    int cores = ls__cpu_count(), ranks = b->ranks ? b->ranks : cores < 2 ? 2 : cores;
    char script[4096];
    json_t *rows = json_array(), *on_two = json_array();
    progress("this machine");
    int code = rows && on_two ? on_ranks(b, ranks, b->parts, rows) : EXIT_FAILED;
    if (!code) code = on_other_ranks(b, ranks, rows);
    if (!code) ask_peer(b, NULL, rows);
    if (!code) code = show(b, rows);
    bool hosts = !code && !b->one_node;
    if (hosts && !find_file("cluster", script, sizeof script)) {
        fprintf(stderr, NAME ": two hosts: the script 'cluster' was not found; only this machine was measured\n");
        hosts = false;
    }
    if (hosts && can_make_hosts(script)) {
        progress("two hosts");
        code = on_hosts(b, script, on_two);
        if (!code) ask_peer(b, script, on_two);
        if (!code) code = show(b, on_two);
    }
    json_decref(rows);
    json_decref(on_two);
    return code;
}
