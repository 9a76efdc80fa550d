/* Writing and reading checkpoints. See checkpoint.h. */
#include "train/checkpoint.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread.h"
#include "train/training.h"

static const char MAGIC[] = "lockstep checkpoint 1\n";
enum {
    MAGIC_BYTES = sizeof MAGIC - 1,
    HEAD_LIMIT = 1 << 20,
    MAX_BLOCKS = 3, /* weights and two of state */
    PART = 1 << 20, /* bytes hashed and written at a time, while they are in the cache */
};

/* What a file or a training holds. */
typedef struct contents {
    int64_t step;
    ls_loader_state data;
    size_t elements;
    int n_blocks;
    const float *blocks[MAX_BLOCKS];
} contents;

struct ls__checkpoint_writer {
    pthread_t thread;
    bool running;
    ls_status status;
    char message[512];
    char *path, *head;
    size_t elements;
    int n_blocks;
    float *copies[MAX_BLOCKS];
    size_t copy_bytes;
};

/* ---- What is saved. */

static contents contents_of(const ls_train *t)
{
    contents c = { .step = t->step, .elements = ls_model_elements(t->model), .n_blocks = 1 };
    c.data = ls_loader_tell(t->loader);
    c.blocks[0] = ls_model_values(t->model);
    const char *name;
    float *data;
    int states = ls_optimizer_state(t->optimizer, -1, &name, &data);
    for (int i = 0; i < states && c.n_blocks < MAX_BLOCKS; i++) {
        ls_optimizer_state(t->optimizer, i, &name, &data);
        c.blocks[c.n_blocks++] = data;
    }
    return c;
}

static char *make_head(const ls_train *t, const contents *c)
{
    ls__fact facts[LS__MAX_FACTS];
    int n = ls__train_facts(t, facts);
    json_t *settings = json_object();
    for (int i = 0; i < n; i++) json_object_set_new(settings, facts[i].name, json_real(facts[i].value));
    json_t *root = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:i, s:o}", "lockstep", ls_version(), "step",
                             (json_int_t)c->step, "epoch", (json_int_t)c->data.epoch, "data_step",
                             (json_int_t)c->data.step, "data_print", (json_int_t)c->data.fingerprint, "elements",
                             (json_int_t)c->elements, "blocks", c->n_blocks, "settings", settings);
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return text;
}

/* ---- Writing. */

typedef struct sink {
    ls__file_writer *file;
    XXH3_state_t *hash;
} sink;

static ls_status put(sink *s, const void *data, size_t bytes)
{
    ls_status status = LS_OK;
    for (size_t at = 0; at < bytes && !status; at += PART) {
        size_t n = bytes - at < PART ? bytes - at : PART;
        XXH3_128bits_update(s->hash, (const char *)data + at, n);
        status = ls__file_writer_add(s->file, (const char *)data + at, n);
    }
    return status;
}

static ls_status write_file(const char *path, const char *head, const float *const *blocks, int n_blocks,
                            size_t elements)
{
    sink s = { .hash = XXH3_createState() };
    uint64_t length = strlen(head);
    if (!s.hash) return ls__fail(LS_ENOMEM, "%s: out of memory", path);
    XXH3_128bits_reset(s.hash);
    ls_status status = ls__file_writer_open(&s.file, path);
    if (!status) status = put(&s, MAGIC, MAGIC_BYTES);
    if (!status) status = put(&s, &length, sizeof length);
    if (!status) status = put(&s, head, length);
    for (int i = 0; i < n_blocks && !status; i++) status = put(&s, blocks[i], elements * sizeof(float));
    if (!status) {
        XXH128_hash_t hash = XXH3_128bits_digest(s.hash);
        uint64_t words[2] = { hash.low64, hash.high64 };
        status = ls__file_writer_add(s.file, words, sizeof words);
    }
    if (!status)
        status = ls__file_writer_commit(&s.file);
    else
        ls__file_writer_cancel(&s.file);
    XXH3_freeState(s.hash);
    return status;
}

static char *folder_of(const ls_train *t)
{
    char *path;
    return asprintf(&path, "%s/checkpoints", t->options.run_dir) < 0 ? NULL : path;
}

/* Steps of the files in a folder, newest first. Returns how many; at most `room`. */
static int list_steps(const char *folder, int64_t *steps, int room)
{
    int n = 0;
    DIR *d = opendir(folder);
    if (!d) return 0;
    for (struct dirent *e; (e = readdir(d)) && n < room;) {
        long long step;
        char tail[8];
        if (sscanf(e->d_name, "step-%lld.%7s", &step, tail) != 2 || strcmp(tail, "ckpt") != 0) continue;
        int i = n++;
        for (; i > 0 && steps[i - 1] < step; i--) steps[i] = steps[i - 1];
        steps[i] = step;
    }
    closedir(d);
    return n;
}

static void file_name(char *out, size_t bytes, const char *folder, int64_t step)
{
    snprintf(out, bytes, "%s/step-%09lld.ckpt", folder, (long long)step);
}

/* Removes all but the newest `keep`, once a new one is in place. */
static void remove_old(const char *newest, int keep)
{
    enum { MANY = 4096 };
    char folder[4096], path[4200];
    int64_t *steps = malloc(MANY * sizeof *steps);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(newest, '/') - newest), newest);
    int n = steps ? list_steps(folder, steps, MANY) : 0;
    for (int i = keep; i < n; i++) {
        file_name(path, sizeof path, folder, steps[i]);
        unlink(path);
    }
    free(steps);
}

/* What a run left that was killed while it wrote. */
static void remove_unfinished(const char *folder)
{
    char path[4400];
    DIR *d = opendir(folder);
    if (!d) return;
    for (const struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, ".step-", 6) != 0 || !strstr(e->d_name, ".ckpt.tmp-")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        unlink(path);
    }
    closedir(d);
}

static void *write_in_background(void *arg)
{
    ls_train *t = arg;
    struct ls__checkpoint_writer *w = t->checkpoint;
    w->status = write_file(w->path, w->head, (const float *const *)w->copies, w->n_blocks, w->elements);
    if (w->status)
        snprintf(w->message, sizeof w->message, "%s", ls_error());
    else
        remove_old(w->path, t->options.keep);
    return NULL;
}

ls_status ls__checkpoint_wait(ls_train *t)
{
    struct ls__checkpoint_writer *w = t->checkpoint;
    if (!w || !w->running) return LS_OK;
    pthread_join(w->thread, NULL);
    w->running = false;
    return w->status ? ls__fail(w->status, "%s", w->message) : LS_OK;
}

/* Memory for a copy of the blocks, kept from one checkpoint to the next. */
static bool have_copies(struct ls__checkpoint_writer *w, const contents *c)
{
    size_t bytes = c->elements * sizeof(float);
    if (w->copy_bytes) return true;
    for (int i = 0; i < c->n_blocks; i++) {
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (p == MAP_FAILED) {
            while (i-- > 0) munmap(w->copies[i], bytes);
            return false;
        }
        w->copies[i] = p;
    }
    w->copy_bytes = bytes;
    return true;
}

ls_status ls__checkpoint_save(ls_train *t)
{
    ls_status status = ls__checkpoint_wait(t);
    if (status) return status;
    if (!t->checkpoint && !(t->checkpoint = calloc(1, sizeof *t->checkpoint)))
        return ls__fail(LS_ENOMEM, "checkpoint: out of memory");
    struct ls__checkpoint_writer *w = t->checkpoint;
    contents c = contents_of(t);
    char *folder = folder_of(t), path[4200];
    if (!folder) return ls__fail(LS_ENOMEM, "checkpoint: out of memory");
    status = ls__file_make_dir(folder);
    file_name(path, sizeof path, folder, c.step);
    free(folder);
    if (status) return status;
    free(w->path);
    free(w->head);
    w->path = strdup(path);
    w->head = make_head(t, &c);
    w->elements = c.elements;
    w->n_blocks = c.n_blocks;
    if (!w->path || !w->head) return ls__fail(LS_ENOMEM, "checkpoint: out of memory");
    if (!have_copies(w, &c)) {
        status = write_file(path, w->head, c.blocks, c.n_blocks, c.elements);
        if (!status) remove_old(path, t->options.keep);
        return status;
    }
    for (int i = 0; i < c.n_blocks; i++) memcpy(w->copies[i], c.blocks[i], w->copy_bytes);
    status = ls__thread_start(&w->thread, "ls-checkpoint", write_in_background, t);
    w->running = !status;
    return status;
}

void ls__checkpoint_close(ls_train *t)
{
    struct ls__checkpoint_writer *w = t->checkpoint;
    if (!w) return;
    if (w->running) pthread_join(w->thread, NULL);
    for (int i = 0; i < w->n_blocks && w->copy_bytes; i++) munmap(w->copies[i], w->copy_bytes);
    free(w->path);
    free(w->head);
    free(w);
    t->checkpoint = NULL;
}

/* ---- Reading. */

/* Reads the head and checks that the file is as long as it says and hashes to what it says. `head` is the caller's. */
static ls_status open_file(const ls__file_map *map, const char *path, contents *c, json_t **head)
{
    uint64_t length, words[2];
    json_error_t error;
    long long step, epoch, data_step, data_print, elements;
    *head = NULL;
    if (map->bytes < MAGIC_BYTES + 8 + 16 || memcmp(map->data, MAGIC, MAGIC_BYTES) != 0)
        return ls__fail(LS_EFORMAT, "%s: is no checkpoint of this version", path);
    memcpy(&length, map->data + MAGIC_BYTES, sizeof length);
    size_t begin = MAGIC_BYTES + 8, end = map->bytes - 16;
    if (length > HEAD_LIMIT || length > end - begin)
        return ls__fail(LS_EFORMAT, "%s: a head of %llu bytes does not fit into it", path, (unsigned long long)length);
    memcpy(words, map->data + end, sizeof words);
    XXH128_hash_t hash = XXH3_128bits(map->data, end);
    if (hash.low64 != words[0] || hash.high64 != words[1])
        return ls__fail(LS_EFORMAT, "%s: its contents do not match their checksum", path);
    *head = json_loadb((const char *)map->data + begin, length, JSON_REJECT_DUPLICATES, &error);
    if (!*head) return ls__fail(LS_EFORMAT, "%s: its head is no JSON: %s", path, error.text);
    if (json_unpack(*head, "{s:I, s:I, s:I, s:I, s:I, s:i}", "step", &step, "epoch", &epoch, "data_step", &data_step,
                    "data_print", &data_print, "elements", &elements, "blocks", &c->n_blocks) ||
        step < 0 || epoch < 0 || data_step < 0 || elements < 0 || c->n_blocks < 1 || c->n_blocks > MAX_BLOCKS)
        return ls__fail(LS_EFORMAT, "%s: its head lacks numbers, or has impossible ones", path);
    *c = (contents){ .step = step, .elements = (size_t)elements, .n_blocks = c->n_blocks };
    c->data =
        (ls_loader_state){ .epoch = (uint64_t)epoch, .step = (uint64_t)data_step, .fingerprint = (uint64_t)data_print };
    size_t bytes;
    if (__builtin_mul_overflow((size_t)elements, sizeof(float) * (size_t)c->n_blocks, &bytes) ||
        bytes != end - begin - length)
        return ls__fail(LS_EFORMAT, "%s: holds %zu bytes of numbers; its head says %lld times %d", path,
                        end - begin - (size_t)length, elements, c->n_blocks);
    for (int i = 0; i < c->n_blocks; i++) /* not aligned: only copied from */
        c->blocks[i] =
            (const float *)(const void *)(map->data + begin + length + (size_t)i * c->elements * sizeof(float));
    return LS_OK;
}

/* LS_EINVAL unless the checkpoint was made with the settings that this training has. */
static ls_status compare_settings(const ls_train *t, const char *path, const contents *c, json_t *head)
{
    ls__fact facts[LS__MAX_FACTS];
    int n = ls__train_facts(t, facts);
    json_t *settings = json_object_get(head, "settings");
    for (int i = 0; i < n; i++) {
        const json_t *value = json_object_get(settings, facts[i].name);
        if (!facts[i].fixed || (json_is_number(value) && json_number_value(value) == facts[i].value)) continue;
        if (!strncmp(facts[i].name, "the hash", 8))
            return ls__fail(LS_EINVAL, "%s: %s was another; go on with the data and settings of the run", path,
                            facts[i].name);
        return ls__fail(LS_EINVAL, "%s: was made with %s %.9g, and now it is %.9g; go on with the settings of the run",
                        path, facts[i].name, json_number_value(value), facts[i].value);
    }
    contents own = contents_of(t);
    if (c->elements != own.elements || c->n_blocks != own.n_blocks)
        return ls__fail(LS_EINVAL, "%s: is of another model or optimiser (%zu elements, %d blocks; here %zu and %d)",
                        path, c->elements, c->n_blocks, own.elements, own.n_blocks);
    return LS_OK;
}

/* Takes over what a checkpoint holds. Where ranks share weights and state, the first of the machine does it for all. */
static ls_status take_over(ls_train *t, const contents *c)
{
    contents own = contents_of(t);
    if (!t->parallel.shared || ls_group_rank(t->parallel.machine) == 0)
        for (int i = 0; i < c->n_blocks; i++)
            memcpy((float *)(uintptr_t)own.blocks[i], c->blocks[i], c->elements * sizeof(float));
    t->step = c->step;
    return ls_loader_seek(t->loader, &c->data);
}

static ls_status resume_from(ls_train *t, const char *path, bool *broken)
{
    ls__file_map map;
    contents c = { 0 };
    json_t *head = NULL;
    ls_status status = ls__file_map_open(&map, path);
    if (!status) status = open_file(&map, path, &c, &head);
    *broken = status != LS_OK;
    if (!status) status = compare_settings(t, path, &c, head);
    if (!status) status = take_over(t, &c);
    json_decref(head);
    ls__file_map_close(&map);
    return status;
}

ls_status ls__checkpoint_resume(ls_train *t)
{
    enum { MANY = 4096 };
    char *folder = folder_of(t), path[4200];
    int64_t *steps = malloc(MANY * sizeof *steps);
    int n = folder && steps ? list_steps(folder, steps, MANY) : 0;
    ls_status status = ls__fail(LS_ENOENT, "%s: holds no checkpoint to go on from", t->options.run_dir);
    for (int i = 0; i < n; i++) {
        bool broken;
        file_name(path, sizeof path, folder, steps[i]);
        status = resume_from(t, path, &broken);
        if (!status || !broken) break;
        if (ls__train_is_first(t))
            ls__log(LS_LOG_WARNING, "%s; %s", ls_error(),
                    i + 1 < n ? "going on from the one before" : "there is none before it");
    }
    if (!status && ls__train_is_first(t)) remove_unfinished(folder);
    free(folder);
    free(steps);
    status = ls__parallel_agree(t, status);
    /* Nobody may read weights before the machine's first rank has put them there. */
    return status ? status : ls_barrier(ls_world_group(t->parallel.world));
}

ls_status ls_checkpoint_verify(const char *path, ls_checkpoint_info *info)
{
    ls__file_map map;
    contents c = { 0 };
    json_t *head = NULL;
    *info = (ls_checkpoint_info){ 0 };
    ls_status status = ls__file_map_open(&map, path);
    if (!status) status = open_file(&map, path, &c, &head);
    if (!status) *info = (ls_checkpoint_info){ .step = c.step, .elements = c.elements, .bytes = map.bytes };
    json_decref(head);
    ls__file_map_close(&map);
    return status;
}
