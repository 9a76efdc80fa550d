/* See folder.h. */
#include "import/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"

#define TEMPORARY ".import.json.tmp-" /* what ls__file_write() leaves of it when it is killed */

/* Whether import.json is an import's, finished or not, and not another program's file of that name. */
static bool was_imported(const char *folder)
{
    char *path, *text = NULL;
    size_t bytes;
    if (asprintf(&path, "%s/import.json", folder) < 0) return false;
    json_t *root = ls__file_read(path, (size_t)1 << 30, &text, &bytes) ? NULL : json_loadb(text, bytes, 0, NULL);
    bool ours = json_is_array(json_object_get(root, "notes"));
    json_decref(root);
    free(text);
    free(path);
    return ours;
}

ls_status ls__folder_check(const char *out)
{
    struct stat s;
    if (!out || !*out) return ls__fail(LS_EINVAL, "no run folder given");
    if (stat(out, &s)) return LS_OK;
    if (!S_ISDIR(s.st_mode)) return ls__fail(LS_EINVAL, "%s: is a file; give the name of a run folder", out);
    if (was_imported(out)) return LS_OK;
    DIR *d = opendir(out);
    bool empty = true;
    if (!d) return ls__fail_errno("%s: cannot be read", out);
    for (const struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strncmp(e->d_name, TEMPORARY, strlen(TEMPORARY)))
            empty = false;
    closedir(d);
    return empty ? LS_OK
                 : ls__fail(LS_EINVAL, "%s: exists and was not written by an import; choose another folder", out);
}

/* Removes the files of rank-* in the folder OUT/NAME. */
static void clear(const char *out, const char *name, const char *contains)
{
    char *path;
    if (asprintf(&path, "%s/%s", out, name) < 0) return;
    ls__file_remove(path, "rank-", contains);
    ls__file_remove(path, ".rank-", ".tmp-");
    free(path);
}

ls_status ls__folder_make(const char *out)
{
    /* What an import leaves that is interrupted can be imported over, and its report says what it is. */
    static const char begun[] = "{\"notes\": [\"this import was interrupted; import the files again\"]}\n";
    char *path = NULL;
    ls_status status = ls__file_make_own_dir(out);
    if (!status && asprintf(&path, "%s/import.json", out) < 0) {
        path = NULL;
        status = ls__fail(LS_ENOMEM, "%s: out of memory", out);
    }
    if (!status) status = ls__file_write(path, begun, strlen(begun));
    free(path);
    if (!status) ls__folder_clear(out);
    return status;
}

void ls__folder_clear(const char *out)
{
    clear(out, "events", ".bin");
    clear(out, "profile", ".json");
    ls__file_remove(out, TEMPORARY, "");
}

void ls__folder_undo(const char *out)
{
    static const char *const names[] = { "import.json", "events", "profile" };
    char *path;
    ls__folder_clear(out);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (asprintf(&path, "%s/%s", out, names[i]) < 0) continue;
        if (i)
            rmdir(path); /* what is not empty stays */
        else
            unlink(path);
        free(path);
    }
}

ls_status ls__folder_finish(const char *out, const char *source, const ls__remarks *remarks, json_t *content)
{
    char *path = NULL, *text = NULL;
    json_t *notes = json_array(),
           *root = json_pack("{s:s, s:s, s:o}", "lockstep", ls_version(), "source", source, "notes", notes);
    if (root && json_object_update(root, content)) {
        json_decref(root);
        root = NULL;
    }
    for (size_t i = 0; i < remarks->count && root; i++) json_array_append_new(notes, json_string(remarks->text[i]));
    if (remarks->left_out && root)
        json_array_append_new(notes, json_sprintf("%llu more notes omitted", (unsigned long long)remarks->left_out));
    if (root) text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    ls_status status = text && asprintf(&path, "%s/import.json", out) >= 0
                           ? ls__file_write(path, text, strlen(text))
                           : ls__fail(LS_ENOMEM, "%s: out of memory", out);
    json_decref(root);
    free(text);
    free(path);
    return status;
}
