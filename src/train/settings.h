/* The settings of a training, as one table: what run.json holds of them, what a checkpoint repeats, what the ranks must have in
 * common, and what a run that is resumed may not change. Each bears the name of its option of `lockstep train`, and has the
 * value that one would write there. */
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
    LS__SET_MEBIBYTES, /* size_t in bytes, written as MiB */
    LS__SET_FLAG,      /* bool */
    LS__SET_PAIR,      /* bool, one of two words */
    LS__SET_CHOICE,    /* enum, by its word */
    LS__SET_FORMAT,    /* ls_data_format, by its name */
    LS__SET_TEXT,      /* const char *, or NULL */
    LS__SET_PATH,      /* the same, relative to the folder of the start */
    LS__SET_PATHS,     /* const char *const *, and a size_t behind it */
} ls__setting_kind;

enum {
    LS__SET_FIXED = 1,  /* may not change when the run is resumed */
    LS__SET_SHARED = 2, /* all ranks must have the same; those that are fixed must, too */
    LS__SET_NONE = 4,   /* 0 means none, for which options have a negative number, since their 0 is the default */
    LS__SET_AUTO = 8,   /* options' 0 is found by the program, and written as the word auto */
};

typedef struct ls__setting {
    const char *name;
    ls__setting_kind kind;
    int flags;
    size_t at; /* in ls_train_options */
    const char *const *words;
} ls__setting;
enum { LS__SETTINGS = 62 };
extern const ls__setting ls__settings[LS__SETTINGS];

/* ---- Uses of it. */

/* A setting as a number. Text is a hash of it: 52 bits, which fit a double. */
typedef struct ls__fact {
    const char *name;
    double value;
    bool fixed;  /* a run that is resumed must have the same */
    bool hashed; /* `value` means nothing to people */
} ls__fact;
enum { LS__MAX_FACTS = 72 };
/* Those that all ranks must share; the training's data are among them. Returns how many. */
int ls__settings_facts(const ls_train *t, ls__fact *out);

/* A name as run.json has it: text, or {"bytes": "caf%E9.txt"} where it is not UTF-8. NULL: out of memory. */
json_t *ls__settings_name(const char *text);

/* LS_EINVAL, naming a file, unless the files of `data` (of `val_data`, if `val`) hold what they held when the run was started or resumed
 * last. A run.json that does not say what they held is passed over. */
LS_MUST_CHECK ls_status ls__settings_check_files(const ls_train_saved *saved, bool val, const json_t *now);

/* The text of run.json, for a training that is open but for its run directory; the caller frees it. NULL: out of memory. */
char *ls__settings_text(const ls_train *t);

/* What the text of run.json says; `path` is for messages. See ls_train_saved_open(). */
LS_MUST_CHECK ls_status ls__settings_parse(ls_train_saved **out, const char *path, const char *text, size_t bytes);

/* LS_EINVAL, with the name and both values, if a training that resumes the run in its run directory has changed what it may
 * not. */
LS_MUST_CHECK ls_status ls__settings_compare(const ls_train *t, const ls_train_options *saved);

#endif
