/* Data formats as choices of an option. */
#ifndef LS_CLI_FORMAT_CHOICES_H
#define LS_CLI_FORMAT_CHOICES_H

#include "lockstep/data.h"

typedef enum format_set {
    FORMATS_ALL,
    FORMATS_TEXT,   /* auto and the text formats */
    FORMATS_SHARDS, /* auto and the formats of token shards */
} format_set;

/* The names, for OPTION_CHOICE. */
const char *const *format_choices(format_set set);
/* The format of choice number `choice` of that set. */
ls_data_format format_chosen(format_set set, int choice);

#endif
