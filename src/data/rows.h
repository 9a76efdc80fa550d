/* Labelled texts, or pairs of texts, as a dataset: JSON lines, CSV or TSV with one or two fields of text and one with the label. */
#ifndef LS_DATA_ROWS_H
#define LS_DATA_ROWS_H

#include "lockstep/data.h"

typedef struct ls__rows_options {
    const char *const *paths; /* files, globs and folders */
    size_t n_paths;
    /* Fields; NULL: `field` and `pair_field` by usual names (text; sentence1 and sentence2; ...), `label_field` "label" */
    const char *field, *pair_field, *label_field;
    const char *labels;            /* names of the classes, separated by commas; NULL: labels are numbers from 0 on */
    int classes;                   /* labels must be below this; 0: not checked */
    const ls_tokenizer *tokenizer; /* stays the caller's and must outlive the dataset */
    size_t seq_len;                /* tokens per sample, those of the template included */
    bool skip_bad; /* skip invalid rows and log how many; default: they are LS_EFORMAT with file, byte and line */
} ls__rows_options;

/* The fields of a batch. */
enum {
    LS__ROWS_TOKENS = 0, /* int32 (seq_len), with the template's special tokens, then padding */
    LS__ROWS_TYPES = 1,  /* int32 (seq_len): token types */
    LS__ROWS_LABEL = 2,  /* int32 */
    LS__ROWS_LENGTH = 3, /* int32: tokens without padding */
};

/* Reads all rows and checks them; they stay in memory. On failure *out is NULL. */
LS_MUST_CHECK ls_status ls__rows_open(ls_dataset **out, const ls__rows_options *options);

/* The labels of the files: how many classes, and if they are texts their names, sorted and separated by commas, which the caller frees;
 * *names NULL: they are numbers. Options from `labels` on are not used. */
LS_MUST_CHECK ls_status ls__rows_labels(const ls__rows_options *options, char **names, int *classes);

#endif
