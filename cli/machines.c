/* The machines of a job: where they are, and how keepers get there. See machines.h. */
#include "cli/machines.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "lockstep/base.h"

extern char **environ;

enum { START_MS = 30000 }; /* for a keeper to be started and to connect */

bool machine_is_here(const char *name)
{
    char own[HOST_NAME] = "";
    if (!strcmp(name, "localhost")) return true;
    if (gethostname(own, sizeof own - 1)) return false;
    size_t n = strcspn(own, ".");
    return !strcmp(name, own) || (strlen(name) == n && !strncmp(name, own, n));
}

/* The kernel knows from which address it would send to a machine. */
static bool address_towards(const char *name, char *out, size_t bytes)
{
    const char *at = strchr(name, '@'); /* user@machine */
    struct addrinfo hints = { .ai_socktype = SOCK_DGRAM }, *found = NULL;
    if (getaddrinfo(at ? at + 1 : name, "9", &hints, &found)) return false;
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && !connect(fd, found->ai_addr, found->ai_addrlen) &&
                !getsockname(fd, (struct sockaddr *)&own, &size) &&
                !getnameinfo((struct sockaddr *)&own, size, out, (socklen_t)bytes, NULL, 0, NI_NUMERICHOST);
    if (fd >= 0) close(fd);
    freeaddrinfo(found);
    return good;
}

void machines_own_address(const hosts *h, char *out, size_t bytes)
{
    for (int i = 0; i < h->n; i++)
        if (!machine_is_here(h->host[i].name) && address_towards(h->host[i].name, out, bytes)) return;
    snprintf(out, bytes, "127.0.0.1");
}

/* ---- The command line of a keeper, for a shell. */

typedef struct text {
    char *start;
    size_t used, room;
    bool failed;
} text;

static void put(text *t, const char *s, size_t n)
{
    if (t->used + n + 1 > t->room) {
        size_t room = 2 * (t->used + n) + 256;
        char *more = realloc(t->start, room);
        if (!more) {
            t->failed = true;
            return;
        }
        t->start = more;
        t->room = room;
    }
    memcpy(t->start + t->used, s, n);
    t->used += n;
    t->start[t->used] = 0;
}

/* A word that the shell takes as it is, and a space. */
static void put_word(text *t, const char *word)
{
    put(t, "'", 1);
    for (const char *c = word; *c; c++)
        if (*c == '\'')
            put(t, "'\\''", 4);
        else
            put(t, c, 1);
    put(t, "' ", 2);
}

static char *command_of(const machine *m, const coordinator_options *o, const launch_options *l, const char *address,
                        int argc, char **argv)
{
    text t = { 0 };
    char numbers[4][32], *here = getcwd(NULL, 0);
    snprintf(numbers[0], 32, "%d", (int)(o->machine_timeout * 1e3));
    snprintf(numbers[1], 32, "%g", l->stop_timeout);
    snprintf(numbers[2], 32, "%g", l->timeout);
    snprintf(numbers[3], 32, "%g", l->grace);
    put(&t, "cd ", 3);
    put_word(&t, here ? here : "/");
    put(&t, "&& exec env ", 12);
    for (char **e = environ; *e; e++) {
        bool kills =
            !strncmp(*e, "LOCKSTEP_KILL_POINTS=", 21); /* a keeper that was killed is replaced by one that is not */
        if ((!strncmp(*e, "LOCKSTEP_", 9) || !strncmp(*e, "OMP_", 4)) && !(kills && m->started)) put_word(&t, *e);
    }
    put_word(&t, launch_self());
    const char *words[] = { "keep", address, m->host.name, numbers[0], numbers[1], numbers[2], numbers[3], "--" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) put_word(&t, words[i]);
    for (int i = 0; i < argc; i++) put_word(&t, argv[i]);
    free(here);
    if (!t.failed) return t.start;
    free(t.start);
    return NULL;
}

/* In the child. */
static void __attribute__((noreturn)) become_starter(const machine *m, const char *rsh, char *command, int in)
{
    char *words[20], *rest, *copy = strdup(rsh);
    int n = 0;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0); /* Ctrl-C is for the coordinator */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (dup2(in, 0) < 0) _exit(EXIT_FAILED);
    if (m->is_here) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    } else {
        for (char *w = copy ? strtok_r(copy, " ", &rest) : NULL; w && n < 16; w = strtok_r(NULL, " ", &rest))
            words[n++] = w;
        words[n++] = (char *)(uintptr_t)m->host.name;
        words[n++] = command;
        words[n] = NULL;
        execvp(words[0], words);
    }
    fprintf(stderr, "lockstep: %s cannot be started; --rsh names another command\n", m->is_here ? "/bin/sh" : rsh);
    _exit(EXIT_NOT_EXECUTABLE);
}

bool machine_start(machine *m, const coordinator_options *o, const launch_options *launch, const char *address,
                   const char *secret, int argc, char **argv)
{
    int ends[2];
    char *command = command_of(m, o, launch, address, argc, argv);
    if (!command || pipe2(ends, O_CLOEXEC)) {
        free(command);
        return false;
    }
    /* The pipe takes a line at once. Its end stays open in nobody: a keeper reads the secret and needs no more. */
    char line[LS__SECRET_BYTES + 1];
    int n = snprintf(line, sizeof line, "%s\n", secret);
    bool good = write(ends[1], line, (size_t)n) == n;
    pid_t pid = good ? fork() : -1;
    if (pid == 0) become_starter(m, o->rsh, command, ends[0]);
    close(ends[0]);
    close(ends[1]);
    free(command);
    if (pid < 0) return false;
    m->starter = pid;
    m->started = true;
    m->state = MACHINE_STARTING;
    m->since = ls_now();
    m->patience_ms = START_MS;
    return true;
}
