/* The training loop: it learns, repeats bit for bit with any number of threads, takes nothing from the heap in a steady
 * step, and stops without harm when a number is not finite. */
#include "check.h"
#include "base/file.h"
#include "folder.h"
#include "lockstep/measure.h"
#include "lockstep/train.h"
#include <math.h>
#include <stdatomic.h>
#include <sys/stat.h>

/* ---- Counting allocations: ours come before the C library's. Sanitizers have their own and are left alone. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTING 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTING 0
#endif
#endif
#ifndef COUNTING
#define COUNTING 1
#endif

static _Atomic long allocations;
#if COUNTING
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *malloc(size_t n)
{
    allocations++;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size)
{
    allocations++;
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n)
{
    allocations++;
    return __libc_realloc(p, n);
}
#endif

static ls_train_options tiny(int threads)
{
    return (ls_train_options){ .model = { .layers = 2, .width = 32, .heads = 2 },
                               .batch_size = 4,
                               .seq_len = 32,
                               .steps = 20,
                               .threads = threads,
                               .workers = -1 };
}

static double run(ls_train *t, ls_train_metrics *first)
{
    ls_train_metrics m;
    ls_status status;
    double loss = -1;
    while ((status = ls_train_step(t, &m)) == LS_OK) {
        if (m.step == 1 && first) *first = m;
        loss = m.loss;
    }
    if (status != LS_END) fail_msg("step: %s", ls_error());
    return loss;
}

/* Trains and returns the model's values; the caller frees them. */
static float *weights_after(const ls_train_options *o, size_t *count, double *loss)
{
    ls_train *t;
    check_ok(ls_train_open(&t, o));
    *loss = run(t, NULL);
    *count = ls_model_elements(ls_train_model(t));
    float *copy = malloc(*count * sizeof *copy);
    memcpy(copy, ls_model_values(ls_train_model(t)), *count * sizeof *copy);
    ls_train_free(&t);
    return copy;
}

static void weights_are_the_same_with_any_number_of_threads_and_workers(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        ls_train_options o = tiny(1);
        if (kind) { /* everything that draws numbers or adds in a tree */
            o.model.dropout = 0.1f;
            o.slots = 3;
            o.batch_size = 2;
        }
        size_t n, m;
        double loss, again;
        float *one = weights_after(&o, &n, &loss);
        float *repeated = weights_after(&o, &m, &again);
        assert_memory_equal(one, repeated, n * sizeof(float));
        o.threads = 2;
        o.workers = 2;
        float *two = weights_after(&o, &m, &again);
        assert_memory_equal(one, two, n * sizeof(float));
        assert_true(loss == again);
        o.seed = 1;
        float *other = weights_after(&o, &m, &again);
        assert_memory_not_equal(one, other, n * sizeof(float));
        free(one), free(repeated), free(two), free(other);
    }
}

static void the_loss_falls(void **state)
{
    (void)state;
    ls_train *t;
    ls_train_metrics first;
    ls_train_options o = tiny(1);
    o.steps = 60;
    o.schedule.lr = 3e-3f;
    check_ok(ls_train_open(&t, &o));
    double last = run(t, &first);
    if (!(first.loss > 5.3 && first.loss < 5.8 && last < 3.2)) fail_msg("loss fell from %g to %g", first.loss, last);
    ls_train_free(&t);
}

static void slots_are_one_large_batch(void **state)
{
    (void)state;
    /* The same samples, in one micro-batch or in four: the same step but for rounding. */
    double loss[2];
    size_t n;
    float *w[2];
    for (int i = 0; i < 2; i++) {
        ls_train_options o = tiny(1);
        o.steps = 3;
        o.batch_size = i ? 2 : 8;
        o.slots = i ? 4 : 1;
        w[i] = weights_after(&o, &n, &loss[i]);
    }
    if (fabs(loss[0] - loss[1]) > 1e-5) fail_msg("loss %.9g and %.9g", loss[0], loss[1]);
    for (size_t k = 0; k < n; k++)
        if (fabsf(w[0][k] - w[1][k]) > 1e-4f) fail_msg("weight %zu: %g and %g", k, (double)w[0][k], (double)w[1][k]);
    free(w[0]), free(w[1]);
}

/* Documents of different lengths as JSON lines, each with a weight; from number 8 on it is 0. */
static void write_documents(const char *path, int count)
{
    char text[4000];
    size_t n = 0;
    for (int i = 0; i < count; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "{\"text\": \"%.*s\", \"prompt\": \"%.*s\", \"weight\": %g}\n",
                              3 + i * 7 % 31, "the quick brown fox jumps over the lazy dog", i % 4, "ask me",
                              i < 8 ? 0.5 * (i % 3 + 1) : 0);
    check_ok(ls__file_write(path, text, n));
}

static ls_train_options padded(const char *const *path)
{
    ls_train_options o = tiny(1);
    o.data = path;
    o.n_data = 1;
    o.pad = true;
    o.order = LS_ORDER_SEQUENTIAL;
    o.prompt_field = "prompt";
    o.weight_field = "weight";
    o.steps = 1;
    o.clip = -1;
    o.optimizer = (ls_optimizer_options){ .kind = LS_SGD, .momentum = -1 };
    o.schedule = (ls_schedule){ .lr = 1 };
    return o;
}

static void the_mean_is_over_the_tokens_that_count(void **state)
{
    (void)state;
    const char *some = "some.jsonl", *more = "more.jsonl";
    write_documents(some, 8);
    write_documents(more, 16);
    /* One micro-batch; four, of different weight; eight more documents that count nothing: the same step. */
    double loss[3];
    size_t n;
    float *w[3];
    for (int i = 0; i < 3; i++) {
        ls_train_options o = padded(i == 2 ? &more : &some);
        o.batch_size = i == 0 ? 8 : 2;
        o.slots = i == 0 ? 1 : i == 1 ? 4 : 8;
        w[i] = weights_after(&o, &n, &loss[i]);
    }
    for (int i = 1; i < 3; i++) {
        if (fabs(loss[0] - loss[i]) > 1e-5) fail_msg("loss %.9g and %.9g", loss[0], loss[i]);
        for (size_t k = 0; k < n; k++)
            if (fabsf(w[0][k] - w[i][k]) > 2e-6f)
                fail_msg("weight %zu: %.9g and %.9g", k, (double)w[0][k], (double)w[i][k]);
    }
    /* An evaluation divides each batch by its own weight; over all documents it is the same mean. */
    ls_train *t;
    double all;
    ls_train_options o = padded(&some);
    o.batch_size = 4;
    o.slots = 2;
    o.val_data = &some;
    o.n_val_data = 1;
    check_ok(ls_train_open(&t, &o));
    check_ok(ls_train_eval(t, &all));
    if (fabs(all - loss[0]) > 1e-5) fail_msg("the documents' loss is %.9g, the step's %.9g", all, loss[0]);
    ls_train_free(&t);
    free(w[0]), free(w[1]), free(w[2]);
}

static void a_short_last_step_counts_its_own_tokens(void **state)
{
    (void)state;
    const char *some = "seven.jsonl";
    write_documents(some, 7);
    /* Seven documents, four per step: the second step has three, in slots of 0, 1 or 2 of them. */
    double loss[2];
    size_t n;
    float *w[2];
    for (int i = 0; i < 2; i++) {
        ls_train_options o = padded(&some);
        o.last = LS_LAST_KEEP;
        o.steps = 2;
        o.batch_size = i ? 1 : 4;
        o.slots = i ? 4 : 1;
        w[i] = weights_after(&o, &n, &loss[i]);
    }
    if (fabs(loss[0] - loss[1]) > 1e-5) fail_msg("loss %.9g and %.9g", loss[0], loss[1]);
    for (size_t k = 0; k < n; k++)
        if (fabsf(w[0][k] - w[1][k]) > 1e-5f) fail_msg("weight %zu: %g and %g", k, (double)w[0][k], (double)w[1][k]);
    free(w[0]), free(w[1]);
}

static void a_steady_step_takes_nothing_from_the_heap(void **state)
{
    (void)state;
    if (!COUNTING) skip();
    ls_train *t;
    ls_train_metrics m;
    ls_train_options o = tiny(2);
    o.slots = 2;
    o.run_dir = "steady";
    check_ok(ls_train_open(&t, &o));
    for (int i = 0; i < 3; i++) check_ok(ls_train_step(t, &m));
    long before = allocations;
    for (int i = 0; i < 5; i++) check_ok(ls_train_step(t, &m));
    assert_int_equal(allocations - before, 0);
    ls_train_free(&t);
}

/* How often `word` occurs in a file. */
static int count_in_file(const char *path, const char *word)
{
    char *text;
    size_t bytes;
    int n = 0;
    check_ok(ls__file_read(path, 1 << 20, &text, &bytes));
    for (char *p = text; (p = strstr(p, word)); p++) n++;
    free(text);
    return n;
}

static void the_run_folder_tells_everything(void **state)
{
    (void)state;
    ls_train *t;
    ls_train_options o = tiny(1);
    o.run_dir = "runs/one";
    o.eval_every = 10;
    o.eval_batches = 2;
    check_ok(ls_train_open(&t, &o));
    run(t, NULL);
    check_ok(ls_train_save(t));
    static const char *const keys[] = {
        "\n", "\"step\":", "\"loss\":", "\"lr\":", "\"grad_norm\":", "\"tokens_per_s\":", "\"step_ms\":"
    };
    for (int i = 0; i < 7; i++) assert_int_equal(count_in_file("runs/one/metrics.jsonl", keys[i]), 20);
    assert_int_equal(count_in_file("runs/one/metrics.jsonl", "\"eval_loss\":"), 2);
    assert_int_equal(count_in_file("runs/one/run.json", "\"vocab-size\": 257"), 1);
    /* The folder is a model: another training starts from it, and at its loss. */
    double loss, again;
    check_ok(ls_train_eval(t, &loss));
    ls_train_options more = {
        .init = "runs/one", .batch_size = 4, .seq_len = 32, .steps = 1, .eval_every = 1, .threads = 1
    };
    more.eval_batches = 2;
    ls_train *u;
    check_ok(ls_train_open(&u, &more));
    check_ok(ls_train_eval(u, &again));
    assert_true(loss == again);
    size_t n = ls_model_elements(ls_train_model(t));
    assert_memory_equal(ls_model_values(ls_train_model(t)), ls_model_values(ls_train_model(u)), n * sizeof(float));
    ls_train_free(&u);
    check_fails(ls_train_open(&u, &o), LS_EINVAL, "runs/one: another run is in progress in this folder");
    ls_train_free(&t);
    check_fails(ls_train_open(&u, &o), LS_EINVAL, "runs/one: holds a run already");
}

/* Of the first slot of the first step, and no other: forward and backward of 2 blocks, and the vocabulary, whose products are in
 * forward. */
static void the_record_has_the_cost_of_each_segment(void **state)
{
    ls_train_options o = tiny(1);
    const double B = 4, T = 32, C = 32, V = 257, L = 2;
    double blocks = 2 * B * T * 12 * C * C * L, attention = 4 * B * T * T / 2 * C * L, head = 2 * B * T * C * V;
    double flops[2] = { 0 }, bytes[2] = { 0 };
    int segments[2] = { 0 }, ends[2] = { 0 };
    ls_train *t;
    ls_run *r;
    (void)state;
    o.slots = 3;
    o.steps = 5;
    o.run_dir = "costs";
    check_ok(ls_train_open(&t, &o));
    run(t, NULL);
    ls_train_free(&t);
    check_ok(ls_run_open(&r, "costs", NULL));
    for (size_t i = 0; i < r->rank[0].n_events; i++) {
        const ls_event *e = &r->rank[0].events[i];
        if (e->kind != LS_EVENT_SEGMENT) continue;
        float f, b;
        memcpy(&f, &(uint32_t){ (uint32_t)(e->b >> 32) }, 4);
        memcpy(&b, &(uint32_t){ (uint32_t)e->b }, 4);
        flops[e->a & 1] += (double)f;
        bytes[e->a & 1] += (double)b;
        segments[e->a & 1]++;
        ends[e->a & 1] += e->a >> 1 == LS_SEGMENT_END;
    }
    ls_run_free(&r);
    assert_float_equal(flops[0] / (blocks + attention + 3 * head), 1, 1e-6);
    assert_float_equal(flops[1] / (2 * blocks + 2.5 * attention), 1, 1e-6);
    assert_true(bytes[0] > 4 * 12 * C * C * L && bytes[1] > 2 * 4 * 12 * C * C * L);
    assert_int_equal(segments[0], 4 * (int)L + 2 + 1); /* matrices of blocks, embeddings, the head; the end */
    assert_true(segments[1] > segments[0]);            /* biases and norms have gradients, too */
    assert_int_equal(ends[0], 1);
    assert_int_equal(ends[1], 1);
}

static void a_nan_stops_the_run_and_harms_nothing(void **state)
{
    (void)state;
    ls_train *t;
    ls_train_metrics m;
    ls_train_options o = tiny(1);
    o.run_dir = "nan";
    check_ok(ls_train_open(&t, &o));
    check_ok(ls_train_step(t, &m));
    check_ok(ls_train_save(t));
    struct stat before, after;
    stat("nan/model.safetensors", &before);
    const ls_place *places;
    ls_model_places(ls_train_model(t), &places);
    float *values = ls_model_values(ls_train_model(t));
    values[places[8].offset + 5] = NAN;
    size_t bytes = ls_model_elements(ls_train_model(t)) * sizeof(float);
    float *kept = malloc(bytes);
    memcpy(kept, values, bytes);
    check_fails(ls_train_step(t, &m), LS_ENOTFINITE, "step 2: the loss is nan");
    assert_non_null(strstr(ls_error(), "'h.0.ln_2.weight' (its value, element 5, is nan)"));
    assert_memory_equal(kept, values, bytes);
    check_fails(ls_train_step(t, &m), LS_ESTATE, "an earlier step failed");
    check_fails(ls_train_save(t), LS_ENOTFINITE, "1 weights are not finite; the model was not saved");
    stat("nan/model.safetensors", &after);
    assert_int_equal(before.st_ino, after.st_ino);
    free(kept);
    ls_train_free(&t);
}

#define check_refused(field, value, text)                    \
    do {                                                     \
        o = right;                                           \
        o.field = value;                                     \
        check_fails(ls_train_open(&t, &o), LS_EINVAL, text); \
    } while (0)

static void wrong_options_are_refused_before_anything_is_written(void **state)
{
    (void)state;
    ls_train *t;
    check_ok(ls__file_write("short.txt", "abcdefghij", 10));
    const char *data[] = { "short.txt" }, *absent[] = { "absent.txt" };
    ls_train_options o = tiny(1), right = o;
    right.run_dir = "never";
    o = right;
    o.data = data;
    o.n_data = 1;
    check_fails(ls_train_open(&t, &o), LS_EINVAL,
                "short.txt: byte 10: the data have only 11 tokens; a sequence length of 32 needs 33");
    o.seq_len = 2;
    o.slots = 2;
    check_fails(ls_train_open(&t, &o), LS_EINVAL, "the data has 5 sequences of 2 tokens to train on; a step needs 8");
    o.data = absent;
    check_fails(ls_train_open(&t, &o), LS_ENOENT, "absent.txt");
    o = right;
    o.model.context = 16;
    check_fails(ls_train_open(&t, &o), LS_EINVAL, "a sequence length of 32 tokens exceeds the model's context of 16");
    o = right;
    o.model.heads = 5;
    check_fails(ls_train_open(&t, &o), LS_EINVAL, "not divisible by 5 heads");
    o = right;
    o.schedule.lr = -1;
    check_fails(ls_train_open(&t, &o), LS_EINVAL, "lr=-1: must be above 0");
    check_refused(run_dir_mode, (ls_run_dir_mode)9, "run_dir_mode=9: not a value of ls_run_dir_mode");
    check_refused(update, (ls_update)9, "update=9: not a value of ls_update");
    check_refused(last, (ls_last)9, "last=9: not a value of ls_last");
    check_refused(augment, (ls_augment_kind)9, "augment=9: not a value of ls_augment_kind");
    check_refused(schedule.kind, (ls_schedule_kind)9, "schedule.kind=9: not a value of ls_schedule_kind");
    check_refused(model.head, (ls_lm_head)9, "gpt2: unknown head 9");
    check_refused(inject.ms, -5, "inject: ms=-5, every=0: must not be negative");
    check_refused(inject.phase, (ls_phase)99, "inject: phase=99: must be data, forward, backward or update");
    check_refused(threads, -1, "threads=-1: must not be negative");
    check_refused(keep, -1, "keep=-1: must not be negative");
    check_refused(metrics_every, -1, "metrics_every=-1: must not be negative");
    check_refused(bucket_mb, -1, "bucket_mb=-1: must not be negative");
    check_refused(eval_every, -1, "eval_every=-1: must not be negative");
    check_refused(clip, NAN, "clip=nan: must be a number");
    o = right;
    o.init = "nowhere";
    check_fails(ls_train_open(&t, &o), LS_ENOENT, "nowhere/config.json");
    o = right;
    o.order = LS_ORDER_BALANCED;
    check_fails(ls_train_open(&t, &o), LS_EINVAL, "packed sequences have equal lengths");
    o = right;
    o.torch_ranks = 2;
    check_fails(ls_train_open(&t, &o), LS_EINVAL, "torch_ranks is for the torch order only");
    o.order = LS_ORDER_TORCH;
    o.slots = 3;
    check_fails(ls_train_open(&t, &o), LS_EINVAL, "torch_ranks=2: 3 slots cannot be divided among 2 ranks");
    o = right;
    o.pad = true;
    check_fails(ls_train_open(&t, &o), LS_EINVAL, "pad, fields and formats need data files");
    o.data = data;
    o.n_data = 1;
    o.weight_field = "w";
    check_fails(ls_train_open(&t, &o), LS_EINVAL, "short.txt: is plain text by its name");
    o.pad = false;
    check_fails(ls_train_open(&t, &o), LS_EINVAL, "prompt_field and weight_field need pad");
    assert_null(t);
    assert_int_equal(access("never", F_OK), -1);
}

static void null_options_are_the_defaults(void **state)
{
    (void)state;
    ls_train *t;
    ls_train_saved *saved = (ls_train_saved *)1;
    ls_eval_result result;
    ls_checkpoint_info info;
    double loss;
    check_ok(ls_train_open(&t, NULL));
    assert_int_equal(ls_train_get_options(t)->steps, 1000);
    assert_int_equal(ls_train_get_options(t)->model.layers, 12);
    check_fails(ls_train_eval(t, NULL), LS_EINVAL, "loss must not be NULL");
    ls_train_free(&t);
    ls_train_options o = tiny(1);
    check_ok(ls_train_open(&t, &o));
    check_ok(ls_train_step(t, NULL));
    assert_int_equal(ls_train_steps_made(t), 1);
    ls_train_free(&t);
    check_fails(ls_train_open(NULL, NULL), LS_EINVAL, "out must not be NULL");
    check_fails(ls_train_step(NULL, NULL), LS_EINVAL, "train must not be NULL");
    check_fails(ls_train_eval(NULL, &loss), LS_EINVAL, "train must not be NULL");
    check_fails(ls_train_saved_open(&saved, NULL), LS_EINVAL, "run_dir must not be NULL");
    assert_null(saved);
    check_fails(ls_eval(NULL, &result), LS_EINVAL, "options must not be NULL");
    check_fails(ls_eval(&(ls_eval_options){ .model = "x" }, NULL), LS_EINVAL, "result must not be NULL");
    check_fails(ls_checkpoint_verify(NULL, &info), LS_EINVAL, "path must not be NULL");
    ls_train_free(NULL);
    ls_train_saved_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_the_same_with_any_number_of_threads_and_workers),
        cmocka_unit_test(the_loss_falls),
        cmocka_unit_test(slots_are_one_large_batch),
        cmocka_unit_test(the_mean_is_over_the_tokens_that_count),
        cmocka_unit_test(a_short_last_step_counts_its_own_tokens),
        cmocka_unit_test(a_steady_step_takes_nothing_from_the_heap),
        cmocka_unit_test(the_run_folder_tells_everything),
        cmocka_unit_test(the_record_has_the_cost_of_each_segment),
        cmocka_unit_test(a_nan_stops_the_run_and_harms_nothing),
        cmocka_unit_test(wrong_options_are_refused_before_anything_is_written),
        cmocka_unit_test(null_options_are_the_defaults),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
