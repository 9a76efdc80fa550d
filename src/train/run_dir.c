/* The run directory. metrics.jsonl is appended to with one write a step and without the heap, so that a run that is
 * killed leaves whole lines. See run_dir.h. */
#include "train/run_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "train/tensorboard.h"
#include "train/training.h"

static char *join(const char *folder, const char *name)
{
    char *path;
    if (asprintf(&path, "%s/%s", folder, name) >= 0) return path;
    ls__fail(LS_ENOMEM, "%s/%s: out of memory", folder, name);
    return NULL;
}

ls_status ls__run_dir_check(const char *path)
{
    char *metrics = join(path, "metrics.jsonl");
    if (!metrics) return LS_ENOMEM;
    ls_status status = LS_OK;
    if (access(metrics, F_OK) == 0)
        status = ls__fail(LS_EINVAL, "%s: holds a run already; name another folder, or remove that one", path);
    free(metrics);
    return status;
}

/* A list of file names; an empty one for none. */
static json_t *names(const char *const *list, size_t count)
{
    json_t *out = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(out, json_string(list[i]));
    return out;
}

static json_t *describe(const ls_train *t)
{
    static const char *const schedules[] = { "constant", "linear", "cosine" };
    static const char *const lasts[] = { "default", "drop", "keep", "drop-step" };
    const ls_train_options *o = &t->options;
    const ls_gpt2_options *m = ls_model_gpt2(t->model);
    json_t *model = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:f, s:I}", "kind", "gpt2", "layers", m->layers, "width",
                              m->width, "heads", m->heads, "vocab_size", m->vocab, "context", m->context, "dropout",
                              (double)m->dropout, "parameters", (json_int_t)ls_model_size(t->model));
    json_t *batch = json_pack("{s:i, s:i, s:i}", "batch_size", o->rows, "seq_len", o->length, "slots", o->slots);
    json_t *optimizer =
        json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f}", "kind", o->optimizer.kind == LS_SGD ? "sgd" : "adamw", "beta1",
                  (double)o->optimizer.beta1, "beta2", (double)o->optimizer.beta2, "eps", (double)o->optimizer.eps,
                  "momentum", fmax(0, (double)o->optimizer.momentum), "weight_decay",
                  fmax(0, (double)o->optimizer.weight_decay), "clip", o->clip);
    json_t *schedule = json_pack("{s:s, s:f, s:f, s:I, s:I}", "kind", schedules[o->schedule.kind], "lr",
                                 (double)o->schedule.lr, "lr_end", (double)o->schedule.lr_end, "warmup",
                                 (json_int_t)o->schedule.warmup, "steps", (json_int_t)o->steps);
    json_t *feed =
        json_pack("{s:s, s:i, s:s, s:b, s:s?, s:s?, s:s?, s:s, s:i, s:s?}", "order", ls_order_name(o->order),
                  "torch_ranks", o->torch_ranks, "last", lasts[o->last], "padded", o->padded, "field", o->field,
                  "prompt_field", o->prompt_field, "weight_field", o->weight_field, "input",
                  o->shard_format ? ls_shard_format_name(o->shard_format) : ls_text_format_name(o->text_format),
                  "prefetch", o->prefetch, "stage", o->stage);
    return json_pack("{s:s, s:s?, s:o, s:o, s:f, s:o, s:s?, s:o, s:o, s:o, s:o, s:I, s:i, s:I, s:i, s:i}", "lockstep",
                     ls_version(), "tokenizer", t->tokenizer_name, "data", names(o->data, o->n_data), "val_data",
                     names(o->val_data, o->n_val_data), "val_fraction", o->val_fraction, "loading", feed, "init",
                     o->init, "model", model, "batch", batch, "optimizer", optimizer, "schedule", schedule,
                     "eval_every", (json_int_t)o->eval_every, "eval_batches", o->eval_batches, "seed",
                     (json_int_t)o->seed, "workers", o->workers, "threads", o->threads);
}

ls_status ls__run_dir_open(ls__run_dir *run, const char *path, const ls_train *train)
{
    *run = (ls__run_dir){ .metrics = -1, .events = -1 };
    ls_status status = ls__run_dir_check(path);
    if (!status) status = ls__file_make_dir(path);
    if (status) return status;
    char *settings = join(path, "run.json"), *metrics = join(path, "metrics.jsonl");
    json_t *root = describe(train);
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(7)) : NULL;
    run->path = strdup(path);
    if (!settings || !metrics || !text || !run->path) {
        status = ls__fail(LS_ENOMEM, "%s: out of memory", path);
        goto done;
    }
    if ((status = ls__file_write(settings, text, strlen(text)))) goto done;
    run->metrics = open(metrics, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (run->metrics < 0) status = ls__fail_errno("%s: cannot be made", metrics);
    if (!status && !train->options.no_tensorboard) status = ls__tensorboard_open(&run->events, path, 0);
done:
    if (status) ls__run_dir_close(run);
    free(text);
    json_decref(root);
    free(metrics);
    free(settings);
    return status;
}

/* Bytes of the lines up to that of `step`. A line that was cut off by a kill does not count. */
static size_t bytes_up_to(const char *text, int64_t step)
{
    const char *at = text;
    long long number;
    for (const char *end; (end = strchr(at, '\n')); at = end + 1)
        if (sscanf(at, "{\"step\":%lld,", &number) != 1 || number > step) break;
    return (size_t)(at - text);
}

ls_status ls__run_dir_reopen(ls__run_dir *run, const char *path, const ls_train *train)
{
    char *metrics = join(path, "metrics.jsonl"), *text = NULL;
    size_t bytes;
    *run = (ls__run_dir){ .metrics = -1, .events = -1, .path = strdup(path) };
    ls_status status = metrics && run->path ? LS_OK : ls__fail(LS_ENOMEM, "%s: out of memory", path);
    if (!status) status = ls__file_read(metrics, SIZE_MAX / 2, &text, &bytes);
    if (!status) {
        run->metrics = open(metrics, O_WRONLY | O_APPEND | O_CLOEXEC);
        if (run->metrics < 0 || ftruncate(run->metrics, (off_t)bytes_up_to(text, train->step)))
            status = ls__fail_errno("%s: cannot be written", metrics);
    }
    if (!status && !train->options.no_tensorboard) status = ls__tensorboard_open(&run->events, path, train->step);
    if (status) ls__run_dir_close(run);
    free(text);
    free(metrics);
    return status;
}

void ls__run_dir_close(ls__run_dir *run)
{
    if (run->path && run->metrics >= 0) close(run->metrics);
    if (run->path && run->events >= 0) close(run->events);
    free(run->path);
    *run = (ls__run_dir){ .metrics = -1, .events = -1 };
}

/* JSON knows no infinity and no NaN. */
static const char *number(double x, char text[32])
{
    if (isfinite(x))
        snprintf(text, 32, "%.9g", x);
    else
        strcpy(text, "null");
    return text;
}

ls_status ls__run_dir_add(ls__run_dir *run, const ls_train_metrics *m)
{
    char line[1024], a[32], b[32], c[32], d[32], eval[64] = "";
    if (m->eval_loss >= 0) snprintf(eval, sizeof eval, ",\"eval_loss\":%s", number(m->eval_loss, a));
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
    return run->events >= 0 ? ls__tensorboard_add(run->events, m) : LS_OK;
}
