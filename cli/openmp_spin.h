/* How OpenMP's threads wait for each other, and where the first one runs. */
#ifndef LS_CLI_OPENMP_SPIN_H
#define LS_CLI_OPENMP_SPIN_H

/* Starts the program again with settings that the OpenMP library reads before main(), unless they are there already.
 * Returns if they are, or if it cannot be done. */
void limit_openmp_spin(char **argv);
/* OMP_PROC_BIND and OMP_PLACES: GNU's library binds the first thread to the first place before main(). What we start and count would be
 * limited to that; this lets it run on the cores of all places. */
void leave_first_place(void);

#endif
