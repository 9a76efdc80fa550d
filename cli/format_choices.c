/* Data formats as choices of an option. See format_choices.h. */
#include "cli/format_choices.h"

#include <stddef.h>
#include "data/format.h"

typedef struct choices {
    const char *names[LS_FORMAT_COUNT + 1];
    ls_data_format formats[LS_FORMAT_COUNT];
} choices;

static const choices *choices_of(format_set set)
{
    static choices sets[FORMATS_SHARDS + 1];
    choices *c = &sets[set];
    int n = 0;
    for (int i = 0; i < LS_FORMAT_COUNT; i++) {
        ls_data_format f = (ls_data_format)i;
        bool text = ls__format_of(f)->is_text, wanted = set == FORMATS_ALL || text == (set == FORMATS_TEXT);
        if (f != LS_FORMAT_AUTO && !wanted) continue;
        c->formats[n] = f;
        c->names[n++] = ls__format_name(f);
    }
    c->names[n] = NULL;
    return c;
}

const char *const *format_choices(format_set set)
{
    return choices_of(set)->names;
}

ls_data_format format_chosen(format_set set, int choice)
{
    return choices_of(set)->formats[choice];
}
