/* See json_text.h. Parsing and writing again would change formatting: 1e-05, the order, the indentation. */
#include "nn/json_text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"

static const char *skip_space(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

/* The end of the string that begins at `p`. */
static const char *skip_string(const char *p)
{
    for (p++; *p && *p != '"'; p++)
        if (*p == '\\' && p[1]) p++;
    return *p ? p + 1 : p;
}

/* The end of the value that begins at `p`, without trailing white space. */
static const char *skip_value(const char *p)
{
    int depth = 0;
    const char *end = p;
    while (*p && (depth || (*p != ',' && *p != '}' && *p != ']'))) {
        depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
        bool space = strchr(" \t\r\n", *p) != NULL;
        p = *p == '"' ? skip_string(p) : p + 1;
        if (!space) end = p;
    }
    return end;
}

/* The value of a member, from *begin to *end; both are after the last member if it does not exist. Returns whether it exists. */
static bool find(const char *text, const char *key, const char **begin, const char **end, bool *empty)
{
    size_t length = strlen(key);
    const char *p = skip_space(text);
    *begin = *end = p + (*p == '{');
    *empty = true;
    for (p = skip_space(*begin); *p == '"'; p = skip_space(p + (*p == ','))) {
        const char *name = p + 1, *behind = skip_string(p);
        p = skip_space(behind);
        p = skip_space(p + (*p == ':'));
        *begin = p;
        *end = p = skip_value(p);
        *empty = false;
        if ((size_t)(behind - name) == length + 1 && memcmp(name, key, length) == 0) return true;
        p = skip_space(p);
    }
    *begin = *end;
    return false;
}

ls_status ls__json_text_set(char **text, const char *key, const char *value)
{
    const char *begin, *end;
    char *changed;
    bool empty;
    int n;
    if (find(*text, key, &begin, &end, &empty))
        n = asprintf(&changed, "%.*s%s%s", (int)(begin - *text), *text, value, end);
    else
        n = asprintf(&changed, "%.*s%s\n  \"%s\": %s%s", (int)(begin - *text), *text, empty ? "" : ",", key, value,
                     end);
    if (n < 0) return ls__fail(LS_ENOMEM, "JSON: out of memory");
    free(*text);
    *text = changed;
    return LS_OK;
}
