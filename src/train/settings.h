/* The settings of a training run, as one table. From it come the options of `lockstep train` and their --help, run.json, what a
 * checkpoint repeats of it, what the ranks must have in common, and what a resumed run may not change. */
#ifndef LS_TRAIN_SETTINGS_H
#define LS_TRAIN_SETTINGS_H

#include <jansson.h>
#include <stddef.h>
#include "lockstep/train.h"

/* ---- The table. */

typedef enum ls__setting_kind {
    LS__SET_INT,
    LS__SET_LONG, /* int64_t */
    LS__SET_SIZE, /* uint64_t */
    LS__SET_FLOAT,
    LS__SET_DOUBLE,
    LS__SET_FLAG,   /* bool */
    LS__SET_CHOICE, /* enum, written as a word */
    LS__SET_FORMAT, /* ls_data_format, written as its name */
    LS__SET_TEXT,   /* const char *, or NULL */
    LS__SET_PATH,   /* the same, relative to the folder in which the run was started */
    LS__SET_PATHS,  /* const char *const *, followed by a size_t */
} ls__setting_kind;

enum {
    LS__SET_FIXED = 1,  /* may not change when the run is resumed */
    LS__SET_SHARED = 2, /* all ranks must have the same; this holds also for fixed ones */
    LS__SET_NONE =
        4, /* 0 is written for none, which is a negative number in the options, since their 0 is the default */
    LS__SET_AUTO = 8, /* 0 in the options is found at run time, and is written as the word auto */
};

typedef struct ls__setting {
    /* "--batch-size"; without the dashes it is the name in run.json, and with underscores the field */
    const char *option;
    ls__setting_kind kind;
    int flags;
    size_t at;                /* in ls_train_options */
    const char *const *words; /* of a choice, ending with NULL; of a text: its default */
    double low, high;         /* the range that the option accepts; both 0: any */
    const char *value;        /* what --help calls the value; NULL for flags */
    const char *help; /* the line of --help; {} stands for the words. NULL: not an option, but a setting of the run */
    const char *section; /* of --help, where one begins; NULL: the same as before */
} ls__setting;
extern const ls__setting ls__settings[];
extern const int ls__n_settings;

static inline const char *ls__setting_name(const ls__setting *s)
{
    return s->option + 2;
}

/* ---- Uses of it. */

/* A setting as a number. Text is a hash of it: 52 bits, which fit a double. */
typedef struct ls__setting_value {
    const char *name;
    double value;
    bool fixed;  /* may not change when the run is resumed */
    bool hashed; /* `value` is a hash */
} ls__setting_value;
enum { LS__MAX_SETTING_VALUES = 128 };
/* Those that all ranks must share, and a hash of the data. Returns how many. */
int ls__settings_values(const ls_train *t, ls__setting_value *out);

/* A name as run.json has it: text, or {"bytes": "caf%E9.txt"} where it is not UTF-8. NULL: out of memory. */
json_t *ls__settings_name(const char *text);

/* LS_EINVAL, naming a file, unless the files of `data` (of `val_data`, if `val`) hold what they held when the run was started or resumed
 * last. A run.json without that information passes. */
LS_MUST_CHECK ls_status ls__settings_check_files(const ls_train_saved *saved, bool val, const json_t *now);

/* The text of run.json, for a run that is open except for its run folder; the caller frees it. NULL: out of memory. */
char *ls__settings_text(const ls_train *t);

/* Parses the text of run.json; `path` is for messages. See ls_train_saved_open(). */
LS_MUST_CHECK ls_status ls__settings_parse(ls_train_saved **out, const char *path, const char *text, size_t bytes);

/* LS_EINVAL, with the name and both values, if a resumed run has changed what it may not. */
LS_MUST_CHECK ls_status ls__settings_compare(const ls_train *t, const ls_train_options *saved);

#endif
