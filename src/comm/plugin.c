/* Finding the network plug-in. See plugin.h. */
#include "comm/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/status.h"

/* Set by the build: LS__LIBDIR is relative to the prefix, LS__PLUGIN_DIR is below the configured one. */
#define FOLDER_VARIABLE "LOCKSTEP_PLUGIN_DIR"

/* ---- Families. */

static const ls__mpi_family families[] = {
    { "openmpi", "Open MPI", "libopenmpi-dev" },
    { "mpich", "MPICH", "libmpich-dev" },
};
enum { FAMILIES = sizeof families / sizeof *families };

const ls__mpi_family *ls__mpi_family_find(const char *name)
{
    for (int i = 0; i < FAMILIES; i++)
        if (!strcmp(families[i].name, name)) return &families[i];
    return NULL;
}

const ls__mpi_family *ls__mpi_family_other(const char *name)
{
    return &families[!strcmp(name, families[0].name)];
}

/* ---- Places. */

/* The folder of the file, or its parent, followed by `sub`; "" if the file has no real path. */
static void folder_of(const char *file, bool above, const char *sub, char *out, size_t bytes)
{
    char real[PATH_MAX];
    *out = 0;
    if (!realpath(file, real)) return;
    char *folder = dirname(real);
    snprintf(out, bytes, "%s/%s", above ? dirname(folder) : folder, sub);
}

/* The file of the shared library that contains this code; NULL: it is part of the program. A relative name depends on the working
 * directory, and is not used. */
static const char *own_library(void)
{
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1(&families, &info, (void **)&map, RTLD_DL_LINKMAP) || !map) return NULL;
    return map->l_name && map->l_name[0] == '/' ? map->l_name : NULL;
}

/* The folders that are searched, in order; NULL after the last. "": skip. */
static const char *place(int index, char *out, size_t bytes)
{
    const char *named = secure_getenv(FOLDER_VARIABLE), *library = own_library();
    *out = 0;
    switch (index) {
    case 0: return named ? named : "";
    case 1:
        if (library) folder_of(library, false, "lockstep", out, bytes);
        return out;
    case 2: folder_of("/proc/self/exe", true, "lib/lockstep", out, bytes); return out;
    case 3:
        folder_of("/proc/self/exe", true, LS__LIBDIR "/lockstep", out, bytes);
        return out; /* below another prefix */
    case 4: return LS__PLUGIN_DIR;
    default: return NULL;
    }
}

/* Searches mpi-NAME.so; false if it is in none of the folders, which are listed in `tried`. */
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

const char *ls__mpi_family_of(ls__launcher launcher)
{
    char path[PATH_MAX], tried[PATH_MAX];
    switch (launcher) {
    case LS__LAUNCHER_MPICH: return "mpich";
    case LS__LAUNCHER_SLURM: /* srun works with all: the first one that is installed */
        for (int i = 0; i < FAMILIES; i++)
            if (find_file(families[i].name, path, sizeof path, tried, sizeof tried)) return families[i].name;
        break;
    case LS__LAUNCHER_OPENMPI:
    case LS__LAUNCHER_PMIX:
    case LS__LAUNCHER_NONE:
    case LS__LAUNCHER_LOCKSTEP:
    case LS__LAUNCHER_TORCHRUN: break;
    }
    return "openmpi";
}

/* ---- Trust. */

/* Whether only root and the effective user can change what is at `path`. */
static ls_status check_owner(const char *plugin, const char *path, bool folder)
{
    struct stat st;
    const char *what = folder ? "its folder " : "the file ";
    if (stat(path, &st)) return ls__fail_errno("MPI plug-in %s", path);
    if (folder ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode))
        return ls__fail(LS_EINVAL, "MPI plug-in %s: not a regular file", path);
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return ls__fail(LS_EINVAL,
                        "MPI plug-in %s is not loaded: %s%s belongs to user %ld, neither root nor the "
                        "user of this process (%ld); copy it to a folder that you own and set " FOLDER_VARIABLE
                        " to that",
                        plugin, what, path, (long)st.st_uid, (long)geteuid());
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return ls__fail(LS_EINVAL,
                        "MPI plug-in %s is not loaded: other users can write to %s%s (mode %04o); run "
                        "'chmod go-w %s'",
                        plugin, what, path, (unsigned)st.st_mode & 07777, path);
    return LS_OK;
}

static ls_status check_trust(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    ls_status status = check_owner(path, dirname(folder), true);
    return status ? status : check_owner(path, path, false);
}

/* ---- Finding. */

static ls_status must_be_absolute(const char *name, const char *path)
{
    if (path[0] == '/') return LS_OK;
    return ls__fail(LS_EINVAL, "%s=%s: must be an absolute path, so that it does not depend on the working directory",
                    name, path);
}

ls_status ls__plugin_find(const char *which, const char *source, char *path)
{
    char tried[PATH_MAX], found[PATH_MAX];
    const char *folder = secure_getenv(FOLDER_VARIABLE);
    const ls__mpi_family *f = ls__mpi_family_find(which);
    ls_status status = LS_OK;
    if (strchr(which, '/'))
        status = must_be_absolute(source, which);
    else if (folder && *folder)
        status = must_be_absolute(FOLDER_VARIABLE, folder);
    if (status) return status;
    if (strchr(which, '/')) {
        snprintf(found, sizeof found, "%s", which);
    } else if (!f) {
        return ls__fail(LS_EINVAL, "%s=%s: unknown MPI; must be openmpi, mpich, or the path of a plug-in", source,
                        which);
    } else if (!find_file(f->name, found, sizeof found, tried, sizeof tried)) {
        return ls__fail(LS_ENOENT,
                        "no plug-in for %s: mpi-%s.so is not in %s; build lockstep where the package %s is installed, "
                        "or set " FOLDER_VARIABLE " to the plug-in's folder",
                        f->called, f->name, tried, f->package);
    }
    /* Links are resolved before the checks, so that the file that is checked is the one that is loaded. */
    if (!realpath(found, path)) return ls__fail_errno("%s=%s: no such MPI plug-in", source, found);
    return check_trust(path);
}
