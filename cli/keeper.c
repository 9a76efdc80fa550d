/* The keeper: a process on each machine of an elastic job on several machines. The coordinator (cli/coordinator.c) starts it,
 * through ssh, as 'lockstep keep'; users do not.
 *
 * It makes kept memory, in which the state of the run outlives its ranks, and starts the ranks of one generation after another, as
 * the coordinator says. If a rank is lost it ends the others of its machine and reports it; the coordinator has those of the other
 * machines ended.
 *
 * Somebody who shuts a machine down sends SIGTERM to its processes: then its ranks end after a step, and the keeper with them,
 * and the job continues elsewhere. A signal for the whole job comes from the coordinator, as a line.
 *
 * A keeper that does not hear from the coordinator ends its ranks, since others may have taken their places, and tries to connect
 * again. If the coordinator is there no more, or does not answer for a while, the keeper ends, and with it the state. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>
#include "cli/commands.h"
#include "cli/control.h"
#include "cli/launch_parts.h"
#include "comm/tcp.h"

enum {
    PATIENCE_MS = 60000, /* how long a keeper without a coordinator keeps the state */
    CONNECT_MS = 2000,
    RETRY_MS = 200,
};
static const int64_t MS = 1000000;

struct launch_keeper {
    const char *address, *name;
    char secret[LS__SECRET_BYTES], id[32];
    int limit_ms; /* of silence */
    control link;
    int64_t looked; /* when we last had the time to listen */
    bool quit;
};

void launch_keeper_point(launch *l)
{
    if (l->keeper) launch_elastic_keeper_point(l);
}

/* ---- The connection. */

static bool hello(launch *l)
{
    struct launch_keeper *k = l->keeper;
    struct pollfd p = { .fd = k->link.fd, .events = POLLIN };
    if (!control_say(&k->link, "lockstep-keeper %s %s %s %d %d %s\n", ls_version(), k->secret, k->name, (int)getuid(),
                     launch_elastic_end(l).ready, k->id))
        return false;
    launch_keeper_point(l);
    for (int64_t end = ls_now() + CONNECT_MS * MS; ls_now() < end;) {
        if (poll(&p, 1, CONNECT_MS) > 0 && !control_read(&k->link)) return false;
        const char *line = control_line(&k->link);
        if (!line) continue;
        if (!strcmp(line, "welcome")) return true;
        if (!strncmp(line, "refused ", 8)) {
            fprintf(stderr, "lockstep: machine %s: the coordinator refuses its keeper: %s\n", k->name, line + 8);
            k->quit = true;
        }
        return false;
    }
    return false;
}

/* Signals while no ranks run. */
static void read_signals(launch *l)
{
    struct signalfd_siginfo s;
    while (read(l->signals, &s, sizeof s) == sizeof s) launch_keeper_leaves(l, (int)s.ssi_signo);
}

/* Until the coordinator answers. False: it is there no more. */
static bool join(launch *l, bool again)
{
    struct launch_keeper *k = l->keeper;
    int64_t end = ls_now() + (again ? PATIENCE_MS : CONNECT_MS) * MS;
    for (; !k->quit && ls_now() < end; read_signals(l)) {
        launch_keeper_point(l);
        int fd = ls__tcp_connect(k->address, CONNECT_MS);
        if (fd >= 0) {
            control_open(&k->link, fd);
            launch_keeper_point(l);
            if (hello(l)) {
                launch_keeper_point(l);
                k->looked = ls_now();
                return true;
            }
            control_close(&k->link);
        } else if (errno == ECONNREFUSED) {
            break; /* its machine is there, and it is not */
        }
        nanosleep(&(struct timespec){ 0, RETRY_MS * MS }, NULL);
    }
    if (!k->quit)
        fprintf(stderr, "lockstep: machine %s: no connection to the coordinator at %s: %s\n", k->name, k->address,
                strerror(errno));
    return false;
}

/* Says and hears that both are alive. False: the connection is lost. */
static bool stay_in_touch(struct launch_keeper *k)
{
    int64_t now = ls_now();
    bool there = control_beat(&k->link, now) && control_read(&k->link);
    /* We may have been stopped ourselves: what has come meanwhile was read just now, and the next silence counts from here. */
    if (now - k->looked > k->limit_ms * MS / 2) k->link.heard = now;
    k->looked = now;
    return there && now - k->link.heard < k->limit_ms * MS;
}

/* ---- While ranks run. */

const char *launch_keeper_name(const launch *l)
{
    return l->keeper ? l->keeper->name : NULL;
}

void launch_keeper_report_loss(launch *l, int rank, const char *how)
{
    struct launch_keeper *k = l->keeper;
    if (!k) return;
    launch_keeper_point(l);
    bool ignored = control_say(&k->link, "lost %d %s\n", l->common.first_rank + rank, how);
    (void)ignored;
    launch_keeper_point(l);
}

static void end_ranks(launch *l)
{
    if (l->phase == LAUNCH_KILLED) return;
    launch_fail(l, EXIT_FAILED);
    launch_enter(l, LAUNCH_KILLED);
}

void launch_keeper_listen(launch *l)
{
    struct launch_keeper *k = l->keeper;
    const char *line;
    if (!k) return;
    if (k->link.fd >= 0 && !stay_in_touch(k)) {
        control_close(&k->link);
        l->polls[POLL_CONTROL].fd = -1;
    }
    if (k->link.fd < 0) {
        end_ranks(l);
        return;
    }
    while ((line = control_line(&k->link))) {
        int number;
        if (strcmp(line, "beat") != 0) launch_keeper_point(l);
        if (!strcmp(line, "end"))
            end_ranks(l);
        else if (!strcmp(line, "change"))
            launch_elastic_ask_for_change(l);
        else if (sscanf(line, "signal %d", &number) == 1)
            launch_pass_on(l, number);
        else if (!strcmp(line, "quit"))
            k->quit = true, end_ranks(l);
    }
}

bool launch_keeper_leaves(launch *l, int number)
{
    if (!l->keeper || (number != SIGTERM && number != SIGINT && number != SIGHUP)) return false;
    l->keeper->quit = true;
    return true;
}

int launch_keeper_wait_ms(const launch *l)
{
    return l->keeper ? CONTROL_BEAT_MS / 2 : -1;
}

/* ---- Between. */

/* The next order to start. False: there is none any more. */
static bool await_start(launch *l, char *why, size_t bytes, int64_t *ago_us)
{
    struct launch_keeper *k = l->keeper;
    launch_common *c = &l->common;
    while (!k->quit) {
        if (k->link.fd < 0 && !join(l, true)) return false;
        struct pollfd p[3] = { { .fd = k->link.fd, .events = POLLIN },
                               { .fd = l->signals, .events = POLLIN },
                               { .fd = l->front, .events = POLLIN } };
        poll(p, 3, CONTROL_BEAT_MS / 2);
        read_signals(l);
        if (p[2].revents || k->quit) return false;
        if (!stay_in_touch(k)) {
            control_close(&k->link);
            continue;
        }
        const char *line;
        while ((line = control_line(&k->link))) {
            int at = 0, ranks;
            long long ago;
            if (!strcmp(line, "quit")) return false;
            if (sscanf(line, "start %d %d %d %d %d %d %lld %n", &c->generation, &c->first_rank, &ranks, &c->world_size,
                       &c->node, &c->nodes, &ago, &at) < 7 ||
                !at)
                continue;
            if (ranks < 1 || ranks > LAUNCH_MAX_RANKS) continue;
            launch_keeper_point(l);
            l->own.ranks = ranks;
            *ago_us = ago;
            snprintf(why, bytes, "%s", line + at);
            return true;
        }
    }
    return false;
}

int launch_keep(launch *l)
{
    struct launch_keeper *k = l->keeper;
    char why[256];
    int64_t ago_us;
    int divided = 0;
    snprintf(l->common.store, sizeof l->common.store, "%s", k->address);
    snprintf(l->common.secret, sizeof l->common.secret, "%s", k->secret);
    if (!join(l, false)) return EXIT_FAILED;
    while (await_start(l, why, sizeof why, &ago_us)) {
        if (divided != l->own.ranks) launch_divide_cores(l->own.ranks, !l->own.no_bind, l->cores);
        divided = l->own.ranks;
        launch_elastic_begin(l, why, ago_us);
        l->polls[POLL_CONTROL] = (struct pollfd){ .fd = k->link.fd, .events = POLLIN };
        launch_run_once(l);
        launch_keeper_point(l);
        if (l->front_gone) break; /* somebody ends this keeper: to the coordinator it is lost, and the job is not */
        l->common.attempt++;
        launch_elastic_outcome o = launch_elastic_end(l);
        if (k->link.fd >= 0 && !control_say(&k->link, "ended %d %lld %d %d %d %d %d %d\n", l->exit_code,
                                            (long long)o.step, o.lost, o.changed, o.leaving, o.slots, o.ready, o.noted))
            control_close(&k->link);
        launch_keeper_point(l);
        if (l->hopeless) break;
    }
    control_close(&k->link);
    return EXIT_DONE;
}

/* ---- The command. */

/* lockstep keep ADDRESS:PORT NAME LIMIT_MS STOP_TIMEOUT TIMEOUT GRACE -- COMMAND ARGS...; the secret comes on stdin. */
int keep_command(int argc, char **argv)
{
    struct launch_keeper k = { .link = { .fd = -1 } };
    launch_options o = { .ranks = 1, .elastic = true };
    char line[64] = "";
    if (argc < 9 || strcmp(argv[7], "--") != 0 || !(k.limit_ms = atoi(argv[3])) || !fgets(line, sizeof line, stdin) ||
        strcspn(line, "\n") != LS__SECRET_BYTES - 1) {
        fprintf(stderr, "lockstep keep: is started by 'lockstep train --elastic --hosts ...' itself\n");
        return EXIT_USAGE;
    }
    snprintf(k.id, sizeof k.id, "%d-%llx", (int)getpid(), (long long)ls_now());
    k.address = argv[1];
    k.name = argv[2];
    memcpy(k.secret, line, LS__SECRET_BYTES - 1);
    o.stop_timeout = atof(argv[4]);
    o.timeout = atof(argv[5]);
    o.grace = atof(argv[6]);
    o.no_prefix = o.no_stdin = o.own_voice = true;
    o.hold_signals = o.grace > 0;
    o.keeper = &k;
    const char **words = calloc((size_t)argc, sizeof *words);
    if (!words) return EXIT_FAILED;
    words[0] = launch_self();
    for (int i = 8; i < argc; i++) words[i - 7] = argv[i];
    int code = launch_ranks(&o, (char **)words);
    free(words);
    return code;
}
