/* The launcher: starts the ranks, watches them, tells the others what became of one, and leaves nothing behind.
 *
 * One loop waits for three kinds of news. A rank's end shows on its pidfd. That a rank was stopped or goes on, and
 * signals for ourselves, come through a signalfd. Deadlines are the loop's timeout. What became of a rank is written
 * into the job's memory at once, which wakes all ranks that wait there; only then is it printed.
 *
 * When a rank dies, the others have a grace period: they return from what they wait for with an error that names the
 * dead, and may end by themselves. Then comes SIGTERM, then SIGKILL. A rank's process group ends with the rank, so what
 * it started goes too, and as a "subreaper" we inherit whatever left the group, and end it in the end. A rank's pid is
 * reaped last, so that its number cannot mean another process while we still use it. */
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
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cli/commands.h"
#include "cli/launch_parts.h"
#include "comm/identity.h"
#include "comm/job.h"

enum {
    TERM_TO_KILL_MS = 250,      /* between SIGTERM and SIGKILL */
    DOUBLE_INTERRUPT_MS = 2000, /* a second interrupt within this time kills */
    FAREWELL_MS = 1000,         /* for our reader, after a signal ended us */
};
static const int64_t MS = 1000000;

/* Signals that are passed on to the ranks. */
static const int forwarded[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH };

typedef struct rank_process {
    pid_t pid; /* 0: not started, or gone */
    int pidfd;
    int stop_signal;       /* 0: not stopped */
    bool stop_is_quiet;    /* everybody was stopped, with us */
    uint32_t state_before; /* of the stop */
    int64_t stopped_at;
} rank_process;

typedef enum phase {
    RUNNING,
    FAILED,     /* the others may end by themselves */
    TERMINATED, /* they were asked to */
    KILLED,
} phase;

typedef struct launch {
    const launch_options *options;
    launch_common common;
    launch_cores *cores;
    launch_output *output;
    ls__job *job;
    int signals, guard;
    int alive; /* ranks that run */
    phase phase;
    int64_t failed_at; /* ls_now() of the first failure */
    int exit_code;
    bool told_to_end; /* by a signal: no restart */
    bool hopeless;    /* the ranks cannot be started: no restart */
    bool suspended;   /* with all ranks, by Ctrl-Z */
    int64_t interrupted_at;
    struct pollfd *polls; /* signals, then the ranks' pidfds */
    rank_process ranks[];
} launch;

/* ---- Ending ranks. */

static void signal_all(launch *l, int signal_number)
{
    for (int i = 0; i < l->options->ranks; i++)
        if (l->ranks[i].pid) kill(-l->ranks[i].pid, signal_number);
}

static void enter(launch *l, phase to)
{
    l->phase = to;
    if (to == TERMINATED) {
        signal_all(l, SIGTERM);
        signal_all(l, SIGCONT); /* a stopped one shall see it too */
    } else if (to == KILLED) {
        signal_all(l, SIGKILL);
    }
}

/* The first failure decides the exit code. */
static void fail(launch *l, int exit_code)
{
    if (l->phase != RUNNING) return;
    l->exit_code = exit_code;
    l->failed_at = ls_now();
    enter(l, FAILED);
}

static bool job_failed(const launch *l)
{
    return atomic_load_explicit(&l->job->failure.set, memory_order_acquire) == 2;
}

static int64_t stop_limit_ms(const launch *l)
{
    double seconds = l->options->timeout;
    return seconds < 0 ? -1 : (int64_t)((seconds > 0 ? seconds : 30) * 1e3);
}

/* A rank that gives up waiting for a stopped one does so when its own time is up, which may be a little before ours:
 * that, too, is the timeout. */
static bool gave_up_on_stopped(const launch *l, int rank)
{
    int64_t now = ls_now(), limit = stop_limit_ms(l);
    for (int i = 0; i < l->options->ranks && limit >= 0; i++)
        if (i != rank && l->ranks[i].stop_signal && now - l->ranks[i].stopped_at >= limit * MS / 2) return true;
    return false;
}

/* A rank is gone: tell the others, print it, and end what it left behind. */
static void rank_ended(launch *l, int rank, const siginfo_t *info)
{
    rank_process *r = &l->ranks[rank];
    bool killed = info->si_code != CLD_EXITED;
    int code = info->si_status;
    char how[128], why[LS__JOB_FAILURE_BYTES + 2] = "";
    bool known = job_failed(l); /* a rank has said what is wrong before this one ended */
    bool timeout = (known && l->job->failure.status == LS_ETIMEOUT) || (!killed && gave_up_on_stopped(l, rank));
    if (known) snprintf(why, sizeof why, ": %s", l->job->failure.text);

    ls__job_set_state(l->job, rank, killed ? LS__RANK_KILLED : LS__RANK_EXITED, code);
    ls__job_describe_state(l->job, rank, how, sizeof how);
    if (killed || code) ls__job_fail(l->job, LS_EPEER, rank, "rank %d (pid %d) %s", rank, (int)r->pid, how);
    if ((killed || code) && l->phase == RUNNING) {
        launch_output_say(l->output, "rank %d (pid %d) %s%s", rank, (int)r->pid, how, why);
        fail(l, timeout ? EXIT_TIMEOUT : killed ? 128 + code : code);
    }
    kill(-r->pid, SIGKILL);
    launch_guard_tell(l->guard, -r->pid);
    waitid(P_PID, (id_t)r->pid, NULL, WEXITED);
    close(r->pidfd);
    r->pid = 0;
    r->stop_signal = 0;
    l->polls[1 + rank].fd = -1;
    l->alive--;
}

/* ---- Stopped ranks. */

static void rank_stopped(launch *l, int rank, int signal_number)
{
    rank_process *r = &l->ranks[rank];
    if (!r->stop_signal) r->state_before = atomic_load(&l->job->rank[rank].state);
    r->stop_signal = signal_number;
    r->stop_is_quiet = l->suspended;
    r->stopped_at = ls_now();
    ls__job_set_state(l->job, rank, LS__RANK_STOPPED, signal_number);
    if (r->stop_is_quiet || l->phase != RUNNING) return;
    char limit[64] = "";
    if (stop_limit_ms(l) >= 0) snprintf(limit, sizeof limit, " for %g s", (double)stop_limit_ms(l) / 1e3);
    launch_output_say(l->output, "rank %d (pid %d) is stopped by SIG%s; waiting%s for it to go on ('kill -CONT %d')",
                      rank, (int)r->pid, sigabbrev_np(signal_number), limit, (int)r->pid);
}

static void rank_continued(launch *l, int rank)
{
    rank_process *r = &l->ranks[rank];
    if (!r->stop_signal) return;
    double seconds = (double)(ls_now() - r->stopped_at) / 1e9;
    r->stop_signal = 0;
    /* The rank runs already, and may have changed its state by itself. */
    uint32_t stopped = LS__RANK_STOPPED;
    atomic_compare_exchange_strong(&l->job->rank[rank].state, &stopped, r->state_before);
    ls__job_ring_all(l->job);
    if (!r->stop_is_quiet && l->phase == RUNNING)
        launch_output_say(l->output, "rank %d (pid %d) goes on, after %.1f s", rank, (int)r->pid, seconds);
}

/* Ends the job if a rank was stopped for too long. */
static void check_stops(launch *l, int64_t now)
{
    int64_t limit = stop_limit_ms(l);
    for (int i = 0; i < l->options->ranks && l->phase == RUNNING && limit >= 0 && !l->suspended; i++) {
        rank_process *r = &l->ranks[i];
        if (!r->stop_signal || now - r->stopped_at < limit * MS) continue;
        char how[128];
        ls__job_describe_state(l->job, i, how, sizeof how);
        ls__job_fail(l->job, LS_ETIMEOUT, i, "rank %d (pid %d) %s, and the timeout is %g s", i, (int)r->pid, how,
                     (double)limit / 1e3);
        launch_output_say(l->output, "rank %d (pid %d) %s, and the timeout is %g s (--timeout): ending the job", i,
                          (int)r->pid, how, (double)limit / 1e3);
        fail(l, EXIT_TIMEOUT);
    }
}

/* ---- News. */

static int rank_of(const launch *l, pid_t pid)
{
    for (int i = 0; i < l->options->ranks; i++)
        if (l->ranks[i].pid == pid) return i;
    return -1;
}

/* Has this rank ended? Its pid stays reserved until rank_ended() is done with it. */
static bool has_ended(const rank_process *r, siginfo_t *info)
{
    info->si_pid = 0;
    return r->pid && !waitid(P_PID, (id_t)r->pid, info, WEXITED | WNOHANG | WNOWAIT) && info->si_pid;
}

/* Of ranks that ended together, one that was killed is the cause, and the others' exit codes are the effect. */
static void see_ends(launch *l)
{
    siginfo_t info;
    for (int killed = 1; killed >= 0; killed--)
        for (int i = 0; i < l->options->ranks; i++)
            if (has_ended(&l->ranks[i], &info) && (!killed || info.si_code != CLD_EXITED)) rank_ended(l, i, &info);
}

/* What SIGCHLD stands for: several stops and ends may hide behind one. */
static void see_children(launch *l)
{
    siginfo_t info;
    for (int i = 0; i < l->options->ranks; i++)
        while (l->ranks[i].pid) {
            info.si_pid = 0;
            if (waitid(P_PID, (id_t)l->ranks[i].pid, &info, WSTOPPED | WCONTINUED | WNOHANG) || !info.si_pid) break;
            if (info.si_code == CLD_CONTINUED)
                rank_continued(l, i);
            else
                rank_stopped(l, i, info.si_status);
        }
    see_ends(l);
    /* What is left are processes that ranks left behind. A rank that ended just now is for the next round. */
    for (;;) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid || rank_of(l, info.si_pid) >= 0) break;
        waitid(P_PID, (id_t)info.si_pid, NULL, WEXITED);
    }
}

/* Ctrl-Z stops the ranks, then us; fg or bg, which send SIGCONT, wake all. */
static void suspend(launch *l)
{
    l->suspended = true;
    signal_all(l, SIGTSTP);
    raise(SIGSTOP);
}

static void resume(launch *l)
{
    signal_all(l, SIGCONT);
    see_children(l); /* quietly: that they stopped is no news */
    l->suspended = false;
    for (int i = 0; i < l->options->ranks; i++)
        if (l->ranks[i].stop_signal) l->ranks[i].stopped_at = ls_now();
}

static void pass_on(launch *l, int number)
{
    int64_t now = ls_now();
    bool ends = number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
    if (ends) l->told_to_end = true;
    if (number == SIGINT) {
        if (l->interrupted_at && now - l->interrupted_at < DOUBLE_INTERRUPT_MS * MS) {
            launch_output_say(l->output, "interrupted again: killing all ranks");
            fail(l, 128 + SIGINT);
            enter(l, KILLED);
            return;
        }
        l->interrupted_at = now;
    }
    if (ends) launch_output_say(l->output, "SIG%s: passed on to the ranks", sigabbrev_np(number));
    signal_all(l, number);
}

static void read_signals(launch *l)
{
    struct signalfd_siginfo s;
    while (read(l->signals, &s, sizeof s) == sizeof s) {
        int number = (int)s.ssi_signo;
        if (number == SIGCHLD)
            see_children(l);
        else if (number == SIGTSTP)
            suspend(l);
        else if (number == SIGCONT)
            resume(l);
        else
            pass_on(l, number);
    }
}

/* ---- The loop. */

static int64_t phase_ends(const launch *l)
{
    double grace = l->options->grace > 0 ? l->options->grace : 0.5;
    int64_t term = l->failed_at + (int64_t)(grace * 1e9);
    if (l->phase == FAILED) return term;
    if (l->phase == TERMINATED) return term + TERM_TO_KILL_MS * MS;
    return INT64_MAX;
}

/* When the loop must look again, without news. */
static int64_t next_deadline(const launch *l)
{
    int64_t next = phase_ends(l), limit = stop_limit_ms(l);
    for (int i = 0; i < l->options->ranks && limit >= 0 && l->phase == RUNNING; i++)
        if (l->ranks[i].stop_signal && l->ranks[i].stopped_at + limit * MS < next)
            next = l->ranks[i].stopped_at + limit * MS;
    return next;
}

static void watch(launch *l)
{
    while (l->alive > 0) {
        int64_t now = ls_now(), next = next_deadline(l);
        if (l->phase != RUNNING && now >= next) {
            enter(l, l->phase + 1);
            continue;
        }
        int wait = next == INT64_MAX         ? -1
                   : next <= now             ? 0
                   : next - now > 60000 * MS ? 60000
                                             : (int)((next - now) / MS) + 1;
        int n = poll(l->polls, (nfds_t)l->options->ranks + 1, wait);
        if (n > 0) see_ends(l);
        if (n > 0 && l->polls[0].revents) read_signals(l);
        check_stops(l, ls_now());
    }
}

/* ---- Starting and tidying up. */

static int exec_failed(const char *program, int error)
{
    bool there = strchr(program, '/') && !access(program, F_OK);
    if (error == ENOENT && there) {
        fprintf(stderr, "lockstep: %s: the program is there, and the interpreter that its first line names is not\n",
                program);
        return EXIT_NOT_FOUND;
    }
    if (error == ENOENT || error == ENOTDIR) {
        fprintf(stderr, "lockstep: %s: no such program%s\n", program,
                strchr(program, '/') ? "; check the path" : " in PATH; for one in this folder write ./ in front");
        return EXIT_NOT_FOUND;
    }
    if (error == EACCES)
        fprintf(stderr, "lockstep: %s: not executable; use 'chmod +x', or name its interpreter: -- python3 %s\n",
                program, program);
    else
        fprintf(stderr, "lockstep: %s: cannot be executed: %s\n", program, strerror(error));
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
            enter(l, KILLED);
            if (!step) return exec_failed(l->common.argv[0], error);
            fprintf(stderr, "lockstep: %s rank %d of %d: %s%s\n", step, i, l->options->ranks, strerror(error),
                    error == EAGAIN   ? "; see 'ulimit -u'"
                    : error == EMFILE ? "; see 'ulimit -n'"
                                      : "");
            return EXIT_FAILED;
        }
        atomic_store(&l->job->rank[i].pid, pid);
        l->ranks[i].pid = pid;
        l->ranks[i].stop_signal = 0;
        l->alive++;
        launch_guard_tell(l->guard, pid);
        l->ranks[i].pidfd = pidfd_open(pid, 0); /* close-on-exec by itself; -1: SIGCHLD tells, a little later */
        l->polls[1 + i] = (struct pollfd){ l->ranks[i].pidfd, POLLIN, 0 };
    }
    return 0;
}

/* Ends what left its rank's process group and outlived it: such processes are our children now. Those that end leave
 * us their own children, so we look again until there are none. */
static void end_orphans(void)
{
    char path[64], pids[4096];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    for (;;) {
        FILE *f = fopen(path, "re");
        if (!f) return;
        size_t n = fread(pids, 1, sizeof pids - 1, f);
        fclose(f);
        while (n && pids[n - 1] != ' ') n--; /* a number may be cut off; its turn comes */
        pids[n] = 0;
        if (!n) return;
        char *end;
        for (char *at = pids; *at; at = end + 1) kill((pid_t)strtol(at, &end, 10), SIGKILL);
        for (char *at = pids; *at; at = end + 1) waitpid((pid_t)strtol(at, &end, 10), NULL, 0);
    }
}

/* One start of all ranks until all are gone. */
static int run_once(launch *l)
{
    const launch_options *o = l->options;
    l->alive = 0;
    l->phase = RUNNING;
    l->exit_code = EXIT_DONE;
    l->guard = launch_guard_start();
    ls_status status =
        ls__job_create(o->ranks, o->timeout < 0 ? -1 : (int)(o->timeout * 1e3), &l->job, &l->common.job_fd);
    if (!status) status = launch_output_open(&l->output, o, l->common.attempt);
    if (status) {
        fprintf(stderr, "lockstep: %s\n", ls_error());
        l->exit_code = status == LS_EINVAL ? EXIT_USAGE : EXIT_FAILED;
        l->hopeless = true;
    } else if ((l->exit_code = start_ranks(l))) {
        l->hopeless = true;
    } else if (launch_output_start(l->output)) {
        fprintf(stderr, "lockstep: %s\n", ls_error());
        fail(l, EXIT_FAILED);
        enter(l, KILLED);
    } else if (o->verbose) {
        say_who_is_who(l);
    }
    watch(l);

    if (l->guard >= 0) close(l->guard);
    end_orphans();
    launch_output_close(&l->output, l->told_to_end ? FAREWELL_MS : -1);
    if (l->common.job_fd >= 0) close(l->common.job_fd);
    ls__job_detach(&l->job);
    return l->exit_code;
}

/* A port that is free now; programs that rendezvous by themselves listen on it. */
static void find_port(char *out, size_t bytes)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    int port = 29500; /* torchrun's, where there is no network at all */
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

/* mpirun -n 2 lockstep run -n 2 would be two worlds of two, which nobody wants. */
static int check_not_nested(void)
{
    ls__identity outer;
    if (ls__identity_find(&outer, get_variable, NULL)) return 0; /* ranks do not inherit what is wrong there */
    if (outer.launcher == LS__LAUNCHER_ALONE || outer.launcher == LS__LAUNCHER_LOCKSTEP ||
        outer.launcher == LS__LAUNCHER_TORCHRUN || outer.size == 1)
        return 0;
    fprintf(stderr,
            "lockstep: %s started this as rank %d of several, and each would start a world of its own; "
            "let %s start the program itself\n",
            ls__launcher_name(outer.launcher), outer.rank, ls__launcher_name(outer.launcher));
    return EXIT_USAGE;
}

/* Signals come through a descriptor from now on. What was ignored when we were started (nohup) stays ignored. */
static void take_signals(launch *l)
{
    sigset_t set;
    sigemptyset(&set);
    struct sigaction was;
    for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++)
        if (!sigaction(forwarded[i], NULL, &was) && was.sa_handler != SIG_IGN) sigaddset(&set, forwarded[i]);
    signal(SIGCHLD, SIG_DFL); /* ignored, it would take away what became of the children */
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTSTP);
    sigaddset(&set, SIGCONT);
    sigprocmask(SIG_BLOCK, &set, &l->common.mask);
    l->common.ignored_sigpipe = signal(SIGPIPE, SIG_IGN) == SIG_IGN;
    l->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    l->polls[0] = (struct pollfd){ l->signals, POLLIN, 0 };
}

/* Pipes and pidfds: five descriptors a rank at the most. */
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

int launch_ranks(const launch_options *o, char **argv)
{
    _Static_assert((int)LAUNCH_MAX_RANKS == (int)LS__JOB_MAX_RANKS, "what we may start, a job must be able to hold");
    if (o->ranks < 1 || o->ranks > LAUNCH_MAX_RANKS) {
        fprintf(stderr, "lockstep: -n %d: possible are 1 to %d ranks on one machine\n", o->ranks, LAUNCH_MAX_RANKS);
        return EXIT_USAGE;
    }
    int code = check_not_nested();
    if (code) return code;
    open_missing_standard_files();
    size_t n = (size_t)o->ranks;
    launch *l = calloc(1, sizeof *l + n * sizeof(rank_process));
    launch_cores *cores = calloc(n, sizeof *cores);
    struct pollfd *polls = calloc(n + 1, sizeof *polls);
    if (!l || !cores || !polls) {
        fprintf(stderr, "lockstep: out of memory\n");
        code = EXIT_FAILED;
        goto done;
    }
    l->options = o;
    l->cores = cores;
    l->polls = polls;
    l->common.argv = argv;
    l->common.job_fd = -1;
    raise_file_limit(l);
    take_signals(l);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    launch_divide_cores(o->ranks, !o->no_bind, cores);
    if (!o->master_port) find_port(l->common.master_port, sizeof l->common.master_port);
    snprintf(l->common.run_id, sizeof l->common.run_id, "lockstep-%d", (int)getpid());

    for (;; l->common.attempt++) {
        code = run_once(l);
        if (!code || l->told_to_end || l->hopeless || l->common.attempt >= o->max_restarts) break;
        fprintf(stderr, "lockstep: starting all ranks again (restart %d of %d)\n", l->common.attempt + 1,
                o->max_restarts);
    }
done:
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
