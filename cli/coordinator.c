/* The coordinator of an elastic job on several machines: the process that the user started.
 *
 * On each machine a keeper (cli/keeper.c) holds the state of the run in its memory, and starts ranks when it is told to. The job is
 * a sequence of generations, as on one machine (launch_elastic.c): when a rank or a machine is lost, all ranks are ended, and the
 * next generation begins on the machines that are there. Ranks make the state that they find on their machines the same
 * (train/kept_nodes.c). A machine that is lost is tried again; when it is back, or a new one is in the hostfile, the ranks are
 * asked to end their generation after a step, and the next one includes it. The coordinator decides alone who takes part: machines
 * that cannot reach it stop computing.
 *
 * Lines between coordinator and keepers, over TCP; every 0.1 s one from each side:
 *   lockstep-keeper VERSION SECRET NAME UID READY PROCESS
 *                                                   the keeper's first; the answer is "welcome" or "refused WHY"
 *   beat
 *   start GENERATION FIRST RANKS WORLD NODE NODES US_AGO WHY
 *   end                                             kill the ranks
 *   signal NUMBER                                   for the ranks
 *   change                                          ask the ranks to end the generation after a step
 *   quit
 *   lost RANK HOW                                   from the keeper, as soon as it is known
 *   ended CODE STEP LOST CHANGED LEAVING SLOTS READY NOTED
 *
 * A beat that is missing for --machine-timeout means that the machine is lost. The secret is random, made for the job, and passed
 * on stdin. */
#include "cli/coordinator.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/text.h"
#include "cli/escape.h"
#include "cli/machines.h"
#include "lockstep/base.h"

enum {
    GATHER_MS = 30000, /* for all keepers to connect, at first */
    WAIT_MS = 60000,   /* for a keeper to come back: as long as keepers themselves try */
    LATE_MS = 500,     /* between two rounds of the loop */
    QUIT_MS = 3000,    /* for keepers to end */
    MOST_IN_VAIN = 8,  /* generations in a row without a step */
    SSH_LOST = 255,    /* exit code of ssh when not the command has ended, but its connection */
    DOUBLE_INTERRUPT_MS = 2000,
};
static const int64_t MS = 1000000;

void coordinator_say(const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "lockstep: %s\n", printable(text));
}

/* ---- The end of a generation. */

static void enter(coordinator *c, coordinator_phase to)
{
    c->phase = to;
    c->begun = ls_now();
}

void coordinator_tell_running(coordinator *c, const char *line)
{
    for (int i = 0; i < c->n; i++)
        if (c->machines[i].state == MACHINE_RUNNING && !control_say(&c->machines[i].link, "%s\n", line))
            control_close(&c->machines[i].link); /* the loop finds it */
}

void coordinator_note_loss(coordinator *c, int64_t when, const char *format, ...)
{
    va_list args;
    if (!c->any_lost) {
        va_start(args, format);
        vsnprintf(c->why, sizeof c->why, format, args);
        va_end(args);
        c->lost_at = when;
    }
    c->any_lost = true;
    if (c->phase != COORDINATOR_RUNNING) return;
    enter(c, COORDINATOR_ENDING);
    coordinator_tell_running(c, "end");
}

static void pass_signal_on(coordinator *c)
{
    char line[32];
    snprintf(line, sizeof line, "signal %d", c->end_signal);
    coordinator_tell_running(c, line);
}

/* ---- Generations. */

static bool start_on(coordinator *c, machine *m, int first, int world, int node, int nodes, int64_t ago)
{
    m->first = first;
    m->lost = m->leaving = m->code = 0;
    m->changed = false;
    if (!control_say(&m->link, "start %d %d %d %d %d %d %lld %s\n", c->generation, first, m->ranks, world, node, nodes,
                     (long long)ago, c->why)) {
        membership_lost(c, m, "its keeper takes no orders");
        coordinator_note_loss(c, ls_now(), "machine %s is lost: its keeper takes no orders", m->host.name);
        return false;
    }
    membership_set_state(m, MACHINE_RUNNING);
    return true;
}

static void end_for_lack_of(coordinator *c, const char *what)
{
    coordinator_say("%s; %s: ending the job", c->why, what);
    c->over = c->end_requested = true;
    c->code = EXIT_FAILED;
}

/* No machine is there from which the run can be continued. Keepers that cannot be reached still have its state for a while. */
static void wait_for_machines(coordinator *c, bool any)
{
    int returning = 0;
    for (int i = 0; i < c->n; i++) returning += c->machines[i].listed && c->machines[i].returning;
    if (!returning || (c->phase == COORDINATOR_WAITING && ls_now() - c->begun > WAIT_MS * MS)) {
        end_for_lack_of(
            c,
            any ? "no machine is left that has the state of the run; continue it from its last checkpoint with --resume"
                : "no rank is left");
    } else if (c->phase != COORDINATOR_WAITING) {
        coordinator_say("%s; waiting up to %d s for %s to come back", c->why, WAIT_MS / 1000,
                        returning == 1 ? "it" : "a machine");
        enter(c, COORDINATOR_WAITING);
    }
}

/* As in launch_elastic.c: a generation that was lost before it finished a step leaves no line, and the next one says for both. If the
 * machine that wrote the line is lost at once, nobody knows of it, and it is said again. */
static void remember_why(coordinator *c)
{
    char both[2 * sizeof c->why + 8];
    if (!c->noted && c->step == c->began_at && c->last_lost_at) {
        snprintf(both, sizeof both, "%s; %s", c->last_why, c->why);
        snprintf(c->why, sizeof c->why, "%.*s", (int)sizeof c->why - 1, both);
        c->lost_at = c->last_lost_at;
    }
    c->last_lost_at = c->lost_at;
    c->noted = false;
    snprintf(c->last_why, sizeof c->last_why, "%s", c->why);
}

/* Starts ranks on all machines that are there. */
static void begin_generation(coordinator *c)
{
    int world = 0, nodes = 0;
    bool stateful = false;
    for (int i = 0; i < c->n; i++) {
        machine *m = &c->machines[i];
        m->ranks = membership_ranks_of(m) > 0 ? membership_ranks_of(m) : 0;
        if (c->slots && world + m->ranks > c->slots) m->ranks = c->slots - world;
        world += m->ranks;
        nodes += m->ranks > 0;
        stateful = stateful || (m->ranks && m->ready);
    }
    if (!world || (c->stateful && !stateful)) {
        wait_for_machines(c, world > 0);
        return;
    }
    job_store_free(&c->store);
    if (c->generation)
        coordinator_say("%s; continuing after step %lld with %d rank%s on %d machine%s", c->why, (long long)c->step,
                        world, ls__s(world), nodes, ls__s(nodes));
    c->any_lost = c->asked = false;
    remember_why(c);
    c->began_at = c->step;
    enter(c, COORDINATOR_RUNNING);
    int64_t ago = c->lost_at ? (ls_now() - c->lost_at) / 1000 + 1 : 0;
    int first = 0, node = 0;
    c->lost_at = 0;
    for (int i = 0; i < c->n && c->phase == COORDINATOR_RUNNING; i++) {
        machine *m = &c->machines[i];
        if (!m->ranks || !start_on(c, m, first, world, node++, nodes, ago)) continue;
        first += m->ranks;
    }
    c->generation++;
    if (c->end_signal) pass_signal_on(c); /* they recover, save and end */
}

/* All ranks have ended. */
static void next_generation(coordinator *c)
{
    bool changed = false;
    int leaving = 0, code = EXIT_DONE;
    for (int i = 0; i < c->n; i++) {
        machine *m = &c->machines[i];
        if (!m->ranks) continue;
        changed = changed || m->changed;
        leaving += m->leaving;
        if (!code && m->state == MACHINE_THERE) code = m->code;
        m->missing += m->leaving;
        for (int k = 0; k < m->lost; k++) {
            if (c->restarts > 0)
                c->restarts--;
            else
                m->missing++;
        }
        m->ranks = 0;
    }
    if ((c->end_requested && !c->end_signal) || (!c->any_lost && !changed)) {
        if (!c->code) c->code = code;
        c->over = true;
        return;
    }
    if (!c->any_lost) {
        if (leaving) snprintf(c->why, sizeof c->why, "SIGTERM to %d rank%s", leaving, ls__s(leaving));
        c->lost_at = ls_now();
    }
    c->in_vain = c->step > c->began_at || !c->any_lost ? 0 : c->in_vain + 1;
    if (c->in_vain >= MOST_IN_VAIN) {
        coordinator_say("%d starts in a row were lost before a step was finished: ending the job; if memory ran out, "
                        "'dmesg' says so",
                        c->in_vain);
        c->over = true;
        c->code = EXIT_FAILED;
        return;
    }
    begin_generation(c);
}

/* ---- Signals. */

static void starters_ended(coordinator *c)
{
    for (int i = 0; i < c->n; i++) {
        machine *m = &c->machines[i];
        int status;
        if (!m->starter || waitpid(m->starter, &status, WNOHANG) != m->starter) continue;
        m->starter = 0;
        if (WIFEXITED(status) && WEXITSTATUS(status) == SSH_LOST && !m->is_here) m->detached = true;
        if (!m->detached) m->returning = false;
        if (m->state != MACHINE_STARTING) continue;
        membership_set_state(m, MACHINE_ABSENT);
        if (!c->generation) {
            coordinator_say("machine %s: its keeper could not be started (exit code %d of '%s')", m->host.name,
                            WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_SIGNAL + WTERMSIG(status),
                            m->is_here ? "sh" : c->options->rsh);
            c->over = true;
            c->code = EXIT_FAILED;
        }
    }
}

static void pass_on(coordinator *c, int number)
{
    int64_t now = ls_now();
    bool again = number == SIGINT && c->interrupted_at && now - c->interrupted_at < DOUBLE_INTERRUPT_MS * MS;
    c->end_requested = true;
    c->end_signal = again ? 0 : number;
    c->interrupted_at = now;
    if (!c->code) c->code = EXIT_SIGNAL + number;
    if (c->phase == COORDINATOR_GATHERING || c->phase == COORDINATOR_WAITING) {
        c->over = true;
    } else if (again) {
        coordinator_say("interrupted again: killing all ranks");
        coordinator_tell_running(c, "end");
    } else {
        pass_signal_on(c);
    }
}

static void read_signals(coordinator *c)
{
    struct signalfd_siginfo s;
    while (read(c->signals, &s, sizeof s) == sizeof s) {
        if (s.ssi_signo == SIGCHLD)
            starters_ended(c);
        else
            pass_on(c, (int)s.ssi_signo);
    }
}

/* ---- The loop. */

static void advance(coordinator *c, int64_t now)
{
    int there = 0, listed = 0, running = 0;
    const machine *absent = NULL;
    for (int i = 0; i < c->n; i++) {
        const machine *m = &c->machines[i];
        listed += m->listed;
        there += m->listed && m->state == MACHINE_THERE;
        running += m->state == MACHINE_RUNNING;
        if (m->listed && m->state < MACHINE_THERE) absent = m;
    }
    if (c->kill_at && now > c->kill_at) {
        coordinator_tell_running(c, "end");
        c->kill_at = 0;
    }
    if (c->phase == COORDINATOR_GATHERING && there == listed) {
        snprintf(c->why, sizeof c->why, "start");
        begin_generation(c);
    } else if (c->phase == COORDINATOR_GATHERING && now - c->begun > GATHER_MS * MS) {
        coordinator_say("machine %s: its keeper has not connected to %s within %d s", absent ? absent->host.name : "?",
                        c->address, GATHER_MS / 1000);
        c->over = true;
        c->code = EXIT_FAILED;
    } else if (c->phase == COORDINATOR_WAITING) {
        begin_generation(c);
    } else if (c->phase != COORDINATOR_GATHERING && !running) {
        next_generation(c);
    }
}

static void wait_for_news(coordinator *c)
{
    static struct pollfd polls[2 + MAX_HOSTS + MAX_GUESTS + 1024];
    const int most = sizeof polls / sizeof *polls;
    int n = 0;
    polls[n++] = (struct pollfd){ .fd = c->signals, .events = POLLIN };
    polls[n++] = (struct pollfd){ .fd = c->listener, .events = POLLIN };
    for (int i = 0; i < c->n && n < most; i++)
        polls[n++] = (struct pollfd){ .fd = c->machines[i].link.fd, .events = POLLIN };
    for (int i = 0; i < MAX_GUESTS && n < most; i++)
        polls[n++] = (struct pollfd){ .fd = c->guests[i].fd, .events = POLLIN };
    for (int i = 0; i < job_store_count(c->store) && n < most; i++)
        polls[n++] = (struct pollfd){ .fd = job_store_fd(c->store, i), .events = POLLIN };
    poll(polls, (nfds_t)n, CONTROL_BEAT_MS / 2);
    if (polls[1].revents) membership_accept(c);
}

/* This process was stopped, or its machine asleep: that time does not count. */
static void forgive(coordinator *c, int64_t time)
{
    c->begun += time;
    for (int i = 0; i < c->n; i++) c->machines[i].since += time;
}

static void run(coordinator *c)
{
    enter(c, COORDINATOR_GATHERING);
    c->looped = c->begun;
    while (!c->over) {
        wait_for_news(c);
        int64_t now = ls_now();
        if (now - c->looped > LATE_MS * MS) forgive(c, now - c->looped);
        read_signals(c);
        membership_hear(c, now);
        membership_renew(c, now);
        if (!c->over) advance(c, now);
        c->looped = now;
    }
}

/* Keepers are told, and have some time; then those that we can reach are killed. */
static void end_keepers(coordinator *c)
{
    int64_t end = ls_now() + QUIT_MS * MS;
    for (int i = 0; i < c->n; i++) {
        machine *m = &c->machines[i];
        bool told = m->link.fd >= 0 && control_say(&m->link, "quit\n");
        if (!told && m->starter) kill(-m->starter, SIGTERM);
    }
    for (int i = 0; i < c->n; i++) {
        machine *m = &c->machines[i];
        while (m->starter && ls_now() < end && !waitpid(m->starter, NULL, WNOHANG)) usleep(10000);
        if (m->starter && ls_now() >= end) {
            kill(-m->starter, SIGKILL);
            waitpid(m->starter, NULL, 0);
        }
        control_close(&m->link);
    }
}

/* ---- Beginning. */

static bool listen_at(coordinator *c)
{
    char own_name[100], port[16];
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICHOST }, *found = NULL;
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    machines_own_address(&c->options->hosts, own_name, sizeof own_name);
    if (getaddrinfo(own_name, "0", &hints, &found)) return false;
    c->listener = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool good = c->listener >= 0 && !bind(c->listener, found->ai_addr, found->ai_addrlen) &&
                !listen(c->listener, 512) && !getsockname(c->listener, (struct sockaddr *)&own, &size) &&
                !getnameinfo((struct sockaddr *)&own, size, NULL, 0, port, sizeof port, NI_NUMERICSERV);
    freeaddrinfo(found);
    if (good) snprintf(c->address, sizeof c->address, strchr(own_name, ':') ? "[%s]:%s" : "%s:%s", own_name, port);
    return good;
}

static bool make_secret(char out[LS__SECRET_BYTES])
{
    unsigned char random[LS__SECRET_BYTES / 2];
    if (getrandom(random, sizeof random, 0) != sizeof random) return false;
    for (size_t i = 0; i < sizeof random; i++) snprintf(out + 2 * i, 3, "%02x", random[i]);
    return true;
}

int coordinate(const coordinator_options *options, const launch_options *launch, int argc, char **argv)
{
    coordinator *c = calloc(1, sizeof *c);
    sigset_t set, before;
    if (!c) return EXIT_FAILED;
    c->options = options;
    c->launch = launch;
    c->argc = argc;
    c->argv = argv;
    c->restarts = launch->max_restarts;
    c->listener = -1;
    for (int i = 0; i < MAX_GUESTS; i++) c->guests[i].fd = -1;
    sigemptyset(&set);
    const int taken[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD };
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) sigaddset(&set, taken[i]);
    sigprocmask(SIG_BLOCK, &set, &before);
    signal(SIGPIPE, SIG_IGN);
    c->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (!make_secret(c->secret) || !listen_at(c) || c->signals < 0) {
        coordinator_say("cannot listen for the machines of the job: %s", strerror(errno));
        c->code = EXIT_FAILED;
    } else {
        membership_use_list(c, &options->hosts);
        run(c);
        end_keepers(c);
    }
    job_store_free(&c->store);
    for (int i = 0; i < MAX_GUESTS; i++) control_close(&c->guests[i]);
    if (c->listener >= 0) close(c->listener);
    if (c->signals >= 0) close(c->signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
    int code = c->code;
    free(c->machines);
    free(c);
    return code;
}
