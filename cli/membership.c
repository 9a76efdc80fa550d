/* Which machines take part in a job: connections, signs of life, the list of machines, and those that are missing. See coordinator.c. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cli/exit_codes.h"
#include "cli/machines.h"
#include "lockstep/base.h"

enum {
    RETURN_MS = 5000, /* for one that lost its connection to come back by itself */
    HELLO_MS = 30000, /* for the first line of a connection: a rank's machine may be busy */
    RETRY_MS = 500,   /* between attempts to start a keeper; doubled after each, up to a minute */
    LAST_RETRY_MS = 60000,
    SETTLE_MS = 300, /* between the start of a generation and a change because of a machine that joins */
    LOOK_MS = 300,   /* between looks at the hostfile */
};
static const int64_t MS = 1000000;

void membership_set_state(machine *m, machine_state state)
{
    m->state = state;
    m->since = ls_now();
    if (state == MACHINE_ABSENT) m->try_at = m->since + RETRY_MS * MS;
}

void membership_lost(coordinator *c, machine *m, const char *how)
{
    bool ran = m->state == MACHINE_RUNNING;
    int64_t heard = m->link.heard ? m->link.heard : ls_now();
    control_close(&m->link);
    membership_set_state(m, m->starter ? MACHINE_STARTING : MACHINE_ABSENT);
    m->returning = m->starter || m->detached;
    m->patience_ms = RETURN_MS; /* it may be a process on a machine that cannot be reached */
    m->ready = false;           /* it says so when it is back */
    if (ran) coordinator_note_loss(c, heard, "machine %s is lost: %s", m->host.name, how);
}

int membership_ranks_of(const machine *m)
{
    return m->listed && m->state == MACHINE_THERE ? m->host.ranks - m->missing : 0;
}

/* ---- What keepers say. */

static void take_line(coordinator *c, machine *m, const char *line)
{
    int rank, code, lost, changed, leaving, slots, ready, noted, at = 0;
    long long step;
    if (sscanf(line, "lost %d %n", &rank, &at) == 1 && at && m->state == MACHINE_RUNNING) {
        coordinator_note_loss(c, ls_now(), "rank %d on %s %s", rank, m->host.name, line + at);
    } else if (sscanf(line, "ended %d %lld %d %d %d %d %d %d", &code, &step, &lost, &changed, &leaving, &slots, &ready,
                      &noted) == 8) {
        if (m->state != MACHINE_RUNNING) return;
        membership_set_state(m, MACHINE_THERE);
        m->code = code;
        m->lost = lost;
        m->changed = changed;
        m->leaving = leaving;
        m->ready = ready;
        c->stateful = c->stateful || ready;
        c->noted = c->noted || noted;
        if (slots) c->slots = slots;
        if (step > c->step) c->step = step;
        /* A rank failed by itself: the others save what they can, and end. After an interrupt they do that already. */
        bool interrupted = c->end_signal && code == EXIT_SIGNAL + c->end_signal;
        if (code && !lost && !changed && !interrupted && c->phase == COORDINATOR_RUNNING) {
            c->code = code;
            c->end_requested = true;
            coordinator_tell_running(c, "signal 15");
            c->kill_at = ls_now() + (int64_t)(c->launch->grace * 1e9);
        }
    }
}

/* A first line: of a keeper or a rank. */
static bool greet(coordinator *c, control *guest, const char *line)
{
    char version[64], secret[LS__SECRET_BYTES + 1], name[HOST_NAME], keeper[sizeof((machine *)0)->keeper] = "";
    int number = -1, ready = 0;
    const char *why = NULL;
    _Static_assert(LS__SECRET_BYTES == 33 && HOST_NAME == 256 && sizeof keeper == 32, "the widths below");
    if (sscanf(line, "lockstep-rank %63s %33s %d", version, secret, &number) == 3) {
        if (strcmp(secret, c->secret) != 0 || number != c->generation - 1 || strcmp(version, ls_version()) != 0)
            return false;
        return job_store_add(&c->store, guest);
    }
    int found =
        sscanf(line, "lockstep-keeper %63s %33s %255s %d %d %31s", version, secret, name, &number, &ready, keeper);
    if (found < 3 || strcmp(secret, c->secret) != 0) return false;
    machine *m = NULL;
    for (int i = 0; i < c->n; i++)
        if (!strcmp(c->machines[i].host.name, name)) m = &c->machines[i];
    /* The same process again: it has given up a connection that we still have. */
    if (m && m->link.fd >= 0 && !strcmp(m->keeper, keeper)) membership_lost(c, m, "its keeper lost the connection");
    /* A keeper that was replaced, because it could not be reached, is back, and its successor has nothing yet. */
    if (m && m->state == MACHINE_THERE && ready && !m->ready) control_close(&m->link);
    if (strcmp(version, ls_version()) != 0 || found != 6)
        why = "it is of another version of lockstep; install the same on all machines";
    else if (number != (int)getuid())
        why = "it runs as another user";
    else if (!m || !m->listed)
        why = "it is not on the list of machines";
    else if (m->link.fd >= 0)
        why = "there is one already";
    if (why) {
        coordinator_say("machine %s: its keeper is refused: %s", name, why);
        bool ignored = control_say(guest, "refused %s\n", why);
        (void)ignored;
        return false;
    }
    m->link = *guest;
    memcpy(m->keeper, keeper, sizeof keeper);
    m->tries = m->missing = 0;
    m->returning = m->detached = false;
    m->ready = ready;
    membership_set_state(m, MACHINE_THERE);
    return control_say(&m->link, "welcome\n") || true; /* a loss is found by the loop */
}

static void hear_guests(coordinator *c, int64_t now)
{
    for (int i = 0; i < MAX_GUESTS; i++) {
        control *g = &c->guests[i];
        if (g->fd < 0) continue;
        bool open = control_read(g);
        const char *line = control_line(g);
        if (line && greet(c, g, line))
            *g = (control){ .fd = -1 }; /* it is somebody's now */
        else if (line || !open || now - g->heard > HELLO_MS * MS)
            control_close(g);
    }
}

void membership_accept(coordinator *c)
{
    int fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC);
    control *place = &c->guests[0];
    if (fd < 0) return;
    for (int i = 0; i < MAX_GUESTS && place->fd >= 0; i++) /* a free one, or that of who has been silent for longest */
        if (c->guests[i].fd < 0 || c->guests[i].heard < place->heard) place = &c->guests[i];
    control_close(place);
    control_open(place, fd);
}

static void hear_machines(coordinator *c, int64_t now)
{
    int64_t limit = (int64_t)(c->options->machine_timeout * 1e9);
    for (int i = 0; i < c->n; i++) {
        machine *m = &c->machines[i];
        const char *line;
        if (m->link.fd < 0) {
            if (m->state >= MACHINE_THERE) membership_lost(c, m, "its keeper takes no orders");
            continue;
        }
        bool open = control_read(&m->link);
        while ((line = control_line(&m->link))) take_line(c, m, line);
        if (now - c->looped > limit / 2) m->link.heard = now; /* it was us who were stopped */
        char silent[64];
        snprintf(silent, sizeof silent, "no sign of life for %.1f s", (double)(now - m->link.heard) / 1e9);
        if (!open)
            membership_lost(c, m, "its keeper has ended");
        else if (now - m->link.heard > limit)
            membership_lost(c, m, silent);
        else if (!control_beat(&m->link, now))
            membership_lost(c, m, "it takes no messages");
    }
}

/* ---- Machines that are not there. */

static machine *machine_of(coordinator *c, const host *h)
{
    for (int i = 0; i < c->n; i++)
        if (!strcmp(c->machines[i].host.name, h->name)) return &c->machines[i];
    machine *more = realloc(c->machines, ((size_t)c->n + 1) * sizeof *more);
    if (!more) return NULL;
    c->machines = more;
    more[c->n] = (machine){ .host = *h, .is_here = machine_is_here(h->name), .link = { .fd = -1 } };
    return &more[c->n++];
}

void membership_use_list(coordinator *c, const hosts *h)
{
    for (int i = 0; i < c->n; i++) c->machines[i].listed = false;
    for (int i = 0; i < h->n; i++) {
        machine *m = machine_of(c, &h->host[i]);
        if (!m) continue;
        m->listed = true;
        if (m->host.ranks != h->host[i].ranks) m->missing = 0;
        m->host.ranks = h->host[i].ranks;
    }
}

/* The hostfile may have changed. */
static void look_at_list(coordinator *c, int64_t now)
{
    const char *path = c->options->hostfile;
    struct stat st;
    if (!path || now - c->looked_at < LOOK_MS * MS) return;
    bool first = !c->looked_at;
    c->looked_at = now;
    if (stat(path, &st) ||
        (st.st_mtim.tv_sec == c->hostfile_time.tv_sec && st.st_mtim.tv_nsec == c->hostfile_time.tv_nsec))
        return;
    c->hostfile_time = st.st_mtim;
    if (first) return;
    hosts *h = malloc(sizeof *h);
    char why[300];
    if (h && hosts_read(h, path, why, sizeof why))
        membership_use_list(c, h);
    else if (h)
        coordinator_say("%s: %s; the job continues with the machines that it had", path, why);
    free(h);
}

static void start_missing(coordinator *c, int64_t now)
{
    for (int i = 0; i < c->n; i++) {
        machine *m = &c->machines[i];
        if (!m->listed || c->end_requested) continue;
        if (m->state == MACHINE_STARTING && now - m->since > m->patience_ms * MS) {
            m->detached = true;
            if (m->starter) kill(-m->starter, SIGKILL);
            membership_set_state(m, MACHINE_ABSENT);
        }
        if (m->state != MACHINE_ABSENT || now < m->try_at) continue;
        int64_t pause = (int64_t)RETRY_MS << (m->tries < 7 ? m->tries : 7);
        m->try_at = now + (pause < LAST_RETRY_MS ? pause : LAST_RETRY_MS) * MS;
        m->tries++;
        machine_start(m, c->options, c->launch, c->address, c->secret, c->argc, c->argv);
    }
}

/* Whether the ranks should be asked to end their generation, because another list of machines can compute. */
static void ask_for_change(coordinator *c, int64_t now)
{
    const machine *why = NULL;
    if (c->asked || c->phase != COORDINATOR_RUNNING || now - c->begun < SETTLE_MS * MS || c->end_requested) return;
    int world = 0;
    for (int i = 0; i < c->n; i++)
        if (c->machines[i].state == MACHINE_RUNNING) world += c->machines[i].ranks;
    for (int i = 0; i < c->n && !why; i++) {
        const machine *m = &c->machines[i];
        int free = c->slots ? c->slots - world : m->host.ranks;
        if (membership_ranks_of(m) > 0 && free > 0) {
            why = m;
            snprintf(c->why, sizeof c->why, "machine %.200s joins", m->host.name);
        } else if (m->state == MACHINE_RUNNING && (!m->listed || m->ranks > m->host.ranks - m->missing)) {
            why = m;
            snprintf(c->why, sizeof c->why, "machine %.200s leaves", m->host.name);
        }
    }
    if (!why) return;
    c->asked = true;
    for (int i = 0; i < c->n; i++)
        if (c->machines[i].state == MACHINE_RUNNING && !c->machines[i].first) {
            bool ignored = control_say(&c->machines[i].link, "change\n");
            (void)ignored;
            return;
        }
}

void membership_hear(coordinator *c, int64_t now)
{
    hear_machines(c, now); /* first: a guest may be a keeper whose earlier connection has ended */
    hear_guests(c, now);
    job_store_serve(c->store);
}

void membership_renew(coordinator *c, int64_t now)
{
    look_at_list(c, now);
    start_missing(c, now);
    ask_for_change(c, now);
}
