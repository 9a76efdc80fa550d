/* What the files of `lockstep data` share. */
#ifndef LS_CLI_DATA_H
#define LS_CLI_DATA_H

#include "lockstep/base.h"

int data_info(int argc, char **argv);
int data_order(int argc, char **argv);
int data_stage(int argc, char **argv);
int data_tokenize(int argc, char **argv);
int data_train_bpe(int argc, char **argv);

/* Prints that an option is missing; EXIT_USAGE. */
int data_missing(const char *name, const char *what);

/* A bar on a terminal, nothing elsewhere. `user` points to the time of the beginning, an int64_t. */
void data_show_progress(void *user, uint64_t done, uint64_t total);
/* For ls_log_set(): warnings go to the error output. */
void data_show_log(void *user, ls_log_level level, const char *text);

#endif
