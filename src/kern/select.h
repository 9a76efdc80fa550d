/* Which build of the loops runs. The same sources (loops.h, nn_loops.h) are compiled once per instruction set; the best build that
 * this CPU can run is used, or the one that LOCKSTEP_KERNELS names: avx512, avx2, neon or plain. All give the same bits.
 *
 * Chosen by hand at first use rather than by the linker (ifunc, target_clones): those run before a sanitizer is ready,
 * and the tests could not reach the builds that were not chosen. */
#ifndef LS_KERN_SELECT_H
#define LS_KERN_SELECT_H

#include "kern/nn.h"
#include "kern/table.h"

typedef struct ls__instruction_set {
    const char *name; /* as in LOCKSTEP_KERNELS */
    int number;       /* as LS_METADATA_KERNELS has it */
    const ls__kernels *loops;
    const ls__nn_kernels *nn;
} ls__instruction_set;

/* A function that is compiled for any CPU of its architecture, even if the rest of the build is not (-march). */
#ifdef __x86_64__
#define LS__ANY_CPU __attribute__((target("arch=x86-64")))
#else
#define LS__ANY_CPU
#endif

/* What the library was compiled for, with -march, and this CPU lacks; NULL: nothing. See cpu.c. */
const char *ls__cpu_lacks(void);
/* Such a build is marked, for the loader; see cpu_mark.c. */
extern const bool ls__cpu_mark;

/* LS_EINVAL if LOCKSTEP_KERNELS names what does not exist or this CPU cannot run; LS_EUNSUPPORTED if the library was compiled for
 * instructions that it lacks. Public calls that begin to compute ask this first. */
LS_MUST_CHECK ls_status ls__kernels_check(void);

/* Why this CPU is slow; NULL: it is not, or LOCKSTEP_KERNELS asks for that. */
const char *ls__kernels_note(void);

/* Number `index` of those that this CPU can run, best first; NULL past the last. */
const ls__instruction_set *ls__instruction_set_at(int index);
/* The one in use. If LOCKSTEP_KERNELS is wrong, the best. */
const ls__instruction_set *ls__instruction_set_used(void);
/* For tests: use this one; NULL: as at the start. */
void ls__instruction_set_use(const ls__instruction_set *s);

#endif
