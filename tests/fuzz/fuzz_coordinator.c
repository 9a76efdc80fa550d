/* Fuzz target: any bytes on the connections of a coordinator: of its keepers, of those that have not said who they are, and of
 * ranks at the store. An input is a sequence of: a byte that chooses the connection, a length, and the bytes that come on it.
 * Byte 1 stands for the version, 2 for the secret. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "cli/launch.h"
#include "cli/machines.h"
#include "lockstep/base.h"

enum { KEEPERS = 3, GUESTS = 5, SEATS = KEEPERS + GUESTS };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* No machine is started here. */
const char *launch_self(void)
{
    abort();
}

static int connect_to(control *link)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) abort();
    control_open(link, ends[0]);
    return ends[1];
}

static void send_bytes(int fd, const char *secret, const uint8_t *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *word = data[i] == 1 ? ls_version() : data[i] == 2 ? secret : NULL;
        ssize_t ignored = word ? send(fd, word, strlen(word), MSG_NOSIGNAL) : send(fd, data + i, 1, MSG_NOSIGNAL);
        (void)ignored;
    }
}

static void drain(int fd)
{
    char answers[4096];
    while (fd >= 0 && recv(fd, answers, sizeof answers, MSG_DONTWAIT) > 0) continue;
}

static void check(const coordinator *c)
{
    if (job_store_count(c->store) > GUESTS || strnlen(c->why, sizeof c->why) == sizeof c->why) abort();
    for (int i = 0; i < c->n; i++) {
        const machine *m = &c->machines[i];
        if (m->state > MACHINE_RUNNING || (m->state >= MACHINE_THERE && m->link.fd < 0 && m->state != MACHINE_RUNNING))
            abort();
        if (strnlen(m->keeper, sizeof m->keeper) == sizeof m->keeper) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const launch_options launch = { .grace = 1 };
    static coordinator_options options = { .machine_timeout = 1e9 };
    coordinator *c = calloc(1, sizeof *c);
    int seats[SEATS];
    if (!c) abort();
    *c = (coordinator){ .options = &options,
                        .launch = &launch,
                        .listener = -1,
                        .signals = -1,
                        .generation = 4,
                        .phase = COORDINATOR_RUNNING };
    memcpy(c->secret, "0123456789abcdef0123456789abcdef", sizeof c->secret);
    hosts list = { .n = KEEPERS, .host = { { "node0", 2 }, { "node1", 1 }, { "node2", 3 } } };
    membership_use_list(c, &list);
    for (int i = 0; i < MAX_GUESTS; i++) c->guests[i].fd = -1;
    for (int i = 0; i < KEEPERS; i++) {
        seats[i] = connect_to(&c->machines[i].link);
        membership_set_state(&c->machines[i], i < 2 ? MACHINE_RUNNING : MACHINE_THERE);
    }
    for (int i = 0; i < GUESTS; i++) seats[KEEPERS + i] = connect_to(&c->guests[i]);
    while (size >= 2) {
        int seat = data[0] % SEATS;
        size_t n = data[1] < size - 2 ? data[1] : size - 2;
        if (n) {
            send_bytes(seats[seat], c->secret, data + 2, n);
        } else {
            shutdown(seats[seat], SHUT_RDWR);
        }
        membership_hear(c, ls_now());
        check(c);
        for (int i = 0; i < SEATS; i++) drain(seats[i]);
        data += 2 + n;
        size -= 2 + n;
    }
    for (int i = 0; i < SEATS; i++) close(seats[i]);
    membership_hear(c, ls_now());
    check(c);
    job_store_free(&c->store);
    for (int i = 0; i < MAX_GUESTS; i++) control_close(&c->guests[i]);
    for (int i = 0; i < c->n; i++) control_close(&c->machines[i].link);
    free(c->machines);
    free(c);
    return 0;
}
