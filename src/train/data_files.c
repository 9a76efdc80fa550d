/* See data_files.h. Small files are hashed completely, so that all together take about a second; of larger ones, the size and
 * blocks spread over the file are hashed. */
#include "train/data_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/file.h"
#include "base/status.h"
#include "base/text.h"
#include "data/names.h"
#include "train/settings.h"

enum { BLOCK = 64 << 10, MIN_BLOCKS = 4, ALL_BLOCKS = 4096 };

/* Hashes at most `most` blocks of the file, including the first and the last. */
static ls_status hash_file(const char *path, uint64_t most, size_t *bytes, uint64_t *hash)
{
    int fd = -1;
    ls_status status = ls__file_open(path, &fd, bytes);
    char *block = status ? NULL : malloc(BLOCK);
    XXH3_state_t *state = status ? NULL : XXH3_createState();
    if (!status && (!block || !state || XXH3_64bits_reset(state)))
        status = ls__fail(LS_ENOMEM, "%s: out of memory", path);
    uint64_t blocks = status ? 0 : (*bytes + BLOCK - 1) / BLOCK, count = blocks < most ? blocks : most;
    for (uint64_t i = 0; i < count && !status; i++) {
        uint64_t at = count == blocks ? i : i * (blocks - 1) / (count - 1);
        ssize_t n = pread(fd, block, BLOCK, (off_t)(at * BLOCK));
        if (n < 0)
            status = ls__fail_errno("cannot read %s", path);
        else
            XXH3_64bits_update(state, block, (size_t)n);
    }
    if (!status) *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    free(block);
    if (fd >= 0) close(fd);
    return status;
}

static json_t *file_json(const char *path, size_t bytes, uint64_t hash)
{
    char digits[20];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)hash);
    return json_pack("{s:o, s:I, s:s}", "name", ls__settings_name(path), "bytes", (json_int_t)bytes, "xxh3", digits);
}

ls_status ls__data_files_json(const char *const *paths, size_t n_paths, json_t **out)
{
    ls__names names = { 0 };
    ls_status status = n_paths ? ls__names_find(&names, paths, n_paths) : LS_OK;
    uint64_t most = names.count ? ALL_BLOCKS / names.count : 0;
    json_t *list = json_array();
    if (most < MIN_BLOCKS) most = MIN_BLOCKS;
    for (size_t i = 0; i < names.count && !status; i++) {
        size_t bytes;
        uint64_t hash;
        status = hash_file(names.items[i], most, &bytes, &hash);
        if (!status && json_array_append_new(list, file_json(names.items[i], bytes, hash)))
            status = ls__fail(LS_ENOMEM, "%s: out of memory", names.items[i]);
    }
    ls__names_free(&names);
    if (status) json_decref(list);
    *out = status ? NULL : list;
    return status;
}

/* The name of a file of a list, for a message. */
static const char *name_of(const json_t *file)
{
    const json_t *name = json_object_get(file, "name");
    const char *text = json_string_value(json_is_object(name) ? json_object_get(name, "bytes") : name);
    return text ? text : "?";
}

ls_status ls__data_files_compare(const json_t *then, const json_t *now)
{
    size_t n = json_array_size(then), i;
    json_t *file;
    if (!then) return LS_OK;
    json_array_foreach(now, i, file)
    {
        const json_t *old = json_array_get(then, i);
        json_int_t was = json_integer_value(json_object_get(old, "bytes")),
                   is = json_integer_value(json_object_get(file, "bytes"));
        if (i >= n) break;
        if (was != is)
            return ls__fail(LS_EINVAL, "%s: has %lld bytes; it had %lld when the run read it", name_of(file),
                            (long long)is, (long long)was);
        if (!json_equal(json_object_get(file, "xxh3"), json_object_get(old, "xxh3")))
            return ls__fail(LS_EINVAL, "%s: the contents have changed since the run read it", name_of(file));
    }
    if (n == json_array_size(now)) return LS_OK;
    return ls__fail(LS_EINVAL, "there %s %zu data file%s; the run read %zu", json_array_size(now) == 1 ? "is" : "are",
                    json_array_size(now), ls__s((int64_t)json_array_size(now)), n);
}
