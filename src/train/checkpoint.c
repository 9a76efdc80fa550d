/* Writing checkpoints, keeping the newest, and resuming from one. See checkpoint.h. */
#include "train/checkpoint.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread.h"
#include "nn/model.h"
#include "train/checkpoint_file.h"
#include "train/training.h"

/* The state of a run. */
typedef struct contents {
    int64_t step;
    ls_loader_state data;
    size_t elements;
    int n_blocks;
    float *blocks[LS__CHECKPOINT_BLOCKS];
    size_t n_buffers;
    float *buffers;
} contents;

struct ls__checkpoint_writer {
    pthread_t thread;
    bool running;
    ls_status status;
    char message[512];
    char *folder, *path, *head;
    int keep;
    int64_t best; /* the step whose file is kept besides; 0: none */
    int64_t step; /* of the file being written, or written last */
    size_t elements;
    int n_blocks;
    const float *blocks[LS__CHECKPOINT_BLOCKS]; /* what is written: the copies, or the state itself */
    float *copies[LS__CHECKPOINT_BLOCKS];
    size_t copy_bytes; /* 0: there are none */
    float *buffers;    /* a copy */
    size_t n_buffers;
    int64_t *intact; /* steps whose files are known to be intact, because this process wrote or read them */
    size_t n_intact;
};

/* ---- What is saved. */

static contents contents_of(const ls_train *t)
{
    contents c = { .step = t->step, .elements = ls_model_elements(t->model), .n_blocks = 1, .data = t->data_at };
    c.blocks[0] = ls_model_values(t->model);
    const ls_place *places;
    ls_model_buffers(t->model, &places, &c.buffers);
    c.n_buffers = ls__model_buffer_elements(t->model);
    const char *name;
    float *data;
    int states = ls_optimizer_state(t->optimizer, -1, &name, &data);
    for (int i = 0; i < states && c.n_blocks < LS__CHECKPOINT_BLOCKS; i++) {
        ls_optimizer_state(t->optimizer, i, &name, &data);
        c.blocks[c.n_blocks++] = data;
    }
    return c;
}

static char *make_head(const ls_train *t, const contents *c)
{
    json_t *settings = json_object();
    for (int i = 0; i < t->n_settings; i++)
        json_object_set_new(settings, t->settings[i].name, json_real(t->settings[i].value));
    json_t *root = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:o}", "lockstep", ls_version(), "step",
                             (json_int_t)c->step, "skipped", (json_int_t)t->skipped, "epoch", (json_int_t)c->data.epoch,
                             "data_step", (json_int_t)c->data.step, "data_print", (json_int_t)c->data.fingerprint,
                             "elements", (json_int_t)c->elements, "blocks", c->n_blocks, "settings", settings);
    if (root && t->watches_best)
        json_object_set_new(root, "best",
                            json_pack("{s:I, s:f, s:I}", "step", (json_int_t)t->best.step, "value", t->best.value,
                                      "since", (json_int_t)t->best.since));
    if (root && c->n_buffers) json_object_set_new(root, "buffers", json_integer((json_int_t)c->n_buffers));
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return text;
}

/* ---- Which files stay. */

static bool is_intact(struct ls__checkpoint_writer *w, int64_t step)
{
    ls_checkpoint_info info;
    for (size_t i = 0; i < w->n_intact; i++)
        if (w->intact[i] == step) return true;
    char *path = ls__checkpoint_path(w->folder, step);
    bool intact = path && !ls_checkpoint_verify(path, &info) && info.step == step;
    free(path);
    return intact;
}

/* Keeps the newest `keep` intact ones and the best, and removes older ones. A corrupt one does not count; it is removed when it is older
 * than those, or when its step is saved again. Files that cannot be listed or removed stay. */
static void remove_old(struct ls__checkpoint_writer *w)
{
    int64_t *steps, *kept = NULL;
    size_t n, n_kept = 0, newest = 0;
    if (ls__checkpoint_list(w->folder, &steps, &n)) return;
    if (n) kept = malloc(n * sizeof *kept);
    for (size_t i = 0; i < n && kept; i++) {
        bool is_new = newest < (size_t)w->keep;
        if (is_new || steps[i] == w->best) {
            bool intact = is_intact(w, steps[i]);
            if (intact) kept[n_kept++] = steps[i];
            newest += intact && is_new;
            continue;
        }
        char *path = ls__checkpoint_path(w->folder, steps[i]);
        if (path) unlink(path);
        free(path);
    }
    free(steps);
    if (!kept) return;
    free(w->intact);
    w->intact = kept;
    w->n_intact = n_kept;
}

static bool note_intact(struct ls__checkpoint_writer *w, int64_t step)
{
    int64_t *more = realloc(w->intact, (w->n_intact + 1) * sizeof *more);
    if (!more) return false;
    w->intact = more;
    w->intact[w->n_intact++] = step;
    return true;
}

/* ---- Writing. */

static void *write_in_background(void *arg)
{
    struct ls__checkpoint_writer *w = arg;
    w->status =
        ls__checkpoint_file_write(w->path, w->head, w->blocks, w->n_blocks, w->elements, w->buffers, w->n_buffers);
    if (w->status)
        snprintf(w->message, sizeof w->message, "%s", ls_error());
    else if (note_intact(w, w->step))
        remove_old(w);
    return NULL;
}

ls_status ls__checkpoint_wait(ls_train *t)
{
    struct ls__checkpoint_writer *w = t->checkpoint;
    if (!w) return LS_OK;
    if (w->running) pthread_join(w->thread, NULL);
    w->running = false;
    ls_status status = w->status;
    w->status = LS_OK; /* reported once */
    if (status) w->step = -1;
    return status ? ls__fail(status, "%s", w->message) : LS_OK;
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

static struct ls__checkpoint_writer *writer_of(ls_train *t)
{
    struct ls__checkpoint_writer *w = t->checkpoint;
    if (w) return w;
    if (!(w = calloc(1, sizeof *w))) return NULL;
    if (asprintf(&w->folder, "%s/checkpoints", t->options.run_dir) < 0) {
        free(w);
        return NULL;
    }
    w->step = -1;
    w->keep = t->options.keep;
    return t->checkpoint = w;
}

ls_status ls__checkpoint_save(ls_train *t, bool last)
{
    ls_status status = ls__checkpoint_wait(t);
    if (!status) status = ls__train_check_consistent(t);
    if (status) return status;
    struct ls__checkpoint_writer *w = writer_of(t);
    if (!w) return ls__fail(LS_ENOMEM, "checkpoint: out of memory");
    if (w->step == t->step) return LS_OK; /* it exists */
    contents c = contents_of(t);
    if ((status = ls__file_make_own_dir(w->folder))) return status;
    free(w->path);
    free(w->head);
    w->path = ls__checkpoint_path(w->folder, c.step);
    w->head = make_head(t, &c);
    w->elements = c.elements;
    w->n_blocks = c.n_blocks;
    w->step = -1;
    w->best = ls__best_is_kept(t) ? t->best.step : 0;
    w->n_buffers = c.n_buffers;
    if (c.n_buffers && !w->buffers) w->buffers = malloc(c.n_buffers * sizeof *w->buffers);
    if (!w->path || !w->head || (c.n_buffers && !w->buffers)) return ls__fail(LS_ENOMEM, "checkpoint: out of memory");
    if (c.n_buffers) memcpy(w->buffers, c.buffers, c.n_buffers * sizeof *w->buffers);
    w->step = c.step;
    /* After the last step nothing changes the state. */
    bool copy = !last && have_copies(w, &c);
    for (int i = 0; i < c.n_blocks; i++) {
        if (copy) memcpy(w->copies[i], c.blocks[i], w->copy_bytes);
        w->blocks[i] = copy ? w->copies[i] : c.blocks[i];
    }
    if (copy || last) {
        status = ls__thread_start(&w->thread, "ls-checkpoint", write_in_background, w);
        w->running = !status;
        if (status) w->step = -1;
        return status;
    }
    write_in_background(w);
    return ls__checkpoint_wait(t);
}

void ls__checkpoint_close(ls_train *t)
{
    struct ls__checkpoint_writer *w = t->checkpoint;
    if (!w) return;
    if (w->running) pthread_join(w->thread, NULL);
    for (int i = 0; i < LS__CHECKPOINT_BLOCKS && w->copy_bytes; i++)
        if (w->copies[i]) munmap(w->copies[i], w->copy_bytes);
    free(w->intact);
    free(w->buffers);
    free(w->folder);
    free(w->path);
    free(w->head);
    free(w);
    t->checkpoint = NULL;
}

/* ---- Resuming. */

/* LS_EINVAL unless the checkpoint has the settings and the data of this run. */
static ls_status compare_settings(const ls_train *t, const ls__checkpoint_file *f)
{
    json_t *settings = json_object_get(f->head, "settings");
    for (int i = 0; i < t->n_settings; i++) {
        const ls__setting_value *own_value = &t->settings[i];
        const json_t *value = json_object_get(settings, own_value->name);
        /* Versions without a setting did not write it; they behaved as with 0. */
        if (!own_value->fixed ||
            (value ? json_is_number(value) && json_number_value(value) == own_value->value : own_value->value == 0))
            continue;
        if (own_value->hashed)
            return ls__fail(LS_EINVAL,
                            "%s: the checkpoint has a different '%s'; resume with the data and settings of the run",
                            f->path, own_value->name);
        return ls__fail(LS_EINVAL, "%s: the checkpoint has %s=%.9g, got %.9g; resume with the settings of the run",
                        f->path, own_value->name, json_number_value(value), own_value->value);
    }
    contents own = contents_of(t);
    if (f->elements != own.elements || f->n_blocks != own.n_blocks || f->buffers != own.n_buffers)
        return ls__fail(LS_EINVAL,
                        "%s: the checkpoint has another model or optimizer (%zu elements, %d blocks; got %zu and %d)",
                        f->path, f->elements, f->n_blocks, own.elements, own.n_blocks);
    return LS_OK;
}

/* Whether a file is intact, has the step of its name and belongs to this run. `*corrupt` if one of the first two is false. */
static ls_status check_file(const ls_train *t, const char *path, int64_t step, bool *corrupt)
{
    ls__checkpoint_file f;
    ls_status status = ls__checkpoint_file_open(&f, path);
    *corrupt = status != LS_OK;
    if (status) return status;
    status = ls__checkpoint_file_read(&f, NULL, NULL);
    if (!status && f.step != step)
        status = ls__fail(LS_EFORMAT, "%s: is the checkpoint of step %lld under another name", path, (long long)f.step);
    *corrupt = status != LS_OK;
    if (!status) status = compare_settings(t, &f);
    ls__checkpoint_file_close(&f);
    return status;
}

/* The newest intact file; *step is 0 if there are no files at all. Corrupt ones are logged and skipped. */
static ls_status find_newest(ls_train *t, int64_t *step)
{
    struct ls__checkpoint_writer *w = writer_of(t);
    int64_t *steps = NULL;
    size_t n = 0;
    bool corrupt = true;
    *step = 0;
    ls_status status = w ? LS_OK : ls__fail(LS_ENOMEM, "checkpoint: out of memory");
    if (!status) status = ls__checkpoint_list(w->folder, &steps, &n);
    for (size_t i = 0; i < n && corrupt; i++) {
        char *path = ls__checkpoint_path(w->folder, *step = steps[i]);
        status = path ? check_file(t, path, *step, &corrupt) : ls__fail(LS_ENOMEM, "checkpoint: out of memory");
        free(path);
        if (corrupt && i + 1 < n && ls__train_is_first(t))
            ls__log(LS_LOG_WARNING, "%s; trying the previous checkpoint", ls_error());
    }
    if (n && corrupt) status = ls__fail_within(status, "no intact checkpoint to resume from");
    if (n && !status) {
        note_intact(w, *step);
        w->step = *step;
    }
    free(steps);
    return status;
}

static char *path_of(const ls_train *t, int64_t step)
{
    char *folder = NULL, *path = NULL;
    if (asprintf(&folder, "%s/checkpoints", t->options.run_dir) < 0) folder = NULL;
    if (folder) path = ls__checkpoint_path(folder, step);
    free(folder);
    if (!path) ls__fail(LS_ENOMEM, "checkpoint: out of memory");
    return path;
}

ls_status ls__checkpoint_read_weights(const ls_train *t, int64_t step, float *values, float *buffers)
{
    ls__checkpoint_file f;
    float *blocks[LS__CHECKPOINT_BLOCKS] = { values };
    char *path = path_of(t, step);
    ls_status status = path ? ls__checkpoint_file_open(&f, path) : LS_ENOMEM;
    if (!status) {
        status = compare_settings(t, &f);
        if (!status) status = ls__checkpoint_file_read(&f, blocks, f.buffers ? buffers : NULL);
        ls__checkpoint_file_close(&f);
    }
    free(path);
    return status;
}

/* Whether a run ends early depends on its evaluations so far. */
static void restore_best(ls_train *t, const json_t *head)
{
    json_int_t step = 0, since = 0;
    double value = 0;
    t->best = (ls__best){ 0 };
    if (json_unpack(json_object_get(head, "best"), "{s:I, s:F, s:I}", "step", &step, "value", &value, "since",
                    &since) ||
        step < 0 || step > t->step || since < 0)
        return;
    t->best = (ls__best){ .step = step, .value = value, .since = since };
    char *path = path_of(t, step);
    if (step && ls__best_is_kept(t) && path && access(path, R_OK) && ls__train_is_first(t))
        ls__log(LS_LOG_WARNING, "%s: the checkpoint of the best evaluation is missing", path);
    free(path);
}

/* Restores the state from a checkpoint. Where ranks share weights and state, the local root restores them; the other ranks
 * read the file, too, so that they do not wait until the timeout. */
static ls_status restore(ls_train *t, int64_t step)
{
    ls__checkpoint_file f;
    contents own = contents_of(t);
    char *path = path_of(t, step);
    ls_status status = path ? LS_OK : LS_ENOMEM;
    if (!status && !(status = ls__checkpoint_file_open(&f, path))) {
        status = compare_settings(t, &f);
        bool own_copy = !t->parallel.shared || ls_group_rank(t->parallel.node_group) == 0;
        if (!status)
            status = ls__checkpoint_file_read(&f, own_copy ? own.blocks : NULL, own.n_buffers ? own.buffers : NULL);
        if (!status) status = ls_loader_seek(t->loader, &f.data);
        t->step = f.step;
        t->skipped = json_integer_value(json_object_get(f.head, "skipped"));
        t->data_at = f.data;
        restore_best(t, f.head);
        ls__checkpoint_file_close(&f);
    }
    free(path);
    return status;
}

/* A run without checkpoints. If it has a model, it is not repeated: the user can start a new run. */
static ls_status start_over(ls_train *t)
{
    struct stat own, from;
    const char *path = t->options.run_dir, *init = t->options.init;
    if (!ls__train_is_first(t)) return LS_OK;
    bool in_place = init && !stat(init, &from) && !stat(path, &own) && from.st_ino == own.st_ino &&
                    from.st_dev == own.st_dev; /* the model is the one that the run started from */
    if (ls__run_dir_has_model(path) && !in_place)
        return ls__fail(
            LS_ENOENT, "%s: has a model but no checkpoint to resume from; start a new run from that model with init=%s",
            path, path);
    ls__log(LS_LOG_WARNING, "%s: no checkpoint to resume from; starting from the beginning", path);
    return LS_OK;
}

bool ls__checkpoint_any(const ls_train *t)
{
    int64_t *steps = NULL;
    size_t n = 0;
    char *folder;
    if (asprintf(&folder, "%s/checkpoints", t->options.run_dir) < 0) return false;
    ls_status status = ls__checkpoint_list(folder, &steps, &n);
    free(folder);
    free(steps);
    return !status && n;
}

/* Every rank searches by itself, which takes about the same time on all of them, and then uses the first rank's choice. */
ls_status ls__checkpoint_resume(ls_train *t)
{
    int64_t step = 0, chosen = 0;
    ls_status status = find_newest(t, &step);
    status = ls__parallel_agree(t, status);
    chosen = step;
    if (!status) status = ls_broadcast(ls_world_group(t->parallel.world), &chosen, sizeof chosen, LS_U8, 0);
    if (status) return status;
    if (chosen != step)
        status =
            ls__fail(LS_EMISMATCH,
                     "%s: the newest checkpoint is of step %lld here and of step %lld on rank 0; all ranks must see "
                     "the same folder",
                     t->options.run_dir, (long long)step, (long long)chosen);
    else if (!chosen)
        status = start_over(t);
    else
        status = restore(t, chosen);
    if (!status && t->step > t->options.steps)
        status = ls__fail(LS_EINVAL, "%s: the run has %lld steps already, got steps=%lld", t->options.run_dir,
                          (long long)t->step, (long long)t->options.steps);
    /* No rank may read weights before the local root has written them. */
    return ls__parallel_agree(t, status);
}
