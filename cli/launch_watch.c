/* Watches the ranks until all have ended.
 *
 * One loop waits for three kinds of events: the end of a rank (its pidfd), stopped and continued ranks and our own signals (a
 * signalfd), and deadlines (the loop's timeout). The state of a rank is first written to the job memory, which wakes all ranks
 * that wait, and then printed.
 *
 * When a rank dies, the others have a grace period: their calls fail with an error that names the dead rank, and they may end by
 * themselves. Then they get SIGTERM, then SIGKILL. A rank's process group ends with the rank. Its pid is reaped last, so that the number
 * cannot mean another process while it is used. */
#include "cli/launch_parts.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    TERM_TO_KILL_MS = 250,      /* between SIGTERM and SIGKILL */
    DOUBLE_INTERRUPT_MS = 2000, /* a second interrupt within this time kills */
};
static const int64_t MS = 1000000;

/* ---- Ending ranks. */

void launch_signal_all(launch *l, int signal_number)
{
    for (int i = 0; i < l->options->ranks; i++)
        if (l->ranks[i].pid) kill(-l->ranks[i].pid, signal_number);
}

void launch_enter(launch *l, launch_phase to)
{
    l->phase = to;
    if (to == LAUNCH_TERMINATED) {
        launch_signal_all(l, SIGTERM);
        launch_signal_all(l, SIGCONT); /* a stopped one shall see it too */
    } else if (to == LAUNCH_KILLED) {
        launch_signal_all(l, SIGKILL);
    }
}

void launch_fail(launch *l, int exit_code)
{
    if (l->phase != LAUNCH_RUNNING) return;
    l->exit_code = exit_code;
    l->failed_at = ls_now();
    launch_enter(l, LAUNCH_FAILED);
}

static bool job_failed(const launch *l)
{
    return atomic_load_explicit(&l->job->failure.set, memory_order_acquire) == 2;
}

static int64_t stop_limit_ms(const launch *l)
{
    double seconds = l->options->stop_timeout > 0 ? l->options->stop_timeout : l->options->timeout;
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

/* A rank has ended: notify the others, print it, and end the processes that it left. */
static void rank_ended(launch *l, int rank, const siginfo_t *info)
{
    launch_rank *r = &l->ranks[rank];
    bool killed = info->si_code != CLD_EXITED;
    int code = info->si_status;
    char how[128], why[LS__FAILURE_BYTES + 2] = "";
    bool known = job_failed(l); /* a rank has reported an error before this one ended */
    bool timeout = (known && l->job->failure.status == LS_ETIMEOUT) || (!killed && gave_up_on_stopped(l, rank));
    if (known) snprintf(why, sizeof why, ": %s", l->job->failure.text);
    if (l->elastic && killed) {
        snprintf(how, sizeof how, "was killed by signal %d (%s)", code, strsignal(code));
        if (launch_elastic_lost(l, rank, how)) killed = false, code = 0; /* not the end of the job */
    } else if (l->elastic && code == LS__KEPT_EXIT && launch_elastic_changed(l)) {
        code = 0;
    }

    ls__job_set_state(l->job, rank, killed ? LS__RANK_KILLED : LS__RANK_EXITED, code);
    ls__job_describe_state(l->job, rank, how, sizeof how);
    if (killed || code) ls__job_fail(l->job, LS_EPEER, rank, "rank %d (pid %d) %s", rank, (int)r->pid, how);
    if ((killed || code) && l->phase == LAUNCH_RUNNING) {
        if (killed || !l->options->own_voice)
            launch_output_say(l->output, "rank %d (pid %d) %s%s", rank, (int)r->pid, how, why);
        launch_fail(l, timeout ? EXIT_TIMEOUT : killed ? EXIT_SIGNAL + code : code);
    }
    kill(-r->pid, SIGKILL);
    waitid(P_PID, (id_t)r->pid, NULL, WEXITED);
    close(r->pidfd);
    r->pid = 0;
    r->stop_signal = 0;
    l->polls[POLL_RANKS + rank].fd = -1;
    l->alive--;
}

/* ---- Stopped ranks. */

static void rank_stopped(launch *l, int rank, int signal_number)
{
    launch_rank *r = &l->ranks[rank];
    if (!r->stop_signal) r->state_before = atomic_load(&l->job->rank[rank].state);
    r->stop_signal = signal_number;
    r->stop_is_quiet = l->suspended;
    r->stopped_at = ls_now();
    ls__job_set_state(l->job, rank, LS__RANK_STOPPED, signal_number);
    if (r->stop_is_quiet || l->phase != LAUNCH_RUNNING) return;
    char limit[64] = "";
    if (stop_limit_ms(l) >= 0) snprintf(limit, sizeof limit, " for %g s", (double)stop_limit_ms(l) / 1e3);
    launch_output_say(l->output, "rank %d (pid %d) is stopped by SIG%s; waiting%s until it continues ('kill -CONT %d')",
                      rank, (int)r->pid, sigabbrev_np(signal_number), limit, (int)r->pid);
}

static void rank_continued(launch *l, int rank)
{
    launch_rank *r = &l->ranks[rank];
    if (!r->stop_signal) return;
    double seconds = (double)(ls_now() - r->stopped_at) / 1e9;
    r->stop_signal = 0;
    /* The rank runs already, and may have changed its state by itself. */
    uint32_t stopped = LS__RANK_STOPPED;
    atomic_compare_exchange_strong(&l->job->rank[rank].state, &stopped, r->state_before);
    ls__job_wake_all(l->job);
    if (!r->stop_is_quiet && l->phase == LAUNCH_RUNNING)
        launch_output_say(l->output, "rank %d (pid %d) continued after %.1f s", rank, (int)r->pid, seconds);
}

/* Ends the job if a rank was stopped for too long. */
static void check_stops(launch *l, int64_t now)
{
    int64_t limit = stop_limit_ms(l);
    for (int i = 0; i < l->options->ranks && l->phase == LAUNCH_RUNNING && limit >= 0 && !l->suspended; i++) {
        launch_rank *r = &l->ranks[i];
        if (!r->stop_signal || now - r->stopped_at < limit * MS) continue;
        char how[128];
        ls__job_describe_state(l->job, i, how, sizeof how);
        if (launch_elastic_lost(l, i, how)) return;
        ls__job_fail(l->job, LS_ETIMEOUT, i, "rank %d (pid %d) %s, and the timeout is %g s", i, (int)r->pid, how,
                     (double)limit / 1e3);
        launch_output_say(l->output, "rank %d (pid %d) %s, and the timeout is %g s (--timeout): ending the job", i,
                          (int)r->pid, how, (double)limit / 1e3);
        launch_fail(l, EXIT_TIMEOUT);
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
static bool has_ended(const launch_rank *r, siginfo_t *info)
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

/* What SIGCHLD stands for: one signal may mean several stops and ends. */
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
    /* What is left are processes that ranks have not ended. A rank that ended just now is for the next round. */
    for (;;) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid || rank_of(l, info.si_pid) >= 0) break;
        waitid(P_PID, (id_t)info.si_pid, NULL, WEXITED);
    }
}

/* Ctrl-Z stops the front, which passes it on, and the ranks; fg or bg, which send SIGCONT, wake all. */
static void suspend(launch *l)
{
    l->suspended = true;
    launch_signal_all(l, SIGTSTP);
    if (l->front < 0) raise(SIGSTOP);
}

static void resume(launch *l)
{
    launch_signal_all(l, SIGCONT);
    see_children(l); /* without a message: all ranks were stopped */
    l->suspended = false;
    for (int i = 0; i < l->options->ranks; i++)
        if (l->ranks[i].stop_signal) l->ranks[i].stopped_at = ls_now();
}

void launch_pass_on(launch *l, int number)
{
    int64_t now = ls_now();
    bool ends = number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
    if (ends) l->end_requested = true;
    if (ends && l->elastic && l->options->hold_signals) l->end_signal = number;
    if (ends) launch_elastic_stop(l);
    if (number == SIGINT) {
        if (l->interrupted_at && now - l->interrupted_at < DOUBLE_INTERRUPT_MS * MS) {
            launch_output_say(l->output, "interrupted again: killing all ranks");
            l->end_signal = 0;
            launch_fail(l, EXIT_SIGNAL + SIGINT);
            launch_enter(l, LAUNCH_KILLED);
            return;
        }
        l->interrupted_at = now;
    }
    if (ends && !l->keeper) launch_output_say(l->output, "SIG%s: forwarded to the ranks", sigabbrev_np(number));
    launch_signal_all(l, number);
}

static void read_signals(launch *l)
{
    struct signalfd_siginfo s;
    while (read(l->signals, &s, sizeof s) == sizeof s) {
        int number = (int)s.ssi_signo;
        if (number == SIGCHLD)
            see_children(l);
        else if (launch_keeper_leaves(l, number))
            launch_signal_all(l, SIGTERM);
        else if (number == SIGTSTP)
            suspend(l);
        else if (number == SIGCONT)
            resume(l);
        else
            launch_pass_on(l, number);
    }
}

/* The front was killed: so are the ranks. */
static void front_is_gone(launch *l)
{
    l->polls[POLL_FRONT].fd = -1;
    l->front_gone = true;
    l->end_requested = true;
    l->end_signal = 0;
    launch_fail(l, EXIT_SIGNAL + SIGKILL);
    launch_enter(l, LAUNCH_KILLED);
}

/* ---- The loop. */

static int64_t phase_ends(const launch *l)
{
    double grace = l->options->grace > 0 ? l->options->grace : 0.5;
    int64_t term = l->failed_at + (int64_t)(grace * 1e9);
    if (l->phase == LAUNCH_FAILED) return term;
    if (l->phase == LAUNCH_TERMINATED) return term + TERM_TO_KILL_MS * MS;
    return INT64_MAX;
}

/* When the loop must look again, without news. */
static int64_t next_deadline(const launch *l)
{
    int64_t next = phase_ends(l), limit = stop_limit_ms(l);
    for (int i = 0; i < l->options->ranks && limit >= 0 && l->phase == LAUNCH_RUNNING; i++)
        if (l->ranks[i].stop_signal && l->ranks[i].stopped_at + limit * MS < next)
            next = l->ranks[i].stopped_at + limit * MS;
    return next;
}

void launch_watch(launch *l)
{
    while (l->alive > 0) {
        int64_t now = ls_now(), next = next_deadline(l);
        if (l->phase != LAUNCH_RUNNING && now >= next) {
            launch_enter(l, l->phase + 1);
            continue;
        }
        int wait = next == INT64_MAX         ? -1
                   : next <= now             ? 0
                   : next - now > 60000 * MS ? 60000
                                             : (int)((next - now) / MS) + 1;
        int most = launch_keeper_wait_ms(l);
        if (most >= 0 && (wait < 0 || wait > most)) wait = most;
        int n = poll(l->polls, POLL_RANKS + (nfds_t)l->options->ranks, wait);
        if (n > 0 && l->polls[POLL_FRONT].revents) front_is_gone(l);
        if (n > 0) see_ends(l);
        if (n > 0 && l->polls[POLL_SIGNALS].revents) read_signals(l);
        launch_keeper_listen(l);
        check_stops(l, ls_now());
    }
}
