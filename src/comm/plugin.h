/* Where the network plug-ins are: mpi-openmpi.so and mpi-mpich.so.
 *
 * A plug-in is code that is loaded into the process. So it is loaded only from a folder that the user named by an absolute path
 * (LOCKSTEP_PLUGIN_DIR), from a folder next to the library or program that contains this code, as the kernel knows it (a build tree and
 * a moved installation work), and from where it was installed; never from a place that depends on the working directory or on argv[0].
 * File and folder must belong to root or to the effective user, and no other user may be able to write there. */
#ifndef LS_COMM_PLUGIN_H
#define LS_COMM_PLUGIN_H

#include "comm/launcher.h"

/* A family of MPIs: name in options, name in messages, Debian package. */
typedef struct ls__mpi_family {
    const char *name, *called, *package;
} ls__mpi_family;

/* The family of this name; NULL: unknown. */
const ls__mpi_family *ls__mpi_family_find(const char *name);
/* The family that is not `name`. */
const ls__mpi_family *ls__mpi_family_other(const char *name);
/* The name of the family that fits the launcher. */
const char *ls__mpi_family_of(ls__launcher launcher);

/* Writes the path of the plug-in `which`, a family's name or an absolute path, to `path` (PATH_MAX bytes). `source`: where `which` was
 * set, for messages. */
LS_MUST_CHECK ls_status ls__plugin_find(const char *which, const char *source, char *path);

#endif
