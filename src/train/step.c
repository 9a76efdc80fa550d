/* One step: load, forward and backward for each micro-batch, then one update. */
#include "train/training.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/status.h"
#include "comm/private.h"
#include "nn/norm.h"
#include "train/checkpoint.h"
#include "train/kept.h"
#include "train/record.h"
#include "train/profile.h"

enum {
    MAX_SLOTS_ON_STACK = 64,
    MAX_SKIPPED_IN_A_ROW = 10, /* then the run fails: it learns nothing */
};

ls_status ls__train_forward(ls_train *t, int slot, const ls_model_batch *batch, bool eval, ls_tensor **loss)
{
    const ls_train_options *o = &t->options;
    ls_param *params;
    int n_params = ls_model_params(t->model, &params);
    ls_pass pass = { .mode = eval ? LS_PASS_EVAL : LS_PASS_TRAIN,
                     .seed = o->seed,
                     .stream = (uint64_t)t->step * (uint64_t)o->slots + (uint64_t)slot };
    ls_model_batch share = *batch;
    /* Each micro-batch's loss is its part of the global mean, so that the gradients only have to be added. The weight of a
     * step with padding is known only when all ranks are done: ls_train_step() corrects for it. */
    if (!eval) share.divisor = ls__train_full_weight(t);
    ls__profile_pause(t->profile, eval);
    ls_status status = ls_tape_begin(t->tape, params, n_params, &pass);
    if (status) return status;
    *loss = ls_model_loss(t->model, t->tape, &share);
    return ls_tape_status(t->tape);
}

/* Text about the first parameter whose gradient, or value, is not finite; NULL: none. */
static const char *find_nan(const ls_train *t, bool grads, char *text, size_t bytes)
{
    const ls_place *places;
    size_t n = ls_model_places(t->model, &places);
    const float *block = grads ? ls__parallel_grads(t) : ls_model_values(t->model);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < places[i].count; k++)
            if (!isfinite(block[places[i].offset + k])) {
                snprintf(text, bytes, "'%s' (its %s, element %zu, is %g)", places[i].name, grads ? "gradient" : "value",
                         k, (double)block[places[i].offset + k]);
                return text;
            }
    return NULL;
}

/* The loss or the norm is not finite: the step is skipped. All ranks have the same numbers and weights, so all skip it. */
static ls_status skip_step(ls_train *t, double loss, double norm, ls_train_metrics *metrics)
{
    static const char advice[] = "the weights are those before it; a lower learning rate or stronger clipping may help";
    long long step = (long long)t->step + 1;
    char text[200];
    const char *first = find_nan(t, false, text, sizeof text);
    if (first) /* no later step would be finite */
        return ls__fail(LS_ENOTFINITE,
                        "step %lld: the loss is %g and the gradient norm %g; the first parameter that is not finite: "
                        "%s; the update was not made",
                        step, loss, norm, first);
    t->skipped++;
    if (++t->skipped_in_a_row == MAX_SKIPPED_IN_A_ROW)
        return ls__fail(LS_ENOTFINITE,
                        "step %lld: the loss is %g and the gradient norm %g, the %dth step in a row that "
                        "is not finite; %s",
                        step, loss, norm, MAX_SKIPPED_IN_A_ROW, advice);
    metrics->skipped = t->skipped;
    ls__train_kept_note_step(t, 0, 0, metrics);
    /* The sums are in the first rank's memory, where only that rank writes next. */
    if (ls__train_is_first(t)) {
        first = find_nan(t, true, text, sizeof text);
        ls__log(
            LS_LOG_WARNING,
            "step %lld was skipped: the loss is %g and the gradient norm %g; the first parameter that is not finite: "
            "%s; %s",
            step, loss, norm, first ? first : "none", advice);
    }
    /* Other ranks may still be reading the sums. */
    ls_status status = ls_barrier(t->parallel.node_group);
    if (!status) ls__train_kept_skip(t);
    return status;
}

ls_status ls__train_update(ls_train *t, double loss, double scale, ls_train_metrics *metrics)
{
    const ls_train_options *o = &t->options;
    double norm;
    ls_status status = ls__parallel_norm(t, &norm);
    if (status) return status;
    if (norm > 0) norm *= scale;
    float lr = ls_schedule_at(&o->schedule, t->step);
    metrics->lr = (double)lr;
    metrics->grad_norm = norm;
    if (!isfinite(loss) || !isfinite(norm)) {
        status = skip_step(t, loss, norm, metrics);
    } else {
        t->skipped_in_a_row = 0;
        float grad_scale = ls__clip_scale(norm, o->clip) * (float)scale;
        metrics->skipped = t->skipped;
        ls__statistics_count(t);
        ls__train_kept_note_step(t, lr, grad_scale, metrics);
        ls__train_point(t, LS__POINT_GATHERED);
        status = ls__parallel_update(t, lr, grad_scale);
        ls__train_point(t, LS__POINT_APPLIED);
    }
    metrics->skipped = t->skipped;
    return status;
}

/* This rank's micro-batches. Then the gradients are those of the global batch, and *weight and shares[] its sums over all
 * ranks. `parts` has room for LS__SHARES numbers per micro-batch. */
static ls_status run_slots(ls_train *t, ls_train_metrics *m, double *parts, double shares[LS__SHARES], double *weight)
{
    int each = t->parallel.each, first = t->parallel.first;
    double *losses = parts + LS__LOSS * each, *tokens = parts + LS__TOKENS * each;
    if (ls__train_kept_has_rest(t)) return ls__train_kept_run_rest(t, m, shares, weight);
    ls__train_kept_begin(t, losses, tokens);
    if (t->together) {
        ls_status status = ls__together_run(t, m, losses, tokens, weight);
        if (!status) status = ls__statistics_gather(t);
        return status ? status : ls__parallel_sum(t, parts, shares);
    }
    for (int micro = 0; micro < each; micro++) {
        ls_tensor *loss = NULL;
        ls__micro_batch batch;
        ls_status status = ls__train_enter(t, LS_PHASE_DATA);
        if (!status) status = ls__train_load(t, &batch);
        ls__train_note_batch(t);
        m->data_ms += ls__train_leave(t, LS_PHASE_DATA);
        if (!status) status = ls__train_enter(t, LS_PHASE_FORWARD);
        if (!status) status = ls__parallel_begin(t, micro, batch.weight);
        if (!status) ls__statistics_slot(t, first + micro);
        ls__train_costs_begin(t, micro);
        if (!status && batch.model.batch_size) status = ls__train_forward(t, first + micro, &batch.model, false, &loss);
        ls__train_costs_mark(t, LS_SEGMENT_END, LS_PHASE_FORWARD);
        m->forward_ms += ls__train_leave(t, LS_PHASE_FORWARD);
        if (!status) status = ls__train_enter(t, LS_PHASE_BACKWARD);
        if (status) return status;
        losses[micro] = loss ? (double)loss->data[0] : 0;
        tokens[micro] = batch.tokens;
        if (loss) status = ls_tape_backward(t->tape, loss);
        ls__train_costs_mark(t, LS_SEGMENT_END, LS_PHASE_BACKWARD);
        if (!status) status = ls__parallel_finish(t, weight);
        m->backward_ms += ls__train_leave(t, LS_PHASE_BACKWARD);
        if (status) return status;
    }
    ls_status status = ls__statistics_gather(t);
    return status ? status : ls__parallel_sum(t, parts, shares);
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

/* What a step took until `now`. */
static void fill_times(const ls_train *t, ls_train_metrics *m, double tokens, int64_t begin, int64_t now)
{
    m->memory_bytes = resident_bytes();
    m->step_ms = (double)(now - begin) / 1e6;
    m->blocked_ms = (double)(ls__world_blocked_ns(t->parallel.world) - t->blocked) / 1e6;
    m->tokens_per_s = tokens / m->step_ms * 1e3;
    m->gflops = t->flops_per_token * tokens / m->step_ms / 1e6;
}

static ls_status finish_step(ls_train *t, ls_train_metrics *m, double tokens, int64_t begin)
{
    t->step++;
    t->data_at = ls_loader_get_state(t->loader);
    m->other_ms = ls__train_lap(t);
    fill_times(t, m, tokens, begin, t->clock);
    /* After the first step, so that it is not delayed. */
    if (ls__train_is_first(t)) m->peak_gflops = t->parallel.size * ls__train_peak(t, m->gflops / t->parallel.size);
    ls__train_point(t, LS__POINT_DONE);
    ls_status status = ls__train_finish(t, m, true);
    if (!status) status = ls__train_note_loading(t, m);
    if (!status) ls__train_kept_finish(t);
    return status;
}

ls_status ls__train_finish(ls_train *t, ls_train_metrics *m, bool line)
{
    const ls_train_options *o = &t->options;
    m->step = t->step;
    m->steps = o->steps;
    m->epoch = (double)t->step / (double)t->epoch_steps;
    m->eval_loss = -1;
    bool eval = o->eval_every > 0 && (t->step % o->eval_every == 0 || t->step == o->steps);
    if (eval && line) {
        ls_record_begin(ls_world_record(t->parallel.world), LS_PHASE_EVAL);
        ls__evaluation e = { 0 };
        ls_status status = ls__train_evaluate(t, &e);
        ls_record_end(ls_world_record(t->parallel.world), LS_PHASE_EVAL);
        if (status) return status;
        m->eval_loss = e.loss;
        memcpy(m->eval_metrics, e.metrics, sizeof e.metrics);
        ls__best_note(t, m->eval_loss, m->eval_metrics);
        ls__train_point(t, LS__POINT_EVALUATED);
    }
    bool last = ls__train_is_over(t), best = eval && ls__best_is_kept(t) && t->best.step == t->step;
    bool logged = o->metrics_every <= 1 || t->step % o->metrics_every == 0 || eval || last || t->stopping;
    ls_status status = t->run.path && logged && line ? ls__run_dir_add(&t->run, t->task, m) : LS_OK;
    if (!status && line) status = ls__samples_add(t, m);
    ls__train_point(t, LS__POINT_LINE_WRITTEN);
    bool due = (o->checkpoint_every && t->step % o->checkpoint_every == 0) || best || last || t->stopping;
    /* The other ranks cannot change the weights meanwhile: their next update needs this rank. */
    if (!status && due && t->run.path && !o->no_checkpoint) {
        ls_record_begin(ls_world_record(t->parallel.world), LS_PHASE_CHECKPOINT);
        status = ls__checkpoint_save(t, last || t->stopping);
        ls__train_point(t, LS__POINT_CHECKPOINT);
        ls_record_end(ls_world_record(t->parallel.world), LS_PHASE_CHECKPOINT);
    }
    return status;
}

void ls_train_stop(ls_train *train)
{
    atomic_store(&train->stop_wanted, true);
}

ls_status ls_train_step(ls_train *t, ls_train_metrics *metrics)
{
    LS__NEED(t, "train");
    double few[LS__SHARES * MAX_SLOTS_ON_STACK], *parts = few, shares[LS__SHARES], weight = 0;
    int64_t begin = t->clock = ls_now();
    if (t->failed) return ls__fail(LS_ESTATE, "an earlier step failed; no more steps are possible");
    if (ls__train_is_over(t) || t->stopping || ls__train_is_changing(t)) {
        ls__train_record_close(t); /* what is saved from now on does not belong to the last step */
        return LS_END;
    }
    if (t->parallel.each > MAX_SLOTS_ON_STACK &&
        !(parts = malloc(LS__SHARES * (size_t)t->parallel.each * sizeof *parts)))
        return ls__fail(LS_ENOMEM, "step %lld: out of memory", (long long)t->step + 1);
    ls_train_metrics unread;
    if (!metrics) metrics = &unread;
    *metrics = (ls_train_metrics){ 0 };
    ls_record_step(ls_world_record(t->parallel.world), t->step + 1);
    ls__train_point(t, LS__POINT_STEP);
    t->blocked = ls__world_blocked_ns(t->parallel.world);
    ls_status status = run_slots(t, metrics, parts, shares, &weight);
    /* Exactly 1 where all tokens have the same weight; 0 where no token has any. */
    double scale = !status && weight > 0 ? ls__train_full_weight(t) / weight : 0;
    if (!status) metrics->loss = shares[LS__LOSS] * scale;
    /* For the metrics of a step that others complete. */
    if (!status && t->kept) fill_times(t, metrics, shares[LS__TOKENS], begin, ls_now());
    if (!status) status = ls__train_enter(t, LS_PHASE_UPDATE);
    if (!status) status = ls__train_update(t, metrics->loss, scale, metrics);
    metrics->update_ms = ls__train_leave(t, LS_PHASE_UPDATE);
    if (!status) status = finish_step(t, metrics, shares[LS__TOKENS], begin);
    if (!status) ls__profile_step(t->profile, metrics);
    if (parts != few) free(parts);
    t->failed = status != LS_OK;
    /* The other ranks would wait for this one. If the group itself failed, they have the reason already. */
    ls_group *group = ls_world_group(t->parallel.world);
    if (status && t->parallel.size > 1 && !ls__group_is_broken(group)) ls_group_abort(group, ls_error());
    return status;
}
