/* Text from files and from users in JSON and in HTML. Whatever it holds, the result is valid UTF-8 and stays text: bytes
 * that are no UTF-8 become U+FFFD, and control characters lose their power. */
#ifndef LS_CLI_ESCAPE_H
#define LS_CLI_ESCAPE_H

#include <stdio.h>

/* The inside of a JSON string, without its quotes. */
void put_json(FILE *to, const char *text);
/* Text or the inside of a quoted attribute. */
void put_html(FILE *to, const char *text);

#endif
