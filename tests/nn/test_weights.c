/* Folders of models: written, read back, and every contradiction between weights and configuration is named. */
#include "check.h"
#include "lockstep/nn.h"
#include "folder.h"
#include "nn/safetensors.h"
#include <sys/stat.h>

static const ls_lm_options small = { .layers = 2, .width = 8, .heads = 2, .vocab_size = 11, .context = 5 };

static ls_model *open_model(uint64_t seed)
{
    ls_model *m;
    check_ok(ls_model_open(&m, &(ls_model_options){ .lm = small }));
    check_ok(ls_model_bind(m, NULL, NULL, false));
    check_ok(ls_model_init(m, seed));
    return m;
}

static void a_saved_model_is_read_back(void **state)
{
    (void)state;
    ls_model *a = open_model(1), *b = open_model(2);
    ls_model_options options, own = ls_model_get_options(a);
    check_ok(ls_model_save(a, "saved/deep"));
    check_ok(ls_model_load(b, "saved/deep"));
    assert_memory_equal(ls_model_values(a), ls_model_values(b), ls_model_elements(a) * sizeof(float));
    check_ok(ls_model_options_read("saved/deep", &options));
    assert_int_equal(options.kind, LS_MODEL_LM);
    assert_memory_equal(&options.lm, &own.lm, sizeof own.lm);
    ls_model_free(&a);
    ls_model_free(&b);
    check_fails(ls_model_options_read("nowhere", &options), LS_ENOENT, "nowhere/config.json");
}

/* The tensors of a model's file, to be changed and written again. */
enum { MAX = 64 };
typedef struct edit {
    ls__st_tensor tensors[MAX];
    size_t count;
    char names[MAX][80];
    size_t shapes[MAX][4];
} edit;

static void start_edit(edit *e, ls_model *m)
{
    const ls_place *p;
    e->count = ls_model_places(m, &p);
    for (size_t i = 0; i < e->count; i++) {
        snprintf(e->names[i], sizeof e->names[i], "%s", p[i].name);
        for (int d = 0; d < 4; d++) e->shapes[i][d] = (size_t)p[i].shape[d];
        e->tensors[i] = (ls__st_tensor){ .name = e->names[i],
                                         .type = LS__ST_F32,
                                         .rank = (size_t)p[i].dims,
                                         .shape = e->shapes[i],
                                         .data = ls_model_values(m) + p[i].offset };
    }
}

static ls_status load_edited(const edit *e, ls_model *into)
{
    mkdir("edited", 0777);
    check_ok(ls__st_write("edited/model.safetensors", e->tensors, e->count, NULL, 0));
    return ls_model_load(into, "edited");
}

static void names_may_have_a_prefix_and_masks_beside_them(void **state)
{
    (void)state;
    static edit e;
    static uint8_t mask[25];
    size_t square[] = { 1, 1, 5, 5 };
    ls_model *a = open_model(1), *b = open_model(2);
    start_edit(&e, a);
    for (size_t i = 0; i < e.count; i++) {
        const ls_place *p;
        ls_model_places(a, &p);
        snprintf(e.names[i], sizeof e.names[i], "transformer.%s", p[i].name);
    }
    e.tensors[e.count++] = (ls__st_tensor){
        .name = "transformer.h.1.attn.bias", .type = LS__ST_U8, .rank = 4, .shape = square, .data = mask
    };
    e.tensors[e.count++] =
        (ls__st_tensor){ .name = "transformer.h.0.attn.masked_bias", .type = LS__ST_U8, .data = mask };
    e.tensors[e.count] = e.tensors[0]; /* the tied projection, saved again */
    e.tensors[e.count++].name = "lm_head.weight";
    check_ok(load_edited(&e, b));
    assert_memory_equal(ls_model_values(a), ls_model_values(b), ls_model_elements(a) * sizeof(float));
    e.tensors[e.count - 1].data = ls_model_values(a) + 1;
    check_fails(load_edited(&e, b), LS_EUNSUPPORTED, "'lm_head.weight' is not equal to 'wte.weight'");
    ls_model_free(&a);
    ls_model_free(&b);
}

static void half_precision_weights_are_widened(void **state)
{
    (void)state;
    static edit e;
    static uint16_t halves[64];
    ls_model *m = open_model(1);
    const ls_place *p;
    size_t n = ls_model_places(m, &p);
    for (int i = 0; i < 64; i++) halves[i] = (uint16_t)(0x3f80 + i);
    for (int kind = 0; kind < 2; kind++) {
        start_edit(&e, m);
        e.tensors[n - 1].type = kind ? LS__ST_F16 : LS__ST_BF16;
        e.tensors[n - 1].data = halves;
        check_ok(load_edited(&e, m));
        float first = ls_model_values(m)[p[n - 1].offset], expected = kind ? 1.875f : 1.0f;
        assert_true(first == expected);
    }
    start_edit(&e, m);
    e.tensors[n - 1].type = LS__ST_I16;
    e.tensors[n - 1].data = halves;
    check_fails(load_edited(&e, m), LS_EUNSUPPORTED, "edited/model.safetensors: tensor 'ln_f.bias': I16 cannot be");
    ls_model_free(&m);
}

static void contradictions_are_named(void **state)
{
    (void)state;
    static edit e;
    ls_model *m = open_model(1);
    start_edit(&e, m);
    e.shapes[4][0] = 24, e.shapes[4][1] = 8;
    check_fails(load_edited(&e, m), LS_EFORMAT,
                "tensor 'h.0.attn.c_attn.weight' has shape [24,8], but the configuration expects [8,24]");
    start_edit(&e, m);
    e.tensors[5].rank = 2, e.shapes[5][0] = 1, e.shapes[5][1] = 24;
    check_fails(load_edited(&e, m), LS_EFORMAT, "has shape [1,24], but the configuration expects [24]");
    start_edit(&e, m);
    e.count--;
    check_fails(load_edited(&e, m), LS_EFORMAT, "tensor 'ln_f.bias' of shape [8] is missing");
    start_edit(&e, m);
    e.tensors[e.count] = e.tensors[2];
    e.tensors[e.count++].name = "h.7.ln_1.weight";
    check_fails(load_edited(&e, m), LS_EFORMAT, "tensor 'h.7.ln_1.weight' is not part of the model");
    start_edit(&e, m);
    e.tensors[e.count] = e.tensors[2];
    e.tensors[e.count++].name = "transformer.h.0.ln_1.weight";
    check_fails(load_edited(&e, m), LS_EFORMAT, "'h.0.ln_1.weight' occurs twice");
    check_fails(ls_model_load(m, "nowhere"), LS_ENOENT, "nowhere/model.safetensors");
    ls_model_free(&m);
}

static void a_save_that_fails_leaves_the_old_file(void **state)
{
    (void)state;
    ls_model *a = open_model(1), *b = open_model(2);
    check_ok(ls_model_save(a, "kept"));
    check_fails(ls_model_save(b, "kept/model.safetensors"), LS_EINVAL, "model.safetensors");
    check_ok(ls_model_load(b, "kept"));
    assert_memory_equal(ls_model_values(a), ls_model_values(b), ls_model_elements(a) * sizeof(float));
    ls_model_free(&a);
    ls_model_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_saved_model_is_read_back),
        cmocka_unit_test(names_may_have_a_prefix_and_masks_beside_them),
        cmocka_unit_test(half_precision_weights_are_widened),
        cmocka_unit_test(contradictions_are_named),
        cmocka_unit_test(a_save_that_fails_leaves_the_old_file),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
