/* Starts the process of a rank: environment, descriptors, limits, exec.
 *
 * The child may only make system calls: other threads of ours may have held locks when it was made. The reason of a failed exec is returned
 * through a pipe that exec closes. It is not made with vfork: we would wait as long as somebody stops it before exec.
 *
 * The kernel kills a rank when its parent ends (PR_SET_PDEATHSIG). Processes that ranks started are then ended by the front
 * (launch_front.c). */
#include "cli/launch_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/job.h"

/* Variables that ranks must not inherit: those we set ourselves, and what another launcher around us has set, which
 * would contradict us. A name that ends in '*' stands for all that begin so. */
static const char *const not_inherited[] = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_NAME",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_*",
    "LOCKSTEP_JOB_FD",
    "LOCKSTEP_KEPT_FD",
    "LOCKSTEP_KILL_POINTS",
    "LOCKSTEP_STORE",
    "LOCKSTEP_STORE_SECRET",
    "LOCKSTEP_GENERATION",
    "OMPI_COMM_WORLD_*",
    "PMIX_RANK",
    "PMIX_NAMESPACE",
    "PMIX_SERVER_*",
    "PMI_*",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
};

enum { OWN_VARIABLES = 24, OWN_BYTES = 1024 }; /* what we add, without the user's texts */

static bool inherited(const char *entry)
{
    size_t length = strcspn(entry, "=");
    for (size_t i = 0; i < sizeof not_inherited / sizeof *not_inherited; i++) {
        size_t n = strlen(not_inherited[i]);
        bool prefix = not_inherited[i][n - 1] == '*';
        if (prefix ? length >= n - 1 && !strncmp(entry, not_inherited[i], n - 1)
                   : length == n && !strncmp(entry, not_inherited[i], n))
            return false;
    }
    return true;
}

/* An environment under construction: pointers to the inherited entries, then to our own. */
typedef struct environment {
    char **entries;
    size_t count;
    char *own;
    size_t used, room;
} environment;

static void put(environment *env, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(environment *env, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t room = env->room - env->used;
    int n = vsnprintf(env->own + env->used, room, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= room) return;
    env->entries[env->count++] = env->own + env->used;
    env->used += (size_t)n + 1;
}

/* torchrun's variables, so that programs written for it run unchanged, and our own. NULL: out of memory. */
static environment *make_environment(const launch_options *o, const launch_common *common, int rank, int threads)
{
    size_t n = 0;
    while (environ[n]) n++;
    const char *role = o->role ? o->role : "default";
    const char *address = o->master_addr ? o->master_addr : "127.0.0.1";
    const char *run_id = o->run_id ? o->run_id : common->run_id;
    size_t pointers = (n + OWN_VARIABLES + 1) * sizeof(char *);
    size_t bytes = OWN_BYTES + strlen(role) + strlen(address) + strlen(run_id);
    environment *env = malloc(sizeof *env + pointers + bytes);
    if (!env) return NULL;
    env->entries = (char **)(env + 1);
    env->own = (char *)env->entries + pointers;
    env->room = bytes;
    env->count = env->used = 0;
    for (size_t i = 0; i < n; i++)
        if (inherited(environ[i])) env->entries[env->count++] = environ[i];

    bool many = *common->store; /* machines */
    int first = many ? common->first_rank : 0, size = many ? common->world_size : o->ranks;
    put(env, "RANK=%d", first + rank);
    put(env, "WORLD_SIZE=%d", size);
    put(env, "LOCAL_RANK=%d", rank);
    put(env, "LOCAL_WORLD_SIZE=%d", o->ranks);
    put(env, "GROUP_RANK=%d", many ? common->node : 0);
    put(env, "GROUP_WORLD_SIZE=%d", many ? common->nodes : 1);
    put(env, "ROLE_RANK=%d", first + rank);
    put(env, "ROLE_WORLD_SIZE=%d", size);
    put(env, "ROLE_NAME=%s", role);
    put(env, "MASTER_ADDR=%s", address);
    put(env, "MASTER_PORT=%s", o->master_port ? o->master_port : common->master_port);
    put(env, "TORCHELASTIC_RUN_ID=%s", run_id);
    put(env, "TORCHELASTIC_RESTART_COUNT=%d", common->attempt);
    put(env, "TORCHELASTIC_MAX_RESTARTS=%d", o->max_restarts);
    put(env, "TORCHELASTIC_USE_AGENT_STORE=False"); /* rank 0 opens MASTER_PORT itself */
    put(env, LS__JOB_FD_VARIABLE "=%d", common->job_fd);
    if (common->kept_fd >= 0) put(env, LS__KEPT_FD_VARIABLE "=%d", common->kept_fd);
    if (many) put(env, LS__STORE_VARIABLE "=%s", common->store);
    if (many) put(env, LS__SECRET_VARIABLE "=%s", common->secret);
    if (many) put(env, LS__GENERATION_VARIABLE "=%d", common->generation);
    if (!getenv("OMP_NUM_THREADS")) put(env, "OMP_NUM_THREADS=%d", threads);
    env->entries[env->count] = NULL;
    return env;
}

/* Everything the child needs, made ready before it exists. */
typedef struct plan {
    const launch_common *common;
    char **env;
    const cpu_set_t *cores; /* NULL: where we may run */
    pid_t parent;
    int in, out, err; /* -1: ours */
    int report;       /* where to write the errno and the step that failed */
} plan;

enum { STEP_SETUP, STEP_EXEC };
enum { REPORT_MS = 2000 };

typedef struct report {
    int error, step;
} report;

/* In the child: system calls only. */
static void __attribute__((noreturn)) become_rank(const plan *p)
{
    report r = { 0, STEP_SETUP };
    if (setpgid(0, 0)) goto fail; /* a separate process group, which can be ended as a whole */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL)) goto fail;
    if (getppid() != p->parent) _exit(EXIT_NOT_EXECUTABLE);         /* the parent ended before prctl() */
    if (p->cores) sched_setaffinity(0, sizeof *p->cores, p->cores); /* if it fails the rank still runs */
    setrlimit(RLIMIT_NOFILE, &p->common->files);
    if ((p->in >= 0 && dup2(p->in, 0) < 0) || (p->out >= 0 && dup2(p->out, 1) < 0) ||
        (p->err >= 0 && dup2(p->err, 2) < 0))
        goto fail;
    if (fcntl(p->common->job_fd, F_SETFD, 0)) goto fail;
    if (p->common->kept_fd >= 0 && fcntl(p->common->kept_fd, F_SETFD, 0)) goto fail;
    if (!p->common->ignored_sigpipe) signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &p->common->mask, NULL);
    r.step = STEP_EXEC;
    execvpe(p->common->argv[0], p->common->argv, p->env);
fail:
    r.error = errno;
    ssize_t ignored = write(p->report, &r, sizeof r);
    (void)ignored;
    _exit(r.error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

/* Waits until exec went well, which closes the pipe, or failed. A child that is stopped before counts as started: it is watched like any other
 * rank, and if its exec fails later, its exit code says so. */
static bool has_failed(int pipe_end, report *r)
{
    struct pollfd p = { .fd = pipe_end, .events = POLLIN };
    return poll(&p, 1, REPORT_MS) > 0 && read(pipe_end, r, sizeof *r) == sizeof *r;
}

pid_t launch_start(const launch_options *o, const launch_common *common, const launch_output *output, int rank,
                   const launch_cores *cores, int *error, const char **step)
{
    int pipe_ends[2] = { -1, -1 }, null = -1;
    pid_t pid = -1;
    report r = { 0, STEP_SETUP };
    environment *env = make_environment(o, common, rank, cores->threads);
    *step = "preparing";
    if (!env || pipe2(pipe_ends, O_CLOEXEC)) goto done;
    if (rank > 0 || o->no_stdin || isatty(0)) {
        null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (null < 0) goto done;
    }
    plan p = { .common = common,
               .env = env->entries,
               .cores = cores->bound ? &cores->set : NULL,
               .parent = getpid(),
               .in = null,
               .out = launch_output_fd(output, rank, LAUNCH_STDOUT),
               .err = launch_output_fd(output, rank, LAUNCH_STDERR),
               .report = pipe_ends[1] };
    *step = "starting a process for";
    pid = fork();
    if (!pid) become_rank(&p);
    if (pid < 0) goto done;
    setpgid(pid, pid); /* as the child does, which may be stopped before */
    close(pipe_ends[1]);
    pipe_ends[1] = -1;
    if (has_failed(pipe_ends[0], &r)) {
        *step = r.step == STEP_EXEC ? NULL : "setting up";
        waitpid(pid, NULL, 0);
        pid = -1;
        errno = r.error;
    }
done:
    *error = errno;
    if (null >= 0) close(null);
    if (pipe_ends[0] >= 0) close(pipe_ends[0]);
    if (pipe_ends[1] >= 0) close(pipe_ends[1]);
    free(env);
    return pid;
}
