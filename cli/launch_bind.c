/* Divides the cores among the ranks.
 *
 * hwloc knows which cores share a cache or a memory controller, so neighbouring ranks get neighbouring cores. Devices and distances
 * are not loaded, which makes loading the topology four times faster. Only cores that this process may use are counted: its
 * affinity (taskset, cpusets) and the CPU quota of its control group. */
#include "cli/launch_parts.h"

#include <hwloc.h>
#include <hwloc/glibc-sched.h>
#include <limits.h>
#include <stdlib.h>
#include "base/thread.h"
#include "cli/machine.h"

static void load_and_divide(int ranks, launch_cores *out)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology)) return;
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_L3CACHE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING | HWLOC_TOPOLOGY_FLAG_NO_DISTANCES |
                                           HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS | HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS);
    hwloc_cpuset_t *sets = calloc((size_t)ranks, sizeof *sets);
    if (!sets || hwloc_topology_load(topology)) goto done;

    /* Whole cores as long as there is one for each rank, then hardware threads. */
    int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    int until = ranks <= cores ? hwloc_get_type_depth(topology, HWLOC_OBJ_CORE) : INT_MAX;
    hwloc_obj_t root = hwloc_get_root_obj(topology);
    if (hwloc_bitmap_last(root->cpuset) >= CPU_SETSIZE || hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU) < ranks)
        goto done;
    if (hwloc_distrib(topology, &root, 1, sets, (unsigned)ranks, until, 0)) goto done;
    for (int i = 0; i < ranks; i++) {
        int own = hwloc_get_nbobjs_inside_cpuset_by_type(topology, sets[i], HWLOC_OBJ_CORE);
        out[i].threads = own > 0 ? own : 1;
        out[i].bound = !hwloc_cpuset_to_glibc_sched_affinity(topology, sets[i], &out[i].set, sizeof out[i].set);
    }
done:
    for (int i = 0; sets && i < ranks; i++) hwloc_bitmap_free(sets[i]);
    free(sets);
    hwloc_topology_destroy(topology);
}

void launch_divide_cores(int ranks, bool bind, launch_cores *out)
{
    int cores = ls__cpu_count(), usable = machine_cores();
    for (int i = 0; i < ranks; i++) {
        out[i].threads = usable > ranks ? usable / ranks : 1;
        out[i].bound = false;
    }
    /* Alone there is nothing to divide, and with a slice of the time the kernel must be free to move us. */
    if (bind && ranks > 1 && ranks <= cores && usable == cores) load_and_divide(ranks, out);
}
