/* The run folder. metrics.jsonl is appended to with one write per step and without the heap, so that a killed run leaves
 * complete lines. It is the first file that is created and the last that is removed, and the process that trains holds a lock
 * on it: a process that does not get the lock changes nothing. See run_dir.h. */
#include "train/run_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "train/checkpoint_file.h"
#include "train/kept.h"
#include "train/settings.h"
#include "train/tensorboard.h"
#include "train/training.h"

static char *join(const char *folder, const char *name)
{
    char *path;
    if (asprintf(&path, "%s/%s", folder, name) >= 0) return path;
    ls__fail(LS_ENOMEM, "%s/%s: out of memory", folder, name);
    return NULL;
}

/* ---- Files of a run. */

static const char *const model_files[] = {
    "model.safetensors",     "config.json",         "generation_config.json",
    "tokenizer.json",        "vocab.json",          "merges.txt",
    "tokenizer_config.json", "added_tokens.json",   "special_tokens_map.json",
    "chat_template.jinja",   "adapter_config.json", "adapter_model.safetensors"
};
enum { MODEL_FILES = sizeof model_files / sizeof *model_files };

/* Weights in other forms. A run does not write them, but beside its own model they would pass for a part of it. */
static const char *const other_weights[] = { "model.safetensors.index.json", "pytorch_model.bin",
                                             "pytorch_model.bin.index.json" };
enum { OTHER_WEIGHTS = sizeof other_weights / sizeof *other_weights };

/* The subfolders of a run, and how the names of their files begin. */
static const struct {
    const char *folder, *begin;
} parts[] = {
    { "checkpoints", "step-" }, { "events", "rank-" }, { "profile", "rank-" }, { "tensorboard", "events.out.tfevents." }
};
enum { PARTS = sizeof parts / sizeof *parts };

static bool has(const char *folder, const char *name)
{
    struct stat st;
    char *path = join(folder, name);
    bool there = path && !lstat(path, &st);
    free(path);
    return there;
}

bool ls__run_dir_has_model(const char *path)
{
    return has(path, model_files[0]) || has(path, "adapter_model.safetensors");
}

void ls__run_dir_remove_other_form(const ls__run_dir *run, bool adapter)
{
    static const char *const whole[] = { "model.safetensors", "config.json", "generation_config.json" };
    static const char *const adapted[] = { "adapter_model.safetensors", "adapter_config.json" };
    for (int i = 0; i < (adapter ? 3 : 2); i++) {
        char *path = join(run->path, adapter ? whole[i] : adapted[i]);
        if (path) unlink(path);
        free(path);
    }
}

/* Removes the files of a part, and the folder if nothing else is in it. */
static void remove_part(const char *path, int part)
{
    char *folder = join(path, parts[part].folder);
    if (folder) ls__file_remove(folder, parts[part].begin, "");
    if (folder) rmdir(folder);
    free(folder);
}

void ls__run_dir_remove_events(const ls__run_dir *run)
{
    remove_part(run->path, 1);
}

/* Refuses a folder in which the run would write or remove files elsewhere, before it does anything. */
static ls_status check_parts(const char *path)
{
    struct stat st;
    ls_status status = LS_OK;
    if (stat(path, &st) ? errno == ENOTDIR : !S_ISDIR(st.st_mode)) {
        errno = ENOTDIR;
        status = ls__fail_errno("%s: cannot be a run folder", path);
    }
    for (int i = 0; i < PARTS && !status; i++) {
        char *folder = join(path, parts[i].folder);
        status = folder ? ls__file_check_own_dir(folder) : LS_ENOMEM;
        free(folder);
    }
    return status;
}

/* Incomplete files of a killed process. */
static void remove_temporaries(const char *path)
{
    for (int i = 0; i < MODEL_FILES; i++) ls__file_remove_temporaries(path, model_files[i]);
    ls__file_remove_temporaries(path, "run.json");
    ls__file_remove_temporaries(path, "config.toml");
    for (int i = 0; i < PARTS; i++) {
        char *folder = join(path, parts[i].folder);
        if (folder) ls__file_remove_temporaries(folder, parts[i].begin);
        free(folder);
    }
}

/* ---- The lock. */

static ls_status in_use(const char *path)
{
    return ls__fail(LS_EINVAL,
                    "%s: another run is in progress in this folder; wait for its end, or choose another folder", path);
}

/* Where the file system has no locks, nothing keeps a second process out. */
static ls_status take_lock(const char *path, int fd)
{
    if (!flock(fd, LOCK_EX | LOCK_NB)) return LS_OK;
    if (errno == EWOULDBLOCK) return in_use(path);
    ls__log(LS_LOG_WARNING, "%s: cannot be locked (%s): a second run in this folder would not be noticed", path,
            strerror(errno));
    return LS_OK;
}

/* Opens metrics.jsonl and locks it; creates it if it does not exist. */
static ls_status lock(const char *path, int *fd)
{
    struct stat opened, there;
    char *metrics = join(path, "metrics.jsonl");
    if (!metrics) return LS_ENOMEM;
    ls_status status = LS_OK;
    for (*fd = -1; *fd < 0 && !status;) {
        *fd = open(metrics, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
        if (*fd < 0 && errno == ELOOP)
            status =
                ls__fail(LS_EINVAL, "%s: is a link and is not followed; remove it, or choose another folder", metrics);
        else if (*fd < 0)
            status = ls__fail_errno("cannot open %s", metrics);
        else if (!fstat(*fd, &opened) && !S_ISREG(opened.st_mode))
            status = ls__fail(LS_EINVAL, "%s: not a regular file; remove it, or choose another folder", metrics);
        else
            status = take_lock(path, *fd);
        /* Between the two calls, a run without a step may have ended and removed it. */
        bool same = !status && !fstat(*fd, &opened) && !stat(metrics, &there) && opened.st_ino == there.st_ino &&
                    opened.st_dev == there.st_dev;
        if (*fd >= 0 && !same) {
            close(*fd);
            *fd = -1;
        }
    }
    free(metrics);
    return status;
}

void ls__run_dir_await(const char *path)
{
    enum { WAIT_MS = 20000, POLL_MS = 10 }; /* less than the time that the other ranks wait for this one */
    char *metrics = join(path, "metrics.jsonl");
    int fd = metrics ? open(metrics, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
    for (int ms = 0; fd >= 0 && ms < WAIT_MS && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK; ms += POLL_MS)
        nanosleep(&(struct timespec){ 0, POLL_MS * 1000000 }, NULL);
    if (fd >= 0) close(fd);
    free(metrics);
}

/* ---- What exists already. */

static bool has_checkpoints(const char *path)
{
    int64_t *steps;
    size_t n = 0;
    char *folder = join(path, parts[0].folder);
    if (folder && !ls__checkpoint_list(folder, &steps, &n)) free(steps);
    free(folder);
    return n;
}

/* LS_EINVAL if a new run would overwrite something. What a run leaves that was killed before its first step does not count: an
 * empty metrics.jsonl, with or without run.json and events. */
static ls_status check_empty(const char *path)
{
    static const char advice[] = "choose another folder, or set overwrite to replace it";
    struct stat st = { 0 };
    char *metrics = join(path, "metrics.jsonl");
    if (!metrics) return LS_ENOMEM;
    bool begun = !stat(metrics, &st);
    free(metrics);
    for (int i = 0; i < MODEL_FILES; i++)
        if (has(path, model_files[i]))
            return ls__fail(LS_EINVAL, "%s: holds a %s (%s); %s", path, begun ? "run already" : "model", model_files[i],
                            advice);
    for (int i = 0; i < OTHER_WEIGHTS; i++)
        if (has(path, other_weights[i]))
            return ls__fail(LS_EINVAL, "%s: holds a model (%s); %s", path, other_weights[i], advice);
    if (st.st_size || has_checkpoints(path) ||
        (!begun && (has(path, "run.json") || has(path, "events/rank-0.bin") || has(path, "profile/rank-0.json"))))
        return ls__fail(LS_EINVAL, "%s: holds a run already; %s", path, advice);
    return LS_OK;
}

ls_status ls__run_dir_check(const char *path, bool overwrite)
{
    char *metrics = join(path, "metrics.jsonl");
    if (!metrics) return LS_ENOMEM;
    int fd = open(metrics, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    bool busy = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    if (fd >= 0) close(fd);
    free(metrics);
    if (busy) return in_use(path);
    ls_status status = check_parts(path);
    if (status) return status;
    return overwrite ? LS_OK : check_empty(path);
}

/* ---- Opening. */

/* A new folder, with "-2", "-3"... appended to its name if necessary. mkdir() decides, so that two runs that start at the same
 * moment get two folders. */
static ls_status make_numbered(ls__run_dir *run, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *above = slash && slash != path ? strndup(path, (size_t)(slash - path)) : strdup(".");
    ls_status status = above ? ls__file_make_dir(above) : ls__fail(LS_ENOMEM, "%s: out of memory", path);
    free(above);
    for (int i = 1; !status && !run->path; i++) {
        char *name = NULL;
        if ((i == 1 ? asprintf(&name, "%s", path) : asprintf(&name, "%s-%d", path, i)) < 0)
            return ls__fail(LS_ENOMEM, "%s: out of memory", path);
        if (!mkdir(name, 0777)) {
            run->path = name;
            run->made = true;
            continue;
        }
        if (errno != EEXIST) status = ls__fail_errno("cannot create the folder %s", name);
        free(name);
    }
    return status;
}

static ls_status make_folder(ls__run_dir *run, const char *path)
{
    struct stat st;
    run->made = lstat(path, &st) != 0;
    ls_status status = ls__file_make_dir(path);
    if (!status && !(run->path = strdup(path))) status = ls__fail(LS_ENOMEM, "%s: out of memory", path);
    return status;
}

/* A text and a line feed, if it has none at its end. */
static ls_status write_text(const ls__run_dir *run, const char *name, const char *text)
{
    size_t n = text ? strlen(text) : 0;
    char *path = join(run->path, name);
    ls_status status = path && text ? LS_OK : ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    ls__file_writer *w = NULL;
    if (!status) status = ls__file_writer_open(&w, path);
    if (!status) status = ls__file_writer_add(w, text, n);
    if (!status && !(n && text[n - 1] == '\n')) status = ls__file_writer_add(w, "\n", 1);
    if (!status)
        status = ls__file_writer_commit(&w);
    else
        ls__file_writer_cancel(&w);
    free(path);
    return status;
}

static ls_status write_settings(const ls__run_dir *run, const ls_train *t)
{
    char *text = ls__settings_text(t);
    ls_status status = write_text(run, "run.json", text);
    if (!status && t->options.config) status = write_text(run, "config.toml", t->options.config);
    free(text);
    return status;
}

/* Removes the previous run except its model, which this run may start from. The model is replaced when there is a new one. */
static ls_status remove_run(ls__run_dir *run)
{
    static const char *const files[] = { "generations.jsonl", "samples.jsonl", "resize", "config.toml" };
    for (int i = 0; i < PARTS; i++) remove_part(run->path, i);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = join(run->path, files[i]);
        if (path) unlink(path);
        free(path);
    }
    return ftruncate(run->metrics, 0) ? ls__fail_errno("cannot truncate %s/metrics.jsonl", run->path) : LS_OK;
}

ls_status ls__run_dir_open(ls__run_dir *run, const ls_train *t)
{
    const ls_train_options *o = &t->options;
    *run = (ls__run_dir){ .metrics = -1, .events = -1 };
    ls_status status =
        o->run_dir_mode == LS_RUN_DIR_NUMBERED ? make_numbered(run, o->run_dir) : make_folder(run, o->run_dir);
    if (!status) status = check_parts(run->path);
    if (!status) status = lock(run->path, &run->metrics);
    /* Once more, now that no other process can use the folder. */
    if (!status && o->run_dir_mode != LS_RUN_DIR_OVERWRITE) status = check_empty(run->path);
    if (status) {
        if (run->made && run->path) rmdir(run->path); /* fails if it is not empty */
        ls__run_dir_close(run);
        return status;
    }
    run->fresh = true;
    remove_temporaries(run->path);
    status = remove_run(run);
    if (!status) status = write_settings(run, t);
    if (!status && !o->no_tensorboard) status = ls__tensorboard_open(&run->events, run->path, 0);
    if (status) ls__run_dir_remove(run);
    return status;
}

ls_status ls__run_dir_lock(ls__run_dir *run, const char *path)
{
    *run = (ls__run_dir){ .metrics = -1, .events = -1 };
    if (!has(path, "run.json")) return ls__fail(LS_ENOENT, "%s: not a run folder: it has no run.json", path);
    ls_status status = check_parts(path);
    if (!status) status = lock(path, &run->metrics);
    if (status) return status;
    if (!(run->path = strdup(path))) {
        close(run->metrics);
        run->metrics = -1;
        return ls__fail(LS_ENOMEM, "%s: out of memory", path);
    }
    return LS_OK;
}

/* Bytes of the lines up to that of `step`. An incomplete line does not count. */
static size_t bytes_up_to(const char *text, int64_t step)
{
    static const char begin[] = "{\"step\":";
    const char *at = text;
    /* Not by sscanf(), which searches for the end of the whole text each time. */
    for (char *end, *number; (end = strchr(at, '\n')); at = end + 1)
        if (strncmp(at, begin, sizeof begin - 1) != 0 || strtoll(at + sizeof begin - 1, &number, 10) > step ||
            *number != ',')
            break;
    return (size_t)(at - text);
}

/* Texts of later steps, which will be repeated, are removed. */
static ls_status cut_samples(const ls__run_dir *run, int64_t step)
{
    char *path = join(run->path, "samples.jsonl"), *text = NULL;
    size_t bytes;
    ls_status status = !path                ? LS_ENOMEM
                       : access(path, F_OK) ? LS_ENOENT
                                            : ls__file_read(path, SIZE_MAX / 2, &text, &bytes);
    if (!status && truncate(path, (off_t)bytes_up_to(text, step))) status = ls__fail_errno("cannot write %s", path);
    free(text);
    free(path);
    return status == LS_ENOENT ? LS_OK : status;
}

ls_status ls__run_dir_reopen(ls__run_dir *run, const ls_train *t)
{
    char *metrics = join(run->path, "metrics.jsonl"), *text = NULL;
    size_t bytes;
    ls_status status = metrics ? ls__file_read(metrics, SIZE_MAX / 2, &text, &bytes) : LS_ENOMEM;
    if (!status && ftruncate(run->metrics, (off_t)bytes_up_to(text, t->step)))
        status = ls__fail_errno("cannot write %s", metrics);
    if (!status) status = cut_samples(run, t->step);
    remove_temporaries(run->path);
    bool continues = !ls__train_is_over(t); /* otherwise nothing changes */
    /* Later generations of an elastic run have its settings; writing them would wait for the disk. */
    if (!status && continues && !ls__train_kept_is_ready(t)) status = write_settings(run, t);
    if (!status && continues && !t->options.no_tensorboard)
        status = ls__tensorboard_open(&run->events, run->path, t->step);
    free(text);
    free(metrics);
    return status;
}

void ls__run_dir_close(ls__run_dir *run)
{
    if (run->metrics >= 0) close(run->metrics);
    if (run->events >= 0) close(run->events);
    free(run->path);
    *run = (ls__run_dir){ .metrics = -1, .events = -1 };
}

void ls__run_dir_remove(ls__run_dir *run)
{
    for (int i = 0; i < PARTS; i++) remove_part(run->path, i);
    static const char *const files[] = { "config.toml", "samples.jsonl", "run.json", "metrics.jsonl" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = join(run->path, files[i]);
        if (path) unlink(path);
        free(path);
    }
    if (run->made) rmdir(run->path);
    ls__run_dir_close(run);
}

/* JSON has no infinity and no NaN. */
static const char *number(double x, char text[32])
{
    if (isfinite(x))
        snprintf(text, 32, "%.9g", x);
    else
        strcpy(text, "null");
    return text;
}

ls_status ls__run_dir_add(ls__run_dir *run, const ls__task_type *task, const ls_train_metrics *m)
{
    char line[1024], a[32], b[32], c[32], d[32], eval[256] = "";
    size_t at = 0;
    if (m->eval_loss >= 0) at = (size_t)snprintf(eval, sizeof eval, ",\"eval_loss\":%s", number(m->eval_loss, a));
    for (int i = 0; task->info.metrics[i] && m->eval_loss >= 0; i++)
        at += (size_t)snprintf(eval + at, sizeof eval - at, ",\"eval_%.20s\":%s", task->info.metrics[i],
                               number(m->eval_metrics[i], a));
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int n = snprintf(line, sizeof line,
                     "{\"step\":%lld,\"time\":%lld.%03ld,\"epoch\":%.6g,\"loss\":%s,\"lr\":%s,\"grad_norm\":%s,"
                     "\"skipped\":%lld,\"tokens_per_s\":%.1f,"
                     "\"step_ms\":%.3f,\"data_ms\":%.3f,\"forward_ms\":%.3f,\"backward_ms\":%.3f,\"update_ms\":%.3f,"
                     "\"other_ms\":%.3f,\"blocked_ms\":%.3f,\"gflops\":%.2f,\"memory_bytes\":%llu%s}\n",
                     (long long)m->step, (long long)now.tv_sec, now.tv_nsec / 1000000, m->epoch, number(m->loss, b),
                     number(m->lr, c), number(m->grad_norm, d), (long long)m->skipped, m->tokens_per_s, m->step_ms,
                     m->data_ms, m->forward_ms, m->backward_ms, m->update_ms, m->other_ms, m->blocked_ms, m->gflops,
                     (unsigned long long)m->memory_bytes, eval);
    ssize_t done;
    do done = write(run->metrics, line, (size_t)n);
    while (done < 0 && errno == EINTR);
    if (done < 0)
        return ls__fail_errno("%s/metrics.jsonl: writing the line of step %lld", run->path, (long long)m->step);
    if (done != n) return ls__fail(LS_EIO, "%s/metrics.jsonl: the disk is full", run->path);
    return run->events >= 0 ? ls__tensorboard_add(run->events, task, m) : LS_OK;
}
