/* Blocks whose activations are recomputed: forward keeps only a block's input and result. Backward runs the block's forward once more,
 * recorded this time, and then its backward, so one block's activations are in memory at a time.
 *
 * The second run has the same random streams, so dropout has the same masks, and every operation gives the same bits again. It may not
 * use aliased memory, which backward is about to overwrite. In an eval pass the activations are dropped and nothing is recorded.
 *
 * A block's parameters count it as one use until its operations are recorded, which then count themselves. */
#include "tensor/tape.h"

#include <string.h>

typedef struct block {
    ls_block_fn fn;
    void *user;
    ls_param *params;
    int n_params;
    uint64_t streams; /* of the pass, when the block began */
} block;

/* Drops all buffers that the block took, except `keep`. */
static void drop_taken(ls_tape *t, const ls__buffer *keep)
{
    for (ls__buffer *b = t->taken; b; b = b->taken_before) {
        b->listed = false;
        if (b == keep || !b->refs) continue;
        b->refs = 1;
        ls__buffer_drop(t, b);
    }
    t->taken = NULL;
}

static ls_status block_back(ls_tape *t, ls__node *n)
{
    const block *s = n->state;
    ls_tensor *x = n->in[0];
    ls__node *last = t->last;
    uint64_t streams = t->streams;
    /* The block reads x as a result without a maker, so that its backward ends there. */
    ls_tensor input = *x;
    input.maker = NULL;
    input.grad = NULL;
    t->last = NULL;
    t->streams = s->streams;
    t->replaying = true;
    ls_tensor *y = s->fn(s->user, t, &input);
    t->replaying = false;
    t->streams = streams;
    if (!y) return t->status;
    ls_status status = ls__grad_share(t, y, n->out->grad);
    for (int i = 0; i < s->n_params; i++) s->params[i].pending--;
    if (!status) status = ls__tape_run_back(t);
    t->last = last;
    if (!status && input.grad) {
        status = ls__grad_share(t, x, input.grad);
        ls__buffer_drop(t, input.grad);
    }
    return status;
}
static const ls__operation op_block = { "block", block_back };

/* Whether backward will come through here. */
static bool is_needed(const ls_tape *t, const ls_tensor *x, const ls_param *params, int n_params)
{
    bool needed = x->needs_grad;
    for (int i = 0; i < n_params; i++) needed = needed || ls__wants_grad(&params[i]);
    return needed && t->pass.mode != LS_PASS_EVAL;
}

ls_tensor *ls_recompute_block(ls_tape *t, ls_tensor *x, ls_block_fn fn, const void *user, size_t user_bytes,
                              ls_param *params, int n_params)
{
    LS__FLUSH_DENORMALS();
    if (!ls__operation_begin(t, x, x)) return NULL;
    if (!fn || (user_bytes && !user) || n_params < 0 || (n_params && !params))
        return ls__tape_fail(t, ls__fail(LS_EINVAL,
                                         "recompute_block: a function, its user and its parameters are needed"));
    for (int i = 0; i < n_params; i++)
        if (!ls__param_given(t, "recompute_block", &params[i])) return NULL;
    block s = { .fn = fn, .params = params, .n_params = n_params, .streams = t->streams };
    s.user = user_bytes ? ls__tape_array(t, 1, user_bytes) : NULL;
    if (t->status) return NULL;
    if (user_bytes) memcpy(s.user, user, user_bytes);
    if (t->replaying || t->discarding) return fn(s.user, t, x); /* inside of another block */
    bool needed = is_needed(t, x, params, n_params);
    t->discarding = true;
    ls_tensor *made = fn(s.user, t, x);
    t->discarding = false;
    if (!made || t->status) return NULL;
    if (made == x || made->maker || !made->memory)
        return ls__tape_fail(t, ls__fail(LS_EINVAL, "recompute_block: the function must return a result of its own"));
    drop_taken(t, made->memory);
    made->memory->refs = 1;
    if (!needed) return made;
    for (int i = 0; i < n_params; i++) {
        if (!ls__alias_check(t, "recompute_block", &params[i])) return NULL;
        if (t->used && params[i].dims >= 2) t->used(t->used_user, &params[i]);
        params[i].pending++;
    }
    return ls__tape_record(t, made,
                           &(ls__tape_record_args){
                               .op = &op_block, .in = { x }, .state = &s, .state_bytes = sizeof s, .block = true });
}
