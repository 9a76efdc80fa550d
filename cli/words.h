/* Messages of the library name its options as a program that uses it writes them; for people at the command line they become
 * the program's. */
#ifndef LS_CLI_WORDS_H
#define LS_CLI_WORDS_H

/* `message` with the library's words replaced. Good until the next call. */
const char *words_of_program(const char *message);

#endif
