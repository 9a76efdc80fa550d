/* The front: the process that the user started. It starts the launcher as its child, forwards signals to it, stops and continues with
 * it, and ends with its exit code.
 *
 * Why two processes: when the launcher is killed, everything that the ranks started must end, including processes that left their
 * process groups and sessions. Such processes are inherited by the nearest living "subreaper" above them. Each of the two watches
 * the other: the launcher kills everything when the front has ended, which it sees at a pipe whose other end the front holds;
 * and the front inherits and kills what a killed launcher leaves. */
#include "cli/launch_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void launch_end_orphans(void)
{
    char path[64], pids[4096];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    for (;;) {
        FILE *f = fopen(path, "re");
        if (!f) return;
        size_t n = fread(pids, 1, sizeof pids - 1, f);
        fclose(f);
        while (n && pids[n - 1] != ' ') n--; /* a number that was cut off is read in the next round */
        pids[n] = 0;
        if (!n) return;
        char *end;
        for (char *at = pids; *at; at = end + 1) kill((pid_t)strtol(at, &end, 10), SIGKILL);
        for (char *at = pids; *at; at = end + 1) waitpid((pid_t)strtol(at, &end, 10), NULL, 0);
    }
}

/* The launcher has ended: how? */
static bool has_ended(pid_t launcher, int *code)
{
    siginfo_t info = { 0 };
    if (waitid(P_PID, (id_t)launcher, &info, WEXITED | WNOHANG) || !info.si_pid) return false;
    *code = info.si_status;
    if (info.si_code == CLD_EXITED) return true;
    fprintf(stderr, "lockstep: the launcher (pid %d) was killed by signal %d (%s); ending the ranks\n", (int)launcher,
            info.si_status, strsignal(info.si_status));
    *code = EXIT_SIGNAL + info.si_status;
    return true;
}

/* The terminal has put ^C where the cursor was, perhaps after a progress line that is redrawn: messages begin on a new line. */
static void end_line_of_interrupt(const siginfo_t *info)
{
    if (info->si_signo != SIGINT || info->si_code != SI_KERNEL || !isatty(STDERR_FILENO)) return;
    ssize_t ignored = write(STDERR_FILENO, "\n", 1);
    (void)ignored;
}

static int stand_in_front(pid_t launcher, const sigset_t *signals)
{
    siginfo_t info;
    int code = EXIT_FAILED;
    while (!has_ended(launcher, &code)) {
        int number = sigwaitinfo(signals, &info);
        if (number < 0 || number == SIGCHLD) continue; /* EINTR: we were stopped */
        end_line_of_interrupt(&info);
        kill(launcher, number);
        if (number == SIGTSTP) raise(SIGSTOP); /* the launcher stops the ranks */
    }
    launch_end_orphans();
    return code;
}

int launch_front(const sigset_t *signals, int *front)
{
    int ends[2], code = -1;
    *front = -1;
    fflush(NULL); /* or what is buffered would be printed twice */
    if (pipe2(ends, O_CLOEXEC)) return code;
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0); /* a signal to our process group must not reach the launcher */
        prctl(PR_SET_NAME, "lockstep-ranks");
        close(ends[1]);
        *front = ends[0];
        return -1;
    }
    if (pid > 0) code = stand_in_front(pid, signals);
    close(ends[0]);
    close(ends[1]);
    return code;
}
