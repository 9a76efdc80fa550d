/* What the files of `lockstep data` share. */
#ifndef LS_CLI_DATA_H
#define LS_CLI_DATA_H

#include "lockstep/base.h"

int data_info(int argc, char **argv);
int data_order(int argc, char **argv);
int data_stage(int argc, char **argv);
int data_tokenize(int argc, char **argv);
int data_train_bpe(int argc, char **argv);

/* A whole number, perhaps with a unit as options_parse_size() has them, between `least` and `most`. On
 * failure prints what is wrong with OPTION's value and returns 0. */
int data_parse_number(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *out);

/* A bar on a terminal, nothing elsewhere. `user` points to the time of the beginning, an int64_t. */
void data_show_progress(void *user, uint64_t done, uint64_t total);
/* For ls_log_set(): warnings go to the error output. */
void data_show_log(void *user, ls_log_level level, const char *text);

#endif
