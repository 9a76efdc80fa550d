/* Changing one value of a JSON text and not a byte besides. */
#ifndef LS_NN_JSON_TEXT_H
#define LS_NN_JSON_TEXT_H

#include "lockstep/base.h"

/* *text is a JSON object in malloc'ed memory that a parser has accepted. The member `key` (of the outermost object) gets `value`, a
 * JSON text; if it is not there, it is put behind the others. On failure *text is as it was. */
LS_MUST_CHECK ls_status ls__json_text_set(char **text, const char *key, const char *value);

#endif
