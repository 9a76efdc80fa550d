/* The launcher: prepares, starts the ranks, watches them, cleans up, and restarts them if requested.
 *
 * As a "subreaper" the launcher inherits processes that outlive the rank that started them, and ends them before it ends. The process
 * that the user started is the front (launch_front.c), which does the same for the launcher. */
#include "cli/launch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/launch_parts.h"
#include "comm/launcher.h"

enum { FAREWELL_MS = 1000 }; /* for our reader, after a signal ended us */

/* Signals that are passed on to the ranks. */
static const int forwarded[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH };

/* Whether a file of this name is in a folder of PATH. A folder that may not be looked into makes execvp() report EACCES for
 * a program that is nowhere. */
static bool is_in_path(const char *name)
{
    char file[4096];
    for (const char *at = getenv("PATH"); at && *at;) {
        int n = (int)strcspn(at, ":");
        snprintf(file, sizeof file, "%.*s/%s", n, at, name);
        if (!access(file, F_OK)) return true;
        at += n + (at[n] == ':');
    }
    return false;
}

static int exec_failed(const char *program, int error)
{
    if (error == EACCES && !strchr(program, '/') && !is_in_path(program)) error = ENOENT;
    bool there = strchr(program, '/') && !access(program, F_OK);
    if (error == ENOENT && there) {
        fprintf(stderr, "lockstep: %s: the interpreter in its first line does not exist\n", printable(program));
        return EXIT_NOT_FOUND;
    }
    if (error == ENOENT || error == ENOTDIR) {
        fprintf(stderr, "lockstep: %s: program not found%s\n", printable(program),
                strchr(program, '/') ? "; check the path" : " in PATH; for a program in this folder put ./ in front");
        return EXIT_NOT_FOUND;
    }
    struct stat st;
    if (!stat(program, &st) && S_ISDIR(st.st_mode))
        fprintf(stderr, "lockstep: %s: is a folder, not a program\n", printable(program));
    else if (error == EACCES)
        fprintf(stderr,
                "lockstep: %s: not executable; use 'chmod +x', or start it with its interpreter: -- python3 %s\n",
                printable(program), printable(program));
    else
        fprintf(stderr, "lockstep: %s: cannot be executed: %s\n", printable(program), strerror(error));
    return EXIT_NOT_EXECUTABLE;
}

static void say_who_is_who(launch *l)
{
    for (int i = 0; i < l->options->ranks; i++) {
        const launch_cores *c = &l->cores[i];
        char where[400] = " not bound";
        size_t used = 0;
        for (int k = 0; c->bound && k < CPU_SETSIZE && used < sizeof where - 8; k++)
            if (CPU_ISSET((size_t)k, &c->set)) used += (size_t)snprintf(where + used, sizeof where - used, " %d", k);
        launch_output_say(l->output, "rank %d: pid %d, threads %d, processors%s", i, (int)l->ranks[i].pid, c->threads,
                          where);
    }
}

/* Starts all ranks, or none. Returns 0 or an exit code, with the message printed. */
static int start_ranks(launch *l)
{
    for (int i = 0; i < l->options->ranks; i++) {
        int error;
        const char *step;
        pid_t pid = launch_start(l->options, &l->common, l->output, i, &l->cores[i], &error, &step);
        if (pid < 0) {
            launch_enter(l, LAUNCH_KILLED);
            if (!step) return exec_failed(l->common.argv[0], error);
            fprintf(stderr, "lockstep: %s rank %d of %d: %s%s\n", step, i, l->options->ranks, strerror(error),
                    error == EAGAIN   ? "; see 'ulimit -u'"
                    : error == EMFILE ? "; see 'ulimit -n'"
                                      : "");
            return EXIT_FAILED;
        }
        launch_keeper_point(l);
        atomic_store(&l->job->rank[i].pid, pid);
        l->ranks[i].pid = pid;
        l->ranks[i].stop_signal = 0;
        l->alive++;
        l->ranks[i].pidfd = pidfd_open(pid, 0); /* close-on-exec by default; -1: SIGCHLD is used instead */
        l->polls[POLL_RANKS + i] = (struct pollfd){ l->ranks[i].pidfd, POLLIN, 0 };
    }
    return 0;
}

/* Nothing is left to be ended, and what is left to be printed may take as long as its reader does: we go with the front. */
static bool print_the_rest(launch *l)
{
    struct pollfd front = { l->front, POLLIN, 0 };
    if (l->front >= 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (l->front >= 0 && poll(&front, 1, 0) > 0) l->end_requested = true; /* the front has ended */
    bool carried = launch_output_close(&l->output, l->end_requested ? FAREWELL_MS : -1);
    if (l->front >= 0) prctl(PR_SET_PDEATHSIG, 0);
    return carried;
}

static void close_job(launch *l)
{
    if (l->common.job_fd >= 0) close(l->common.job_fd);
    l->common.job_fd = -1;
    ls__job_detach(&l->job);
}

int launch_run_once(launch *l)
{
    const launch_options *o = l->options;
    l->alive = 0;
    l->phase = LAUNCH_RUNNING;
    l->exit_code = EXIT_DONE;
    int timeout_ms = o->timeout < 0 ? -1 : (int)(o->timeout * 1e3);
    ls_status status =
        l->job ? launch_elastic_renew(l, timeout_ms) : ls__job_create(o->ranks, timeout_ms, &l->job, &l->common.job_fd);
    if (!status) status = launch_output_open(&l->output, o, l->common.attempt);
    if (status) {
        fprintf(stderr, "lockstep: %s\n", ls_error());
        l->exit_code = exit_code(status);
        l->hopeless = true;
    } else if ((l->exit_code = start_ranks(l))) {
        l->hopeless = true;
    } else if (launch_output_start(l->output)) {
        fprintf(stderr, "lockstep: %s\n", ls_error());
        launch_fail(l, EXIT_FAILED);
        launch_enter(l, LAUNCH_KILLED);
    } else if (o->verbose) {
        say_who_is_who(l);
    }
    if (l->end_signal) launch_signal_all(l, l->end_signal);
    launch_watch(l);

    launch_end_orphans();
    bool carried = print_the_rest(l);
    if (!carried && !l->exit_code) l->exit_code = EXIT_FAILED;
    if (!l->elastic) close_job(l); /* programs that do not come from us may still have it */
    return l->exit_code;
}

/* A port that is free now; programs that rendezvous by themselves listen on it. */
static void find_port(char *out, size_t bytes)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    int port = 29500; /* torchrun's default, if there is no network */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !bind(fd, (struct sockaddr *)&address, size) && !getsockname(fd, (struct sockaddr *)&address, &size))
        port = ntohs(address.sin_port);
    if (fd >= 0) close(fd);
    snprintf(out, bytes, "%d", port);
}

static const char *get_variable(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

/* mpirun -n 2 lockstep run -n 2 would be two worlds of two ranks, which is a mistake. */
static int check_not_nested(void)
{
    ls__launch_info outer;
    if (ls__launch_info_read(&outer, get_variable, NULL)) return 0; /* ranks do not inherit what is wrong there */
    if (outer.launcher == LS__LAUNCHER_NONE || outer.launcher == LS__LAUNCHER_LOCKSTEP ||
        outer.launcher == LS__LAUNCHER_TORCHRUN || outer.size == 1)
        return 0;
    fprintf(stderr,
            "lockstep: %s started this as rank %d of several, and each would start its own ranks; let %s start the "
            "program directly\n",
            ls__launcher_name(outer.launcher), outer.rank, ls__launcher_name(outer.launcher));
    return EXIT_USAGE;
}

/* Blocks the signals that we pass on or need. What was ignored when we were started (nohup) stays ignored. */
static void block_signals(launch *l, sigset_t *set)
{
    sigemptyset(set);
    struct sigaction was;
    for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++)
        if (!sigaction(forwarded[i], NULL, &was) && was.sa_handler != SIG_IGN) sigaddset(set, forwarded[i]);
    signal(SIGCHLD, SIG_DFL); /* ignored, it would take away what became of the children */
    sigaddset(set, SIGCHLD);
    sigaddset(set, SIGTSTP);
    sigaddset(set, SIGCONT);
    sigprocmask(SIG_BLOCK, set, &l->common.mask);
    static const int held[] = { SIGINT, SIGTERM, SIGHUP };
    for (int i = 0; i < 3 && l->options->hold_signals; i++) sigaddset(&l->common.mask, held[i]);
    /* The launcher is not in the terminal's foreground and prints all the same, whatever 'stty tostop' says. */
    sigset_t output;
    sigemptyset(&output);
    sigaddset(&output, SIGTTOU);
    sigprocmask(SIG_BLOCK, &output, NULL);
    l->common.ignored_sigpipe = signal(SIGPIPE, SIG_IGN) == SIG_IGN;
}

/* Pipes and pidfds: at most five descriptors per rank. */
static void raise_file_limit(launch *l)
{
    getrlimit(RLIMIT_NOFILE, &l->common.files);
    struct rlimit more = l->common.files;
    more.rlim_cur = more.rlim_max;
    setrlimit(RLIMIT_NOFILE, &more);
}

/* Descriptors 0 to 2 must not become something else's. */
static void open_missing_standard_files(void)
{
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd < 3);
    if (fd >= 0) close(fd);
}

/* All starts of the ranks, in the launcher's process. */
static int run_all(launch *l, const sigset_t *signals)
{
    const launch_options *o = l->options;
    int code;
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* not inherited */
    l->signals = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
    l->polls[POLL_SIGNALS] = (struct pollfd){ l->signals, POLLIN, 0 };
    l->polls[POLL_FRONT] = (struct pollfd){ l->front, POLLIN, 0 };
    l->polls[POLL_CONTROL] = (struct pollfd){ -1, POLLIN, 0 };
    if (l->keeper) {
        code = launch_keep(l);
        close_job(l);
        close(l->signals);
        return code;
    }
    for (;; l->common.attempt++) {
        code = launch_run_once(l);
        if (l->elastic) {
            int before = o->ranks;
            if (!launch_elastic_next(l)) break;
            if (o->ranks != before) launch_divide_cores(o->ranks, !o->no_bind, l->cores);
            continue;
        }
        if (!code || l->end_requested || l->hopeless || l->common.attempt >= o->max_restarts) break;
        fprintf(stderr, "lockstep: restarting all ranks (restart %d of %d)\n", l->common.attempt + 1, o->max_restarts);
    }
    close_job(l);
    close(l->signals);
    return launch_elastic_gave_up(l) ? EXIT_FAILED : code;
}

int launch_ranks(const launch_options *o, char **argv)
{
    _Static_assert((int)LAUNCH_MAX_RANKS == (int)LS__JOB_MAX_RANKS, "what we may start, a job must be able to hold");
    if (o->ranks < 1 || o->ranks > LAUNCH_MAX_RANKS) {
        fprintf(stderr, "lockstep: -n %d: must be from 1 to %d ranks on one machine\n", o->ranks, LAUNCH_MAX_RANKS);
        return EXIT_USAGE;
    }
    int code = check_not_nested();
    if (code) return code;
    open_missing_standard_files();
    size_t n = (size_t)(o->elastic ? LAUNCH_MAX_RANKS : o->ranks);
    launch *l = calloc(1, sizeof *l + n * sizeof(launch_rank));
    launch_cores *cores = calloc(n, sizeof *cores);
    struct pollfd *polls = calloc(POLL_RANKS + n, sizeof *polls);
    sigset_t signals;
    if (!l || !cores || !polls) {
        fprintf(stderr, "lockstep: out of memory\n");
        code = EXIT_FAILED;
        goto done;
    }
    l->own = *o;
    l->options = &l->own;
    l->keeper = o->keeper;
    l->cores = cores;
    l->polls = polls;
    l->common.argv = argv;
    l->common.job_fd = l->common.kept_fd = -1;
    raise_file_limit(l);
    block_signals(l, &signals);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    launch_divide_cores(o->ranks, !o->no_bind, cores);
    if (!o->master_port) find_port(l->common.master_port, sizeof l->common.master_port);
    snprintf(l->common.run_id, sizeof l->common.run_id, "lockstep-%d", (int)getpid());
    if (o->elastic && launch_elastic_open(l)) {
        fprintf(stderr, "lockstep: %s\n", ls_error());
        code = EXIT_FAILED;
        goto done;
    }
    code = launch_front(&signals, &l->front);
    if (code < 0) {
        code = run_all(l, &signals);
        if (l->front >= 0) _exit(code); /* what follows is done by the front */
    }
done:
    if (l) launch_elastic_close(l);
    free(polls);
    free(cores);
    free(l);
    return code;
}

const char *launch_self(void)
{
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0 || access(path, X_OK)) return "/proc/self/exe"; /* replaced while it runs */
    return path;
}
