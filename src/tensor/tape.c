/* The tape: passes, memory within a pass, and backward. See tape.h.
 *
 * Nodes are a list in the arena. Backward visits them from the last to the first, so all readers of a result are visited
 * before the operation that computed it. After a node's backward, its result and the gradient of its result are dead. Both go
 * to the free list at once and are reused by the next gradient, so backward needs little memory beyond that of forward, and
 * this memory is in the cache.
 *
 * A parameter counts its uses while they are recorded. Each visited node subtracts its uses. At zero, no contribution can come
 * and the weight will not be read again, so the hook is called. The order of backward is the reverse of the recorded order, so
 * hooks are called in the same order in every pass. */
#include "tensor/tape.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kern/gemm.h"
#include "kern/select.h"

ls_status ls_tape_open(ls_tape **out, const ls_tape_options *options)
{
    LS__NEED(out, "out");
    *out = NULL;
    ls_tape_options o = options ? *options : (ls_tape_options){ 0 };
    if (o.threads < 0 || o.threads > 4096)
        return ls__fail(LS_EINVAL, "tape: threads is %d; it must be from 0 (OpenMP's default) to 4096", o.threads);
    ls_status status = ls__kernels_check();
    if (status) return status;
    ls_tape *t = calloc(1, sizeof *t);
    if (!t) return ls__fail(LS_ENOMEM, "tape: out of memory");
    size_t limit = o.memory_limit;
    if (!limit) limit = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    status = ls__arena_open(&t->arena, limit);
    if (status) goto fail;
    t->arena.limit = limit; /* not rounded up to pages */
    t->threads = o.threads ? o.threads : omp_get_max_threads();
    size_t bytes = ls__gemm_workspace(t->threads) * sizeof(float);
    if ((status = ls__arena_open(&t->work, bytes))) goto fail;
    t->workspace = ls__arena_take(&t->work, bytes);
    *out = t;
    return LS_OK;
fail:
    ls__arena_close(&t->arena);
    free(t);
    return status;
}

void ls_tape_free(ls_tape **tape)
{
    if (!tape || !*tape) return;
    ls__arena_close(&(*tape)->arena);
    ls__arena_close(&(*tape)->work);
    free(*tape);
    *tape = NULL;
}

void ls_tape_on_ready(ls_tape *t, ls_ready_fn fn, void *user)
{
    t->ready = fn;
    t->ready_user = user;
}

void ls__tape_on_tick(ls_tape *t, ls__tick_fn fn, void *user)
{
    t->tick = (ls__tick){ fn, user };
}

void ls__tape_on_used(ls_tape *t, ls__used_fn fn, void *user)
{
    t->used = fn;
    t->used_user = user;
}

void ls__tape_on_profile(ls_tape *t, ls__op_cost_fn fn, void *user)
{
    t->profile = fn;
    t->profile_user = user;
}

size_t ls__tape_peak(const ls_tape *t)
{
    return t->arena.peak;
}

/* ---- Failing */

ls_tensor *ls__tape_fail(ls_tape *t, ls_status status)
{
    if (t->status == LS_OK) {
        t->status = status;
        snprintf(t->message, sizeof t->message, "%s", ls_error());
    }
    return NULL;
}

ls_status ls_tape_status(ls_tape *t)
{
    LS__NEED(t, "tape");
    return t->status ? ls__fail(t->status, "%s", t->message) : LS_OK;
}

/* OpenMP's threads stay in this mode. The caller's own changes only within each call. */
static void flush_in_threads(ls_tape *t)
{
    t->flushing = pthread_self();
#pragma omp parallel num_threads(t->threads)
    if (omp_get_thread_num() > 0) ls__float_mode_enter(LS__MODE_FLUSH);
}

/* A thread that takes over from another has OpenMP threads of its own. */
static void take_over(ls_tape *t)
{
    if (t->threads > 1 && !pthread_equal(t->flushing, pthread_self())) flush_in_threads(t);
}

bool ls__operation_begin(ls_tape *t, const ls_tensor *a, const ls_tensor *b)
{
    if (!t) ls__fail(LS_EINVAL, "tape: an operation's tape is NULL");
    if (!t || t->status) return false;
    if (!t->open && !t->replaying) {
        ls__tape_fail(t, ls__fail(LS_ESTATE, "tape: operation outside of a pass; call ls_tape_begin() first"));
        return false;
    }
    if (!a || !b) {
        ls__tape_fail(t, ls__fail(LS_EINVAL, "tape: an operation's input is NULL, although no operation failed"));
        return false;
    }
    take_over(t);
    if (t->profile) {
        t->profile_used = t->arena.used;
        t->profile_begin = ls_now();
    }
    return true;
}

/* ---- Memory */

/* A block whose activations are recomputed drops all buffers that it took. A buffer that it takes twice is in the list already. */
static ls__buffer *remember(ls_tape *t, ls__buffer *b)
{
    if (!t->discarding || b->listed) return b;
    b->listed = true;
    b->taken_before = t->taken;
    t->taken = b;
    return b;
}

static ls__buffer *take(ls_tape *t, size_t count, bool own)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, sizeof(float), &bytes) || bytes > SIZE_MAX / 2) {
        ls__tape_fail(t, ls__fail(LS_ENOMEM, "tape: a tensor of %zu elements is too large", count));
        return NULL;
    }
    /* The best fit; of equal ones the first. Buffers of forward live long, so they must not waste much. */
    size_t most = t->open ? bytes + bytes / 8 : 2 * bytes;
    ls__buffer **best = NULL;
    for (ls__buffer **at = &t->free_list; *at; at = &(*at)->next)
        if ((*at)->bytes >= bytes && (*at)->bytes <= most && !(own && (*at)->aliased) &&
            (!best || (*at)->bytes < (*best)->bytes))
            best = at;
    if (best) {
        ls__buffer *found = *best;
        *best = found->next;
        found->refs = 1;
        return remember(t, found);
    }
    ls__buffer *b = ls__arena_take(&t->arena, sizeof *b);
    float *aliased = own ? NULL : ls__alias_take(t, count), *data = aliased;
    if (b && !aliased) data = ls__arena_take(&t->arena, bytes ? bytes : 1);
    if (!b || !data) {
        ls__tape_fail(t, LS_ENOMEM);
        return NULL;
    }
    *b = (ls__buffer){ .data = data, .bytes = bytes, .refs = 1, .aliased = aliased != NULL };
    return remember(t, b);
}

ls__buffer *ls__buffer_take(ls_tape *t, size_t count)
{
    return take(t, count, false);
}

ls__buffer *ls__buffer_take_own(ls_tape *t, size_t count)
{
    return take(t, count, true);
}

void ls__buffer_drop(ls_tape *t, ls__buffer *b)
{
    if (!b || --b->refs || (b->aliased && !t->open)) return;
    b->next = t->free_list;
    t->free_list = b;
}

bool ls__tape_is_eval(const ls_tape *t)
{
    return t->pass.mode == LS_PASS_EVAL;
}

void *ls__tape_array(ls_tape *t, size_t count, size_t size)
{
    void *memory = ls__arena_take_array(&t->arena, count, size);
    if (!memory) ls__tape_fail(t, LS_ENOMEM);
    return memory;
}

int64_t ls_tensor_count(const ls_tensor *x)
{
    if (!x) return 0;
    int64_t n = 1;
    for (int i = 0; i < x->dims; i++) n *= x->shape[i];
    return n;
}

/* A tensor without memory; fails for shapes whose product is not a valid size. */
static ls_tensor *new_header(ls_tape *t, int dims, const int64_t *shape)
{
    char text[LS__SHAPE_TEXT];
    int64_t count = 1;
    if (!shape) return ls__tape_fail(t, ls__fail(LS_EINVAL, "tape: the shape is NULL"));
    if (dims < 1 || dims > LS_MAX_DIMS)
        return ls__tape_fail(t, ls__fail(LS_EINVAL, "tape: a shape of %d dimensions; there must be from 1 to %d", dims,
                                         LS_MAX_DIMS));
    bool bad = false;
    for (int i = 0; i < dims && !bad; i++)
        bad = shape[i] < 1 || __builtin_mul_overflow(count, shape[i], &count) || count > INT64_MAX / 16;
    if (bad)
        return ls__tape_fail(t, ls__fail(LS_EINVAL,
                                         "tape: invalid shape %s: each dimension must be at least 1, and their product "
                                         "a possible size",
                                         ls__shape_text(text, dims, shape)));
    ls_tensor *x = ls__arena_take(&t->arena, sizeof *x);
    if (!x) return ls__tape_fail(t, LS_ENOMEM);
    *x = (ls_tensor){ .dims = dims };
    memcpy(x->shape, shape, (size_t)dims * sizeof *shape);
    return x;
}

ls_tensor *ls__view(ls_tape *t, const float *data, int dims, const int64_t *shape)
{
    ls_tensor *x = new_header(t, dims, shape);
    if (x) x->data = (float *)(uintptr_t)data; /* never written: it has no buffer of the tape */
    return x;
}

ls_tensor *ls__result(ls_tape *t, int dims, const int64_t *shape)
{
    ls_tensor *x = new_header(t, dims, shape);
    if (!x) return NULL;
    int64_t count = ls_tensor_count(x);
    x->memory = take(t, (size_t)count, count == 1); /* a loss can be read after backward, too */
    if (!x->memory) return NULL;
    x->data = x->memory->data;
    return x;
}

/* ---- Recording */

ls_status ls_tape_begin(ls_tape *t, ls_param *params, int n_params, const ls_pass *pass)
{
    LS__NEED(t, "tape");
    ls_status status = pass ? ls__pass_check(pass) : LS_OK;
    if (n_params < 0) return ls__fail(LS_EINVAL, "tape: n_params=%d: must not be negative", n_params);
    if (n_params && !params) return ls__fail(LS_EINVAL, "tape: params must not be NULL for a count of %d", n_params);
    for (int i = 0; i < n_params && !status; i++) status = ls__param_check(&params[i], i);
    if (status) return status;
    if (t->threads > 1) flush_in_threads(t);
    ls__arena_reset(&t->arena, 0);
    t->pass = pass ? *pass : (ls_pass){ 0 };
    t->params = params;
    t->n_params = n_params;
    t->last = NULL;
    t->free_list = NULL;
    t->streams = 0;
    t->taken = NULL;
    t->discarding = t->replaying = false;
    t->root = NULL;
    t->open = true;
    t->status = LS_OK;
    t->profile_near = NULL;
    ls__alias_begin(t);
    for (int i = 0; i < n_params; i++) {
        ls_param *p = &params[i];
        p->index = i;
        p->pending = 0;
        p->written = t->pass.mode == LS_PASS_ACCUMULATE;
        p->ready = false;
        p->tape = t;
    }
    return LS_OK;
}

bool ls__tape_will_record(const ls_tape *t, const ls__tape_record_args *args)
{
    if (t->pass.mode == LS_PASS_EVAL || t->discarding) return false;
    if (args->block) return true;
    for (int i = 0; i < LS__NODE_INPUTS; i++)
        if (args->in[i] && args->in[i]->needs_grad) return true;
    for (int i = 0; i < LS__NODE_PARAMS; i++)
        if (ls__wants_grad(args->param[i])) return true;
    return false;
}

/* ---- Profiling */

static double param_bytes(const ls_param *p)
{
    double n = sizeof(float);
    for (int i = 0; i < p->dims; i++) n *= (double)p->shape[i];
    return n;
}

/* Each operand is read and each result written once; backward reads the operands and the result's gradient, and writes the
 * gradients that are needed. An operation without inputs (an embedding) reads only as many of a parameter's rows as fill the
 * result. */
static double min_bytes(ls_tensor *const *in, ls_param *const *param, const ls_tensor *out, bool backward)
{
    double result = (double)ls_tensor_count(out) * sizeof(float), sum = result;
    for (int i = 0; i < LS__NODE_INPUTS; i++) {
        if (!in[i]) continue;
        double n = (double)ls_tensor_count(in[i]) * sizeof(float);
        sum += backward && in[i]->needs_grad ? 2 * n : n;
    }
    for (int i = 0; i < LS__NODE_PARAMS; i++) {
        if (!param[i]) continue;
        double n = param_bytes(param[i]);
        if (!in[0] && n > result) n = result;
        sum += backward && param[i]->grad ? 2 * n : n;
    }
    return sum;
}

static void report_cost(const ls_tape *t, const ls__operation *op, ls_tensor *const *in, ls_param *const *param,
                        const ls_param *near, const ls_tensor *out, bool backward, int64_t begin, size_t used,
                        double flops)
{
    ls__op_cost e = { .op = op->name, .backward = backward, .dims = out->dims, .flops = flops };
    e.ns = ls_now() - begin;
    e.param = param[0] ? param[0]->name : param[1] ? param[1]->name : "";
    e.near = near ? near->name : "";
    memcpy(e.shape, out->shape, sizeof e.shape);
    e.bytes = min_bytes(in, param, out, backward);
    e.memory = t->arena.used - used;
    t->profile(t->profile_user, &e);
}

static void report_use(const ls_tape *t, const ls__tape_record_args *args)
{
    for (int i = 0; i < LS__NODE_PARAMS; i++)
        if (args->param[i] && args->param[i]->dims >= 2) {
            t->used(t->used_user, args->param[i]);
            return;
        }
}

ls_tensor *ls__tape_record(ls_tape *t, ls_tensor *out, const ls__tape_record_args *args)
{
    if (t->status) return NULL;
    if (t->profile && !args->block) {
        for (int i = LS__NODE_PARAMS - 1; i >= 0; i--)
            if (args->param[i]) t->profile_near = args->param[i];
        report_cost(t, args->op, args->in, args->param, t->profile_near, out, false, t->profile_begin, t->profile_used,
                    args->flops);
    }
    if (!ls__tape_will_record(t, args)) return out;
    if (t->used && !t->replaying) report_use(t, args);
    for (int i = 0; i < LS__NODE_PARAMS; i++)
        if (args->param[i] && !t->replaying && !ls__alias_check(t, args->op->name, args->param[i])) return NULL;
    ls__node *n = ls__arena_take(&t->arena, sizeof *n);
    void *state = args->state_bytes ? ls__arena_take(&t->arena, args->state_bytes) : NULL;
    if (!n || (args->state_bytes && !state)) return ls__tape_fail(t, LS_ENOMEM);
    *n = (ls__node){ .before = t->last, .op = args->op, .out = out, .state = state, .back_flops = args->back_flops };
    n->near = t->profile_near;
    n->recompute = args->recompute;
    n->unread = args->unread;
    n->block = args->block;
    if (state) memcpy(state, args->state, args->state_bytes);
    memcpy(n->in, args->in, sizeof n->in);
    memcpy(n->param, args->param, sizeof n->param);
    for (int i = 0; i < LS__NODE_PARAMS; i++)
        if (n->param[i]) n->param[i]->pending++;
    out->needs_grad = true;
    out->maker = n;
    t->last = n;
    if (!t->replaying) ls__alias_advance(t);
    return out;
}

/* ---- Gradients */

/* The gradient in memory that is not shared with another tensor. */
static float *own_grad(ls_tape *t, ls_tensor *x)
{
    if (x->grad->refs == 1) return x->grad->data;
    size_t count = (size_t)ls_tensor_count(x);
    ls__buffer *copy = ls__buffer_take(t, count);
    if (!copy) return NULL;
    memcpy(copy->data, x->grad->data, count * sizeof(float));
    ls__buffer_drop(t, x->grad);
    x->grad = copy;
    return copy->data;
}

float *ls__grad(ls_tape *t, ls_tensor *x, bool *add)
{
    if (!x || !x->needs_grad) return NULL;
    *add = x->grad != NULL;
    if (x->grad) return own_grad(t, x);
    x->grad = ls__buffer_take(t, (size_t)ls_tensor_count(x));
    return x->grad ? x->grad->data : NULL;
}

ls_status ls__grad_share(ls_tape *t, ls_tensor *x, ls__buffer *b)
{
    if (!x || !x->needs_grad) return LS_OK;
    if (!x->grad) {
        x->grad = b;
        b->refs++;
        return LS_OK;
    }
    float *to = own_grad(t, x);
    if (!to) return t->status;
    int64_t count = ls_tensor_count(x);
#pragma omp parallel for simd num_threads(t->threads) schedule(static)
    for (int64_t i = 0; i < count; i++) to[i] += b->data[i];
    return LS_OK;
}

float *ls__param_grad(ls_tape *t, ls_param *p, bool *add)
{
    (void)t;
    if (!ls__wants_grad(p)) return NULL;
    *add = p->written;
    p->written = true;
    return p->grad;
}

/* ---- Recomputation */

void ls_recompute(ls_tape *t, ls_tensor *x)
{
    if (!x || !x->maker || !x->maker->recompute || !x->memory || x->memory->refs != 1) return;
    ls__buffer_drop(t, x->memory);
    x->memory = NULL;
    x->data = NULL;
}

static ls_status restore(ls_tape *t, ls_tensor *x)
{
    if (!x || x->data) return LS_OK;
    x->memory = ls__buffer_take(t, (size_t)ls_tensor_count(x));
    if (!x->memory) return t->status;
    x->data = x->memory->data;
    x->maker->recompute(t, x->maker);
    return LS_OK;
}

/* ---- Backward */

static ls_status call_ready(ls_tape *t, ls_param *p)
{
    p->ready = true;
    if (!p->written) {
        size_t count = 1;
        for (int i = 0; i < p->dims; i++) count *= (size_t)p->shape[i];
        memset(p->grad, 0, count * sizeof(float));
    }
    return t->ready ? t->ready(t->ready_user, p) : LS_OK;
}

/* Aliased buffers cannot be reused from now on: backward writes gradients there. */
static void drop_aliased(ls_tape *t)
{
    for (ls__buffer **at = &t->free_list; *at;)
        if ((*at)->aliased)
            *at = (*at)->next;
        else
            at = &(*at)->next;
}

static ls_status node_backward(ls_tape *t, ls__node *n)
{
    ls_tensor *out = n->out;
    if (out->grad) {
        size_t used = t->arena.used;
        int64_t begin = t->profile ? ls_now() : 0;
        ls_status status = LS_OK;
        for (int i = 0; i < LS__NODE_INPUTS && !status; i++) status = restore(t, n->in[i]);
        if (!status) status = n->op->backward(t, n);
        if (status == LS_OK) status = t->status;
        if (status) return status;
        if (t->profile && !n->block)
            report_cost(t, n->op, n->in, n->param, n->near, out, true, begin, used, n->back_flops);
        ls__buffer_drop(t, out->grad);
        out->grad = NULL;
    }
    if (out->memory && ls_tensor_count(out) > 1) {
        ls__buffer_drop(t, out->memory);
        out->memory = NULL;
    }
    for (int i = 0; i < LS__NODE_PARAMS; i++) {
        ls_param *p = n->param[i];
        if (!p || --p->pending || !p->grad) continue;
        ls_status status = call_ready(t, p);
        if (status) return status;
    }
    return LS_OK;
}

ls_status ls__tape_run_back(ls_tape *t)
{
    while (t->last) {
        ls__node *n = t->last;
        ls_status status = node_backward(t, n);
        if (status) return status;
        t->last = n->before;
    }
    return LS_OK;
}

ls_status ls_tape_backward(ls_tape *t, ls_tensor *loss)
{
    LS__NEED(t, "tape");
    LS__FLUSH_DENORMALS();
    ls_status status = ls_tape_status(t);
    if (status) return status;
    char text[LS__SHAPE_TEXT];
    if (!t->open || t->pass.mode == LS_PASS_EVAL)
        return ls__fail(LS_ESTATE, "backward: %s",
                        t->open ? "this is an eval pass, which records nothing"
                                : "no pass is open; call it once per pass");
    if (!loss) return ls__fail(LS_EINVAL, "backward: the loss is NULL");
    if (ls_tensor_count(loss) != 1)
        return ls__fail(LS_EINVAL, "backward: the loss must have one element, but its shape is %s",
                        ls__shape_text(text, loss->dims, loss->shape));
    take_over(t);
    t->open = false;
    drop_aliased(t);
    t->root = loss;
    bool add;
    float *seed = ls__grad(t, loss, &add);
    if (t->status) return ls_tape_status(t);
    if (seed) *seed = 1;
    status = ls__tape_run_back(t);
    if (status) {
        ls__tape_fail(t, status);
        return status;
    }
    for (int i = 0; i < t->n_params; i++) {
        ls_param *p = &t->params[i];
        if (p->ready || !p->grad) continue;
        status = call_ready(t, p);
        if (status) return status;
    }
    return LS_OK;
}
