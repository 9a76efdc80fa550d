/* BERT, RoBERTa and DistilBERT with both heads against transformers: logits, all gradients and the losses of 10 AdamW steps on sequences of
 * different lengths. The numbers are in golden/, made by make_golden_models.py. */
#include "check.h"
#include "nn/model.h"
#include "nn/safetensors.h"
#include "tensor/hooks.h"
#include <math.h>

enum { ROWS = 3, LENGTH = 11, STEPS = 10, VOCAB = 37, ALL = ROWS * LENGTH };

typedef struct fixture {
    const char *name;
    ls__st_reader *golden;
    ls_model *model;
    ls_tape *tape;
    bool mlm;
    int32_t tokens[STEPS][ALL], types[STEPS][ALL], lengths[STEPS][ROWS], targets[STEPS * ALL];
    float weights[STEPS * ALL];
} fixture;

static const char *const names[] = { "bert_mlm",        "bert_classes",   "roberta_mlm",
                                     "roberta_classes", "distilbert_mlm", "distilbert_classes" };
enum { N_NAMES = sizeof names / sizeof *names };

static const ls__st_tensor *golden(const fixture *f, const char *kind, const char *name)
{
    char full[200];
    snprintf(full, sizeof full, "%s%s%s", kind, name ? "." : "", name ? name : "");
    const ls__st_tensor *t = ls__st_find(f->golden, full);
    if (!t) fail_msg("%s: the golden file has no %s", f->name, full);
    return t;
}

static void read_all(const fixture *f, const char *kind, void *out, size_t bytes)
{
    const ls__st_tensor *t = golden(f, kind, NULL);
    assert_true(t->bytes <= bytes);
    check_ok(ls__st_read(t, 0, t->bytes, out));
}

static void open_model(fixture *f, const char *name, int threads)
{
    char path[4096], text[8192];
    ls_lm_options o;
    *f = (fixture){ .name = name, .mlm = strstr(name, "_mlm") != NULL };
    snprintf(path, sizeof path, "%s/tests/nn/golden/%s.safetensors", getenv("LOCKSTEP_SOURCE"), name);
    check_ok(ls__st_open(&f->golden, path));
    size_t bytes = golden(f, "config", NULL)->bytes;
    read_all(f, "config", text, sizeof text);
    check_ok(ls__hf_config_parse(name, text, bytes, &o));
    check_ok(ls_model_open(&f->model, &(ls_model_options){ .lm = o }));
    check_ok(ls_model_bind(f->model, NULL, NULL, true));
    check_ok(ls_tape_open(&f->tape, &(ls_tape_options){ .threads = threads }));
    const ls_place *places;
    size_t n = ls_model_places(f->model, &places);
    for (size_t i = 0; i < n; i++) {
        const ls__st_tensor *t = golden(f, "weight", places[i].name);
        assert_int_equal(t->bytes / 4, places[i].count);
        check_ok(ls__st_to_f32(t, 0, places[i].count, ls_model_values(f->model) + places[i].offset));
    }
    read_all(f, "tokens", f->tokens, sizeof f->tokens);
    read_all(f, "types", f->types, sizeof f->types);
    read_all(f, "lengths", f->lengths, sizeof f->lengths);
    read_all(f, "targets", f->targets, sizeof f->targets);
    read_all(f, "weights", f->weights, sizeof f->weights);
}

static void close_model(fixture *f)
{
    ls_tape_free(&f->tape);
    ls_model_free(&f->model);
    ls__st_free(&f->golden);
}

/* The largest difference of `count` values from element `first` on, relative to the largest value. */
static void check_close(const fixture *f, const char *what, const float *got, const ls__st_tensor *expected,
                        size_t first, size_t count, double limit)
{
    double worst = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        float e;
        check_ok(ls__st_to_f32(expected, first + i, 1, &e));
        worst = fmax(worst, fabs((double)got[i] - (double)e));
        largest = fmax(largest, fabs((double)e));
    }
    if (!(worst <= limit * largest))
        fail_msg("%s: %s: off by %g of %g (limit %g)", f->name, what, worst, largest, limit);
}

static ls_model_batch batch_of(const fixture *f, int step)
{
    size_t targets = f->mlm ? ALL : ROWS;
    return (ls_model_batch){ .batch_size = ROWS,
                             .seq_len = LENGTH,
                             .tokens = f->tokens[step],
                             .types = ls_model_get_options(f->model).lm.types > 1 ? f->types[step] : NULL,
                             .lengths = f->lengths[step],
                             .targets = f->targets + (size_t)step * targets,
                             .weights = f->mlm ? f->weights + (size_t)step * targets : NULL };
}

static double run_step(fixture *f, int step)
{
    ls_param *params;
    int n = ls_model_params(f->model, &params);
    ls_model_batch batch = batch_of(f, step);
    check_ok(ls_tape_begin(f->tape, params, n, NULL));
    ls_tensor *loss = ls_model_loss(f->model, f->tape, &batch);
    check_ok(ls_tape_backward(f->tape, loss));
    return (double)loss->data[0];
}

static ls_tensor *logits_of(fixture *f)
{
    ls_param *params;
    int n = ls_model_params(f->model, &params);
    ls_model_batch batch = batch_of(f, 0);
    check_ok(ls_tape_begin(f->tape, params, n, &(ls_pass){ .mode = LS_PASS_EVAL }));
    ls_tensor *logits = ls_model_logits(f->model, f->tape, &batch);
    check_ok(ls_tape_status(f->tape));
    return logits;
}

static void logits_are_those_of_transformers(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f;
        open_model(&f, names[i], 1);
        const ls_tensor *logits = logits_of(&f);
        const ls__st_tensor *expected = golden(&f, "logits", NULL);
        assert_int_equal(ls_tensor_count(logits) * 4, expected->bytes);
        for (size_t r = 0; r < ROWS; r++) { /* those of padding have no meaning */
            size_t row = (size_t)ls_tensor_count(logits) / ROWS;
            size_t count = f.mlm ? (size_t)f.lengths[0][r] * VOCAB : row;
            check_close(&f, "logits", logits->data + r * row, expected, r * row, count, 1e-5);
        }
        close_model(&f);
    }
}

static void every_gradient_is_that_of_transformers(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f;
        const ls_place *places;
        open_model(&f, names[i], 1);
        size_t n = ls_model_places(f.model, &places);
        run_step(&f, 0);
        for (size_t k = 0; k < n; k++) {
            /* The key's bias changes all scores of a query alike, so its gradient is 0 but for rounding. */
            if (strstr(places[k].name, "key.bias") || strstr(places[k].name, "k_lin.bias")) continue;
            check_close(&f, places[k].name, ls_model_grads(f.model) + places[k].offset,
                        golden(&f, "grad", places[k].name), 0, places[k].count, 1e-4);
        }
        close_model(&f);
    }
}

static void ten_steps_have_the_losses_of_torch(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f;
        const ls_place *places;
        ls_optimizer *optimizer;
        open_model(&f, names[i], 1);
        size_t n = ls_model_places(f.model, &places), elements = ls_model_elements(f.model);
        check_ok(ls_optimizer_open(&optimizer, places, n, 0, elements, &(ls_optimizer_options){ .threads = 1 }));
        for (int step = 0; step < STEPS; step++) {
            float expected;
            double loss = run_step(&f, step);
            check_ok(ls__st_to_f32(golden(&f, "losses", NULL), (size_t)step, 1, &expected));
            if (!(fabs(loss - (double)expected) <= 1e-4 * (double)expected))
                fail_msg("%s: step %d: loss %.7g, torch has %.7g", f.name, step, loss, (double)expected);
            ls_clip_grad_norm(ls_model_grads(f.model), elements, 1, 1);
            ls_optimizer_update(optimizer, ls_model_values(f.model), ls_model_grads(f.model), step, 3e-3f);
        }
        ls_optimizer_free(&optimizer);
        close_model(&f);
    }
}

static void threads_and_recomputation_change_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f, g;
        open_model(&f, names[i], 1);
        open_model(&g, names[i], 3);
        ls_model_set_recompute(g.model, true);
        double a = run_step(&f, 0), b = run_step(&g, 0);
        assert_memory_equal(&a, &b, sizeof a);
        assert_memory_equal(ls_model_grads(f.model), ls_model_grads(g.model), ls_model_elements(f.model) * 4);
        close_model(&f);
        close_model(&g);
    }
}

/* What is in the padding, and how much of it there is, does not matter. */
static void padding_changes_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f, g;
        open_model(&f, names[i], 1);
        open_model(&g, names[i], 1);
        for (int r = 0; r < ROWS; r++)
            for (int k = f.lengths[0][r]; k < LENGTH; k++) g.tokens[0][r * LENGTH + k] = 5 + k;
        double a = run_step(&f, 0), b = run_step(&g, 0);
        assert_memory_equal(&a, &b, sizeof a);
        close_model(&f);
        close_model(&g);
    }
}

/* The head computes only rows with a weight; their losses and predictions must be where their tokens are. */
static void rows_have_their_losses_and_predictions(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f;
        float losses[ALL];
        int32_t best[ALL];
        open_model(&f, names[i], 1);
        int64_t n = f.mlm ? ALL : ROWS, V = f.mlm ? VOCAB : ls_model_get_options(f.model).lm.classes;
        float *logits = malloc((size_t)(n * V) * sizeof *logits);
        memcpy(logits, logits_of(&f)->data, (size_t)(n * V) * sizeof *logits);
        ls_param *params;
        int n_params = ls_model_params(f.model, &params);
        ls_model_batch batch = batch_of(&f, 0);
        batch.row_losses = losses;
        batch.predictions = best;
        check_ok(ls_tape_begin(f.tape, params, n_params, &(ls_pass){ .mode = LS_PASS_EVAL }));
        ls_model_loss(f.model, f.tape, &batch);
        check_ok(ls_tape_status(f.tape));
        for (int64_t r = 0; r < n; r++) {
            int largest = 0;
            double sum = 0;
            for (int k = 1; k < V; k++)
                if (logits[r * V + k] > logits[r * V + largest]) largest = k;
            for (int k = 0; k < V; k++) sum += exp((double)logits[r * V + k] - (double)logits[r * V + largest]);
            double loss = log(sum) + (double)logits[r * V + largest] - (double)logits[r * V + batch.targets[r]];
            bool counts = !batch.weights || batch.weights[r] != 0;
            assert_int_equal(best[r], counts ? largest : -1);
            if (!(fabs((double)losses[r] - (counts ? loss : 0)) <= 1e-4))
                fail_msg("%s: row %d has loss %g, expected %g", f.name, (int)r, (double)losses[r], counts ? loss : 0);
        }
        free(logits);
        close_model(&f);
    }
}

static void an_encoder_generates_no_text(void **state)
{
    (void)state;
    fixture f;
    ls_generator *g;
    open_model(&f, names[0], 1);
    check_fails(ls_generator_open(&g, f.model, NULL), LS_EUNSUPPORTED, "is an encoder");
    close_model(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_transformers),
        cmocka_unit_test(every_gradient_is_that_of_transformers),
        cmocka_unit_test(ten_steps_have_the_losses_of_torch),
        cmocka_unit_test(threads_and_recomputation_change_no_bit),
        cmocka_unit_test(padding_changes_no_bit),
        cmocka_unit_test(rows_have_their_losses_and_predictions),
        cmocka_unit_test(an_encoder_generates_no_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
