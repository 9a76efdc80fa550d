/* The store of a job on several machines, in the coordinator. See machines.h and comm/tcp.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/machines.h"

typedef struct entry {
    struct entry *next;
    char key[LS__STORE_KEY];
    size_t bytes;
    char value[];
} entry;

typedef struct client {
    control link;
    char setting[LS__STORE_KEY]; /* "": no value is on its way */
    size_t bytes;
    char getting[LS__STORE_KEY]; /* "": waits for none */
} client;

struct job_store {
    entry *entries;
    client *clients;
    int n;
};

bool job_store_add(job_store **store, control *connection)
{
    job_store *s = *store ? *store : calloc(1, sizeof *s);
    client *more = s ? realloc(s->clients, ((size_t)s->n + 1) * sizeof *more) : NULL;
    if (!more) {
        if (!*store) free(s);
        return false;
    }
    s->clients = more;
    s->clients[s->n] = (client){ .link = *connection };
    s->n++;
    *store = s;
    return true;
}

int job_store_count(const job_store *store)
{
    return store ? store->n : 0;
}

int job_store_fd(const job_store *store, int i)
{
    return store->clients[i].link.fd;
}

static const entry *find(const job_store *s, const char *key)
{
    for (const entry *e = s->entries; e; e = e->next)
        if (!strcmp(e->key, key)) return e;
    return NULL;
}

static bool set(job_store *s, client *c, const char *value)
{
    entry *e = malloc(sizeof *e + c->bytes);
    if (!e) return false;
    e->next = s->entries;
    memcpy(e->key, c->setting, sizeof e->key);
    e->bytes = c->bytes;
    memcpy(e->value, value, c->bytes);
    s->entries = e;
    *c->setting = 0;
    return true;
}

/* What has come from a client. False: it is lost, or not one of ours. */
static bool read_client(job_store *s, client *c)
{
    const char *line, *value;
    for (;;) {
        if (*c->setting) {
            if (!(value = control_bytes(&c->link, c->bytes))) return true;
            if (!set(s, c, value)) return false;
            continue;
        }
        if (!(line = control_line(&c->link))) return true;
        _Static_assert(LS__STORE_KEY == 128, "the widths below");
        if (sscanf(line, "set %127s %zu", c->setting, &c->bytes) == 2) {
            if (c->bytes > LS__STORE_VALUE) return false;
        } else if (sscanf(line, "get %127s", c->getting) != 1) {
            return false;
        }
    }
}

static bool answer(const job_store *s, client *c)
{
    const entry *e = *c->getting ? find(s, c->getting) : NULL;
    if (!e) return true;
    *c->getting = 0;
    return control_say(&c->link, "value %zu\n", e->bytes) && ls__tcp_send_all(c->link.fd, e->value, e->bytes);
}

void job_store_serve(job_store *s)
{
    for (int i = 0; s && i < s->n; i++) {
        client *c = &s->clients[i];
        bool open = control_read(&c->link);
        if (!read_client(s, c) || !open) { /* what a rank has set before it left still counts */
            control_close(&c->link);
            s->clients[i--] = s->clients[--s->n];
        }
    }
    for (int i = 0; s && i < s->n; i++)
        if (!answer(s, &s->clients[i])) control_close(&s->clients[i].link);
    for (int i = 0; s && i < s->n; i++)
        if (s->clients[i].link.fd < 0) s->clients[i--] = s->clients[--s->n];
}

void job_store_free(job_store **store)
{
    job_store *s = *store;
    if (!s) return;
    for (int i = 0; i < s->n; i++) control_close(&s->clients[i].link);
    for (entry *e = s->entries, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    free(s->clients);
    free(s);
    *store = NULL;
}
