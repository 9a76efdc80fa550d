/* Evaluation of models whose task is not lm: encoders and models of images, as training evaluates them, over all samples.
 *
 * A run that is open for evaluation only: the task reads the sizes of the model from its folder, opens the data and counts as in
 * training (evaluate.c). With the run's own batch size and seed the result is, bit for bit, that of an evaluation in training over
 * the same samples. */
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include "base/status.h"
#include "nn/model.h"
#include "train/eval.h"
#include "train/training.h"

/* What to evaluate on, and how it is read: as the run does, where it is a run. */
static ls_status choose_data(ls_train *t, const ls_eval_options *o, const ls_train_saved *run)
{
    ls_train_options *d = &t->options;
    if (run) *d = run->options;
    if (!o->n_data && !run)
        return ls__fail(LS_EINVAL,
                        "%s: not a run folder, so there is no validation data; give files to evaluate on, data=FILES",
                        o->model);
    if (o->n_data) {
        d->data = o->data;
        d->n_data = o->n_data;
        d->data_format = o->data_format;
        d->image_format = o->image_format;
        d->on_bad = o->on_bad;
        d->pad = o->pad || (d->pad && d->task == LS_TASK_MLM);
        if (o->field) d->field = o->field;
        if (o->pair_field) d->pair_field = o->pair_field;
        if (o->label_field) d->label_field = o->label_field;
        d->val_fraction = 0;
    } else if (d->n_val_data) {
        d->data = d->val_data;
        d->n_data = d->n_val_data;
        d->val_fraction = 0;
    } else if (!(d->val_fraction > 0)) {
        return ls__fail(LS_EINVAL,
                        "%s: the run has no validation data and held none out; give files to evaluate on, data=FILES",
                        o->model);
    }
    d->val_data = NULL;
    d->n_val_data = 0;
    return LS_OK;
}

/* The options of a run that starts from the folder. */
static void choose_rest(ls_train *t, const ls_eval_options *o)
{
    ls_train_options *d = &t->options;
    d->init = o->model;
    d->run_dir = NULL;
    d->run_dir_mode = LS_RUN_DIR_NEW;
    d->lora = NULL;
    d->model = (ls_lm_options){ 0 };
    d->resnet = (ls_resnet_options){ 0 };
    d->vit = (ls_vit_options){ 0 };
    d->tokenizer = o->tokenizer;
    if (o->seq_len) d->seq_len = o->seq_len;
    if (o->batch_size > 0) d->batch_size = o->batch_size;
    if (!d->batch_size) d->batch_size = d->task == LS_TASK_IMAGES ? 64 : 8;
    d->threads = o->threads > 0 ? o->threads : omp_get_max_threads();
    d->slots = 1;
    d->order = LS_ORDER_SHUFFLED;
    d->torch_ranks = 0;
    d->eval_batches = INT_MAX;
    d->best = NULL;
    t->evaluating = true;
}

static ls_status open_data(ls_train *t)
{
    const ls_train_options *o = &t->options;
    ls_status status = ls__parts_open(&t->parts, o, t->tokenizer, t->is_text);
    if (status) return status;
    t->val_data = t->parts.val ? t->parts.val : t->parts.train;
    ls_loader_options val = { .batch_size = (size_t)o->batch_size, .slots = 1, .seed = o->seed, .epochs = 1 };
    status = ls_loader_open(&t->val_loader, t->val_data, &val);
    if (!status) t->val_start = ls_loader_get_state(t->val_loader);
    return status;
}

static ls_status open_all(ls_train *t, const ls_eval_options *o, const ls_train_saved *run)
{
    const ls_train_options *d = &t->options;
    ls_status status = choose_data(t, o, run);
    if (status) return status;
    choose_rest(t, o);
    /* Folders of pictures are not hashed file by file. */
    bool folder = d->task == LS_TASK_IMAGES && d->image_format == LS_IMAGES_FOLDER;
    if (run && !o->n_data && !t->parallel.rank && !folder && (status = ls__eval_check_unchanged(run, d, o->model)))
        return status;
    if ((status = t->task->prepare(t))) return status;
    if (t->options.task == LS_TASK_CLASSIFY && t->new_head)
        return ls__fail(LS_EINVAL, "%s: the model's classifier is not for %d classes", o->model, d->model.classes);
    if ((status = open_data(t))) return status;
    if ((status = t->task->open_model(t))) return status;
    if ((status = ls_model_bind(t->model, NULL, NULL, false))) return status;
    if ((status = ls_model_load(t->model, o->model))) return status;
    return ls_tape_open(&t->tape, &(ls_tape_options){ .threads = d->threads });
}

static void close_all(ls_train *t)
{
    ls_tape_free(&t->tape);
    ls_model_free(&t->model);
    t->val_data = t->parts.val; /* so that it is freed once */
    ls__train_close_data(t);
    if (t->task->close) t->task->close(t);
    ls__parallel_close(t);
    free(t);
}

ls_status ls__eval_task(const ls_eval_options *o, ls_task task, const ls_train_saved *run, ls_eval_result *result)
{
    ls__evaluation e = { 0 };
    ls_train *t = calloc(1, sizeof *t);
    if (!t) return ls__fail(LS_ENOMEM, "eval: out of memory");
    t->run.metrics = t->run.events = -1;
    t->options.task = task;
    t->options.world = o->world;
    t->task = ls__task_of(task);
    t->eval_progress = o->progress;
    t->eval_user = o->user;
    ls_status status = ls__parallel_join(t);
    if (!status) {
        ls_world *world = t->options.world;
        status = open_all(t, o, run);
        t->options.world = world;
        status = ls__parallel_agree(t, status);
    }
    if (!status) status = ls__train_evaluate(t, &e);
    if (!status && !(e.weight > 0)) status = ls__fail(LS_EINVAL, "%s: no sample of the data has a loss", o->model);
    if (!status) {
        bool tokens = task == LS_TASK_MLM;
        *result = (ls_eval_result){ .task = task,
                                    .loss = e.loss,
                                    .perplexity = tokens ? exp(e.loss) : NAN,
                                    .bits_per_byte = NAN,
                                    .bytes = NAN,
                                    .tokens = (uint64_t)e.weight,
                                    .sequences = t->val_data->count,
                                    .documents = t->parts.val_documents,
                                    .seq_len = task == LS_TASK_IMAGES ? 0 : t->options.seq_len,
                                    .held_out = t->parts.val != NULL };
        for (int i = 0; i < LS_MAX_METRICS; i++) result->metrics[i] = e.metrics[i];
    }
    close_all(t);
    return status;
}
