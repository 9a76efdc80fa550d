/* How OpenMP's threads wait for each other. */
#ifndef LS_CLI_OPENMP_SPIN_H
#define LS_CLI_OPENMP_SPIN_H

/* Starts the program again with settings that the OpenMP library reads before main(), unless they are there already.
 * Returns if they are, or if it cannot be done. */
void limit_openmp_spin(char **argv);

#endif
