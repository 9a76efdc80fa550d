/* Opening and closing a run: defaults, checks, and the order of initialization. Everything that can be wrong with the input
 * is found before the first file is written. */
#include "train/training.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/status.h"
#include "base/text.h"
#include "base/log.h"
#include "ddp/slots.h"
#include "kern/select.h"
#include "nn/hf_config.h"
#include "nn/lora.h"
#include "nn/optimizer.h"
#include "train/checkpoint.h"
#include "train/data_files.h"
#include "train/inject.h"
#include "train/kept.h"
#include "train/record.h"
#include "train/profile.h"

enum { RUN_DIR_BYTES = 4096 };

static ls_status check_count(const char *name, int value, int high)
{
    if (value >= 1 && value <= high) return LS_OK;
    return ls__fail(LS_EINVAL, "%s=%d: must be from 1 to %d", name, value, high);
}

/* Values of enumerations that no later layer checks, and numbers below zero where zero means the default. */
static ls_status check_options(const ls_train_options *o)
{
    const struct {
        const char *name;
        int value, count;
        const char *type;
    } choices[] = {
        { "run_dir_mode", (int)o->run_dir_mode, LS_RUN_DIR_RESUME + 1, "ls_run_dir_mode" },
        { "update", (int)o->update, LS_UPDATE_REPLICATED + 1, "ls_update" },
        { "last", (int)o->last, LS_LAST_DROP_STEP + 1, "ls_last" },
        { "on_bad", (int)o->on_bad, LS_ON_BAD_SKIP + 1, "ls_on_bad" },
        { "image_format", (int)o->image_format, LS_IMAGE_FORMAT_COUNT, "ls_image_format" },
        { "augment", (int)o->augment, LS_AUGMENT_CROP_FLIP + 1, "ls_augment_kind" },
        { "schedule.kind", (int)o->schedule.kind, LS_SCHEDULE_COSINE + 1, "ls_schedule_kind" },
    };
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        { "checkpoint_every", (double)o->checkpoint_every },
        { "eval_every", (double)o->eval_every },
        { "eval_batches", o->eval_batches },
        { "threads", o->threads },
        { "keep", o->keep },
        { "metrics_every", (double)o->metrics_every },
        { "bucket_mb", o->bucket_mb },
    };
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (choices[i].value < 0 || choices[i].value >= choices[i].count)
            return ls__fail(LS_EINVAL, "%s=%d: not a value of %s", choices[i].name, choices[i].value, choices[i].type);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!(numbers[i].value >= 0))
            return ls__fail(LS_EINVAL, "%s=%.15g: must not be negative", numbers[i].name, numbers[i].value);
    if (isnan(o->clip)) return ls__fail(LS_EINVAL, "clip=nan: must be a number; 0: 1, below 0: no clipping");
    return LS_OK;
}

/* As run.json has it, so that a resumed run gets the same number. */
static double rounded(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.7g", x);
    return strtod(text, NULL);
}

static ls_status fill_options(ls_train *t)
{
    ls_train_options *o = &t->options;
    ls_status status = check_options(o);
    if (status) return status;
    if (!o->batch_size) o->batch_size = o->task == LS_TASK_IMAGES ? 64 : 8;
    if (!o->slots) o->slots = t->parallel.size;
    if (o->clip == 0) o->clip = 1;
    if (o->clip < 0) o->clip = 0;
    if (o->val_fraction == 0 && (o->eval_every > 0 || o->best || o->patience) && !o->n_val_data) o->val_fraction = 0.05;
    o->val_fraction = rounded(o->val_fraction);
    if (o->val_fraction != 0 && (!(o->val_fraction > 0 && o->val_fraction < 1) || o->n_val_data))
        return ls__fail(LS_EINVAL, "val_fraction=%g: %s", o->val_fraction,
                        o->n_val_data ? "cannot be combined with val_data" : "must be above 0 and below 1");
    if (!o->keep) o->keep = 2;
    if (!o->metrics_every) o->metrics_every = 1;
    t->threads_found = !o->threads;
    if (!o->threads) o->threads = omp_get_max_threads(); /* the launcher gives each rank its share of the cores */
    if (o->schedule.lr == 0) o->schedule.lr = 1e-3f;
    if (o->chat) o->pad = true;
    if (o->schedule.lr_end == 0) o->schedule.lr_end = o->schedule.lr / 10;
    if (o->schedule.lr_end < 0) o->schedule.lr_end = 0;
    o->optimizer.threads = o->threads;
    char digits[32]; /* as run.json has it, so that a resumed run has the same bits */
    snprintf(digits, sizeof digits, "%.15g", o->clip);
    o->clip = strtod(digits, NULL);
    if ((status = check_count("batch_size", o->batch_size, 1 << 20))) return status;
    if ((status = check_count("slots", o->slots, 1 << 20))) return status;
    if ((status = check_count("threads", o->threads, 1 << 12))) return status;
    if (o->steps < 0 || !(o->epochs >= 0 && o->epochs < 1e9))
        return ls__fail(LS_EINVAL, "steps=%lld, epochs=%g: must not be negative", (long long)o->steps, o->epochs);
    if (!(o->schedule.lr > 0 && isfinite(o->schedule.lr)))
        return ls__fail(LS_EINVAL, "lr=%g: must be above 0", (double)o->schedule.lr);
    return ls__optimizer_options_check(&o->optimizer);
}

/* First of all: a resumed run is locked, and the folder of a new one must be free. */
static ls_status claim_run_dir(ls_train *t)
{
    const ls_train_options *o = &t->options;
    if (!ls__train_is_first(t)) return LS_OK;
    if (ls__train_kept_is_continued(t)) ls__run_dir_await(o->run_dir);
    switch (o->run_dir_mode) {
    case LS_RUN_DIR_RESUME: return ls__run_dir_lock(&t->run, o->run_dir);
    case LS_RUN_DIR_NUMBERED: return LS_OK;
    case LS_RUN_DIR_NEW:
    case LS_RUN_DIR_OVERWRITE: break;
    }
    return ls__run_dir_check(o->run_dir, o->run_dir_mode == LS_RUN_DIR_OVERWRITE);
}

/* The tokenizer of a resumed run may be gone, with the model that the run was started from. The run folder has a copy once
 * the run's own model is saved. */
static void find_tokenizer(ls_train *t)
{
    ls_train_options *o = &t->options;
    char path[RUN_DIR_BYTES + 32];
    if (!ls__train_is_resumed(t) || !o->tokenizer || !strcmp(o->tokenizer, "bytes") || !access(o->tokenizer, F_OK))
        return;
    snprintf(path, sizeof path, "%s/tokenizer.json", o->run_dir);
    if (!access(path, R_OK)) o->tokenizer = o->run_dir;
}

static ls_status compare_with_run(const ls_train *t)
{
    ls_train_saved *saved;
    ls_status status = ls_train_saved_open(&saved, t->options.run_dir);
    if (!status) status = ls__settings_compare(t, &saved->options);
    if (!status && (status = ls__settings_check_files(saved, false, t->files[0])))
        status = ls__fail_within(status, "%s: a run must be resumed with the data that it was started with",
                                 t->options.run_dir);
    ls_train_saved_free(&saved);
    return status;
}

/* Adapters, if they are asked for. */
static ls_status add_adapters(ls_train *t)
{
    const ls_train_options *o = &t->options;
    ls_lora_options lora;
    struct stat from, to;
    if (!o->lora) return LS_OK;
    if (!o->init) return ls__fail(LS_EINVAL, "lora: adapters need a model to start from; set init=FOLDER");
    if (o->run_dir && !stat(o->init, &from) && !stat(o->run_dir, &to) && from.st_dev == to.st_dev &&
        from.st_ino == to.st_ino)
        return ls__fail(LS_EINVAL, "%s: an adapter cannot be saved to the folder of its base model; choose another",
                        o->run_dir);
    ls_status status = ls__lora_parse(o->lora, &lora);
    if (!status) status = ls__model_add_lora(t->model, &lora);
    if (!status && ls__train_is_first(t) && !ls__train_kept_is_ready(t))
        ls__log(LS_LOG_INFO, "lora: %.2fM parameters are trained, and %.2fM are frozen",
                (double)ls_model_param_count(t->model) / 1e6, (double)ls__model_frozen_elements(t->model) / 1e6);
    return status;
}

/* What each rank does by itself. */
static ls_status open_own(ls_train *t)
{
    ls_train_options *o = &t->options;
    ls_status status;
    if (!(t->task = ls__task_of(o->task))) return ls__fail(LS_EINVAL, "task=%d: unknown task", (int)o->task);
    if ((status = fill_options(t))) return status;
    if ((status = ls__inject_check(t))) return status;
    if ((status = ls__slots_check(o->slots, t->parallel.size))) return status;
    if ((ls__train_is_resumed(t) || o->checkpoint_every) && !o->run_dir)
        return ls__fail(LS_EINVAL, "checkpoints need a run folder (run_dir)");
    if (o->run_dir && (status = claim_run_dir(t))) return status;
    find_tokenizer(t);
    if ((status = t->task->prepare(t))) return status;
    if ((status = ls__train_open_data(t))) return status;
    if ((status = ls__best_open(t))) return status;
    if ((status = ls__samples_open(t))) return status;
    ls__train_kept_note_shape(t);
    t->data_hash = ls__train_hash_data(t);
    if (o->run_dir && ls__train_is_first(t)) {
        bool folder = o->image_format == LS_IMAGES_FOLDER; /* of as many files as samples */
        if ((status = ls__data_files_json(o->data, folder ? 0 : o->n_data, &t->files[0]))) return status;
        if ((status = ls__data_files_json(o->val_data, folder ? 0 : o->n_val_data, &t->files[1]))) return status;
    }
    if ((status = t->task->open_model(t))) return status;
    if ((status = add_adapters(t))) return status;
    if (o->lora) t->flops_per_token *= 2.0 / 3; /* frozen weights have no gradients */
    t->data_at = ls_loader_get_state(t->loader);
    t->n_settings = ls__settings_values(t, t->settings);
    if (ls__train_is_resumed(t) && ls__train_is_first(t) && (status = compare_with_run(t))) return status;
    return ls_tape_open(&t->tape, &(ls_tape_options){ .threads = o->threads });
}

/* All ranks use the first rank's path of the run folder. `path`: that path, or "". */
static ls_status share_run_dir(ls_train *t, const char *path)
{
    char shared[RUN_DIR_BYTES] = "";
    snprintf(shared, sizeof shared, "%s", path);
    ls_status status = ls_broadcast(ls_world_group(t->parallel.world), shared, sizeof shared, LS_U8, 0);
    if (status || (t->run_dir && !strcmp(t->run_dir, shared))) return status;
    free(t->run_dir);
    t->run_dir = *shared ? strdup(shared) : NULL;
    t->options.run_dir = t->run_dir;
    return *shared && !t->run_dir ? ls__fail(LS_ENOMEM, "train: out of memory") : LS_OK;
}

/* A link, such as runs/last, may point elsewhere before the run ends. */
static ls_status resolve_run_dir(ls_train *t)
{
    const char *path = t->options.run_dir;
    char *real = NULL, *here = NULL;
    struct stat st;
    ls_status status = LS_OK;
    if (path && !*path) status = ls__fail(LS_EINVAL, "run_dir is empty");
    if (path && t->options.run_dir_mode != LS_RUN_DIR_NUMBERED && !lstat(path, &st) && S_ISLNK(st.st_mode)) {
        real = realpath(path, NULL);
        here = getcwd(NULL, 0);
    }
    if (real) {
        size_t n = here ? strlen(here) : 0;
        path = n && !strncmp(real, here, n) && real[n] == '/' ? real + n + 1 : real;
    }
    if (path && strlen(path) >= RUN_DIR_BYTES - 16) status = ls__fail(LS_EINVAL, "run_dir is too long");
    status = ls__parallel_agree(t, status);
    if (!status) status = share_run_dir(t, path ? path : "");
    free(real);
    free(here);
    return status;
}

/* The first rank creates the folder; its name may get a number. */
static ls_status open_run_dir(ls_train *t)
{
    ls_status status = LS_OK;
    int64_t step = t->step;
    if (ls__train_kept_is_ready(t)) t->step = ls__train_kept_finished(t); /* lines of later steps are written again */
    if (ls__train_is_first(t))
        status = ls__train_is_resumed(t) ? ls__run_dir_reopen(&t->run, t) : ls__run_dir_open(&t->run, t);
    t->step = step;
    /* The record of a finished run stays. */
    if (!status && ls__train_kept_is_ready(t) && t->run.path && !ls__train_is_over(t))
        ls__run_dir_remove_events(&t->run);
    status = ls__parallel_agree(t, status);
    if (!status) status = share_run_dir(t, t->run.path ? t->run.path : "");
    if (!status) ls__train_kept_note_run_dir(t);
    if (!status && !ls__train_is_over(t)) status = ls__train_record_open(t);
    status = ls__parallel_agree(t, status);
    return status ? status : ls__train_record_node(t);
}

/* Documents are separated by the tokenizer's end token, but generation stops at the one in config.json. */
static void warn_of_other_end(const ls_train *t)
{
    int32_t end = t->tokenizer ? ls_tokenizer_end_token(t->tokenizer) : -1;
    if (t->options.init && !ls__train_is_resumed(t) && ls__train_is_first(t) && end >= 0 && t->model->config &&
        ls__hf_config_has_other_end(t->model->config, end))
        ls__log(LS_LOG_WARNING,
                "%s/config.json: eos_token_id is not the tokenizer's end token, %d, which separates documents in "
                "training; it is not changed",
                t->options.init, end);
}

/* A user who waits wants to know why. */
static void explain_slow_kernels(const ls_train *t)
{
    const char *note = ls__kernels_note();
    if (note && ls__train_is_first(t) && !ls__train_kept_is_ready(t)) ls__log(LS_LOG_INFO, "kernels: %s", note);
}

static ls_status open_all(ls_train *t)
{
    ls_status status = ls__parallel_join(t);
    if (!status) status = ls__parallel_agree(t, ls__train_kept_join(t));
    if (!status) status = resolve_run_dir(t);
    if (!status) status = ls__parallel_agree(t, open_own(t));
    if (!status) status = ls__parallel_compare(t);
    if (!status) status = ls__parallel_open(t);
    if (!status) status = ls__parallel_agree(t, ls__statistics_open(t));
    if (!status) status = ls__parallel_agree(t, ls__together_open(t));
    if (!status) warn_of_other_end(t);
    if (!status) explain_slow_kernels(t);
    if (!status && ls__train_kept_is_ready(t))
        status = ls__train_kept_resume(t);
    else if (!status && ls__train_is_resumed(t))
        status = ls__checkpoint_resume(t);
    if (!status && t->options.run_dir) status = open_run_dir(t);
    if (!status && t->options.profile) status = ls__parallel_agree(t, ls__profile_open(t));
    return status ? status : ls__train_kept_start(t);
}

ls_status ls_train_open(ls_train **out, const ls_train_options *options)
{
    LS__NEED(out, "out");
    *out = NULL;
    ls_train *t = calloc(1, sizeof *t);
    if (!t) return ls__fail(LS_ENOMEM, "train: out of memory");
    if (options) t->options = *options;
    t->run.metrics = t->run.events = -1;
    ls_status status = open_all(t);
    if (status) ls_train_free(&t);
    *out = t;
    return status;
}

void ls_train_free(ls_train **train)
{
    ls_train *t = train ? *train : NULL;
    if (!t) return;
    ls__checkpoint_close(t);
    ls__train_record_close(t);
    /* A run that failed before its first step leaves nothing, so that the next attempt can use the folder. */
    if (t->run.fresh && !t->step)
        ls__run_dir_remove(&t->run);
    else
        ls__run_dir_close(&t->run);
    ls__profile_close(t);
    ls__together_close(t);
    ls_tape_free(&t->tape);
    ls_optimizer_free(&t->optimizer);
    ls_model_free(&t->model);
    ls__statistics_close(t);
    ls__samples_close(t);
    ls__train_kept_forget_sums(t);
    ls__parallel_close(t);
    ls__train_close_data(t);
    if (t->task && t->task->close) t->task->close(t);
    ls__train_kept_close(t);
    for (int i = 0; i < 2; i++) json_decref(t->files[i]);
    free(t->run_dir);
    free(t);
    *train = NULL;
}

ls_status ls__train_check_consistent(const ls_train *t)
{
    if (ls__parallel_is_consistent(t)) return LS_OK;
    return ls__fail(LS_ESTATE,
                    "step %lld was interrupted while weights were updated: only some of them are updated; they are "
                    "not saved",
                    (long long)t->step + 1);
}

ls_status ls_train_save(ls_train *t)
{
    LS__NEED(t, "train");
    if (!ls__train_is_first(t)) return LS_OK;
    if (!t->run.path) return ls__fail(LS_ESTATE, "this run has no run folder to save to");
    const float *values = ls_model_values(t->model);
    size_t elements = ls_model_elements(t->model), bad = 0;
    for (size_t i = 0; i < elements; i++) bad += isfinite(values[i]) ? 0 : 1;
    ls_status status = ls__train_check_consistent(t);
    if (status) return status;
    if (bad)
        return ls__fail(LS_ENOTFINITE, "%s: %zu weights are not finite; the model was not saved", t->run.path, bad);
    ls__train_point(t, LS__POINT_SAVING);
    ls_status before = ls__checkpoint_wait(t);
    char message[512] = "";
    if (before) snprintf(message, sizeof message, "%s", ls_error());
    if (t->tokenizer) ls__model_set_end(t->model, ls_tokenizer_end_token(t->tokenizer));
    if (t->tokenizer) status = ls_tokenizer_save(t->tokenizer, t->run.path);
    if (!status) {
        status = ls__train_is_over(t) ? ls__best_save(t) : LS_ENOENT;
        if (status == LS_ENOENT) status = ls_model_save(t->model, t->run.path);
    }
    if (!status) ls__run_dir_remove_other_form(&t->run, t->options.lora != NULL);
    /* A checkpoint that could not be written is reported, but does not prevent saving the model. */
    return status || !before ? status : ls__fail(before, "%s", message);
}

ls_status ls_train_checkpoint(ls_train *t)
{
    LS__NEED(t, "train");
    if (!ls__train_is_first(t)) return LS_OK;
    if (!t->run.path || t->options.no_checkpoint) return ls__fail(LS_ESTATE, "this run writes no checkpoints");
    if (!t->step) return ls__fail(LS_ESTATE, "%s: no step was completed", t->run.path);
    ls_status status = ls__checkpoint_save(t, true);
    return status ? status : ls__checkpoint_wait(t);
}

ls_model *ls_train_model(const ls_train *train)
{
    return train->model;
}

const char *ls_train_run_dir(const ls_train *train)
{
    return train->run_dir;
}

int64_t ls_train_steps_made(const ls_train *train)
{
    return train->step;
}

const ls_train_options *ls_train_get_options(const ls_train *train)
{
    return &train->options;
}

const ls_tokenizer *ls_train_tokenizer(const ls_train *train)
{
    return train->tokenizer;
}
