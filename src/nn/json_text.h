/* Replacing one value of a JSON text without changing anything else. */
#ifndef LS_NN_JSON_TEXT_H
#define LS_NN_JSON_TEXT_H

#include "lockstep/base.h"

/* *text is a valid JSON object in malloc'ed memory. Sets the member `key` of the outermost object to `value`, a JSON text; a new member
 * is appended. On failure *text is unchanged. */
LS_MUST_CHECK ls_status ls__json_text_set(char **text, const char *key, const char *value);

#endif
