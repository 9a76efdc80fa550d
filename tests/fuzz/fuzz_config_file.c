/* Fuzz target: any bytes as a configuration file of `lockstep train`. What is accepted can be written and read again as the same. */
#include <stdlib.h>
#include <string.h>
#include "cli/config_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_all(const config_file *f, FILE *to)
{
    for (size_t i = 0; i < f->count; i++) {
        const config_entry *e = &f->entries[i];
        fprintf(to, "%s = ", e->name);
        if (e->kind == CONFIG_LIST) fputc('[', to);
        for (size_t k = 0; k < e->count; k++) {
            if (k) fputs(", ", to);
            if (e->kind == CONFIG_TEXT || e->kind == CONFIG_LIST)
                config_put_text(to, e->items[k]);
            else
                fputs(e->items[k], to);
        }
        fputs(e->kind == CONFIG_LIST ? "]\n" : "\n", to);
    }
}

static void compare(const config_file *a, const config_file *b)
{
    if (a->count != b->count) abort();
    for (size_t i = 0; i < a->count; i++) {
        const config_entry *x = &a->entries[i], *y = &b->entries[i];
        if (strcmp(x->name, y->name) != 0 || x->kind != y->kind || x->count != y->count) abort();
        for (size_t k = 0; k < x->count; k++)
            if (strcmp(x->items[k], y->items[k]) != 0) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    config_file first, second;
    char *text = NULL;
    size_t bytes;
    if (config_file_parse(&first, "fuzz", (const char *)data, size)) {
        if (first.entries || first.memory || !ls_error()[0]) abort();
        return 0;
    }
    FILE *to = open_memstream(&text, &bytes);
    if (!to) abort();
    write_all(&first, to);
    fclose(to);
    if (bytes <= 1 << 20) { /* escapes may make it longer than a file may be */
        if (config_file_parse(&second, "written", text, bytes)) abort();
        compare(&first, &second);
        config_file_free(&second);
    }
    free(text);
    config_file_free(&first);
    return 0;
}
