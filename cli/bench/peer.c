/* A peer: another program that all-reduces, measured alternating with lockstep.
 *
 * It is started once and connected by a pair of pipes. Its first line is its name. Then for each line "TOTAL CHUNK ROUNDS" (bytes,
 * bytes, a number) that it reads, it makes ROUNDS rounds as lockstep does, and answers with one line of ROUNDS times in
 * microseconds, each the slowest rank's. In between it must not use CPU time. It ends at the end of its input. PEER_RANKS in
 * its environment is the number of its ranks.
 *
 * Peers for MPI are built with the program (bench/peer_mpi.c); any other peer is given as a command. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/status.h"
#include "cli/bench/allreduce.h"
#include "cli/launch.h"

struct bench_peer {
    const char *what;
    pid_t pid;
    FILE *to, *from;
    char *line;
    size_t room;
};

static bool is_mpi(const char *what)
{
    return !strcmp(what, "mpi") || !strcmp(what, "mpich");
}

/* The program built for that MPI, in the build folder or where it was installed. */
static ls_status find_mpi_peer(const char *what, char *out, size_t room)
{
    static const char *const folders[] = { "../bench", "../libexec/lockstep" };
    const char *self = launch_self(), *family = strcmp(what, "mpi") ? "mpich" : "openmpi";
    const char *slash = strrchr(self, '/');
    int length = slash ? (int)(slash - self) : 0;
    for (int i = 0; i < 2; i++) {
        snprintf(out, room, "%.*s/%s/peer-%s", length, self, folders[i], family);
        if (!access(out, X_OK)) return LS_OK;
    }
    return ls__fail(LS_ENOENT, "--against %s: '%s' not found; install lib%s-dev and build lockstep again", what, out,
                    family);
}

/* "mpirun.openmpi" where there are several, otherwise "mpirun". */
static const char *find_mpirun(const char *what)
{
    static char name[4096];
    const char *family = strcmp(what, "mpi") ? "mpirun.mpich" : "mpirun.openmpi";
    const char *path = getenv("PATH");
    const char *const names[] = { family, "mpirun" };
    for (int i = 0; i < 2; i++)
        for (const char *at = path ? path : ""; *at; at += strcspn(at, ":"), at += *at == ':') {
            snprintf(name, sizeof name, "%.*s/%s", (int)strcspn(at, ":"), at, names[i]);
            if (!access(name, X_OK)) return name;
        }
    return NULL;
}

ls_status bench_peer_check(const char *what)
{
    char path[4096];
    if (is_mpi(what)) {
        if (!find_mpirun(what)) return ls__fail(LS_ENOENT, "--against %s: mpirun not found in PATH", what);
        return find_mpi_peer(what, path, sizeof path);
    }
    if (strpbrk(what, " /")) return LS_OK;
    return ls__fail(LS_EINVAL, "--against: unknown peer '%s'; must be mpi, mpich, or a command with a space or slash",
                    what);
}

/* In the child: all cores, a quiet environment, and the program. Does not return. */
static void become(const char *what, int ranks)
{
    char number[16], path[4096];
    snprintf(number, sizeof number, "%d", ranks);
    setenv("PEER_RANKS", number, 1);
    /* We may be bound to one core; the peer is to have them all. The mask is cut to what exists. */
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    sched_setaffinity(0, sizeof all, &all);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    static const char *const ours[] = {
        "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCKSTEP_JOB_FD", "OMP_NUM_THREADS"
    };
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) unsetenv(ours[i]);
    if (!is_mpi(what)) {
        execl("/bin/sh", "sh", "-c", what, (char *)NULL);
        _exit(127);
    }
    /* More ranks than cores, and root in a container, are fine with us. MPICH does not look at these. */
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    }
    const char *mpirun = find_mpirun(what);
    if (mpirun && !find_mpi_peer(what, path, sizeof path)) execl(mpirun, "mpirun", "-n", number, path, (char *)NULL);
    _exit(127);
}

static ls_status ended_early(const bench_peer *p)
{
    return ls__fail(LS_EPEER, "the peer '%s' ended early; its output is above", p->what);
}

static ls_status read_line(bench_peer *p)
{
    ssize_t n = getline(&p->line, &p->room, p->from);
    if (n > 0) {
        p->line[strcspn(p->line, "\n")] = 0;
        return LS_OK;
    }
    return ended_early(p);
}

ls_status bench_peer_open(bench_peer **out, const char *what, int ranks, char *name, size_t name_bytes)
{
    int down[2] = { -1, -1 }, up[2] = { -1, -1 };
    ls_status status = LS_OK;
    *out = NULL;
    bench_peer *p = calloc(1, sizeof *p);
    if (!p) return ls__fail(LS_ENOMEM, "no memory for a peer");
    p->what = what;
    p->pid = -1;
    if (pipe2(down, O_CLOEXEC) || pipe2(up, O_CLOEXEC)) {
        status = ls__fail_errno("pipes to the peer");
        goto fail;
    }
    signal(SIGPIPE, SIG_IGN); /* a peer that died is an error message, not our end */
    p->pid = fork();
    if (p->pid < 0) {
        status = ls__fail_errno("starting the peer");
        goto fail;
    }
    if (p->pid == 0) {
        signal(SIGPIPE, SIG_DFL);
        dup2(down[0], 0);
        dup2(up[1], 1);
        become(what, ranks);
    }
    p->to = fdopen(down[1], "w");
    p->from = fdopen(up[0], "r");
    if (!p->to || !p->from) {
        status = ls__fail(LS_ENOMEM, "no memory for the peer's pipes");
        goto fail;
    }
    down[1] = up[0] = -1; /* the streams' now */
    close(down[0]);
    close(up[1]);
    down[0] = up[1] = -1;
    status = read_line(p);
    if (status) goto fail;
    snprintf(name, name_bytes, "%s", p->line);
    *out = p;
    return LS_OK;
fail:
    for (int i = 0; i < 2; i++) {
        if (down[i] >= 0) close(down[i]);
        if (up[i] >= 0) close(up[i]);
    }
    bench_peer_free(&p);
    return status;
}

ls_status bench_peer_ask(bench_peer *p, size_t total, size_t chunk, int rounds, bench_times *out)
{
    if (fprintf(p->to, "%zu %zu %d\n", total, chunk, rounds) < 0 || fflush(p->to)) return ended_early(p);
    ls_status status = read_line(p);
    char *at = p->line;
    for (int i = 0; i < rounds && !status; i++) {
        char *end;
        double us = strtod(at, &end);
        if (end == at || !(us > 0))
            return ls__fail(LS_EPEER, "the peer '%s' answered '%.60s' instead of %d times", p->what, p->line, rounds);
        at = end;
        if (out) status = bench_times_add(out, &us, 1);
    }
    return status;
}

void bench_peer_free(bench_peer **peer)
{
    bench_peer *p = *peer;
    *peer = NULL;
    if (!p) return;
    if (p->to) fclose(p->to); /* the end of its input ends it */
    if (p->pid > 0) {
        int64_t until = ls_now() + 5000000000;
        while (waitpid(p->pid, NULL, WNOHANG) == 0) {
            if (ls_now() > until) kill(p->pid, SIGKILL);
            usleep(1000);
        }
    }
    if (p->from) fclose(p->from);
    free(p->line);
    free(p);
}
