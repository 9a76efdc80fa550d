/* The checks of lockstep doctor. What can be tried is tried; the rest is read from /proc and /sys. */
#include "cli/doctor_checks.h"

#include <dlfcn.h>
#include <errno.h>
#include <hwloc.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/thread.h"
#include "cli/amount.h"
#include "cli/machine.h"
#include "comm/job.h"
#include "comm/net.h"
#include "kern/gemm.h"
#include "kern/select.h"

/* ---- Cores. */

static void cpu_model(char *out, size_t bytes)
{
    char line[256];
    snprintf(out, bytes, "unknown");
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !value) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(out, bytes, "%s", value + 2);
        break;
    }
    fclose(f);
}

static void show_caches(hwloc_topology_t t, char *out, size_t bytes)
{
    static const struct {
        hwloc_obj_type_t type;
        const char *name;
    } levels[] = { { HWLOC_OBJ_L1CACHE, "L1d" }, { HWLOC_OBJ_L2CACHE, "L2" }, { HWLOC_OBJ_L3CACHE, "L3" } };
    size_t used = 0;
    *out = 0;
    for (int i = 0; i < 3; i++) {
        hwloc_obj_t o = hwloc_get_obj_by_type(t, levels[i].type, 0);
        if (!o) continue;
        int shared = hwloc_get_nbobjs_inside_cpuset_by_type(t, o->cpuset, HWLOC_OBJ_CORE);
        used += (size_t)snprintf(out + used, bytes - used, "%s%d x %s %s", used ? ", " : "",
                                 hwloc_get_nbobjs_by_type(t, levels[i].type), levels[i].name,
                                 amount_size((double)o->attr->cache.size).text);
        if (shared > 1) used += (size_t)snprintf(out + used, bytes - used, " (for %d cores)", shared);
    }
    if (!used) snprintf(out, bytes, "unknown");
}

static void check_topology(doctor *d)
{
    hwloc_topology_t t;
    char text[512];
    if (hwloc_topology_init(&t)) return;
    if (!hwloc_topology_load(t)) {
        int threads = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PU), cores = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE);
        doctor_add(d, "cores", "cores", "%d, with %d hardware thread%s; %d package%s, %d memory node%s", cores, threads,
                   threads == 1 ? "" : "s", hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PACKAGE),
                   hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PACKAGE) == 1 ? "" : "s",
                   hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE),
                   hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE) == 1 ? "" : "s");
        if (hwloc_topology_export_synthetic(t, text, sizeof text, 0) > 0)
            doctor_add(d, "cores", "hwloc sees", "%s", text);
        show_caches(t, text, sizeof text);
        doctor_add(d, "cores", "caches", "%s", text);
    }
    hwloc_topology_destroy(t);
}

void doctor_check_cores(doctor *d)
{
    char text[256];
    cpu_model(text, sizeof text);
    doctor_add(d, "cores", "model", "%s", text);
    check_topology(d);
    int mine = ls__cpu_count();
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    doctor_add(d, "cores", "this process", "may run on %d of %ld hardware threads", mine, online);
    if (mine < online) doctor_advise(d, DOCTOR_NOTE, "limited by the CPU affinity; see 'taskset -p $$'");
    double quota = machine_quota_cores();
    if (quota > 0) {
        doctor_add(d, "cores", "quota", "%.2f cores of CPU time", quota);
        if (quota < mine)
            doctor_advise(d, DOCTOR_NOTE, "the control group's cpu.max limits the speed; ranks are not bound");
    }
    doctor_add(d, "cores", "kernels", "%s", ls__instruction_set_used()->name);
    bool checked = !ls__kernels_check();
    if (!checked)
        doctor_advise(d, DOCTOR_MISSING, "%s", ls_error());
    else if (getenv("LOCKSTEP_KERNELS") && ls__instruction_set_used() != ls__instruction_set_at(0))
        doctor_advise(d, DOCTOR_NOTE, "LOCKSTEP_KERNELS; '%s' would be faster", ls__instruction_set_at(0)->name);
    else if (ls__kernels_note())
        doctor_advise(d, DOCTOR_NOTE, "%s", ls__kernels_note());
    if (checked)
        doctor_add(d, "cores", "matrix products", "%.3g GFLOP/s on one core; MFU is a share of this",
                   ls__gemm_peak(512, 3, 1));
}

/* ---- Memory. */

static double meminfo(const char *name)
{
    char line[128];
    double kib = 0;
    size_t n = strlen(name);
    FILE *f = fopen("/proc/meminfo", "re");
    if (!f) return 0;
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, name, n) && line[n] == ':') kib = strtod(line + n + 1, NULL);
    fclose(f);
    return kib * 1024;
}

/* The word in brackets of "always [madvise] never". */
static const char *chosen(const char *path, char *out, size_t bytes)
{
    machine_read(path, out, bytes);
    char *from = strchr(out, '['), *to = from ? strchr(from, ']') : NULL;
    if (!to) return *out ? out : "unknown";
    *to = 0;
    return from + 1;
}

/* Makes a real job, the way the launcher does. */
static void check_shared_memory(doctor *d)
{
    ls__job *job;
    int fd;
    if (ls__job_create(2, 0, &job, &fd)) {
        doctor_add(d, "memory", "shared memory", "not available: %s", ls_error());
        doctor_advise(d, DOCTOR_MISSING, "raise the limit that the message names");
        return;
    }
    doctor_add(d, "memory", "shared memory", "works (memfd); %s of address space",
               amount_size((double)job->bytes).text);
    ls__job_detach(&job);
    close(fd);
}

void doctor_check_memory(doctor *d)
{
    char text[128];
    doctor_add(d, "memory", "memory", "%s, %s available", amount_size(meminfo("MemTotal")).text,
               amount_size(meminfo("MemAvailable")).text);
    double quota = machine_quota_bytes();
    if (quota > 0) doctor_add(d, "memory", "quota", "%s (control group)", amount_size(quota).text);
    check_shared_memory(d);

    static const char thp[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    static const char shmem[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    const char *word = chosen(thp, text, sizeof text);
    doctor_add(d, "memory", "huge pages", "%s", word);
    if (!strcmp(word, "never")) doctor_advise(d, DOCTOR_NOTE, "echo madvise | sudo tee %s", thp);
    word = chosen(shmem, text, sizeof text);
    doctor_add(d, "memory", "shared huge pages", "%s", word);
    if (!strcmp(word, "never") || !strcmp(word, "deny"))
        doctor_advise(d, DOCTOR_NOTE, "to use huge pages for shared gradients: echo advise | sudo tee %s", shmem);
    word = machine_read("/proc/sys/vm/overcommit_memory", text, sizeof text);
    doctor_add(d, "memory", "overcommit", "%s", *word == '2' ? "strict" : *word == '1' ? "always" : "as usual");
}

/* ---- Limits. */

static void check_limit(doctor *d, const char *name, int which, char letter, double unit, double least,
                        doctor_state state)
{
    struct rlimit r;
    char soft[48];
    if (getrlimit((__rlimit_resource_t)which, &r)) return;
    bool unlimited = r.rlim_cur == RLIM_INFINITY;
    if (unlimited)
        snprintf(soft, sizeof soft, "unlimited");
    else if (unit > 1)
        snprintf(soft, sizeof soft, "%s", amount_size((double)r.rlim_cur).text);
    else
        snprintf(soft, sizeof soft, "%.0f", (double)r.rlim_cur);
    doctor_add(d, "limits", name, "%s (ulimit -%c)", soft, letter);
    if (!unlimited && (double)r.rlim_cur < least) {
        char enough[48] = "unlimited";
        if (unit <= 1) snprintf(enough, sizeof enough, "%.0f", least);
        doctor_advise(d, state, "ulimit -%c %s", letter, enough);
    }
}

void doctor_check_limits(doctor *d)
{
    double window = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    check_limit(d, "address space", RLIMIT_AS, 'v', 1024, 2 * window, DOCTOR_MISSING);
    check_limit(d, "file size", RLIMIT_FSIZE, 'f', 1024, window, DOCTOR_MISSING);
    check_limit(d, "open files", RLIMIT_NOFILE, 'n', 1, 256, DOCTOR_NOTE);
    check_limit(d, "processes", RLIMIT_NPROC, 'u', 1, 256, DOCTOR_NOTE);
    check_limit(d, "locked memory", RLIMIT_MEMLOCK, 'l', 1024, 0, DOCTOR_NOTE);
}

/* ---- Libraries. */

/* Asks one plug-in for its MPI version, in a separate process, because two MPIs cannot be loaded together. */
static void check_mpi(doctor *d, const char *family, const char *name, const char *package)
{
    int ends[2];
    char text[1024] = "";
    size_t used = 0;
    ssize_t n;
    if (pipe(ends)) return;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        char library[900];
        if (ls__net_probe(family, library, sizeof library))
            dprintf(ends[1], "!%s", ls_error());
        else
            dprintf(ends[1], "%s", library);
        _exit(0);
    }
    close(ends[1]);
    while (used < sizeof text - 1 && (n = read(ends[0], text + used, sizeof text - 1 - used)) > 0) used += (size_t)n;
    close(ends[0]);
    if (pid > 0) waitpid(pid, NULL, 0);
    if (!used || text[0] == '!') {
        doctor_add(d, "libraries", name, "%s", used ? text + 1 : "its plug-in could not be tested");
        doctor_advise(d, DOCTOR_NOTE, "for more than one machine: sudo apt-get install %s, then build again", package);
        return;
    }
    doctor_add(d, "libraries", name, "%s", text);
}

static void check_mpirun(doctor *d)
{
    static const char *const names[] = { "mpirun.openmpi", "mpirun.mpich", "mpirun", "srun" };
    char found[256] = "";
    const char *path = getenv("PATH");
    for (int i = 0; i < 4 && path; i++)
        for (const char *at = path; *at;) {
            char file[4096];
            int n = (int)strcspn(at, ":");
            snprintf(file, sizeof file, "%.*s/%s", n, at, names[i]);
            if (!access(file, X_OK)) {
                size_t used = strlen(found);
                snprintf(found + used, sizeof found - used, "%s%s", used ? ", " : "", names[i]);
                break;
            }
            at += n + (at[n] == ':');
        }
    doctor_add(d, "libraries", "cluster start", "%s", *found ? found : "neither mpirun nor srun found in PATH");
    if (!*found) doctor_advise(d, DOCTOR_NOTE, "for more than one machine: sudo apt-get install openmpi-bin");
}

void doctor_check_libraries(doctor *d)
{
    check_mpi(d, "openmpi", "Open MPI", "openmpi-bin libopenmpi-dev");
    check_mpi(d, "mpich", "MPICH", "mpich libmpich-dev");
    check_mpirun(d);
}

/* ---- The system. */

static void check_perf(doctor *d)
{
    struct perf_event_attr a = { .type = PERF_TYPE_HARDWARE,
                                 .size = sizeof a,
                                 .config = PERF_COUNT_HW_CPU_CYCLES,
                                 .exclude_kernel = 1,
                                 .exclude_hv = 1 };
    int fd = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);
    int error = errno;
    if (fd >= 0) {
        close(fd);
        doctor_add(d, "system", "counters", "cycles, instructions and cache misses can be counted");
        return;
    }
    doctor_add(d, "system", "counters", "the CPU's event counters are not available: %s", strerror(error));
    if (error == EACCES || error == EPERM)
        doctor_advise(d, DOCTOR_NOTE, "sudo sysctl kernel.perf_event_paranoid=2");
    else
        doctor_advise(d, DOCTOR_NOTE, "none in this virtual machine; times are still measured");
}

/* Tried in a child, because it cannot be undone. */
static void check_namespaces(doctor *d)
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) _exit(unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWUTS) ? errno : 0);
    if (pid < 0 || waitpid(pid, &status, 0) < 0) return;
    int error = WIFEXITED(status) ? WEXITSTATUS(status) : EINVAL;
    doctor_add(d, "system", "namespaces", "%s",
               error ? "cannot create a cluster of network namespaces here"
                     : "tests can simulate a cluster of hosts on this machine");
    if (error)
        doctor_advise(d, DOCTOR_NOTE, "some tests are skipped (%s); as root: sysctl kernel.unprivileged_userns_clone=1",
                      strerror(error));
}

void doctor_check_kernel(doctor *d)
{
    int fd = pidfd_open(getpid(), 0);
    doctor_add(d, "system", "pidfd", "%s",
               fd >= 0 ? "works: the death of a rank is detected immediately" : strerror(errno));
    if (fd < 0)
        doctor_advise(d, DOCTOR_NOTE,
                      "needs Linux 5.3 and a container that allows pidfd_open; SIGCHLD is used instead");
    else
        close(fd);
    check_perf(d);
    check_namespaces(d);
}
