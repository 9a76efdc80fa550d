/* Finding, loading and calling the network plug-in. See net.h.
 *
 * A plug-in is mpi-openmpi.so or mpi-mpich.so, looked for in $LOCKSTEP_PLUGIN_DIR, beside the library or the program
 * that this code is part of (so that a build tree and a moved installation work), and where it was installed. It is
 * loaded with RTLD_GLOBAL, since Open MPI loads components of its own that look for its symbols, and never unloaded,
 * since MPI leaves threads and handlers behind. */
#include "comm/net.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/status.h"

/* The build says where libraries are installed: LS__LIBDIR below the prefix, LS__PLUGIN_DIR with the one that was configured. */

struct ls__net {
    const ls__net_plugin *plugin;
    int rank, size;
    pthread_mutex_t lock; /* held in every call of the plug-in: it may be used by one thread at a time */
    char library[160];
    char path[PATH_MAX];
};

/* What people call the families, and the package that their library comes in. */
static const struct family {
    const char *name, *called, *package;
} families[] = {
    { "openmpi", "Open MPI", "libopenmpi-dev" },
    { "mpich", "MPICH", "libmpich-dev" },
};
enum { FAMILIES = sizeof families / sizeof *families };

static const struct family *find_family(const char *name)
{
    for (int i = 0; i < FAMILIES; i++)
        if (!strcmp(families[i].name, name)) return &families[i];
    return NULL;
}

/* ---- Finding. */

/* The folder of `file`, or the one above it; "" if the system does not know. */
static void folder_of(const char *file, bool above, char *out, size_t bytes)
{
    char real[PATH_MAX];
    *out = 0;
    if (!file || !realpath(file, real)) return;
    char *folder = dirname(real);
    snprintf(out, bytes, "%s", above ? dirname(folder) : folder);
}

/* The places where plug-ins may lie, in the order of the search; NULL past the last. */
static const char *place(int index, char *out, size_t bytes)
{
    Dl_info own;
    const char *file = dladdr(&families, &own) ? own.dli_fname : NULL;
    switch (index) {
    case 0: return secure_getenv("LOCKSTEP_PLUGIN_DIR") ? secure_getenv("LOCKSTEP_PLUGIN_DIR") : "";
    case 1: folder_of(file, false, out, bytes); break;            /* this is the library, in lib */
    case 2: folder_of(file, true, out, bytes); break;             /* this is a program, in bin */
    case 3: folder_of("/proc/self/exe", true, out, bytes); break; /* dladdr knows programs by argv[0] only */
    case 4: folder_of("/proc/self/exe", true, out, bytes); break; /* installed below another prefix */
    case 5: return LS__PLUGIN_DIR;
    default: return NULL;
    }
    size_t used = strlen(out);
    static const char *const below[] = { "", "/lockstep", "/lib/lockstep", "/lib/lockstep",
                                         "/" LS__LIBDIR "/lockstep" };
    if (used) snprintf(out + used, bytes - used, "%s", below[index]);
    return out;
}

/* Looks for mpi-NAME.so; false if it is nowhere, with the places in `tried`. */
static bool find_file(const char *name, char *path, size_t bytes, char *tried, size_t tried_bytes)
{
    char memory[PATH_MAX + 32];
    const char *folder;
    *tried = 0;
    for (int i = 0; (folder = place(i, memory, sizeof memory)); i++) {
        if (!*folder) continue;
        int n = snprintf(path, bytes, "%s/mpi-%s.so", folder, name);
        if (n > 0 && (size_t)n < bytes && !access(path, R_OK)) return true;
        size_t used = strlen(tried);
        if (!strstr(tried, folder)) snprintf(tried + used, tried_bytes - used, "%s%s", used ? ", " : "", folder);
    }
    return false;
}

/* The family that fits the launcher; srun serves all, so there the first one that is installed. */
static const char *family_of(ls__launcher launcher)
{
    char path[PATH_MAX], tried[PATH_MAX];
    switch (launcher) {
    case LS__LAUNCHER_MPICH: return "mpich";
    case LS__LAUNCHER_SLURM:
        for (int i = 0; i < FAMILIES; i++)
            if (find_file(families[i].name, path, sizeof path, tried, sizeof tried)) return families[i].name;
        break;
    case LS__LAUNCHER_OPENMPI:
    case LS__LAUNCHER_PMIX:
    case LS__LAUNCHER_ALONE:
    case LS__LAUNCHER_LOCKSTEP:
    case LS__LAUNCHER_TORCHRUN: break;
    }
    return "openmpi";
}

static ls_status find(const char *which, const char *said_by, char *path, size_t bytes)
{
    char tried[PATH_MAX];
    if (strchr(which, '/')) {
        if (!realpath(which, path)) return ls__fail_errno("%s=%s: no such MPI plug-in", said_by, which);
        return LS_OK;
    }
    const struct family *f = find_family(which);
    if (!f)
        return ls__fail(LS_EINVAL, "%s=%s: there is no such MPI; say openmpi, mpich, or the path of a plug-in", said_by,
                        which);
    if (find_file(f->name, path, bytes, tried, sizeof tried)) return LS_OK;
    return ls__fail(LS_ENOENT,
                    "no plug-in for %s: mpi-%s.so is not in %s; build lockstep where the package %s is installed, or "
                    "name the plug-in's folder in LOCKSTEP_PLUGIN_DIR",
                    f->called, f->name, tried, f->package);
}

/* ---- Calling. */

/* MPI writes to sockets. One whose other end died would end this process by SIGPIPE, and the wrong rank would be blamed;
 * so the signal is held back in this thread, and taken away if it came, while MPI is called. Threads that MPI starts
 * inherit that. What the program does with its own broken pipes stays its own business. */
static void enter(ls__net *net, sigset_t *before)
{
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, before);
    pthread_mutex_lock(&net->lock);
}

static void leave(ls__net *net, const sigset_t *before)
{
    pthread_mutex_unlock(&net->lock);
    if (sigismember(before, SIGPIPE)) return;
    sigset_t pending, pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    if (!sigpending(&pending) && sigismember(&pending, SIGPIPE)) sigtimedwait(&pipe, NULL, &(struct timespec){ 0 });
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* ---- Loading. */

/* A library of one family behind a plug-in built for another: constants and handles would not mean the same. */
static ls_status check_library(const ls__net_plugin *plugin, const char *path, const char *library)
{
    bool is_open_mpi = !strncmp(library, "Open MPI", 8);
    if (is_open_mpi == !strcmp(plugin->family, "openmpi")) return LS_OK;
    return ls__fail(LS_EINVAL,
                    "%s was built for %s but runs with '%s'; check LD_PRELOAD and LD_LIBRARY_PATH, or choose the other "
                    "plug-in with LOCKSTEP_MPI",
                    path, plugin->built_for, library);
}

static ls_status load(const char *path, const ls__net_plugin **out, char *library, size_t bytes)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (!handle)
        return ls__fail(LS_ENOENT,
                        "the MPI plug-in %s cannot be loaded: %s; install the MPI it was built for, or choose "
                        "another with LOCKSTEP_MPI",
                        path, dlerror());
    const ls__net_plugin *plugin = dlsym(handle, LS__NET_SYMBOL);
    if (!plugin) return ls__fail(LS_EFORMAT, "%s is no plug-in of lockstep: it has no " LS__NET_SYMBOL, path);
    if (plugin->abi != LS__NET_ABI)
        return ls__fail(LS_EFORMAT,
                        "the MPI plug-in %s speaks version %u, and this lockstep version %u; install both "
                        "from one build",
                        path, plugin->abi, LS__NET_ABI);
    plugin->library(library, bytes);
    ls_status status = check_library(plugin, path, library);
    if (!status) *out = plugin;
    return status;
}

/* The launcher and MPI must mean the same world. An MPI that was started by another one's mpirun does not notice: it
 * believes to be alone. */
static ls_status check_world(const ls__net *net, const ls__identity *id)
{
    if ((id->size < 0 || id->size == net->size) && (id->rank < 0 || id->rank == net->rank)) return LS_OK;
    const struct family *other = &families[!strcmp(net->plugin->family, families[0].name)];
    return ls__fail(LS_EINVAL,
                    "%s started this process as rank %d of %d, but '%s' takes it for rank %d of %d: the plug-in %s is "
                    "for another MPI than the launcher's; set LOCKSTEP_MPI=%s, or start with the mpirun of %s",
                    ls__launcher_name(id->launcher), id->rank, id->size, net->library, net->rank, net->size, net->path,
                    other->name, net->plugin->built_for);
}

static ls_status fail_mpi(const ls__net *net, int code, const char *what)
{
    char text[256];
    net->plugin->error_text(code, text, sizeof text);
    return ls__fail(LS_EIO, "rank %d: %s: %s (%s)", net->rank, what, text, net->library);
}

static ls_status new_net(ls__net **out)
{
    ls__net *net = calloc(1, sizeof *net);
    *out = net;
    if (!net) return ls__fail(LS_ENOMEM, "network: out of memory");
    pthread_mutex_init(&net->lock, NULL);
    return LS_OK;
}

static void free_net(ls__net *net)
{
    pthread_mutex_destroy(&net->lock);
    free(net);
}

/* srun without a PMI (--mpi=none, often its default) starts ranks that no MPI can join; Open MPI would end the process. */
static ls_status check_srun(const ls__identity *id)
{
    if (id->launcher != LS__LAUNCHER_SLURM || id->size <= 1 || secure_getenv("PMI_FD")) return LS_OK;
    return ls__fail(LS_EINVAL,
                    "srun started this process as rank %d of %d, but offers MPI no way to find the others; start with "
                    "srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH)",
                    id->rank, id->size);
}

ls_status ls__net_open(ls__net **out, const char *which, const ls__identity *identity)
{
    const char *said_by = "the world's option mpi";
    ls__net *net;
    *out = NULL;
    if (!which) {
        said_by = "LOCKSTEP_MPI";
        which = secure_getenv(said_by);
    }
    if (!which || !*which) which = family_of(identity->launcher);
    ls_status status = check_srun(identity);
    if (!status) status = new_net(&net);
    if (status) return status;
    status = find(which, said_by, net->path, sizeof net->path);
    if (!status) status = load(net->path, &net->plugin, net->library, sizeof net->library);
    if (status) goto fail;
    sigset_t before;
    enter(net, &before);
    int code = net->plugin->open(&net->rank, &net->size);
    leave(net, &before);
    if (code) {
        status = fail_mpi(net, code, "MPI does not start");
        goto fail;
    }
    status = check_world(net, identity);
    if (status) {
        net->plugin->close(1);
        goto fail;
    }
    *out = net;
    return LS_OK;
fail:
    free_net(net);
    return status;
}

ls_status ls__net_open_on(ls__net **out, const ls__net_plugin *plugin, int rank, int size)
{
    ls_status status = new_net(out);
    if (status) return status;
    (*out)->plugin = plugin;
    (*out)->rank = rank;
    (*out)->size = size;
    plugin->library((*out)->library, sizeof(*out)->library);
    return LS_OK;
}

void ls__net_close(ls__net **pnet, bool healthy)
{
    ls__net *net = *pnet;
    if (!net) return;
    net->plugin->close(healthy);
    free_net(net);
    *pnet = NULL;
}

ls_status ls__net_probe(const char *family, char *library, size_t bytes)
{
    char path[PATH_MAX];
    const ls__net_plugin *plugin;
    ls_status status = find(family, "family", path, sizeof path);
    if (!status) status = load(path, &plugin, library, bytes);
    size_t used = status ? 0 : strlen(library);
    if (!status) snprintf(library + used, bytes - used, "; plug-in %s", path);
    return status;
}

int ls__net_rank(const ls__net *net)
{
    return net->rank;
}
int ls__net_size(const ls__net *net)
{
    return net->size;
}
const char *ls__net_library(const ls__net *net)
{
    return net->library;
}
const char *ls__net_path(const ls__net *net)
{
    return net->path;
}

/* ---- Messages. */

ls_status ls__net_send(ls__net *net, const void *data, size_t bytes, int to, int tag, bool matched,
                       ls__net_request *out)
{
    sigset_t before;
    if (bytes > LS__NET_MAX_SEND || tag < 0 || tag > LS__NET_MAX_TAG)
        return ls__fail(LS_EINVAL, "network: a message of %zu bytes with tag %d cannot be sent", bytes, tag);
    enter(net, &before);
    int code = net->plugin->send(data, bytes, to, tag, matched, out);
    leave(net, &before);
    return code ? fail_mpi(net, code, "sending") : LS_OK;
}

ls_status ls__net_recv(ls__net *net, void *data, size_t bytes, int from, int tag, ls__net_request *out)
{
    sigset_t before;
    if (bytes > LS__NET_MAX_SEND || tag < 0 || tag > LS__NET_MAX_TAG)
        return ls__fail(LS_EINVAL, "network: a message of %zu bytes with tag %d cannot be received", bytes, tag);
    enter(net, &before);
    int code = net->plugin->recv(data, bytes, from, tag, out);
    leave(net, &before);
    return code ? fail_mpi(net, code, "receiving") : LS_OK;
}

ls_status ls__net_test(ls__net *net, ls__net_request *const *requests, int count)
{
    sigset_t before;
    enter(net, &before);
    int code = net->plugin->test(requests, count);
    leave(net, &before);
    return code ? fail_mpi(net, code, "sending and receiving") : LS_OK;
}

void ls__net_cancel(ls__net *net, ls__net_request *request)
{
    sigset_t before;
    enter(net, &before);
    net->plugin->cancel(request);
    leave(net, &before);
}

void ls__net_pause(int *vain)
{
    enum { YIELDS = 50, SLEEP_NS = 20000, LONG_AFTER = 2000, LONG_NS = 200000 };
    int n = (*vain)++;
    if (n < YIELDS) {
        sched_yield();
        return;
    }
    struct timespec t = { .tv_nsec = n < LONG_AFTER ? SLEEP_NS : LONG_NS };
    nanosleep(&t, NULL);
}

ls_status ls__net_allgather(ls__net *net, const void *mine, void *all, size_t bytes, int timeout_ms)
{
    /* MPI works on memory of its own: when time runs out, it is left to it. */
    size_t total = bytes * ((size_t)net->size + 1);
    char *memory = malloc(total);
    if (!memory) return ls__fail(LS_ENOMEM, "network: no memory for %zu bytes", total);
    memcpy(memory, mine, bytes);
    sigset_t before;
    ls__net_request request, *requests[] = { &request };
    enter(net, &before);
    int code = net->plugin->allgather(memory, memory + bytes, bytes, &request);
    leave(net, &before);
    if (code) {
        free(memory);
        return fail_mpi(net, code, "gathering from all ranks");
    }
    int64_t begin = ls_now();
    for (int vain = 0; request.active; ls__net_pause(&vain)) {
        ls_status status = ls__net_test(net, requests, 1);
        if (status) return status;
        if (request.active && timeout_ms >= 0 && ls_now() - begin > (int64_t)timeout_ms * 1000000)
            return ls__fail(LS_ETIMEOUT, "rank %d: not all of the %d ranks opened their world within %.1f s", net->rank,
                            net->size, timeout_ms / 1e3);
    }
    memcpy(all, memory + bytes, total - bytes);
    free(memory);
    return LS_OK;
}
