/* Loading and calling the network plug-in. See net.h; plugin.h finds it.
 *
 * It is loaded with RTLD_GLOBAL, since Open MPI loads components that need its symbols, and never unloaded, since MPI keeps threads and
 * handlers that cannot be removed. */
#include "comm/net.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/status.h"
#include "comm/carrier.h"
#include "comm/plugin.h"

struct ls__net {
    const ls__net_plugin *plugin; /* NULL: a store, and perhaps a carrier */
    ls_store store;
    ls_carrier carrier;
    ls_network *network; /* on the carrier; NULL: it was not opened */
    int gathered;        /* number of gathers through the store */
    int rank, size;
    pthread_mutex_t lock; /* held in every call of the plug-in, which one thread at a time may use */
    char library[160];
    char path[PATH_MAX];
};

/* ---- Calling. */

/* MPI writes to sockets. If the other end of one has died, SIGPIPE would end this process, and the wrong rank would be reported. So the
 * signal is blocked in this thread while MPI is called, and removed if it came. Threads that MPI starts inherit that. What the program
 * does about its own broken pipes does not change. */
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

/* A plug-in built for one family must not use a library of another: constants and handles differ. */
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
                        "cannot load the MPI plug-in %s: %s; install the MPI it was built for, or choose "
                        "another with LOCKSTEP_MPI",
                        path, dlerror());
    const ls__net_plugin *plugin = dlsym(handle, LS__NET_SYMBOL);
    if (!plugin) return ls__fail(LS_EFORMAT, "%s is not a plug-in of lockstep: it has no " LS__NET_SYMBOL, path);
    if (plugin->abi != LS__NET_ABI)
        return ls__fail(LS_EFORMAT,
                        "the MPI plug-in %s has interface version %u, and this lockstep %u; install both "
                        "from one build",
                        path, plugin->abi, LS__NET_ABI);
    plugin->library(library, bytes);
    ls_status status = check_library(plugin, path, library);
    if (!status) *out = plugin;
    return status;
}

/* The launcher and MPI must agree on rank and size. An MPI that was started by the mpirun of another one does not notice: it finds a
 * world of one rank. */
static ls_status check_world(const ls__net *net, const ls__launch_info *id)
{
    if ((id->size < 0 || id->size == net->size) && (id->rank < 0 || id->rank == net->rank)) return LS_OK;
    const ls__mpi_family *other = ls__mpi_family_other(net->plugin->family);
    return ls__fail(LS_EINVAL,
                    "%s started this process as rank %d of %d, but in '%s' it is rank %d of %d: the plug-in %s is "
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

/* srun without a PMI (--mpi=none, often its default) starts ranks that no MPI can connect; Open MPI would end the process. */
static ls_status check_srun(const ls__launch_info *id)
{
    if (id->launcher != LS__LAUNCHER_SLURM || id->size <= 1 || secure_getenv("PMI_FD")) return LS_OK;
    return ls__fail(
        LS_EINVAL,
        "srun started this process as rank %d of %d, but without a PMI, so MPI cannot find the other ranks; start with "
        "srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH)",
        id->rank, id->size);
}

ls_status ls__net_open(ls__net **out, const char *which, const ls__launch_info *identity)
{
    const char *source = "ls_world_options.mpi";
    ls__net *net;
    *out = NULL;
    if (!which) {
        source = "LOCKSTEP_MPI";
        which = secure_getenv(source);
    }
    if (!which || !*which) which = ls__mpi_family_of(identity->launcher);
    ls_status status = check_srun(identity);
    if (!status) status = new_net(&net);
    if (status) return status;
    status = ls__plugin_find(which, source, net->path);
    if (!status) status = load(net->path, &net->plugin, net->library, sizeof net->library);
    if (status) goto fail;
    sigset_t before;
    enter(net, &before);
    int code = net->plugin->open(&net->rank, &net->size);
    leave(net, &before);
    if (code) {
        status = fail_mpi(net, code, "cannot start MPI");
        goto fail;
    }
    status = check_world(net, identity);
    if (status) {
        net->plugin->close(true, NULL);
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

ls_status ls__net_open_store(ls__net **out, const ls_store *store, const ls_carrier *carrier, int rank, int size)
{
    ls_status status = new_net(out);
    if (status) return status;
    (*out)->store = *store;
    if (carrier) (*out)->carrier = *carrier;
    (*out)->rank = rank;
    (*out)->size = size;
    return LS_OK;
}

bool ls__net_carries_data(const ls__net *net)
{
    return net->plugin || net->network;
}

ls_status ls__net_connect(ls__net *net)
{
    if (net->plugin || net->network || !net->carrier.open) return LS_OK;
    snprintf(net->library, sizeof net->library, "%s", net->carrier.name ? net->carrier.name : "carrier");
    return ls__network_open(&net->network, &net->carrier, net->rank, net->size);
}

void ls__net_close(ls__net **pnet, bool healthy, const bool *waiting)
{
    ls__net *net = *pnet;
    if (!net) return;
    if (net->plugin) {
        sigset_t before;
        enter(net, &before);
        net->plugin->close(healthy, waiting);
        leave(net, &before);
    }
    ls__network_close(&net->network, healthy);
    free_net(net);
    *pnet = NULL;
}

bool ls__net_is_busy(ls__net *net)
{
    if (pthread_mutex_trylock(&net->lock)) return true;
    pthread_mutex_unlock(&net->lock);
    return false;
}

void ls__net_abandon(ls__net *net, const bool *waiting)
{
    if (!net->plugin) return;
    sigset_t before;
    enter(net, &before);
    net->plugin->close(false, waiting);
    leave(net, &before);
}

ls_status ls__net_probe(const char *family, char *library, size_t bytes)
{
    char path[PATH_MAX];
    const ls__net_plugin *plugin;
    ls_status status = ls__plugin_find(family, "family", path);
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
        return ls__fail(LS_EINVAL, "network: cannot send a message of %zu bytes with tag %d", bytes, tag);
    if (net->network) return ls__network_send(net->network, data, bytes, to, tag, matched, out);
    enter(net, &before);
    int code = net->plugin->send(data, bytes, to, tag, matched, out);
    leave(net, &before);
    return code ? fail_mpi(net, code, "sending") : LS_OK;
}

ls_status ls__net_recv(ls__net *net, void *data, size_t bytes, int from, int tag, ls__net_request *out)
{
    sigset_t before;
    if (bytes > LS__NET_MAX_SEND || tag < 0 || tag > LS__NET_MAX_TAG)
        return ls__fail(LS_EINVAL, "network: cannot receive a message of %zu bytes with tag %d", bytes, tag);
    if (net->network) return ls__network_recv(net->network, data, bytes, from, tag, out);
    enter(net, &before);
    int code = net->plugin->recv(data, bytes, from, tag, out);
    leave(net, &before);
    return code ? fail_mpi(net, code, "receiving") : LS_OK;
}

ls_status ls__net_test(ls__net *net, ls__net_request *const *requests, int count)
{
    sigset_t before;
    if (net->network) return ls__network_test(net->network, requests, count);
    enter(net, &before);
    int code = net->plugin->test(requests, count);
    leave(net, &before);
    return code ? fail_mpi(net, code, "sending and receiving") : LS_OK;
}

void ls__net_cancel(ls__net *net, ls__net_request *request)
{
    sigset_t before;
    if (net->network) {
        ls__network_cancel(net->network, request);
        return;
    }
    enter(net, &before);
    net->plugin->cancel(request);
    leave(net, &before);
}

void ls__net_pause(int *polls)
{
    enum { YIELDS = 50, SLEEP_NS = 20000, LONG_AFTER = 2000, LONG_NS = 200000 };
    int n = (*polls)++;
    if (n < YIELDS) {
        sched_yield();
        return;
    }
    struct timespec t = { .tv_nsec = n < LONG_AFTER ? SLEEP_NS : LONG_NS };
    nanosleep(&t, NULL);
}

/* ---- A store of the caller's. Its message, if it leaves one, is kept; so each call begins with none. */

ls_status ls__store_set(const ls_store *store, const char *key, const void *value, size_t bytes)
{
    ls_status ok = ls__fail(LS_OK, "%s", "");
    (void)ok;
    return store->set(store->user, key, value, bytes);
}

ls_status ls__store_get(const ls_store *store, const char *key, void *value, size_t bytes, int timeout_ms)
{
    ls_status ok = ls__fail(LS_OK, "%s", "");
    (void)ok;
    return store->get(store->user, key, value, bytes, timeout_ms);
}

ls_status ls__store_failed(ls_status status, int rank, const char *key)
{
    return ls__fail(status, "rank %d: the store failed at key %s: %s", rank, key,
                    *ls_error() ? ls_error() : ls_status_text(status));
}

/* Gets one rank's value, which begins with the size that it has given its world. */
static ls_status get_value(const ls__net *net, int number, int from, char *value, size_t bytes, int timeout_ms,
                           int64_t deadline)
{
    char key[64];
    int64_t size, left = (deadline - ls_now()) / 1000000;
    snprintf(key, sizeof key, "lockstep/%d/%d", number, from);
    ls_status status = ls__store_get(&net->store, key, value, bytes, timeout_ms < 0 ? -1 : (int)(left > 0 ? left : 0));
    if (status == LS_ETIMEOUT)
        return ls__fail(LS_ETIMEOUT, "rank %d: rank %d did not open its world within %.1f s", net->rank, from,
                        timeout_ms / 1e3);
    if (status) return ls__store_failed(status, net->rank, key);
    memcpy(&size, value, sizeof size);
    if (size == net->size) return LS_OK;
    return ls__fail(LS_EMISMATCH, "rank %d opens a world of %d ranks, but rank %d one of %lld: pass the same size",
                    net->rank, net->size, from, (long long)size);
}

/* Each rank sets one key, and gets those of all other ranks. */
static ls_status gather_by_store(ls__net *net, const void *mine, void *all, size_t bytes, int timeout_ms)
{
    char key[64];
    int64_t deadline = ls_now() + (int64_t)timeout_ms * 1000000, size = net->size;
    int number = net->gathered++;
    char *value = malloc(sizeof size + bytes);
    if (!value) return ls__fail(LS_ENOMEM, "world: no memory for %zu bytes", bytes);
    memcpy(value, &size, sizeof size);
    memcpy(value + sizeof size, mine, bytes);
    snprintf(key, sizeof key, "lockstep/%d/%d", number, net->rank);
    ls_status status = ls__store_set(&net->store, key, value, sizeof size + bytes);
    if (status) status = ls__store_failed(status, net->rank, key);
    for (int r = 0; r < net->size && !status; r++) {
        if (r != net->rank) status = get_value(net, number, r, value, sizeof size + bytes, timeout_ms, deadline);
        if (!status) memcpy((char *)all + (size_t)r * bytes, r == net->rank ? mine : value + sizeof size, bytes);
    }
    free(value);
    return status;
}

ls_status ls__net_allgather(ls__net *net, const void *mine, void *all, size_t bytes, int timeout_ms)
{
    if (!net->plugin) return gather_by_store(net, mine, all, bytes, timeout_ms);
    /* MPI gets its own copy, which is left to it if the time runs out. */
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
    for (int polls = 0; request.active; ls__net_pause(&polls)) {
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
