/* A handle that is NULL, for example because it was freed, is an error that names function and argument. Layer by layer. */
#include "check.h"
#include <string.h>
#include "lockstep/lockstep.h"

/* What one call returned, and the text that its message must contain. */
typedef struct refusal {
    const char *call;
    ls_status status;
    char message[200];
} refusal;

static refusal seen(const char *call, ls_status status)
{
    refusal r = { .call = call, .status = status };
    snprintf(r.message, sizeof r.message, "%s", ls_error());
    return r;
}
#define CALL(function, ...) seen(#function, function(__VA_ARGS__))

/* "ls_ddp_begin: ddp must not be NULL" */
static void check_all(const char *argument, const refusal *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char expected[200];
        snprintf(expected, sizeof expected, "%s: %s must not be NULL", list[i].call, argument);
        if (list[i].status != LS_EINVAL || strcmp(list[i].message, expected))
            fail_msg("%s: '%s', expected LS_EINVAL: '%s'", ls_status_name(list[i].status), list[i].message, expected);
    }
}
#define CHECK_ALL(argument, ...)                               \
    do {                                                       \
        const refusal list[] = { __VA_ARGS__ };                \
        check_all(argument, list, sizeof list / sizeof *list); \
    } while (0)

static int32_t token;
static size_t count;
static float number;

static void ddp(void **state)
{
    (void)state;
    ls_work *work = NULL;
    ls_named named = { "a", &number, 1 };
    CHECK_ALL("ddp", CALL(ls_ddp_begin, NULL, LS_DDP_SYNC, 1), CALL(ls_ddp_ready, NULL, 0), CALL(ls_ddp_poll, NULL),
              CALL(ls_ddp_finish, NULL, NULL), CALL(ls_ddp_join, NULL, NULL, NULL));
    CHECK_ALL("bucket", CALL(ls_bucket_reduce, NULL, &number, 1, LS_F32, &work));
    CHECK_ALL("world", CALL(ls_params_broadcast, NULL, &named, 1, 0), CALL(ls_params_verify, NULL, &named, 1));
    CHECK_ALL("elastic", CALL(ls_elastic_commit, NULL, 1));
}

static void data(void **state)
{
    (void)state;
    ls_tokenizer *t;
    ls_encoder *e;
    ls_batch *batch;
    ls_dataset *d = (ls_dataset *)1;
    ls_stage *stage = (ls_stage *)1;
    const int32_t *tokens;
    const char *none[] = { NULL };
    uint64_t sample;
    uint32_t vocab_size;
    char *text;
    CHECK_ALL("tokenizer", CALL(ls_tokenizer_save, NULL, "x"),
              CALL(ls_tokenizer_decode, NULL, &token, 1, &text, &count));
    CHECK_ALL("encoder", CALL(ls_encode, NULL, "x", 1, &tokens, &count));
    CHECK_ALL("loader", CALL(ls_loader_next, NULL, &batch), CALL(ls_loader_seek, NULL, NULL));
    CHECK_ALL("sampler", CALL(ls_sampler_get_samples, NULL, 0, 0, 0, &sample, &count));
    check_ok(ls_tokenizer_open(&t, "bytes", NULL));
    check_ok(ls_encoder_open(&e, t));
    CHECK_ALL("folder", CALL(ls_tokenizer_save, t, NULL));
    CHECK_ALL("text", CALL(ls_encode, e, NULL, 3, &tokens, &count));
    CHECK_ALL("tokens", CALL(ls_tokenizer_decode, t, NULL, 1, &text, &count), CALL(ls_encode, e, "x", 1, NULL, &count));
    CHECK_ALL("out", CALL(ls_tokenizer_decode, t, &token, 1, NULL, &count));
    CHECK_ALL("bytes", CALL(ls_tokenizer_decode, t, &token, 1, &text, NULL));
    CHECK_ALL("count", CALL(ls_encode, e, "x", 1, &tokens, NULL));
    check_ok(ls_encode(e, NULL, 0, &tokens, &count)); /* no text is fine */
    check_fails(ls_tokens_open(&d, &(ls_tokens_options){ .paths = none, .n_paths = 1, .seq_len = 4 }), LS_EINVAL,
                "path 0 of 1 is NULL");
    check_fails(ls_text_open(&d, &(ls_text_options){ .n_paths = 1, .seq_len = 4, .tokenizer = t }), LS_EINVAL,
                "path 0 of 1 is NULL");
    assert_null(d);
    d = (ls_dataset *)1;
    check_fails(ls_images_open(&d, &(ls_images_options){ .paths = none, .n_paths = 1 }), LS_EINVAL,
                "path 0 of 1 is NULL");
    assert_null(d);
    check_fails(ls_images_open(&d, &(ls_images_options){ .n_paths = 1, .format = LS_IMAGES_BUILT_IN }), LS_EINVAL,
                "path 0 of 1 is NULL");
    CHECK_ALL("options.output",
              CALL(ls_bpe_train, &(ls_bpe_options){ .paths = none, .n_paths = 1, .vocab_size = 300 }, &vocab_size));
    check_fails(ls_stage_open(&stage, NULL, 1, &(ls_stage_options){ .folder = "/tmp" }), LS_EINVAL,
                "path 0 of 1 is NULL");
    assert_null(stage);
    ls_encoder_free(&e);
    ls_tokenizer_free(&t);
}

static void tensor(void **state)
{
    (void)state;
    ls_param p = { .name = "w", .value = &number, .dims = 1, .shape = { 1 } };
    CHECK_ALL("tape", CALL(ls_tape_begin, NULL, &p, 1, NULL), CALL(ls_tape_status, NULL),
              CALL(ls_tape_backward, NULL, NULL));
    /* Operations return no status. */
    assert_null(ls_tape_input(NULL, &number, 1, (int64_t[]){ 1 }));
    assert_non_null(strstr(ls_error(), "tape is NULL"));
    assert_null(ls_tape_param(NULL, &p));
    assert_null(ls_linear(NULL, NULL, &p, NULL, NULL));
    assert_null(ls_add(NULL, NULL, NULL));
    assert_null(ls_sum(NULL, NULL));
    assert_null(ls_embedding(NULL, &token, 1, 1, &p, NULL, NULL));
    assert_null(ls_attention(NULL, NULL, NULL));
    assert_null(ls_cross_entropy(NULL, NULL, NULL));
    assert_null(ls_layer_norm(NULL, NULL, &p, NULL, 0));
    assert_null(ls_max_pool2d(NULL, NULL, NULL));
    assert_null(ls_conv2d(NULL, NULL, &p, NULL, NULL));
    assert_null(ls_batch_norm(NULL, NULL, &p, &p, NULL, NULL));
}

static void train(void **state)
{
    (void)state;
    ls_eval_result result;
    double loss;
    CHECK_ALL("train", CALL(ls_train_step, NULL, NULL), CALL(ls_train_eval, NULL, &loss), CALL(ls_train_save, NULL),
              CALL(ls_train_checkpoint, NULL), CALL(ls_train_save_profile, NULL));
    CHECK_ALL("options.model", CALL(ls_eval, &(ls_eval_options){ 0 }, &result));
}

static void models(void **state)
{
    (void)state;
    ls_model_options options;
    CHECK_ALL("model", CALL(ls_model_bind, NULL, NULL, NULL, true), CALL(ls_model_init, NULL, 1),
              CALL(ls_model_save, NULL, "x"), CALL(ls_model_load, NULL, "x"));
    CHECK_ALL("folder", CALL(ls_model_options_read, NULL, &options));
    CHECK_ALL("name", CALL(ls_model_preset, NULL, &options));
    CHECK_ALL("out", CALL(ls_model_open, NULL, NULL), CALL(ls_model_preset, "gpt2", NULL),
              CALL(ls_model_options_read, "x", NULL));
    CHECK_ALL("generator", CALL(ls_generator_feed, NULL, 0, &token, 1), CALL(ls_generator_next, NULL, &token, NULL));
}

static void analysis(void **state)
{
    (void)state;
    ls_predictor *predictor;
    ls_prediction prediction;
    ls_import_result imported;
    CHECK_ALL("run", CALL(ls_predictor_open, &predictor, NULL));
    CHECK_ALL("predictor", CALL(ls_predict, NULL, NULL, &prediction));
    CHECK_ALL("options", CALL(ls_import, NULL, &imported));
    const char *none[] = { NULL };
    const ls_import_kind kinds[] = { LS_IMPORT_TRACES, LS_IMPORT_FLIGHT_RECORDER };
    for (size_t i = 0; i < 2; i++) {
        ls_import_options o = { .kind = kinds[i], .count = 1, .out = "imported" };
        check_fails(ls_import(&o, &imported), LS_EINVAL, "file 0 of 1 is NULL");
        o.files = none;
        check_fails(ls_import(&o, &imported), LS_EINVAL, "file 0 of 1 is NULL");
        ls_import_result_free(&imported);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ddp),   cmocka_unit_test(data),   cmocka_unit_test(tensor),
        cmocka_unit_test(train), cmocka_unit_test(models), cmocka_unit_test(analysis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
