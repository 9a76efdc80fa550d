/* One step: for each micro-batch load, forward, backward; then one update. The phases are functions of their own, so
 * that what happens between them (reducing, waiting) has its place. */
#include "train/training.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/status.h"

enum { MAX_SLOTS_ON_STACK = 64 };

ls_status ls__train_forward(ls_train *t, int slot, const ls_model_batch *batch, bool eval, ls_tensor **loss)
{
    const ls_train_options *o = &t->options;
    ls_param *params;
    int n_params = ls_model_params(t->model, &params);
    ls_pass pass = { .eval = eval, .seed = o->seed, .stream = (uint64_t)t->step * (uint64_t)o->slots + (uint64_t)slot };
    ls_model_batch share = *batch;
    /* Each micro-batch's loss is its share of the global mean, so that the gradients only have to be added. */
    if (!eval) share.divisor = (double)o->rows * (double)o->length * (double)o->slots;
    ls_status status = ls_tape_begin(t->tape, params, n_params, &pass);
    if (status) return status;
    *loss = ls_model_loss(t->model, t->tape, &share);
    return ls_tape_status(t->tape);
}

ls_status ls__train_backward(ls_train *t, int slot, ls_tensor *loss)
{
    ls_status status = ls_tape_backward(t->tape, loss);
    if (status) return status;
    ls__grad_tree_add(&t->tree, slot);
    ls_model_set_grads(t->model, t->tree.current);
    return LS_OK;
}

const char *ls__train_find_nan(const ls_train *t, char *text, size_t bytes)
{
    const ls_place *places;
    size_t n = ls_model_places(t->model, &places);
    for (int grads = 0; grads < 2; grads++) {
        const float *block = grads ? ls_model_grads(t->model) : ls_model_values(t->model);
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < places[i].count; k++)
                if (!isfinite(block[places[i].offset + k])) {
                    snprintf(text, bytes, "'%s' (its %s, element %zu, is %g)", places[i].name,
                             grads ? "gradient" : "value", k, (double)block[places[i].offset + k]);
                    return text;
                }
    }
    return NULL;
}

static ls_status not_finite(const ls_train *t, double loss, double norm)
{
    char text[200];
    const char *first = ls__train_find_nan(t, text, sizeof text);
    return ls__fail(LS_ENOTFINITE,
                    "step %lld: the loss is %g and the gradient norm %g; the first parameter that is not finite: %s; "
                    "the update was not made and the weights are those before it; a lower learning rate or stronger "
                    "clipping may help",
                    (long long)t->step + 1, loss, norm, first ? first : "none");
}

ls_status ls__train_update(ls_train *t, double loss, ls_train_metrics *metrics)
{
    const ls_train_options *o = &t->options;
    const float *grads = ls_model_grads(t->model);
    size_t elements = ls_model_elements(t->model);
    ls_norm_sums(grads, 0, elements, t->norm_sums, o->threads);
    double norm = ls_norm_total(t->norm_sums, ls_norm_blocks(elements));
    if (!isfinite(loss) || !isfinite(norm)) return not_finite(t, loss, norm);
    float lr = ls_schedule_at(&o->schedule, t->step);
    metrics->lr = (double)lr;
    metrics->grad_norm = norm;
    return ls_optimizer_update(t->optimizer, ls_model_values(t->model), grads, 0, elements, t->step, lr,
                               ls_clip_scale(norm, o->clip));
}

/* The losses' shares are added as the gradients are: tree(n) = tree(m) + tree(n - m). */
static double tree_sum(const float *x, int n)
{
    if (n == 1) return (double)x[0];
    int m = 1;
    while (2 * m < n) m *= 2;
    return tree_sum(x, m) + tree_sum(x + m, n - m);
}

static double since(int64_t *clock)
{
    int64_t now = ls_now(), before = *clock;
    *clock = now;
    return (double)(now - before) / 1e6;
}

/* All micro-batches: the gradients of the global batch, and its loss. */
static ls_status run_slots(ls_train *t, ls_train_metrics *m, float *losses, int64_t *clock)
{
    for (int slot = 0; slot < t->options.slots; slot++) {
        ls_tensor *loss = NULL;
        ls_model_batch batch;
        ls_status status = ls__train_load(t, &batch);
        m->data_ms += since(clock);
        if (!status) status = ls__train_forward(t, slot, &batch, false, &loss);
        m->forward_ms += since(clock);
        if (status) return status;
        losses[slot] = loss->data[0];
        status = ls__train_backward(t, slot, loss);
        m->backward_ms += since(clock);
        if (status) return status;
    }
    m->loss = tree_sum(losses, t->options.slots);
    return LS_OK;
}

/* Resident memory of this process, without the heap. */
static uint64_t resident_bytes(void)
{
    char text[128] = "";
    unsigned long long pages = 0;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    if (read(fd, text, sizeof text - 1) > 0) (void)sscanf(text, "%*u %llu", &pages);
    close(fd);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static ls_status finish_step(ls_train *t, ls_train_metrics *m, int64_t begin, int64_t *clock)
{
    const ls_train_options *o = &t->options;
    double tokens = (double)o->rows * (double)o->length * (double)o->slots;
    t->step++;
    m->step = t->step;
    m->steps = o->steps;
    m->epoch = (double)t->step / (double)t->epoch_steps;
    m->memory_bytes = resident_bytes();
    m->other_ms = since(clock);
    m->step_ms = (double)(*clock - begin) / 1e6;
    m->tokens_per_s = tokens / m->step_ms * 1e3;
    m->gflops = t->flops_per_token * tokens / m->step_ms / 1e6;
    m->eval_loss = -1;
    bool last = t->step == o->steps;
    if (o->eval_every > 0 && (t->step % o->eval_every == 0 || last)) {
        ls_status status = ls_train_eval(t, &m->eval_loss);
        if (status) return status;
    }
    return t->run.path ? ls__run_dir_add(&t->run, m) : LS_OK;
}

ls_status ls_train_step(ls_train *t, ls_train_metrics *metrics)
{
    float few[MAX_SLOTS_ON_STACK], *losses = few;
    int64_t begin = ls_now(), clock = begin;
    if (t->broken) return ls__fail(LS_ESTATE, "an earlier step failed; no more can be made");
    if (t->step >= t->options.steps) return LS_END;
    if (t->options.slots > MAX_SLOTS_ON_STACK && !(losses = malloc((size_t)t->options.slots * sizeof *losses)))
        return ls__fail(LS_ENOMEM, "step %lld: out of memory", (long long)t->step + 1);
    *metrics = (ls_train_metrics){ 0 };
    ls_status status = run_slots(t, metrics, losses, &clock);
    if (!status) status = ls__train_update(t, metrics->loss, metrics);
    metrics->update_ms = since(&clock);
    if (!status) status = finish_step(t, metrics, begin, &clock);
    if (losses != few) free(losses);
    t->broken = status != LS_OK;
    return status;
}

ls_status ls_train_eval(ls_train *t, double *loss)
{
    double sum = 0, rows = 0;
    if (!t->val_loader)
        return ls__fail(LS_ESTATE, "there is no validation data; name some, or set eval_every to keep a part back");
    for (int i = 0; i < t->options.eval_batches; i++) {
        ls_model_batch batch;
        ls_tensor *out = NULL;
        ls_status status = ls__train_load_val(t, i == 0, &batch);
        if (status == LS_END) break;
        if (!status) status = ls__train_forward(t, 0, &batch, true, &out);
        if (status) return status;
        sum += (double)out->data[0] * (double)batch.rows;
        rows += (double)batch.rows;
    }
    *loss = sum / rows;
    return LS_OK;
}
