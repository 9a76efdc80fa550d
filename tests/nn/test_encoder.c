/* BERT, RoBERTa and DistilBERT with both heads against transformers: logits, all gradients and the losses of 10 AdamW steps on sequences of
 * different lengths. The numbers are in golden/, made by make_golden_models.py. */
#include "golden.h"
#include "tensor/hooks.h"

enum { ALL = ROWS * LENGTH };

typedef struct fixture {
    golden g;
    bool mlm;
    int32_t tokens[STEPS][ALL], types[STEPS][ALL], lengths[STEPS][ROWS], targets[STEPS * ALL];
    float weights[STEPS * ALL];
} fixture;

static const char *const names[] = { "bert_mlm",        "bert_classes",   "roberta_mlm",
                                     "roberta_classes", "distilbert_mlm", "distilbert_classes" };
enum { N_NAMES = sizeof names / sizeof *names };

static void open_model(fixture *f, const char *name, int threads)
{
    *f = (fixture){ .g = { .name = name, .file = golden_file("", name) }, .mlm = strstr(name, "_mlm") != NULL };
    golden_model(&f->g, f->g.file, NULL, threads);
    golden_read(f->g.file, "tokens", f->tokens, sizeof f->tokens);
    golden_read(f->g.file, "types", f->types, sizeof f->types);
    golden_read(f->g.file, "lengths", f->lengths, sizeof f->lengths);
    golden_read(f->g.file, "targets", f->targets, sizeof f->targets);
    golden_read(f->g.file, "weights", f->weights, sizeof f->weights);
}

static ls_model_batch batch_of(const void *user, int step)
{
    const fixture *f = user;
    size_t targets = f->mlm ? ALL : ROWS;
    return (ls_model_batch){ .batch_size = ROWS,
                             .seq_len = LENGTH,
                             .tokens = f->tokens[step],
                             .types = ls_model_get_options(f->g.model).lm.types > 1 ? f->types[step] : NULL,
                             .lengths = f->lengths[step],
                             .targets = f->targets + (size_t)step * targets,
                             .weights = f->mlm ? f->weights + (size_t)step * targets : NULL };
}

static double first_pass(const fixture *f)
{
    ls_model_batch batch = batch_of(f, 0);
    return golden_pass(&f->g, &batch);
}

static ls_tensor *logits_of(const fixture *f)
{
    ls_model_batch batch = batch_of(f, 0);
    return golden_logits(f->g.model, f->g.tape, &batch);
}

static void logits_are_those_of_transformers(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f;
        open_model(&f, names[i], 1);
        const ls_tensor *logits = logits_of(&f);
        const ls__st_tensor *expected = golden_find(f.g.file, "logits", NULL);
        assert_int_equal(ls_tensor_count(logits) * 4, expected->bytes);
        for (size_t r = 0; r < ROWS; r++) { /* those of padding have no meaning */
            size_t row = (size_t)ls_tensor_count(logits) / ROWS;
            size_t count = f.mlm ? (size_t)f.lengths[0][r] * VOCAB : row;
            check_near(&f.g, "logits", logits->data + r * row, expected, r * row, count, 1e-5);
        }
        golden_free(&f.g);
    }
}

static void every_gradient_is_that_of_transformers(void **state)
{
    (void)state;
    /* The key's bias changes all scores of a query alike, so its gradient is 0 but for rounding. */
    static const char *const skipped[] = { "key.bias", "k_lin.bias", NULL };
    for (int i = 0; i < N_NAMES; i++) {
        fixture f;
        open_model(&f, names[i], 1);
        first_pass(&f);
        check_gradients(&f.g, skipped, 1e-4);
        golden_free(&f.g);
    }
}

static void ten_steps_have_the_losses_of_torch(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f;
        open_model(&f, names[i], 1);
        check_losses(&f.g, batch_of, &f, 1e-4);
        golden_free(&f.g);
    }
}

static void threads_and_recomputation_change_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        fixture f, g;
        open_model(&f, names[i], 1);
        open_model(&g, names[i], 3);
        ls_model_set_recompute(g.g.model, true);
        double a = first_pass(&f), b = first_pass(&g);
        assert_memory_equal(&a, &b, sizeof a);
        assert_memory_equal(ls_model_grads(f.g.model), ls_model_grads(g.g.model), ls_model_elements(f.g.model) * 4);
        golden_free(&f.g);
        golden_free(&g.g);
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
        double a = first_pass(&f), b = first_pass(&g);
        assert_memory_equal(&a, &b, sizeof a);
        golden_free(&f.g);
        golden_free(&g.g);
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
        int64_t n = f.mlm ? ALL : ROWS, V = f.mlm ? VOCAB : ls_model_get_options(f.g.model).lm.classes;
        float *logits = malloc((size_t)(n * V) * sizeof *logits);
        memcpy(logits, logits_of(&f)->data, (size_t)(n * V) * sizeof *logits);
        ls_param *params;
        int n_params = ls_model_params(f.g.model, &params);
        ls_model_batch batch = batch_of(&f, 0);
        batch.row_losses = losses;
        batch.predictions = best;
        check_ok(ls_tape_begin(f.g.tape, params, n_params, &(ls_pass){ .mode = LS_PASS_EVAL }));
        ls_model_loss(f.g.model, f.g.tape, &batch);
        check_ok(ls_tape_status(f.g.tape));
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
                fail_msg("%s: row %d has loss %g, expected %g", f.g.name, (int)r, (double)losses[r], counts ? loss : 0);
        }
        free(logits);
        golden_free(&f.g);
    }
}

static void an_encoder_generates_no_text(void **state)
{
    (void)state;
    fixture f;
    ls_generator *g;
    open_model(&f, names[0], 1);
    check_fails(ls_generator_open(&g, f.g.model, NULL), LS_EUNSUPPORTED, "is an encoder");
    golden_free(&f.g);
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
