/* ResNets: what torchvision computes from the same weights, their sizes and names, and their files. */
#include "tests/tensor/harness.h"
#include "tests/folder.h"
#include <math.h>
#include <sys/stat.h>
#include "lockstep/nn.h"
#include "nn/resnet.h"
#include "nn/golden_resnet.h"

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const ls_place *const *)a)->name, (*(const ls_place *const *)b)->name);
}

/* Parameters and buffers with dimensions, sorted by name; *n_params of them are parameters. */
static size_t sorted(const ls_model *m, const ls_place **out)
{
    const ls_place *places, *buffers;
    float *data;
    size_t n = ls_model_places(m, &places), b = ls_model_buffers(m, &buffers, &data), count = 0;
    for (size_t i = 0; i < n; i++) out[count++] = &places[i];
    for (size_t i = 0; i < b; i++)
        if (buffers[i].dims) out[count++] = &buffers[i];
    qsort(out, count, sizeof *out, by_name);
    return count;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

/* As scale() in make_golden_resnet.py. */
static void fill(const ls_place *p, float *to, uint32_t seed)
{
    float factor = 0.1f, shift = 0;
    if (p->dims == 4)
        factor = (float)sqrt(6.0 / (double)(p->shape[0] * p->shape[2] * p->shape[3]));
    else if (strncmp(p->name, "fc.", 3) && (ends_with(p->name, "weight") || ends_with(p->name, "running_var")))
        factor = 0.25f, shift = 1;
    for (size_t i = 0; i < p->count; i++) to[i] = test_value(seed, (uint32_t)i) * factor + shift;
}

/* Norms over the few pixels that the last layers have magnify what float32 rounds, most in resnet50; the file was computed in double. */
static const double LIMIT = 1e-4, GRADIENT_LIMIT = 1e-2;

static void close_to(const char *model, const char *what, double got, double expected, double largest, double limit)
{
    if (!(fabs(got - expected) <= limit * fmax(fabs(expected), largest)))
        fail_msg("%s: %s is %.7g, torchvision has %.7g", model, what, got, expected);
}

static void check_model(size_t which)
{
    static const ls_place *all[1000];
    static float images[ROWS * SIZE * SIZE * 3];
    const int32_t targets[ROWS] = { 1, 2, 3 };
    const char *name = golden[which].name;
    ls_model_options o;
    ls_model *m;
    ls_tape *t;
    ls_param *params;
    const ls_place *places;
    float *buffers;
    check_ok(ls_model_preset(name, &o));
    o.resnet.size = SIZE;
    o.resnet.classes = CLASSES;
    check_ok(ls_model_open(&m, &o));
    check_ok(ls_model_bind(m, NULL, NULL, true));
    size_t n_places = ls_model_places(m, &places), count = sorted(m, all), param = 0;
    const ls_place *first_buffer;
    ls_model_buffers(m, &first_buffer, &buffers);
    for (size_t i = 0; i < count; i++)
        fill(all[i], (all[i] >= places && all[i] < places + n_places ? ls_model_values(m) : buffers) + all[i]->offset,
             (uint32_t)i + 1);
    for (size_t i = 0; i < sizeof images / sizeof *images; i++) images[i] = test_value(999, (uint32_t)i) * 1.5f;
    ls_model_batch batch = { .batch_size = ROWS, .inputs = images, .targets = targets };
    check_ok(ls_tape_open(&t, &(ls_tape_options){ .threads = 2 }));
    int n = ls_model_params(m, &params);
    check_ok(ls_tape_begin(t, params, n, &(ls_pass){ .mode = LS_PASS_EVAL }));
    ls_tensor *logits = ls_model_logits(m, t, &batch);
    check_ok(ls_tape_status(t));
    double largest = 0;
    for (int i = 0; i < ROWS * CLASSES; i++) largest = fmax(largest, fabs(golden[which].logits[i]));
    for (int i = 0; i < ROWS * CLASSES; i++)
        close_to(name, "a logit", logits->data[i], golden[which].logits[i], largest, LIMIT);
    check_ok(ls_tape_begin(t, params, n, NULL));
    ls_tensor *loss = ls_model_loss(m, t, &batch);
    check_ok(ls_tape_backward(t, loss));
    close_to(name, "the loss", loss->data[0], golden[which].loss, 0, LIMIT);
    assert_int_equal(n_places, golden[which].params);
    for (size_t i = 0; i < count; i++) {
        if (all[i] < places || all[i] >= places + n_places) continue;
        double sum = 0;
        for (size_t k = 0; k < all[i]->count; k++) sum += pow(ls_model_grads(m)[all[i]->offset + k], 2);
        close_to(name, all[i]->name, sqrt(sum), golden[which].norms[param++], 0, GRADIENT_LIMIT);
    }
    ls_tape_free(&t);
    ls_model_free(&m);
}

static void resnets_are_torchvisions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) check_model(i);
}

static void resnets_have_their_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t count;
    } known[] = { { "resnet18", 11689512 },  { "resnet34", 21797672 },  { "resnet50", 25557032 },
                  { "resnet101", 44549160 }, { "resnet152", 60192808 }, { "resnet56", 855770 } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        ls_model_options o;
        ls_model *m;
        check_ok(ls_model_preset(known[i].name, &o));
        check_ok(ls_model_open(&m, &o));
        assert_int_equal(ls_model_param_count(m), known[i].count);
        ls_model_free(&m);
    }
    ls_model *m;
    check_fails(ls_model_open(&m, &(ls_model_options){ .kind = LS_MODEL_RESNET, .resnet = { .blocks = { 1, 0, 2 } } }),
                LS_EINVAL, "stage 3 has 2 blocks");
}

static void folders_there_and_back(void **state)
{
    (void)state;
    const ls_resnet_options own = {
        .blocks = { 1, 2 }, .width = 8, .size = 12, .classes = 3, .mean = { 0.5f, 0.25f, 0 }, .std = { 1, 2, 3 }
    };
    ls_model_options read;
    ls_model *m, *other;
    const ls_place *places;
    float *a, *b;
    check_ok(ls_model_open(&m, &(ls_model_options){ .kind = LS_MODEL_RESNET, .resnet = own }));
    check_ok(ls_model_bind(m, NULL, NULL, false));
    check_ok(ls_model_init(m, 7));
    size_t n = ls_model_buffers(m, &places, &a);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < places[i].count; k++) a[places[i].offset + k] = (float)(i + k + 1);
    check_ok(ls_model_save(m, "model"));
    check_fails(ls__lm_options_read("model", &(ls_lm_options){ 0 }), LS_EUNSUPPORTED,
                "model/config.json: is a model of images");
    check_ok(ls_model_options_read("model", &read));
    assert_int_equal(read.kind, LS_MODEL_RESNET);
    assert_memory_equal(read.resnet.blocks, own.blocks, sizeof own.blocks);
    assert_memory_equal(read.resnet.mean, own.mean, sizeof own.mean);
    assert_int_equal(read.resnet.width * 100 + read.resnet.size, 812);
    assert_int_equal(read.resnet.classes, 3);
    check_ok(ls_model_open(&other, &read));
    check_ok(ls_model_bind(other, NULL, NULL, false));
    check_ok(ls_model_load(other, "model"));
    ls_model_buffers(other, &places, &b);
    assert_memory_equal(a, b, ls__model_buffer_elements(m) * sizeof *a);
    assert_memory_equal(ls_model_values(m), ls_model_values(other), ls_model_elements(m) * sizeof *a);
    ls_model_free(&other);
    ls_model_free(&m);
}

static void parse(const char *text, ls_status expected, const char *message)
{
    ls_resnet_options o = { 0 };
    if (expected)
        check_fails(ls__resnet_config_parse("c.json", text, strlen(text), &o), expected, message);
    else
        check_ok(ls__resnet_config_parse("c.json", text, strlen(text), &o));
}

static void bad_configs_are_refused(void **state)
{
    (void)state;
    parse("{\"architecture\": \"resnet50\", \"num_classes\": 7, \"global_pool\": \"avg\"}", LS_OK, NULL);
    parse("{\"model_type\": \"gpt2\"}", LS_EUNSUPPORTED, "c.json: there is no 'architecture'");
    parse("{\"architecture\": \"vit_base\"}", LS_EUNSUPPORTED,
          "'architecture' is 'vit_base', which is not one of resnet18");
    parse("{\"architecture\": \"resnet18\", \"num_classes\": 0}", LS_EFORMAT, "'num_classes' must be an integer >= 1");
    parse("{\"architecture\": \"resnet18\", \"pretrained_cfg\": {\"input_size\": [3, 32, 64]}}", LS_EUNSUPPORTED,
          "32 x 64");
    parse("{\"architecture\": \"resnet18\", \"pretrained_cfg\": {\"std\": [1, \"x\", 2]}}", LS_EFORMAT,
          "'std' must be a list of numbers");
    parse("{\"architecture\": \"x\", \"resnet\": {\"blocks\": [1, 2, 3, 4, 5]}}", LS_EFORMAT,
          "'blocks' must be a list of 1 to 4");
    parse("[]", LS_EFORMAT, "must be a JSON object");
    parse("{", LS_EFORMAT, "c.json: line 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resnets_are_torchvisions),
        cmocka_unit_test(resnets_have_their_sizes),
        cmocka_unit_test(folders_there_and_back),
        cmocka_unit_test(bad_configs_are_refused),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
