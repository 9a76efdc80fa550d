/* Messages of the library name the fields of its option structs. At the command line they become the program's options. */
#ifndef LS_CLI_OPTION_NAMES_H
#define LS_CLI_OPTION_NAMES_H

/* `message` with the library's names replaced. Valid until the next call. */
const char *words_of_program(const char *message);

#endif
