/* Connections between the coordinator of a job on several machines, its keepers and its ranks: lines of text, and bytes after them where a
 * line says how many. cli/coordinator.c has the lines. */
#ifndef LS_CLI_CONTROL_H
#define LS_CLI_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CONTROL_BEAT_MS = 100,  /* between two signs of life */
    CONTROL_WRITE_MS = 500, /* after which a peer that takes nothing is given up */
};

typedef struct control {
    int fd; /* -1: none */
    char *in;
    size_t used, room, taken; /* bytes in `in`; and of them, those that the caller got before */
    int64_t heard;            /* ls_now() of the last bytes */
    int64_t said;             /* of the last beat */
} control;

/* Takes over a connected socket. */
void control_open(control *c, int fd);
void control_close(control *c);
/* Reads what is there, without waiting. False: the connection is lost. */
bool control_read(control *c);
/* The next line, without its end; NULL: none is complete. Valid until the next call. */
char *control_line(control *c);
/* The next `bytes` bytes; NULL: they are not complete. */
char *control_bytes(control *c, size_t bytes);
/* Sends a line (the format ends with \n). False: the connection is lost. */
bool control_say(control *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A sign of life, if it is time for one. */
bool control_beat(control *c, int64_t now);

#endif
