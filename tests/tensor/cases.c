/* One case per operation and form. tests/tensor/make_goldens.py has the same list, by name. */
#include "harness.h"

static ls_tensor *linear(ls_tape *t, ls_param *p)
{
    return ls_linear(t, ls_tape_param(t, &p[0]), &p[1], &p[2], NULL);
}
static ls_tensor *linear_plain(ls_tape *t, ls_param *p)
{
    return ls_linear(t, ls_tape_param(t, &p[0]), &p[1], NULL, NULL);
}
static ls_tensor *linear_out_in(ls_tape *t, ls_param *p)
{
    return ls_linear(t, ls_tape_param(t, &p[0]), &p[1], &p[2], &(ls_linear_options){ .transposed = true });
}
static ls_tensor *linear_gelu(ls_tape *t, ls_param *p)
{
    return ls_linear(t, ls_tape_param(t, &p[0]), &p[1], &p[2], &(ls_linear_options){ .activation = LS_GELU_TANH });
}
static ls_tensor *linear_all(ls_tape *t, ls_param *p)
{
    ls_linear_options o = { .activation = LS_SILU, .add = ls_tape_param(t, &p[3]) };
    return ls_linear(t, ls_tape_param(t, &p[0]), &p[1], &p[2], &o);
}
static ls_tensor *linear_of_gelu(ls_tape *t, ls_param *p)
{
    return ls_linear(t, ls_tape_param(t, &p[0]), &p[1], &p[2],
                     &(ls_linear_options){ .input_activation = LS_GELU_TANH });
}
static ls_tensor *linear_of_silu_out_in(ls_tape *t, ls_param *p)
{
    return ls_linear(t, ls_tape_param(t, &p[0]), &p[1], NULL,
                     &(ls_linear_options){ .transposed = true, .input_activation = LS_SILU });
}
static ls_tensor *linear_of_gelu_times_input(ls_tape *t, ls_param *p)
{
    ls_tensor *x = ls_tape_param(t, &p[0]);
    return ls_mul(t, ls_linear(t, x, &p[1], &p[2], &(ls_linear_options){ .input_activation = LS_GELU_ERF }), x);
}

static const int32_t tokens[12] = { 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8 };
static ls_tensor *embedding(ls_tape *t, ls_param *p)
{
    return ls_embedding(t, tokens, 2, 6, &p[0], &p[1], (int64_t[]){ 2, 2 });
}
static ls_tensor *embedding_tokens_only(ls_tape *t, ls_param *p)
{
    return ls_embedding(t, tokens, 3, 4, &p[0], NULL, NULL);
}

static ls_tensor *layer_norm(ls_tape *t, ls_param *p)
{
    return ls_layer_norm(t, ls_tape_param(t, &p[0]), &p[1], &p[2], 1e-5f);
}
static ls_tensor *rms_norm(ls_tape *t, ls_param *p)
{
    return ls_rms_norm(t, ls_tape_param(t, &p[0]), &p[1], 1e-5f);
}

static ls_tensor *gelu_tanh(ls_tape *t, ls_param *p)
{
    return ls_activate(t, ls_tape_param(t, &p[0]), LS_GELU_TANH);
}
static ls_tensor *gelu_erf(ls_tape *t, ls_param *p)
{
    return ls_activate(t, ls_tape_param(t, &p[0]), LS_GELU_ERF);
}
static ls_tensor *silu(ls_tape *t, ls_param *p)
{
    return ls_activate(t, ls_tape_param(t, &p[0]), LS_SILU);
}
static ls_tensor *relu(ls_tape *t, ls_param *p)
{
    return ls_activate(t, ls_tape_param(t, &p[0]), LS_RELU);
}
static ls_tensor *hyperbolic(ls_tape *t, ls_param *p)
{
    return ls_activate(t, ls_tape_param(t, &p[0]), LS_TANH);
}
/* One row twice, and rows that are not selected; x has another gradient, too. */
static ls_tensor *select_rows(ls_tape *t, ls_param *p)
{
    ls_tensor *x = ls_tape_param(t, &p[0]), *y = ls_select_rows(t, x, (int64_t[]){ 5, 1, 5, 0, 2, 3 }, 6);
    return ls_add(t, y, ls_reshape(t, ls_activate(t, x, LS_SILU), 2, (int64_t[]){ 6, 5 }));
}
static ls_tensor *select_rows_alone(ls_tape *t, ls_param *p)
{
    return ls_select_rows(t, ls_tape_param(t, &p[0]), (int64_t[]){ 4, 0 }, 2);
}
static ls_tensor *add(ls_tape *t, ls_param *p)
{
    return ls_add(t, ls_tape_param(t, &p[0]), ls_tape_param(t, &p[1]));
}
static ls_tensor *mul(ls_tape *t, ls_param *p)
{
    return ls_mul(t, ls_tape_param(t, &p[0]), ls_tape_param(t, &p[1]));
}
/* x + x * x: both sides of a sum and of a product are one tensor, and their gradients are added. */
static ls_tensor *x_thrice(ls_tape *t, ls_param *p)
{
    ls_tensor *x = ls_tape_param(t, &p[0]);
    return ls_add(t, x, ls_mul(t, x, x));
}
/* The gradient of a sum is shared by its sides; here one of them is changed while the other still reads it. */
static ls_tensor *shared_gradient(ls_tape *t, ls_param *p)
{
    ls_tensor *x = ls_tape_param(t, &p[0]);
    ls_tensor *f = ls_scale(t, x, 0.5f), *g = ls_activate(t, x, LS_SILU);
    return ls_add(t, ls_add(t, x, f), ls_reshape(t, g, 2, (int64_t[]){ 3, 20 }));
}
static ls_tensor *scale(ls_tape *t, ls_param *p)
{
    return ls_scale(t, ls_tape_param(t, &p[0]), -1.7f);
}
static ls_tensor *mean(ls_tape *t, ls_param *p)
{
    return ls_mean(t, ls_tape_param(t, &p[0]));
}
static ls_tensor *sum(ls_tape *t, ls_param *p)
{
    return ls_sum(t, ls_tape_param(t, &p[0]));
}

static ls_tensor *attention(ls_tape *t, ls_param *p)
{
    return ls_attention(t, ls_tape_param(t, &p[0]), &(ls_attention_options){ .heads = 2 });
}
static ls_tensor *attention_full(ls_tape *t, ls_param *p)
{
    return ls_attention(t, ls_tape_param(t, &p[0]), &(ls_attention_options){ .heads = 3, .full = true });
}

static ls_tensor *attention_lengths(ls_tape *t, ls_param *p)
{
    return ls_attention(t, ls_tape_param(t, &p[0]),
                        &(ls_attention_options){ .heads = 3, .full = true, .lengths = (int32_t[]){ 90, 35, 1 } });
}

static ls_tensor *attention_grouped(ls_tape *t, ls_param *p)
{
    return ls_attention(t, ls_tape_param(t, &p[0]), &(ls_attention_options){ .heads = 4, .kv_heads = 2 });
}
static ls_tensor *attention_window(ls_tape *t, ls_param *p)
{
    return ls_attention(t, ls_tape_param(t, &p[0]), &(ls_attention_options){ .heads = 3, .kv_heads = 1, .window = 25 });
}
static ls_tensor *attention_window_alone(ls_tape *t, ls_param *p)
{
    return ls_attention(t, ls_tape_param(t, &p[0]), &(ls_attention_options){ .heads = 2, .window = 5 });
}
static ls_tensor *swiglu(ls_tape *t, ls_param *p)
{
    return ls_swiglu(t, ls_tape_param(t, &p[0]));
}
static ls_tensor *linear_joint(ls_tape *t, ls_param *p)
{
    return ls_linear_joint(t, ls_tape_param(t, &p[0]), (ls_param *[]){ &p[1], &p[2], &p[3] }, NULL, 3);
}
static ls_tensor *linear_joint_bias(ls_tape *t, ls_param *p)
{
    return ls_linear_joint(t, ls_tape_param(t, &p[0]), (ls_param *[]){ &p[1] }, (ls_param *[]){ &p[2] }, 1);
}
/* The same weight twice: its gradient has two contributions. */
static ls_tensor *linear_joint_shared(ls_tape *t, ls_param *p)
{
    return ls_linear_joint(t, ls_tape_param(t, &p[0]), (ls_param *[]){ &p[1], &p[1] }, NULL, 2);
}
static ls_tensor *rotary(ls_tape *t, ls_param *p)
{
    ls_rope rope = { .theta = 100 };
    ls_tensor *table = ls_rotary_table(t, &rope, 6, (int64_t[]){ 3 }, 1, 5);
    return ls_rotary(t, ls_tape_param(t, &p[0]), table, 2);
}
static ls_tensor *rotary_llama3(ls_tape *t, ls_param *p)
{
    ls_rope rope = { .kind = LS_ROPE_LLAMA3,
                     .theta = 100,
                     .factor = 8,
                     .low_freq_factor = 1,
                     .high_freq_factor = 4,
                     .original_context = 32 };
    ls_tensor *table = ls_rotary_table(t, &rope, 12, (int64_t[]){ 3, 0 }, 2, 5);
    return ls_rotary(t, ls_linear_joint(t, ls_tape_param(t, &p[0]), (ls_param *[]){ &p[1] }, NULL, 1), table, 1);
}
static ls_tensor *head_norm(ls_tape *t, ls_param *p)
{
    return ls_head_norm(t, ls_tape_param(t, &p[0]), &p[1], &p[2], 3, 1, 1e-5f);
}
static ls_tensor *norm_then_gelu(void *user, ls_tape *t, ls_tensor *x)
{
    ls_param *p = *(ls_param **)user;
    return ls_linear(t, ls_rms_norm(t, x, &p[1], 1e-5f), &p[2], NULL,
                     &(ls_linear_options){ .activation = LS_GELU_ERF, .add = x });
}
static ls_tensor *block(ls_tape *t, ls_param *p)
{
    ls_tensor *x = ls_scale(t, ls_tape_param(t, &p[0]), 1);
    return ls_mul(t, x, ls_recompute_block(t, x, norm_then_gelu, &p, sizeof p, &p[1], 2));
}

static const int32_t targets[6] = { 4, 0, 6, 2, 2, 5 };
static const float weights[6] = { 1, 0.5f, 0, 2, 1, 1 };
static ls_tensor *cross_entropy(ls_tape *t, ls_param *p)
{
    return ls_cross_entropy(t, ls_tape_param(t, &p[0]), &(ls_cross_entropy_options){ .targets = targets });
}
static ls_tensor *cross_entropy_weighted(ls_tape *t, ls_param *p)
{
    ls_cross_entropy_options o = { .targets = targets, .weights = weights, .divisor = 7.5 };
    return ls_cross_entropy(t, ls_tape_param(t, &p[0]), &o);
}

static ls_tensor *class_token(ls_tape *t, ls_param *p)
{
    return ls_class_token(t, ls_tape_param(t, &p[0]), &p[1], &p[2]);
}
static ls_tensor *conv2d(ls_tape *t, ls_param *p)
{
    return ls_conv2d(t, ls_tape_param(t, &p[0]), &p[1], &p[2], &(ls_conv2d_options){ .padding = 1 });
}
static ls_tensor *conv2d_stride(ls_tape *t, ls_param *p)
{
    return ls_conv2d(t, ls_tape_param(t, &p[0]), &p[1], NULL, &(ls_conv2d_options){ .stride = 2, .padding = 1 });
}
static ls_tensor *conv2d_wide(ls_tape *t, ls_param *p)
{
    return ls_conv2d(t, ls_tape_param(t, &p[0]), &p[1], NULL, &(ls_conv2d_options){ .stride = 2, .padding = 3 });
}
static ls_tensor *conv2d_pointwise(ls_tape *t, ls_param *p)
{
    return ls_conv2d(t, ls_tape_param(t, &p[0]), &p[1], &p[2], NULL);
}
static ls_tensor *conv2d_pointwise_stride(ls_tape *t, ls_param *p)
{
    return ls_conv2d(t, ls_tape_param(t, &p[0]), &p[1], NULL, &(ls_conv2d_options){ .stride = 2 });
}
/* Statistics in an eval pass are the batch's own, so that both kinds of pass compute the same function. */
static ls_tensor *batch_norm_with(ls_tape *t, ls_param *p, const ls_batch_norm_options *options)
{
    float mean[3], var[3];
    ls_batch_norm_state s = { .mean = mean, .var = var };
    ls_tensor *x = ls_tape_param(t, &p[0]);
    for (int c = 0; c < 3; c++) {
        double sum = 0, squares = 0;
        for (int i = 0; i < 60; i++) sum += x->data[3 * i + c];
        for (int i = 0; i < 60; i++) squares += pow(x->data[3 * i + c] - sum / 60, 2);
        mean[c] = (float)(sum / 60), var[c] = (float)(squares / 60);
    }
    return ls_batch_norm(t, x, &p[1], &p[2], &s, options);
}
static ls_tensor *batch_norm(ls_tape *t, ls_param *p)
{
    return batch_norm_with(t, p, NULL);
}
static ls_tensor *batch_norm_relu(ls_tape *t, ls_param *p)
{
    return batch_norm_with(t, p, &(ls_batch_norm_options){ .relu = true });
}
/* The residual is used twice, and so is the gradient that it shares. */
static ls_tensor *batch_norm_block(ls_tape *t, ls_param *p)
{
    ls_tensor *x = ls_tape_param(t, &p[3]);
    return ls_mul(t, batch_norm_with(t, p, &(ls_batch_norm_options){ .add = x, .relu = true }), x);
}
static ls_tensor *max_pool2d(ls_tape *t, ls_param *p)
{
    return ls_max_pool2d(t, ls_tape_param(t, &p[0]), NULL);
}
static ls_tensor *max_pool2d_overlapping(ls_tape *t, ls_param *p)
{
    return ls_max_pool2d(t, ls_tape_param(t, &p[0]), &(ls_pool2d_options){ .size = 3, .stride = 2 });
}
static ls_tensor *max_pool2d_padded(ls_tape *t, ls_param *p)
{
    return ls_max_pool2d(t, ls_tape_param(t, &p[0]), &(ls_pool2d_options){ .size = 3, .stride = 2, .padding = 1 });
}
static ls_tensor *avg_pool2d(ls_tape *t, ls_param *p)
{
    return ls_avg_pool2d(t, ls_tape_param(t, &p[0]), &(ls_pool2d_options){ .size = 3, .stride = 2, .padding = 1 });
}
static ls_tensor *global_avg_pool2d(ls_tape *t, ls_param *p)
{
    return ls_global_avg_pool2d(t, ls_tape_param(t, &p[0]));
}

const op_case op_cases[] = {
    { "linear", { { { 2, 3, 5 }, 1, 0 }, { { 5, 7 }, 1, 0 }, { { 7 }, 1, 0 } }, linear, false },
    { "linear_plain", { { { 6, 5 }, 1, 0 }, { { 5, 7 }, 1, 0 } }, linear_plain, false },
    { "linear_out_in", { { { 6, 5 }, 1, 0 }, { { 7, 5 }, 1, 0 }, { { 7 }, 1, 0 } }, linear_out_in, false },
    { "linear_gelu", { { { 6, 5 }, 1, 0 }, { { 5, 40 }, 1, 0 }, { { 40 }, 1, 0 } }, linear_gelu, false },
    { "linear_all",
      { { { 6, 5 }, 1, 0 }, { { 5, 7 }, 1, 0 }, { { 7 }, 1, 0 }, { { 6, 7 }, 1, 0 } },
      linear_all,
      false },
    { "linear_of_gelu", { { { 6, 5 }, 3, 0 }, { { 5, 7 }, 1, 0 }, { { 7 }, 1, 0 } }, linear_of_gelu, false },
    { "linear_of_silu_out_in", { { { 6, 5 }, 3, 0 }, { { 7, 5 }, 1, 0 } }, linear_of_silu_out_in, false },
    { "linear_of_gelu_times_input",
      { { { 31, 5 }, 3, 0 }, { { 5, 5 }, 1, 0 }, { { 5 }, 1, 0 } },
      linear_of_gelu_times_input,
      false },
    { "embedding", { { { 10, 5 }, 1, 0 }, { { 9, 5 }, 1, 0 } }, embedding, false },
    { "embedding_tokens_only", { { { 10, 5 }, 1, 0 } }, embedding_tokens_only, false },
    { "layer_norm", { { { 70, 37 }, 2, 0.5f }, { { 37 }, 1, 1 }, { { 37 }, 1, 0 } }, layer_norm, false },
    { "rms_norm", { { { 70, 37 }, 2, 0.5f }, { { 37 }, 1, 1 } }, rms_norm, false },
    { "gelu_tanh", { { { 3, 50 }, 5, 0 } }, gelu_tanh, false },
    { "gelu_erf", { { { 3, 50 }, 5, 0 } }, gelu_erf, false },
    { "silu", { { { 3, 50 }, 5, 0 } }, silu, false },
    { "relu", { { { 3, 50 }, 5, 0 } }, relu, true },
    { "tanh", { { { 3, 50 }, 5, 0 } }, hyperbolic, false },
    { "select_rows", { { { 2, 3, 5 }, 1, 0 } }, select_rows, false },
    { "select_rows_alone", { { { 2, 3, 5 }, 1, 0 } }, select_rows_alone, false },
    { "add", { { { 3, 20 }, 1, 0 }, { { 3, 20 }, 1, 0 } }, add, false },
    { "mul", { { { 3, 20 }, 1, 0 }, { { 3, 20 }, 1, 0 } }, mul, false },
    { "x_thrice", { { { 3, 20 }, 1, 0 } }, x_thrice, false },
    { "shared_gradient", { { { 3, 20 }, 1, 0 } }, shared_gradient, false },
    { "scale", { { { 3, 20 }, 1, 0 } }, scale, false },
    { "mean", { { { 3, 20 }, 1, 0 } }, mean, false },
    { "sum", { { { 3, 20 }, 1, 0 } }, sum, false },
    { "attention", { { { 2, 70, 24 }, 2, 0 } }, attention, false },
    { "attention_full", { { { 2, 9, 27 }, 2, 0 } }, attention_full, false },
    { "attention_lengths", { { { 3, 90, 27 }, 2, 0 } }, attention_lengths, false },
    { "attention_grouped", { { { 2, 75, 16 }, 2, 0 } }, attention_grouped, false },
    { "attention_window", { { { 2, 90, 20 }, 2, 0 } }, attention_window, false },
    { "attention_window_alone", { { { 1, 83, 18 }, 2, 0 } }, attention_window_alone, false },
    { "swiglu", { { { 3, 50 }, 5, 0 } }, swiglu, false },
    { "linear_joint",
      { { { 2, 3, 5 }, 1, 0 }, { { 4, 5 }, 1, 0 }, { { 2, 5 }, 1, 0 }, { { 3, 5 }, 1, 0 } },
      linear_joint,
      false },
    { "linear_joint_bias", { { { 70, 5 }, 1, 0 }, { { 4, 5 }, 1, 0 }, { { 4 }, 1, 0 } }, linear_joint_bias, false },
    { "linear_joint_shared", { { { 6, 5 }, 1, 0 }, { { 4, 5 }, 1, 0 } }, linear_joint_shared, false },
    { "rotary", { { { 2, 5, 14 }, 1, 0 } }, rotary, false },
    { "rotary_llama3", { { { 2, 5, 4 }, 1, 0 }, { { 13, 4 }, 1, 0 } }, rotary_llama3, false },
    { "head_norm", { { { 70, 33 }, 2, 0.5f }, { { 7 }, 1, 1 }, { { 7 }, 1, 1 } }, head_norm, false },
    { "block", { { { 6, 5 }, 1, 0 }, { { 5 }, 1, 1 }, { { 5, 5 }, 1, 0 } }, block, false },
    { "cross_entropy", { { { 6, 7 }, 3, 0 } }, cross_entropy, false },
    { "cross_entropy_weighted", { { { 6, 7 }, 3, 0 } }, cross_entropy_weighted, false },
    { "conv2d", { { { 3, 5, 6, 2 }, 1, 0 }, { { 4, 2, 3, 3 }, 1, 0 }, { { 4 }, 1, 0 } }, conv2d, false },
    { "conv2d_stride", { { { 11, 6, 7, 2 }, 1, 0 }, { { 3, 2, 3, 2 }, 1, 0 } }, conv2d_stride, false },
    { "conv2d_wide", { { { 2, 9, 8, 3 }, 1, 0 }, { { 35, 3, 7, 7 }, 1, 0 } }, conv2d_wide, false },
    { "conv2d_winograd",
      { { { 2, 5, 7, 32 }, 1, 0 }, { { 48, 32, 3, 3 }, 0.3f, 0 }, { { 48 }, 1, 0 } },
      conv2d,
      false },
    { "conv2d_pointwise",
      { { { 2, 4, 5, 3 }, 1, 0 }, { { 4, 3, 1, 1 }, 1, 0 }, { { 4 }, 1, 0 } },
      conv2d_pointwise,
      false },
    { "conv2d_pointwise_stride",
      { { { 2, 5, 4, 3 }, 1, 0 }, { { 4, 3, 1, 1 }, 1, 0 } },
      conv2d_pointwise_stride,
      false },
    { "batch_norm", { { { 3, 4, 5, 3 }, 2, 0.5f }, { { 3 }, 1, 1 }, { { 3 }, 1, 0 } }, batch_norm, false },
    { "batch_norm_relu", { { { 3, 4, 5, 3 }, 2, 0.5f }, { { 3 }, 1, 1 }, { { 3 }, 1, 0 } }, batch_norm_relu, true },
    { "batch_norm_block",
      { { { 3, 4, 5, 3 }, 2, 0.5f }, { { 3 }, 1, 1 }, { { 3 }, 1, 0 }, { { 3, 4, 5, 3 }, 2, 0.5f } },
      batch_norm_block,
      true },
    { "max_pool2d", { { { 2, 6, 4, 2 }, 10, 0 } }, max_pool2d, true },
    { "max_pool2d_overlapping", { { { 2, 7, 5, 2 }, 10, 0 } }, max_pool2d_overlapping, true },
    { "max_pool2d_padded", { { { 2, 6, 5, 2 }, 10, 0 } }, max_pool2d_padded, true },
    { "avg_pool2d", { { { 2, 7, 6, 2 }, 1, 0 } }, avg_pool2d, false },
    { "global_avg_pool2d", { { { 3, 4, 5, 2 }, 1, 0 } }, global_avg_pool2d, false },
    { "class_token", { { { 3, 2, 2, 5 }, 1, 0 }, { { 1, 1, 5 }, 1, 0 }, { { 1, 5, 5 }, 1, 0 } }, class_token, false },
};
const int n_op_cases = sizeof op_cases / sizeof *op_cases;
