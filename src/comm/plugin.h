/* Where the network plug-ins are: mpi-openmpi.so and mpi-mpich.so.
 *
 * A plug-in is code that is loaded into the process. So it is taken only from a folder that the user named by an absolute
 * path (LOCKSTEP_PLUGIN_DIR), from beside the library or program that this code is part of, as the kernel knows them (a
 * build tree and a moved installation work), and from where it was installed; never from a place that depends on the
 * working directory or on what a process says its name is. File and folder must belong to root or to the effective user,
 * and nobody else may be able to write there. */
#ifndef LS_COMM_PLUGIN_H
#define LS_COMM_PLUGIN_H

#include "comm/launcher.h"

/* What people call a family of MPIs, and the package that its library comes in. */
typedef struct ls__mpi_family {
    const char *name, *called, *package;
} ls__mpi_family;

/* The family of this name; NULL: there is none. */
const ls__mpi_family *ls__mpi_family_find(const char *name);
/* The one that is not `name`. */
const ls__mpi_family *ls__mpi_family_other(const char *name);
/* The name of the family that fits the launcher. */
const char *ls__mpi_family_of(ls__launcher launcher);

/* Writes the path of the plug-in that `which` means, a family's name or an absolute path, to `path` (PATH_MAX bytes).
 * `said_by` is who chose it, for messages. */
LS_MUST_CHECK ls_status ls__plugin_find(const char *which, const char *said_by, char *path);

#endif
