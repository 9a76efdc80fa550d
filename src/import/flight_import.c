/* An import of Flight Recorder dumps: files to import.json. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "import/files.h"
#include "import/flight.h"
#include "import/folder.h"
#include "import/input.h"
#include "import/pickle.h"
#include "lockstep/import.h"

static const char *const any_end[] = { "", NULL };
enum { MAX_DUMP = 1 << 28 };

/* ---- Reading. */

/* All of a file, unpacked. */
static ls_status read_all(const char *path, char **out, size_t *bytes)
{
    ls__input *in;
    size_t room = 1 << 16, got = 1;
    *out = NULL;
    *bytes = 0;
    ls_status status = ls__input_open(&in, path);
    if (status) return status;
    char *text = malloc(room);
    while (text && !status && got) {
        if (*bytes == room) {
            char *more = room < MAX_DUMP ? realloc(text, room *= 2) : NULL;
            if (!more) break;
            text = more;
        }
        status = ls__input_read(in, text + *bytes, room - *bytes, &got);
        *bytes += got;
    }
    if (!status && (!text || got)) status = ls__fail(LS_EFORMAT, "%s: is too large for a dump", path);
    ls__input_free(&in);
    if (status)
        free(text);
    else
        *out = text;
    return status;
}

/* One rank's dump, in either form, as JSON. */
static ls_status load_dump(json_t **out, const char *path)
{
    char *text;
    size_t bytes;
    json_error_t error;
    *out = NULL;
    ls_status status = read_all(path, &text, &bytes);
    if (status) return status;
    if (ls__is_pickle(text, bytes)) {
        status = ls__pickle_read(out, text, bytes);
        if (status) status = ls__fail_within(status, "%s", path);
    } else {
        *out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
        if (!*out)
            status =
                ls__fail(LS_EFORMAT,
                         "%s: not a Flight Recorder dump: neither a pickle (protocol 2 to 5) nor JSON (line %d: %s)",
                         path, error.line, error.text);
    }
    free(text);
    if (!status && !json_is_array(json_object_get(*out, "entries"))) {
        status = ls__fail(LS_EFORMAT, "%s: not a Flight Recorder dump: it has no entries%s", path,
                          json_object_get(*out, "traceEvents")
                              ? ", but traceEvents of the PyTorch profiler; import it without --flight-recorder"
                              : "");
        json_decref(*out);
        *out = NULL;
    }
    return status;
}

/* ---- All of them. */

static int by_rank(const void *a, const void *b)
{
    return ((const ls__flight *)a)->rank - ((const ls__flight *)b)->rank;
}

/* The most ranks that a group's list in the dump names. */
static int ranks_of_dump(const json_t *dump)
{
    int most = 0;
    const char *key;
    json_t *config;
    json_object_foreach(json_object_get(dump, "pg_config"), key, config)
    {
        const char *ranks = json_string_value(json_object_get(config, "ranks"));
        for (const char *p = ranks; p && *p; p++)
            if ((p == ranks || p[-1] < '0' || p[-1] > '9') && *p >= '0' && *p <= '9' && strspn(p, "0123456789") < 6 &&
                atoi(p) + 1 > most)
                most = atoi(p) + 1;
    }
    return most;
}

static ls_status load(const ls__file_list *list, ls__flight *dumps, size_t *count, int *ranks, ls__remarks *remarks)
{
    char *first = NULL;
    ls_status status = LS_OK;
    for (size_t i = 0; i < list->count && !status; i++) {
        ls__flight *f = &dumps[*count];
        *f = (ls__flight){ .path = list->path[i], .rank = ls__files_rank(list->path[i], 1 << 16) };
        ls_status one = load_dump(&f->dump, list->path[i]);
        if (one == LS_ENOMEM || (one && list->named[i])) status = one;
        if (one && !status) {
            ls__remark(remarks, "skipped: %s", ls_error());
            if (!first) first = strdup(ls_error());
        }
        if (one) continue;
        if (f->rank < 0) status = ls__fail(LS_EFORMAT, "%s: the file name must end in the rank number", f->path);
        for (size_t k = 0; k < *count && !status; k++)
            if (dumps[k].rank == f->rank)
                status = ls__fail(LS_EFORMAT, "%s and %s are both from rank %d; import one dump per rank",
                                  dumps[k].path, f->path, f->rank);
        ++*count;
        if (f->rank >= *ranks) *ranks = f->rank + 1;
        int stated = ranks_of_dump(f->dump);
        if (stated > *ranks) *ranks = stated;
    }
    if (!status && !*count) status = ls__fail(LS_EFORMAT, "%s", first ? first : "no dump found");
    free(first);
    return status;
}

ls_status ls__flight_import(const ls_import_options *o, ls_import_result *result)
{
    ls__file_list list = { 0 };
    ls__flight *dumps = NULL;
    ls__remarks remarks = { 0 };
    json_t *content = NULL;
    size_t count = 0;
    ls_status status = ls__folder_check(o->out);
    if (!status) status = ls__files_find(&list, o->files, o->count, any_end);
    if (!status && !(dumps = calloc(list.count, sizeof *dumps))) status = ls__fail(LS_ENOMEM, "out of memory");
    if (!status) status = load(&list, dumps, &count, &result->ranks, &remarks);
    if (!status) {
        qsort(dumps, count, sizeof *dumps, by_rank);
        content = json_pack("{s:o}", "flight_recorder", ls__flight_explain(dumps, count, result->ranks));
        if (!content) status = ls__fail(LS_ENOMEM, "out of memory");
    }
    ls__folder folder;
    if (!status) status = ls__folder_begin(&folder, o->out);
    if (!status) status = ls__folder_end(&folder, ls__folder_finish(folder.at, "flight recorder", &remarks, content));
    result->present = (int)count;
    for (size_t i = 0; i < count; i++) {
        result->events += json_array_size(json_object_get(dumps[i].dump, "entries"));
        json_decref(dumps[i].dump);
    }
    if (!status) {
        result->notes = remarks.text;
        result->n_notes = remarks.count;
        remarks = (ls__remarks){ 0 };
    }
    json_decref(content);
    free(dumps);
    ls__files_free(&list);
    ls__remarks_free(&remarks);
    return status;
}
