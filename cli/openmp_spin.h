/* How OpenMP's threads wait for each other. */
#ifndef LS_CLI_WAITING_H
#define LS_CLI_WAITING_H

/* Starts the program again with settings that the OpenMP library reads before main(), unless they are there already.
 * Returns if they are, or if it cannot be done. */
void settle_waiting(char **argv);

#endif
